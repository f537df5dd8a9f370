-- Sends the review in the file BODY, as benchmarks/admission/load.py says. START is the number of the
-- first request, template and release; EVERY is how many requests come with one template, and
-- RELEASE_EVERY how many with one release.

local file = io.open(os.getenv("BODY"), "rb")
local body = file:read("*a")
wrk.method, wrk.body = "POST", body
wrk.headers["Content-Type"] = "application/json"
if os.getenv("BEARER") then wrk.headers["Authorization"] = "Bearer " .. os.getenv("BEARER") end

local every, release_every = tonumber(os.getenv("EVERY")), tonumber(os.getenv("RELEASE_EVERY"))
local number, template, release, parts, kinds = 0, 0, 0, {}, {}
local marks = {
  uid = "uuuuuuuuuuuu",
  token = "access%-ttttt",
  time = "mm:ss",
  release = "rrrrrrrr",
  template = "nnnnnnnn",
}

local function split()
  local rest = body
  while true do
    local first, last, kind
    for name, mark in pairs(marks) do
      local from, to = rest:find(mark)
      if from and (not first or from < first) then first, last, kind = from, to, name end
    end
    if not first then break end
    parts[#parts + 1], kinds[#kinds + 1] = rest:sub(1, first - 1), kind
    rest = rest:sub(last + 1)
  end
  parts[#parts + 1] = rest
end

local function letters(n)
  local text = ""
  for _ = 1, 5 do
    text = text .. string.char(97 + n % 26)
    n = math.floor(n / 26)
  end
  return text
end

init = function()
  number = tonumber(os.getenv("START"))
  template, release = number, number
  split()
end

if every > 0 then
  request = function()
    number = number + 1
    if number % every == 0 then template = template + 1 end
    if number % release_every == 0 then release = release + 1 end
    local values = {
      uid = string.format("%012d", number),
      token = "access-" .. letters(number),
      time = string.format("%02d:%02d", math.floor(number / 60) % 60, number % 60),
      release = string.format("%08d", release),
      template = string.format("%08d", template),
    }
    local pieces = {}
    for i, kind in ipairs(kinds) do
      pieces[#pieces + 1] = parts[i]
      pieces[#pieces + 1] = values[kind]
    end
    pieces[#pieces + 1] = parts[#parts]
    return wrk.format(nil, nil, nil, table.concat(pieces))
  end
end

done = function(all, latency)
  local e = all.errors
  local failed = e.connect + e.read + e.write + e.status + e.timeout
  local form = '{"requests": %d, "us": %d, "p50": %d, "p99": %d, "failed": %d}'
  local p50, p99 = latency:percentile(50), latency:percentile(99)
  io.write("\n" .. string.format(form, all.requests, all.duration, p50, p99, failed) .. "\n")
end
