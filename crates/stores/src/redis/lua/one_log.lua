-- Equal charges to a log, one after the other. ARGV: how many, the op, its units, nothing, the numbers of the log, the
-- receipt.
-- Replies: how many pass, now, and for each of them the log's own answer; after one that does not pass, the others have
-- its answer.
local log = log_open(KEYS[1], unpack(ARGV, 5, 11))
if not log then return redis.error_reply(OTHER_LAYOUT) end
local passed, answers = 0, {}
for number = 1, ARGV[1] + 0 do
  local answer = log_decide(log, ARGV[2], ARGV[3] + 0, ARGV[12], ARGV[13])
  log_close(log)
  answers[number] = answer
  if answer[1] ~= 1 then break end
  passed = number
end
return {passed, now_s, now_n, unpack(answers)}
