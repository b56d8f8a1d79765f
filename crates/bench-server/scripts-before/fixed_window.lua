-- Fixed window: units per window, windows aligned to the epoch or to the key's phase. See spec/fixed_window.md.
--
-- The state is `w`, the units of a window, and its end in nanoseconds. `at` is the receipt of a refund, or empty.
-- Answers as bucket.lua does; an empty state to write means none.
local function fixed_window(value, op, units, _, limit, window_s, window_n, phase_s, phase_n, at_s, at_n)
  units, limit, window_s, window_n = units + 0, limit + 0, window_s + 0, window_n + 0
  local shifted_s, shifted_n = plus(now_s, now_n, window_s, window_n)
  local over_s, over_n = minus(shifted_s, shifted_n, phase_s, phase_n)
  over_s, over_n = remainder(over_s, over_n, window_s, window_n)
  local end_s, end_n = minus(shifted_s, shifted_n, over_s, over_n)
  local count, jumped = 0, false
  if value then
    local units_then, then_s, then_n = value:match('^w(%d+) (%d+)(%d%d%d%d%d%d%d%d%d)$')
    if not units_then then return end
    then_s, then_n = then_s + 0, then_n + 0
    -- Units are exact below 2^53, and an instant in nanoseconds has 64 bits.
    if units_then + 0 >= 2 ^ 53 or then_s > 18446744072 then return end
    local ahead_s, ahead_n = minus(then_s, then_n, end_s, end_n)
    jumped = less(window_s, window_n, ahead_s, ahead_n)
    if less(now_s, now_n, then_s, then_n) then
      count = units_then + 0
      -- The same window; or this instant is stale, and counts as the start of the state's own. But a clock that jumped
      -- back must not lock the key out until it catches up.
      if not jumped and less(end_s, end_n, then_s, then_n) then end_s, end_n = then_s, then_n end
    end
  end
  local before, allowed = count, true
  if op == 't' then
    if count + units > limit then allowed = false else count = count + units end
  elseif op == 'a' then
    return count + units <= limit
  elseif op == 'd' then
    count = math.max(count, math.min(count + units, 2 * limit))
  elseif op == 'r' then
    local start_s, start_n = minus(end_s, end_n, window_s, window_n)
    if at_s == '' or not less(at_s + 0, at_n + 0, start_s, start_n) and less(at_s + 0, at_n + 0, end_s, end_n) then
      count = math.max(count - units, 0)
    end
  elseif op == 'z' then
    return true, ''
  else
    return true
  end
  if count == before and not jumped then return allowed end
  local left = (end_s - now_s) * 1000 + (end_n - now_n) / 1000000 + spare
  return allowed, ('w%d %d%09d'):format(count, end_s, end_n), ('%d'):format(left)
end
