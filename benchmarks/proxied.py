"""tools/call to an MCP server behind the gateway, in both eras, against a transparent
proxy and against FastMCP's."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import cache, partial
from typing import Any

from benchmarks import calls, rivals
from benchmarks.load import Subject
from benchmarks.mcp_server import TOOL, TOOLS
from benchmarks.processes import Child
from benchmarks.race import Entry, race
from benchmarks.request import HttpRequest
from benchmarks.rig import Rig, mcp_server
from benchmarks.table import Row, Target
from benchmarks.toolgate import relay

TARGETS = (Target("floor", 1.1), Target("peer", 5.0))

Make = Callable[[int, str, Mapping[str, Any]], HttpRequest]
ERAS: Mapping[str, Make] = {
    f"{calls.SESSION_REVISION}, session": calls.in_session,
    f"{calls.STATELESS_REVISION}, stateless": calls.stateless,
}


def measure_mcp(rig: Rig) -> list[Row]:
    with ExitStack() as stack:
        server = stack.enter_context(mcp_server(rig))
        floor = stack.enter_context(rivals.floor(rig, server.url))
        gateway = stack.enter_context(relay(rig, server.url))
        rival = cache(lambda: stack.enter_context(rivals.fastmcp_proxy(rig, server.url)))
        rows_: list[Row] = []
        for era, make in ERAS.items():
            base = Entry(f"floor: transparent proxy, {era}", partial(_checked, make, lambda: floor))
            peer = Entry(f"peer: FastMCP proxy, {era}", partial(_checked, make, rival))
            name = f"/mcp to an MCP server of {TOOLS} tools, {era}"
            ours = Entry(name, partial(_checked, make, lambda: gateway), targets=TARGETS)
            rows_ += race(rig, base, [peer, ours], peer)
        return rows_


def _checked(make: Make, front: Callable[[], Child]) -> Subject:
    child = front()
    return calls.checked(child, make(child.port, "tools/call", calls.call(TOOL)))
