-- Sliding counter: two counters, the previous one weighted by how much of it the trailing window still covers.
-- See spec/sliding_counter.md.
--
-- The state is `c`, the units of the window before and of the current one, and the instant in nanoseconds from which on
-- it equals never seen. `at` is the receipt of a refund, or empty. Answers as fixed_window.lua does.

-- Whether a · (a_s, a_n) ≤ b · (b_s, b_n), exactly: by limbs of six digits where the quick answer could be wrong.
local function product_is_at_most(a, a_s, a_n, b, b_s, b_n)
  local left, right = a * (a_s + a_n / 1e9), b * (b_s + b_n / 1e9)
  if left < right * 0.999999999 then return true end
  if left > right * 1.000000001 then return false end
  local function product(units, s, n)
    local million = 1000000
    local middle = s * 1000 + math.floor(n / million)
    local of_units = {units % million, math.floor(units / million) % million, math.floor(units / million / million)}
    local of_time = {n % million, middle % million, math.floor(middle / million)}
    local limbs = {0, 0, 0, 0, 0, 0}
    for i = 1, 3 do
      for j = 1, 3 do limbs[i + j - 1] = limbs[i + j - 1] + of_units[i] * of_time[j] end
    end
    for i = 1, 5 do
      limbs[i + 1] = limbs[i + 1] + math.floor(limbs[i] / million)
      limbs[i] = limbs[i] % million
    end
    return limbs
  end
  left, right = product(a, a_s, a_n), product(b, b_s, b_n)
  for i = 6, 1, -1 do
    if left[i] ~= right[i] then return left[i] < right[i] end
  end
  return true
end

local function sliding_counter(value, op, units, _, limit, window_s, window_n, at_s, at_n)
  units, limit, window_s, window_n = units + 0, limit + 0, window_s + 0, window_n + 0
  local start_s, start_n = minus(now_s, now_n, remainder(now_s, now_n, window_s, window_n))
  local prev, curr, jumped = 0, 0, false
  if value then
    local prev_then, curr_then, fresh_s, fresh_n = value:match('^c(%d+) (%d+) (%d+)(%d%d%d%d%d%d%d%d%d)$')
    if not prev_then then return end
    prev_then, curr_then, fresh_s, fresh_n = prev_then + 0, curr_then + 0, fresh_s + 0, fresh_n + 0
    -- Units are exact below 2^53, and an instant in nanoseconds has 64 bits.
    if prev_then >= 2 ^ 53 or curr_then >= 2 ^ 53 or fresh_s > 18446744072 then return end
    local then_s, then_n = minus(fresh_s, fresh_n, window_s, window_n)
    if curr_then > 0 then then_s, then_n = minus(then_s, then_n, window_s, window_n) end
    local ahead_s, ahead_n = minus(then_s, then_n, start_s, start_n)
    jumped = less(window_s, window_n, ahead_s, ahead_n)
    if less(now_s, now_n, fresh_s, fresh_n) then
      if less(then_s, then_n, start_s, start_n) then
        prev = curr_then
      else
        prev, curr = prev_then, curr_then
        -- The same window; or this instant is stale, and counts as the start of the state's own. But a clock that
        -- jumped back must not lock the key out until it catches up.
        if not jumped then start_s, start_n = then_s, then_n end
      end
    end
  end
  local prev_before, curr_before, allowed = prev, curr, true
  if op == 't' or op == 'a' then
    local elapsed_s, elapsed_n = minus(now_s, now_n, start_s, start_n)
    local covered_s, covered_n = minus(window_s, window_n, elapsed_s, elapsed_n)
    local free = limit - curr - units
    -- What the window before still weighs, rounded up, is at most what is free.
    allowed = free >= 0 and (prev == 0 or product_is_at_most(prev, covered_s, covered_n, free, window_s, window_n))
    if op == 'a' then return allowed end
    if allowed then curr = curr + units end
  elseif op == 'd' then
    curr = math.max(curr, math.min(curr + units, 2 * limit))
  elseif op == 'r' then
    if at_s == '' then
      curr = math.max(curr - units, 0)
    else
      at_s, at_n = at_s + 0, at_n + 0
      local first_s, first_n = minus(start_s, start_n, window_s, window_n)
      local end_s, end_n = plus(start_s, start_n, window_s, window_n)
      -- Any other window is gone, or was never there on this clock.
      if not less(at_s, at_n, first_s, first_n) and less(at_s, at_n, end_s, end_n) then
        if less(at_s, at_n, start_s, start_n) then
          prev = math.max(prev - units, 0)
        else
          curr = math.max(curr - units, 0)
        end
      end
    end
  elseif op == 'z' then
    return true, ''
  else
    return true
  end
  if prev == prev_before and curr == curr_before and not jumped then return allowed end
  local fresh_s, fresh_n = plus(start_s, start_n, window_s, window_n)
  if curr > 0 then fresh_s, fresh_n = plus(fresh_s, fresh_n, window_s, window_n) end
  local left = (fresh_s - now_s) * 1000 + (fresh_n - now_n) / 1000000 + spare
  return allowed, ('c%d %d %d%09d'):format(prev, curr, fresh_s, fresh_n), ('%d'):format(left)
end
