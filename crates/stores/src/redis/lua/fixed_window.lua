-- Fixed window: units per window, windows aligned to the epoch or to the key's phase. See spec/fixed_window.md.
--
-- The state is a whole number, which takes Redis little space: the units of a window, and in eleven digits the second at
-- which it ends. Of an end between two seconds, a point and nine digits of nanoseconds follow.
--   at              the receipt of a refund, or empty
--   window_n, phase empty if windows are whole seconds and aligned to the epoch
-- What is empty may be missing if nothing follows: each argument costs a call a little.
-- Answers as bucket.lua does; an empty state to write means none. No milliseconds: the key expires in time as it is.
local function fixed_window(value, op, units, _, limit, window_s, at_s, at_n, window_n, phase_s, phase_n)
  units, limit, window_s = units + 0, limit + 0, window_s + 0
  local end_s, end_n
  if (window_n or '') == '' then
    window_n, end_s, end_n = 0, now_s - now_s % window_s + window_s, 0
  else
    window_n = window_n + 0
    local _, plus, minus, remainder = instants()
    local shifted_s, shifted_n = plus(now_s, now_n, window_s, window_n)
    local over_s, over_n = minus(shifted_s, shifted_n, phase_s + 0, phase_n + 0)
    end_s, end_n = minus(shifted_s, shifted_n, remainder(over_s, over_n, window_s, window_n))
  end
  local count, jumped, lasts = 0, false, false
  if value then
    local then_n, other = 0, value:find('%D')
    if other then
      if other ~= #value - 9 or not value:find('^%.%d+$', other) then return end
      value, then_n = value:sub(1, -11), value:sub(-9) + 0
    end
    if #value < 12 then return end
    local units_then, then_s = value:sub(1, -12) + 0, value:sub(-11) + 0
    -- Units are exact below 2^53, and an instant in nanoseconds has 64 bits.
    if units_then >= 9007199254740992 or then_s > 18446744072 then return end
    if then_s == end_s and then_n == end_n then
      count, lasts = units_then, true
    elseif now_s < then_s or now_s == then_s and now_n < then_n then
      count = units_then
      -- This instant is stale, and counts as the start of the state's own window. But a clock that jumped back must not
      -- lock the key out until it catches up.
      local ahead_s, ahead_n = then_s - end_s, then_n - end_n
      if ahead_n < 0 then ahead_s, ahead_n = ahead_s - 1, ahead_n + 1000000000 end
      jumped = ahead_s > window_s or ahead_s == window_s and ahead_n > window_n
      if not jumped and ahead_s >= 0 then end_s, end_n, lasts = then_s, then_n, true end
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
    local counts = (at_s or '') == ''
    if not counts then
      -- How long before the end: more than nothing, and no longer than the window.
      local left_s, left_n = end_s - at_s, end_n - at_n
      if left_n < 0 then left_s, left_n = left_s - 1, left_n + 1000000000 end
      counts = (left_s > 0 or left_s == 0 and left_n > 0)
        and (left_s < window_s or left_s == window_s and left_n <= window_n)
    end
    if counts then count = math.max(count - units, 0) end
  elseif op == 'z' then
    return true, ''
  else
    return true
  end
  if count == before and not jumped then return allowed end
  local state = ('%d%011d'):format(count, end_s)
  if end_n > 0 then state = ('%s.%09d'):format(state, end_n) end
  if lasts then return allowed, state end
  return allowed, state, ('%d'):format((end_s - now_s) * 1000 + (end_n - now_n) / 1000000 + spare)
end
