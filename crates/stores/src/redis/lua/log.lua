-- Sliding log and sliced window: a log of charges, each with the instant at which it is out. See spec/sliding_log.md and
-- spec/sliced_window.md.
--
-- The state is a hash. Field `h` is the head: `l`, the numbers of the oldest and newest entry, the units of all entries,
-- when the newest is out in nanoseconds, and its units. A field for each number has an entry: when it is out, and its
-- units. Numbers in between may be missing: their units were given back. They are never more than the entries, but for a
-- few, so that a walk over the numbers is not much longer than the log.

-- Whether so many numbers are more than a log has that is kept in order.
local function log_is_sparse(key, first, last)
  local numbers = last - first + 1
  return numbers > 16 and numbers > 2 * redis.call('HLEN', key)
end

local ENTRY = '^(%d+)(%d%d%d%d%d%d%d%d%d) (%d+)$'

-- Reads the head of a log, with its numbers; nothing if the key holds something else.
local function log_open(key, limit, window_s, window_n, slice_s, slice_n, lifetime_s, lifetime_n)
  local log = {
    key = key, limit = limit + 0, window_s = window_s + 0, window_n = window_n + 0,
    slice_s = slice_s + 0, slice_n = slice_n + 0, lifetime_s = lifetime_s + 0, lifetime_n = lifetime_n + 0,
    first = 1, last = 0, units = 0, newest_s = 0, newest_n = 0, newest_units = 0,
  }
  local head = redis.call('HGET', key, 'h')
  if not head then
    if redis.call('EXISTS', key) == 1 then return end
    return log
  end
  local first, last, units, s, n, newest = head:match('^l(%d+) (%d+) (%d+) (%d+)(%d%d%d%d%d%d%d%d%d) (%d+)$')
  if not first then return end
  log.first, log.last, log.units = first + 0, last + 0, units + 0
  log.newest_s, log.newest_n, log.newest_units = s + 0, n + 0, newest + 0
  -- A head that no log has would have a call walk for seconds, or be written back as what nobody can read: whole numbers
  -- are exact below 2^53, and an instant in nanoseconds has 64 bits.
  if log.first > log.last or log.newest_units > log.units then return end
  if log.last >= 2 ^ 53 or log.units >= 2 ^ 53 or log.newest_s > 18446744072 then return end
  if log_is_sparse(key, log.first, log.last) then return end
  return log
end

