-- Now, by the store's own clock. An instant is a pair of whole seconds and nanoseconds: together they exceed 2^53, up to
-- which a number of Lua is exact. States live `spare` milliseconds longer than they count: one for rounding down here,
-- one for Redis, which forgets by whole milliseconds.
local time = redis.call('TIME')
local now_s, now_n, spare = time[1] + 0, time[2] * 1000, 2

-- What is said of a key that holds something else: it is left alone.
local OTHER_LAYOUT = 'TIDEGATE a key holds what this version cannot read: the state of another version, or of another program'
