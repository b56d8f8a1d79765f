-- Calendar window: units per day, week, month or year of a time zone. See spec/calendar_window.md.
--
-- Lua knows no calendars: the caller sends three windows in a row, by their starts and the end of the last in seconds, and
-- by their names, which are local dates. The state is a whole number, which takes Redis little space: the units of a
-- window, and in ten digits its name. `at` is the receipt of a refund, or empty.
-- Answers as bucket.lua does; an empty state to write means none. If now lies in none of the three windows, or it takes a
-- fourth to tell what counts, the answer is the text `time`: the caller learns the time and asks once more.
local function calendar_window(value, op, units, _, limit, s1, s2, s3, s4, n1, n2, n3, at_s, at_n)
  units, limit = units + 0, limit + 0
  local starts, names = {s1 + 0, s2 + 0, s3 + 0, s4 + 0}, {n1 + 0, n2 + 0, n3 + 0}
  local i = 1
  while i < 4 and now_s >= starts[i + 1] do i = i + 1 end
  if now_s < starts[1] or i == 4 then return 'time' end
  local count, jumped = 0, false
  if value then
    if #value < 11 or value:find('%D') then return end
    local units_then, name = value:sub(1, -11) + 0, value:sub(-10) + 0
    if units_then >= 9007199254740992 then return end
    if name > names[i] and not names[i + 1] then return 'time' end
    if name >= names[i] then
      count = units_then
      if name > names[i] then
        -- This instant is stale, and counts as the start of the state's own window; but a clock that jumped back must not
        -- lock the key out until it catches up.
        if name == names[i + 1] then i = i + 1 else jumped = true end
      end
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
    if at_s == '' or at_s + 0 >= starts[i] and at_s + 0 < starts[i + 1] then
      count = math.max(count - units, 0)
    end
  elseif op == 'z' then
    return true, ''
  else
    return true
  end
  if count == before and not jumped then return allowed end
  local left = (starts[i + 1] - now_s) * 1000 - math.floor(now_n / 1000000) + spare
  return allowed, ('%d%010d'):format(count, names[i]), ('%d'):format(left)
end
