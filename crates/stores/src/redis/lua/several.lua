-- Several charges at one instant: all that fit are taken, or none if a vetoing one is denied.
-- KEYS: one for each charge; the same key may come again, and its charges are composed in order.
-- ARGV: 15 for each charge: its algorithm, whether it vetoes, the op, and what the algorithm takes, filled up.
-- Replies: whether they were taken, or -1 if windows of a calendar do not fit now, now, and for each charge the state before, or the log's own answer.
-- Before this stands the table `words`: the algorithms whose states are words, by their names. All others keep logs.
local WIDTH = 15
local states, millis, logs, found, denied = {}, {}, {}, {}, false

-- Reads what every charge counts on, and repairs what a clock that jumped back left ahead, whether they pass or not.
for i, key in ipairs(KEYS) do
  local at = (i - 1) * WIDTH
  local decide = words[ARGV[at + 1]]
  if decide and states[key] == nil then
    local value = redis.call('GET', key)
    local readable, changed, left = decide(value, 'd', 0, 0, unpack(ARGV, at + 6, at + WIDTH))
    if readable == nil then return redis.error_reply(OTHER_LAYOUT) end
    if readable == 'time' then return {-1, now_s, now_n} end
    states[key], millis[key] = {value, changed or value}, left
  elseif not decide and not logs[key] then
    local log = log_open(key, unpack(ARGV, at + 6, at + 12))
    if not log then return redis.error_reply(OTHER_LAYOUT) end
    logs[key] = {log = log, pending = 0, asked = 0, denied = false, jumped = log_is_ahead(log)}
  end
end
for key, state in pairs(states) do
  if millis[key] then redis.call('SET', key, state[2], 'PX', millis[key]) end
end
for _, place in pairs(logs) do
  if place.jumped then
    log_pull_back(place.log)
    log_close(place.log)
  end
end

-- Tries every charge after those before it, on copies.
local tried, left = {}, {}
for i, key in ipairs(KEYS) do
  local at = (i - 1) * WIDTH
  local vetoes, op, units = ARGV[at + 2] == '1', ARGV[at + 3], ARGV[at + 4] + 0
  local decide, place = words[ARGV[at + 1]], logs[key]
  if decide then
    found[i] = states[key][1]
    local value = tried[key]
    if value == nil then value = states[key][2] end
    local allowed, changed, lives = decide(value, unpack(ARGV, at + 3, at + WIDTH))
    if changed then tried[key], left[key] = changed ~= '' and changed, lives or left[key] end
    if not allowed and vetoes then denied = true end
  else
    local answer = log_foresee(place.log, op, units, place.pending)
    if answer[1] == 1 and (op == 't' or op == 'd') then
      place.pending = math.max(place.pending, math.min(place.pending + units, 2 * place.log.limit))
    end
    if units > 0 and (op == 't' or op == 'd') then
      local whole = place.asked + units
      local fits = op == 'd' or answer[1] == 1 and not place.denied
      if fits or vetoes then
        place.asked, place.denied = whole, place.denied or not fits
      end
      if not fits and whole ~= units then
        -- Those before it would be asked for again too: what counts is when all fit.
        local together = log_foresee(place.log, 't', whole, 0)
        if together[1] ~= 1 then answer[1], answer[2], answer[3] = together[1], together[2], together[3] end
      end
    end
    found[i] = answer
    if answer[1] ~= 1 and vetoes then denied = true end
  end
end

for i, key in ipairs(KEYS) do
  local at, place = (i - 1) * WIDTH, logs[key]
  if place and (denied or found[i][1] ~= 1) then
    -- Not taken: the verdict, and the numbers of the log as it is.
    local looked = log_foresee(place.log, 'p', 0, 0)
    local verdict = found[i][1] == 1 and 3 or found[i][1]
    found[i] = log_answer(verdict, found[i][2], found[i][3], unpack(looked, 4, 8))
  elseif place then
    found[i] = log_decide(place.log, ARGV[at + 3], ARGV[at + 4] + 0, ARGV[at + 13], ARGV[at + 14])
    log_close(place.log)
  elseif not denied and tried[key] ~= nil then
    if not tried[key] then
      redis.call('DEL', key)
    elseif left[key] then
      redis.call('SET', key, tried[key], 'PX', left[key])
    else
      redis.call('SET', key, tried[key], 'KEEPTTL')
    end
    tried[key] = nil
  end
end
return {denied and 0 or 1, now_s, now_n, unpack(found, 1, #KEYS)}
