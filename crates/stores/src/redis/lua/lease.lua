-- A lease: units taken in advance, to be spent by the caller until the lease ends. The first size that fits is taken.
-- ARGV: the length of the lease, how many arguments a size has, and for each size what the algorithm takes after the
-- state.
-- Replies: the number of the size that was taken, or 0, now, and the state before.
--
-- Units of a bucket are accounted as spent when the lease ends: the debt is at least the lease's length before they are
-- added. So whenever they are spent, no more passes than if each had been asked for then. A window needs no such care,
-- because the caller ends the lease with the window.
local value = redis.call('GET', KEYS[1])
local before, width, taken, raised, repaired, lives = value, ARGV[3] + 0, 0, false
if is_bucket then
  local s, n = now_s + ARGV[1], now_n + ARGV[2]
  if n >= 1000000000 then s, n = s + 1, n - 1000000000 end
  local end_of_lease = ('%d%09d'):format(s, n)
  if value and decide(value, 'p', 0, 0, 0, 0) == nil then return redis.error_reply(OTHER_LAYOUT) end
  -- Of two instants of as many digits, the later one is the greater text.
  if not value or #value < #end_of_lease or #value == #end_of_lease and value < end_of_lease then
    value, raised = end_of_lease, true
  end
end
for at = 4, #ARGV - width + 1, width do
  local allowed, changed, millis = decide(value, unpack(ARGV, at, at + width - 1))
  if allowed == nil then return redis.error_reply(OTHER_LAYOUT) end
  if allowed then
    taken = (at - 4) / width + 1
    if millis then redis.call('SET', KEYS[1], changed, 'PX', millis) else redis.call('SET', KEYS[1], changed, 'KEEPTTL') end
    break
  end
  repaired, lives = changed, millis
end
-- Nothing was taken, but a state that is ahead because the clock was set back is put right, or it would lock the key out
-- until the clock catches up. A bucket whose debt was raised here was not ahead: it is left as it was.
if taken == 0 and repaired and not raised then redis.call('SET', KEYS[1], repaired, 'PX', lives) end
return {taken, now_s, now_n, before}
