-- Instants and lengths as pairs of seconds and nanoseconds.

local function less(a_s, a_n, b_s, b_n)
  return a_s < b_s or a_s == b_s and a_n < b_n
end

local function plus(a_s, a_n, b_s, b_n)
  local s, n = a_s + b_s, a_n + b_n
  if n >= 1000000000 then return s + 1, n - 1000000000 end
  return s, n
end

-- At least zero.
local function minus(a_s, a_n, b_s, b_n)
  local s, n = a_s - b_s, a_n - b_n
  if n < 0 then s, n = s - 1, n + 1000000000 end
  if s < 0 then return 0, 0 end
  return s, n
end

-- What is left of an instant after as many whole lengths as fit.
local function remainder(s, n, length_s, length_n)
  if length_n == 0 then return s % length_s, n end
  if length_s == 0 then
    -- A second is 1000 · 1000 · 1000 nanoseconds: no product reaches 2^53.
    local rest = s % length_n
    for _ = 1, 3 do rest = rest * 1000 % length_n end
    return 0, (rest + n) % length_n
  end
  -- The quotient is below 2^34, so that this one is wrong by one at most.
  local times = math.floor((s + n / 1e9) / (length_s + length_n / 1e9))
  local part_s, part_n = times * length_s, 0
  for unit = 1, 3 do
    -- Milliseconds, microseconds, nanoseconds of the length, each below 1000.
    local of_second = 1000 ^ unit
    local product = times * (math.floor(length_n / (1000000000 / of_second)) % 1000)
    part_s, part_n = plus(part_s, part_n, math.floor(product / of_second), product % of_second * (1000000000 / of_second))
  end
  if less(s, n, part_s, part_n) then part_s, part_n = minus(part_s, part_n, length_s, length_n) end
  s, n = minus(s, n, part_s, part_n)
  if not less(s, n, length_s, length_n) then s, n = minus(s, n, length_s, length_n) end
  return s, n
end