-- Visits the entries from the oldest on, or from the newest back, until the visitor answers true. An entry that cannot be
-- read ends the script: visitors change nothing. (What other keys of a batch, closing gaps or lowering the newest changed
-- before it was met stays.)
local function log_visit(log, visit, from_newest)
  local first, last, done, count = log.first, log.last, 0, 8
  local all = last - first + 1
  while done < all do
    local numbers = {}
    for place = done, math.min(done + count, all) - 1 do
      numbers[#numbers + 1] = ('%d'):format(from_newest and last - place or first + place)
    end
    local found = redis.call('HMGET', log.key, unpack(numbers))
    for place = 1, #numbers do
      if found[place] then
        local s, n, units = found[place]:match(ENTRY)
        if not s then error(OTHER_LAYOUT, 0) end
        if visit(numbers[place] + 0, s + 0, n + 0, units + 0) then return end
      end
    end
    done, count = done + count, math.min(count * 4, 512)
  end
end

-- Gives the entries numbers without gaps.
local function log_close_gaps(log)
  local words, count = {}, 0
  log_visit(log, function(_, s, n, units)
    words[2 * count + 1], words[2 * count + 2] = ('%d'):format(log.first + count), ('%d%09d %d'):format(s, n, units)
    count = count + 1
  end)
  redis.call('DEL', log.key)
  for at = 1, #words, 500 do redis.call('HSET', log.key, unpack(words, at, math.min(at + 499, #words))) end
  log.last = log.first + count - 1
end

-- Writes the head of a log that changed.
local function log_close(log)
  if not log.changed or log.last < log.first then return end
  if log_is_sparse(log.key, log.first, log.last) then log_close_gaps(log) end
  redis.call('HSET', log.key, 'h', ('l%d %d %d %d%09d %d'):format(
    log.first, log.last, log.units, log.newest_s, log.newest_n, log.newest_units))
  local left = (log.newest_s - now_s) * 1000 + (log.newest_n - now_n) / 1000000
  redis.call('PEXPIRE', log.key, ('%d'):format(math.max(left, 0) + spare))
end

local function log_clear(log)
  redis.call('DEL', log.key)
  log.first, log.last, log.units, log.newest_s, log.newest_n, log.newest_units = 1, 0, 0, 0, 0, 0
  log.changed = true
end

-- When a charge of now is out.
local function log_out_at(log)
  local s, n = now_s, now_n
  if log.slice_s > 0 or log.slice_n > 1 then
    s, n = minus(s, n, remainder(s, n, log.slice_s, log.slice_n))
  end
  return plus(s, n, log.lifetime_s, log.lifetime_n)
end

-- Whether the log was written by a clock more than a window ahead.
local function log_is_ahead(log)
  local s, n = log_out_at(log)
  s, n = plus(s, n, log.window_s, log.window_n)
  return less(s, n, log.newest_s, log.newest_n)
end

-- Units of entries that are not out.
local function log_used(log)
  local out = 0
  log_visit(log, function(_, s, n, units)
    if less(now_s, now_n, s, n) then return true end
    out = out + units
  end)
  return log.units - out
end

-- When the newest entry that has units left is out.
local function log_newest_counting(log)
  if log.newest_units > 0 then return log.newest_s, log.newest_n end
  local newest_s, newest_n = 0, 0
  log_visit(log, function(_, s, n, units)
    if units == 0 then return end
    newest_s, newest_n = s, n
    return true
  end, true)
  return newest_s, newest_n
end

-- The time until the log equals never seen: when its last unit is out. Without units it still has the instant of its
-- newest entry.
local function log_reset_after(log, used)
  local s, n
  if used == 0 then
    s, n = minus(log.newest_s, log.newest_n, log.lifetime_s, log.lifetime_n)
  else
    s, n = log_newest_counting(log)
  end
  return minus(s, n, now_s, now_n)
end

-- The time until `units` fit beside `used` and `pending`, if nobody else spends. What is pending comes back last.
local function log_wait(log, used, pending, units)
  local at_s, at_n = log_out_at(log)
  local to_go = used + pending + units - log.limit
  -- From the end that is nearer to the entry with which enough is out. Behind it are at most the units that may stay.
  local may_stay, from_newest = used - to_go, to_go > used / 2
  if may_stay < 0 then return minus(at_s, at_n, now_s, now_n) end
  local passed = 0
  log_visit(log, function(_, s, n, of_entry)
    if not less(now_s, now_n, s, n) then return from_newest end
    passed = passed + of_entry
    if from_newest and passed <= may_stay or not from_newest and passed < to_go then return end
    at_s, at_n = s, n
    return true
  end, from_newest)
  return minus(at_s, at_n, now_s, now_n)
end

-- An answer: the verdict (0 not yet, 1 yes, 2 never, 3 yes but not taken because of another), the wait, the units
-- that count, the time until it equals never seen, and when a charge of now is out.
local function log_answer(verdict, wait_s, wait_n, used, reset_s, reset_n, out_s, out_n)
  return {verdict, wait_s, wait_n, used, reset_s, reset_n, out_s, out_n}
end

-- What an op would be answered with `pending` units more in the log, without a change to it. Refunds and resets are not
-- foreseen to free anything.
local function log_foresee(log, op, units, pending)
  local alone = log_used(log)
  local used = alone + pending
  local verdict, wait_s, wait_n = 1, 0, 0
  if op == 't' or op == 'a' then
    if units > log.limit then
      verdict = 2
    elseif used + units > log.limit then
      verdict, wait_s, wait_n = 0, log_wait(log, alone, pending, units)
    end
  end
  local out_s, out_n = log_out_at(log)
  local reset_s, reset_n = 0, 0
  if not log_is_ahead(log) then
    reset_s, reset_n = log_reset_after(log, used)
    -- A stale instant counts as the newest entry's own.
    if less(out_s, out_n, log.newest_s, log.newest_n) then out_s, out_n = log.newest_s, log.newest_n end
  elseif used > 0 then
    reset_s, reset_n = minus(out_s, out_n, now_s, now_n)
  end
  return log_answer(verdict, wait_s, wait_n, used, reset_s, reset_n, out_s, out_n)
end

-- Drops the entries that are out.
local function log_drop_out(log)
  if not less(now_s, now_n, log.newest_s, log.newest_n) then return log_clear(log) end
  local first = log.first
  log_visit(log, function(number, s, n, units)
    if less(now_s, now_n, s, n) then
      log.first = number
      return true
    end
    log.units = log.units - units
  end)
  for number = first, log.first - 1, 500 do
    local numbers = {}
    for one = number, math.min(number + 499, log.first - 1) do numbers[#numbers + 1] = ('%d'):format(one) end
    redis.call('HDEL', log.key, unpack(numbers))
  end
end

-- Appends a charge, and drops what is out by then. Nothing else drops entries: only a charge leaves a later instant
-- behind.
local function log_append(log, s, n, units)
  if units == 0 then return end
  log.changed = true
  log_drop_out(log)
  local is_empty = log.last < log.first
  -- An emptied entry only kept the instant, which the charge brings itself.
  if is_empty or log.newest_units > 0 and (log.newest_s ~= s or log.newest_n ~= n) then
    log.last, log.newest_units = log.last + 1, 0
  end
  log.units, log.newest_units, log.newest_s, log.newest_n = log.units + units, log.newest_units + units, s, n
  redis.call('HSET', log.key, ('%d'):format(log.last), ('%d%09d %d'):format(s, n, log.newest_units))
end

-- A clock that jumped back by more than a window must not lock the key out until it catches up: what counts, counts
-- from now on, for one window.
local function log_pull_back(log)
  local units = log.units
  log_clear(log)
  local s, n = log_out_at(log)
  log_append(log, s, n, units)
end

-- Lets an emptied newest entry follow right after the newest one that counts, so that who looks for that finds it.
local function log_lower(log)
  local last = log.first
  log_visit(log, function(number)
    if number == log.last then return end
    last = number + 1
    return true
  end, true)
  if last == log.last then return end
  redis.call('HDEL', log.key, ('%d'):format(log.last))
  redis.call('HSET', log.key, ('%d'):format(last), ('%d%09d 0'):format(log.newest_s, log.newest_n))
  log.last = last
end

-- Takes units off the entries that still count and drops those it empties, but for the newest: that one tells which
-- instant counts. A receipt names one entry, which is nearly always one of the newest.
local function log_give_back(log, units, at_s, at_n)
  local has_receipt = at_s ~= ''
  if has_receipt then at_s, at_n = at_s + 0, at_n + 0 end
  local changes = {}
  log_visit(log, function(number, s, n, of_entry)
    if has_receipt and (s ~= at_s or n ~= at_n) then return less(s, n, at_s, at_n) end
    if not less(now_s, now_n, s, n) then return has_receipt end
    local given = math.min(units, of_entry)
    log.changed = true
    units, log.units = units - given, log.units - given
    if number == log.last then log.newest_units = of_entry - given end
    if given < of_entry or number == log.last then
      changes[#changes + 1] = {'HSET', log.key, ('%d'):format(number), ('%d%09d %d'):format(s, n, of_entry - given)}
    else
      changes[#changes + 1] = {'HDEL', log.key, ('%d'):format(number)}
    end
    return has_receipt or units == 0
  end, has_receipt)
  for _, change in ipairs(changes) do redis.call(unpack(change)) end
  if log.changed and log.newest_units == 0 then log_lower(log) end
end

-- Decides one op for good. The log is to be closed after it.
local function log_decide(log, op, units, at_s, at_n)
  local looks = op == 'a' or op == 'p'
  if not looks and log_is_ahead(log) then log_pull_back(log) end
  local foreseen = log_foresee(log, op, units, 0)
  if looks or foreseen[1] ~= 1 then return foreseen end
  local out_s, out_n = foreseen[7], foreseen[8]
  if op == 't' then
    log_append(log, out_s, out_n, units)
  elseif op == 'd' then
    log_append(log, out_s, out_n, math.min(units, math.max(2 * log.limit - foreseen[4], 0)))
  elseif op == 'r' then
    log_give_back(log, units, at_s, at_n)
  elseif op == 'z' then
    log_clear(log)
    return log_foresee(log, 'p', 0, 0)
  end
  local used = log_used(log)
  local reset_s, reset_n = log_reset_after(log, used)
  return log_answer(1, 0, 0, used, reset_s, reset_n, out_s, out_n)
end
