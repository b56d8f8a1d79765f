-- Token bucket, leaky bucket as a meter, and GCRA: one arithmetic under three names. See spec/gcra.md.
--
-- The state is the theoretical arrival time in nanoseconds, which Redis keeps as an integer and so in little space. What
-- lies between now and then is the debt.
--   amount  the time that the units take to come back
--   most    the most debt that a state may hold
--   bound   take and ask: the most debt beside which the units fit, negative if they never do; refund: the receipt, or
--           empty
-- Answers whether it passes, and the state to write with the milliseconds it lives, if it changed; nothing if the state
-- cannot be read. The milliseconds are text: Redis prints numbers of Lua as fractions, which costs more. One function
-- without helpers, because each of them would be made anew for each call.
local function bucket(value, op, amount_s, amount_n, most_s, most_n, bound_s, bound_n)
  local debt_s, debt_n = 0, 0
  if value then
    -- Up to 11 digits of seconds and 9 of nanoseconds, together below 2^64. A pattern without choices is matched in one
    -- go. No zero leads more than one digit of seconds: by their lengths it is told which of two instants is later.
    if #value < 10 or #value > 20 or not value:find(#value == 10 and '^%d+$' or '^[1-9]%d+$') then return end
    debt_s, debt_n = value:sub(1, -10) + 0, value:sub(-9) - now_n
    if debt_s > 18446744072 then return end
    debt_s = debt_s - now_s
    if debt_n < 0 then debt_s, debt_n = debt_s - 1, debt_n + 1000000000 end
    if debt_s < 0 then debt_s, debt_n = 0, 0 end
  end
  local before_s, before_n, allowed = debt_s, debt_n, true
  -- What passes needs no cut to `most`, since no bound is above it: most calls are spared its conversion.
  local asks, cut = op == 't' or op == 'a', true
  if asks then
    bound_s = bound_s + 0
    cut = debt_s > bound_s or debt_s == bound_s and debt_n > bound_n + 0
  end
  if cut then
    most_s, most_n = most_s + 0, most_n + 0
    if debt_s > most_s or debt_s == most_s and debt_n > most_n then debt_s, debt_n = most_s, most_n end
  end
  if asks then
    allowed = not cut or debt_s == bound_s and debt_n == bound_n + 0
    if op == 'a' then return allowed end
    if allowed then
      debt_s, debt_n = debt_s + amount_s, debt_n + amount_n
      if debt_n >= 1000000000 then debt_s, debt_n = debt_s + 1, debt_n - 1000000000 end
    end
  elseif op == 'd' then
    debt_s, debt_n = debt_s + amount_s, debt_n + amount_n
    if debt_n >= 1000000000 then debt_s, debt_n = debt_s + 1, debt_n - 1000000000 end
    if debt_s > most_s or debt_s == most_s and debt_n > most_n then debt_s, debt_n = most_s, most_n end
  elseif op == 'r' then
    amount_s, amount_n = amount_s + 0, amount_n + 0
    if bound_s ~= '' then
      -- Units come back in the order they were taken; what has come back by now cannot come back twice.
      local out_s, out_n = bound_s - now_s, bound_n - now_n
      if out_n < 0 then out_s, out_n = out_s - 1, out_n + 1000000000 end
      if out_s < 0 then out_s, out_n = 0, 0 end
      if amount_s > out_s or amount_s == out_s and amount_n > out_n then amount_s, amount_n = out_s, out_n end
    end
    debt_s, debt_n = debt_s - amount_s, debt_n - amount_n
    if debt_n < 0 then debt_s, debt_n = debt_s - 1, debt_n + 1000000000 end
    if debt_s < 0 then debt_s, debt_n = 0, 0 end
  elseif op == 'z' then
    debt_s, debt_n = 0, 0
  else
    return true
  end
  if debt_s == before_s and debt_n == before_n then return allowed end
  local tat_s, tat_n = now_s + debt_s, now_n + debt_n
  if tat_n >= 1000000000 then tat_s, tat_n = tat_s + 1, tat_n - 1000000000 end
  return allowed, ('%d%09d'):format(tat_s, tat_n), ('%d'):format(debt_s * 1000 + debt_n / 1000000 + spare)
end
