-- Notices of nodes under one topic, each until its time is over. No limit depends on them.
--
-- KEYS: a sorted set with the microsecond at which the notice of each node is over, and a hash with the notices, before
-- each of which stands, in 16 digits, the microsecond at which it was published. ARGV: the op, then
--   publish, the node, how long the notice stands in microseconds, the notice, and how many there may be: replies 1;
--   posted: replies each node and when its notice is over, one after the other;
--   read, the node: replies when its notice is over, how many microseconds ago it was published, and the notice; or nil.
local op, node = ARGV[1], ARGV[2]
local ends, notices = KEYS[1], KEYS[2]
local now = now_s * 1000000 + now_n / 1000

local function remove(name)
  redis.call('ZREM', ends, name)
  redis.call('HDEL', notices, name)
end

local first = redis.call('ZRANGE', ends, 0, 0, 'WITHSCORES')
while first[2] and first[2] + 0 <= now do
  remove(first[1])
  first = redis.call('ZRANGE', ends, 0, 0, 'WITHSCORES')
end

if op == 'publish' then
  local ttl = ARGV[3] + 0
  if ttl == 0 then
    remove(node)
    return 1
  end
  if first[1] and not redis.call('ZSCORE', ends, node) and redis.call('ZCARD', ends) >= ARGV[5] + 0 then
    remove(first[1])
  end
  redis.call('HSET', notices, node, ('%016d'):format(now) .. ARGV[4])
  redis.call('ZADD', ends, ('%d'):format(now + ttl), node)
  local last = redis.call('ZRANGE', ends, -1, -1, 'WITHSCORES')
  local left = ('%d'):format(math.ceil((last[2] - now) / 1000) + spare)
  redis.call('PEXPIRE', ends, left)
  redis.call('PEXPIRE', notices, left)
  return 1
end

if op == 'posted' then
  local all = redis.call('ZRANGE', ends, 0, -1, 'WITHSCORES')
  for place = 2, #all, 2 do
    all[place] = all[place] + 0
  end
  return all
end

local over, notice = redis.call('ZSCORE', ends, node), redis.call('HGET', notices, node)
if not over or not notice then return false end
return {over + 0, math.max(0, now - notice:sub(1, 16)), notice:sub(17)}
