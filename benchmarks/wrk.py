"""wrk as load generator: a static request formatted once, the summary read back as JSON."""

import shutil
import subprocess
from pathlib import Path

import msgspec

from benchmarks.report import Report
from benchmarks.request import HttpRequest, Unavailable

BINARY = shutil.which("wrk")

_TURNS = """
local requests, turn = {}, 0
init = function(args)
  for i, body in ipairs(bodies) do
    requests[i] = wrk.format(nil, nil, nil, body)
  end
end
request = function()
  turn = turn % #requests + 1
  return requests[turn]
end
"""

_CHECK = """
response = function(status, headers, body)
  if not body:find(%s, 1, true) then
    io.write("\\nwrong: ", body:sub(1, 160), "\\n")
    wrk.thread:stop()
  end
end
"""

_DONE = """
done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format(
    '\\n{"requests":%d,"seconds":%.6f,"errors":%d,"bytes":%.1f,' ..
    '"p50_ms":%.4f,"p99_ms":%.4f,"max_ms":%.4f}\\n',
    summary.requests - e.status, summary.duration / 1e6,
    e.connect + e.read + e.write + e.status + e.timeout,
    summary.bytes / math.max(1, summary.requests),
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, latency.max / 1e3))
end
"""


def script(request: HttpRequest, needle: bytes | None = None) -> str:
    """Lua that sends `request`; every answer must contain `needle`, which costs wrk some speed."""
    headers = [
        f"wrk.headers[{quote(name.encode())}] = {quote(value.encode())}"
        for name, value in request.headers.items()
    ]
    method = f"wrk.method = {quote(request.method.encode())}"
    bodies = ", ".join(quote(body) for body in request.bodies)
    turns = f"bodies = {{{bodies}}}{_TURNS}" if any(request.bodies) else ""
    check = _CHECK % quote(needle) if needle is not None else ""
    return "\n".join([method, *headers, turns, check, _DONE])


def quote(data: bytes) -> str:
    return '"' + "".join(f"\\{byte:03d}" for byte in data) + '"'


def measure(
    wrk: str,
    request: HttpRequest,
    connections: int,
    seconds: float,
    directory: Path,
    needle: bytes | None = None,
) -> Report:
    """With `needle`, every answer is looked into: right for a warm-up, too slow to measure."""
    lua = directory / "request.lua"
    lua.write_text(script(request, needle))
    duration = f"{max(1, round(seconds))}s"
    arguments = [wrk, "-t1", f"-c{connections}", f"-d{duration}", "--timeout", "10s"]
    done = subprocess.run(
        [*arguments, "-s", str(lua), request.url], capture_output=True, check=False
    )
    if done.returncode != 0:
        raise Unavailable(f"wrk failed: {done.stderr.decode(errors='replace')[-200:]}")
    return parse(done.stdout)


def parse(output: bytes) -> Report:
    """Raises Unavailable with the first answer that was wrong."""
    if b"\nwrong: " in output:
        answer = output.partition(b"\nwrong: ")[2].split(b"\n", 1)[0]
        raise Unavailable(f"under load: {answer.decode(errors='replace')}")
    return msgspec.json.decode(output.rstrip().rsplit(b"\n", 1)[-1], type=Report)
