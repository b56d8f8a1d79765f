-- What is known of a log: its answer to a look, and its entries that count, oldest first.
-- KEYS: the log. ARGV: the numbers of the log.
local log = log_open(KEYS[1], unpack(ARGV, 1, 7))
if not log then return redis.error_reply(OTHER_LAYOUT) end
local entries = {}
log_visit(log, function(_, s, n, units)
  if units > 0 and less(now_s, now_n, s, n) then
    entries[#entries + 1] = s
    entries[#entries + 1] = n
    entries[#entries + 1] = units
  end
end)
return {1, now_s, now_n, log_foresee(log, 'p', 0, 0), entries}
