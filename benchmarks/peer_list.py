"""FastMCP's tools of a description, as JSON on standard output: count, time and size. Runs in the
peer's own environment. `python benchmarks/peer_list.py FILE`"""

import asyncio
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import httpx2
from fastmcp import Client, FastMCP


async def main(description: dict[str, Any]) -> None:
    begin = time.perf_counter()
    server = FastMCP.from_openapi(
        description, client=httpx2.AsyncClient(base_url="http://127.0.0.1:9")
    )
    built = time.perf_counter()
    async with Client(server) as client:
        tools = await client.list_tools()
    listed = time.perf_counter()
    texts = [tool.model_dump_json(by_alias=True, exclude_none=True) for tool in tools]
    told = {
        "tools": len(tools),
        "bytes": sum(len(text.encode()) for text in texts),
        "built_s": built - begin,
        "listed_s": listed - built,
        "peak_mb": _peak_mb(),
    }
    sys.stdout.write(json.dumps(told))


def _peak_mb() -> float:
    """See reading.py, which this environment cannot import."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().split("\n") if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


if __name__ == "__main__":
    try:
        asyncio.run(main(json.loads(Path(sys.argv[1]).read_text("utf-8"))))
    except Exception as refusal:
        first = str(refusal).strip().split("\n", 1)[0]
        sys.stdout.write(json.dumps({"rejected": f"{type(refusal).__name__}: {first[:160]}"}))
