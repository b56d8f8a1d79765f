-- Equal charges to a state of a few words, one after the other. ARGV: how many, and what the algorithm takes after the
-- state.
-- Replies: how many pass, or -1 if the windows that came with them do not fit now, now, and the state before; the numbers
-- of the answers follow from these. After one that does not pass, no other does.
local key, call = KEYS[1], redis.call
local before = call('GET', key)
local state, changed, lives, passed = before, false, false, 0
for number = 1, ARGV[1] + 0 do
  local allowed, after, millis = decide(state, unpack(ARGV, 2))
  if allowed == nil then return redis.error_reply(OTHER_LAYOUT) end
  if allowed == 'time' then return {-1, now_s, now_n} end
  if after then state, changed, lives = after ~= '' and after, true, millis or lives end
  if not allowed then break end
  passed = number
end
if changed then
  if not state then
    call('DEL', key)
  elseif lives then
    call('SET', key, state, 'PX', lives)
  else
    call('SET', key, state, 'KEEPTTL')
  end
end
return {passed, now_s, now_n, before}
