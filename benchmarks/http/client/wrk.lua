-- Posts bodies in turn over keep-alive connections; the last line of output is JSON, latencies in us.
-- Arguments: H:<name>=<value> for a header, B:<file> for a body.

function init(args)
  local bodies, requests, turn = {}, {}, 0
  for _, argument in ipairs(args) do
    local kind, rest = argument:sub(1, 2), argument:sub(3)
    if kind == "H:" then
      local name, value = rest:match("^(.-)=(.*)$")
      wrk.headers[name] = value
    else
      local file = assert(io.open(rest, "rb"))
      bodies[#bodies + 1] = file:read("*a")
      file:close()
    end
  end
  wrk.method, wrk.body = "POST", bodies[1]
  if #bodies == 1 then return end -- wrk formats one request itself, once
  for i, body in ipairs(bodies) do requests[i] = wrk.format("POST", nil, nil, body) end
  request = function()
    turn = turn % #requests + 1
    return requests[turn]
  end
end

function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format(
    '{"requests":%d,"duration_us":%d,"p50":%d,"p99":%d,"p999":%d,"max":%d,' ..
    '"connect":%d,"read":%d,"write":%d,"timeout":%d,"status":%d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99), latency:percentile(99.9),
    latency.max, errors.connect, errors.read, errors.write, errors.timeout, errors.status))
end
