-- Permits: so many slots, each with a lease, so that a dead holder frees its own.
--
-- The state is a sorted set: each permit by the instant, in whole microseconds, at which its lease ends. Microseconds
-- since the epoch are below 2^53, so that a score is exact. Before them stands the longest lease that any of them was
-- given, under the empty name that no permit has, and with its sign turned. KEYS: the set. ARGV: the op, the permit,
-- the length of the lease in microseconds, and the limit.
-- Replies: whether it was done, the permits in use after it, and the microseconds until the next lease ends.
local op, permit, lease, limit = ARGV[1], ARGV[2], ARGV[3] + 0, ARGV[4] + 0
local now = now_s * 1000000 + now_n / 1000
redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, ('%d'):format(now))
local mark = redis.call('ZSCORE', KEYS[1], '')
local marks = mark and 1 or 0
local in_use = redis.call('ZCARD', KEYS[1]) - marks
local longest = mark and in_use > 0 and -mark or 0
if op == 'acquire' then
  -- No lease of this key ends later than this, unless the clock was set back since: a dead holder must not keep its slot
  -- until the clock has caught up.
  local latest = now + math.max(longest, lease)
  local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')
  while last[2] and last[2] + 0 > latest do
    redis.call('ZADD', KEYS[1], ('%d'):format(latest), last[1])
    last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')
  end
end
local held = redis.call('ZSCORE', KEYS[1], permit)
local done = 0
if op == 'acquire' and (held or in_use < limit) or op == 'renew' and held then
  -- Who asks again, because the answer was lost, holds one permit and not two. A lease is never cut short.
  local until_then = math.max(held and held + 0 or 0, now + lease)
  redis.call('ZADD', KEYS[1], ('%d'):format(until_then), permit)
  if not mark or -mark ~= math.max(longest, lease) then
    redis.call('ZADD', KEYS[1], ('-%d'):format(math.max(longest, lease)), '')
    marks = 1
  end
  in_use = in_use + (held and 0 or 1)
  done = 1
elseif op == 'release' and held then
  redis.call('ZREM', KEYS[1], permit)
  in_use = in_use - 1
  done = 1
end
if in_use == 0 then
  redis.call('DEL', KEYS[1])
  return {done, 0, 0}
end
local first = redis.call('ZRANGE', KEYS[1], marks, marks, 'WITHSCORES')
local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')
redis.call('PEXPIRE', KEYS[1], ('%d'):format((last[2] - now) / 1000 + spare))
return {done, in_use, first[2] - now}
