-- Permits: so many slots, each with a lease, so that a dead holder frees its own.
--
-- The state is a sorted set: each permit by the instant, in whole microseconds, at which its lease ends. Microseconds
-- since the epoch are below 2^53, so that a score is exact. KEYS: the set. ARGV: the op, the permit, the length of the
-- lease in microseconds, and the limit.
-- Replies: whether it was done, the permits in use after it, and the microseconds until the next lease ends.
local op, permit, lease, limit = ARGV[1], ARGV[2], ARGV[3] + 0, ARGV[4] + 0
local now = now_s * 1000000 + now_n / 1000
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ('%d'):format(now))
if op == 'acquire' then
  -- No lease of this length ends later than this, unless the clock was set back since: a dead holder must not keep its slot
  -- until the clock has caught up.
  local latest = now + lease
  local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')
  while last[2] and last[2] + 0 > latest do
    redis.call('ZADD', KEYS[1], ('%d'):format(latest), last[1])
    last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')
  end
end
local held = redis.call('ZSCORE', KEYS[1], permit)
local done = 0
if op == 'acquire' and (held or redis.call('ZCARD', KEYS[1]) < limit) or op == 'renew' and held then
  -- Who asks again, because the answer was lost, holds one permit and not two. A lease is never cut short.
  local until_then = math.max(held and held + 0 or 0, now + lease)
  redis.call('ZADD', KEYS[1], ('%d'):format(until_then), permit)
  done = 1
elseif op == 'release' and held then
  redis.call('ZREM', KEYS[1], permit)
  done = 1
end
local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
if first[2] then
  local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')
  redis.call('EXPIRE', KEYS[1], math.floor((last[2] - now) / 1000000) + spare)
end
return {done, redis.call('ZCARD', KEYS[1]), first[2] and first[2] - now or 0}
