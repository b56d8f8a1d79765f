-- One charge to a state of a few words. ARGV: what the algorithm takes after the state.
-- Replies: whether it passes, now, and the state before; the numbers of the answer follow from these.
local key, call = KEYS[1], redis.call
local value = call('GET', key)
local allowed, changed, millis = decide(value, unpack(ARGV))
if allowed == nil then return redis.error_reply(OTHER_LAYOUT) end
if changed == '' then
  call('DEL', key)
elseif changed then
  call('SET', key, changed, 'PX', millis)
end
return {allowed and 1 or 0, now_s, now_n, value}
