-- One charge to a log. ARGV: the op, its units, nothing, the numbers of the log, the receipt.
-- Replies: whether it passes, now, and the log's own answer.
local log = log_open(KEYS[1], unpack(ARGV, 4, 10))
if not log then return redis.error_reply(OTHER_LAYOUT) end
local answer = log_decide(log, ARGV[1], ARGV[2] + 0, ARGV[11], ARGV[12])
log_close(log)
return {answer[1] == 1 and 1 or 0, now_s, now_n, answer}
