"""tools/call and tools/list through every front, against the floor, the ceiling and the peer."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import msgspec

from benchmarks import calls, rivals
from benchmarks.load import Subject
from benchmarks.processes import Child
from benchmarks.race import Entry, race
from benchmarks.request import HttpRequest, Unavailable
from benchmarks.rig import Rig
from benchmarks.table import Row, Target
from benchmarks.toolgate import gateway

CALL_TARGETS = (Target("floor", 1.15), Target("peer", 7.0))
BATCH_TARGETS = (Target("floor", 2.0),)
LIST_TARGETS = (Target("floor", 0.70),)
OPERATIONS = 100  # tools behind the gateway and the peer while calls are measured
PAGES = (1, 100, 1000)
TOOLS = b'"tools"'

Make = Callable[[int, str, Mapping[str, Any]], HttpRequest]


def measure_calls(rig: Rig) -> list[Row]:
    with ExitStack() as stack:
        base = Entry("floor: bare Starlette + aiohttp", partial(_floor, rig, stack))
        peer = Entry("peer: FastMCP from_openapi, stateless", partial(_peer, rig, stack))
        ceiling = Entry("ceiling: nginx as reverse proxy", partial(_ceiling, rig, stack))
        child = stack.enter_context(gateway(rig, OPERATIONS))
        return race(rig, base, [ceiling, peer, *_gateway_entries(child)], peer)


def _gateway_entries(child: Child) -> list[Entry]:
    tool = calls.find_tool(child.port)
    call, arguments = calls.call(tool), calls.ARGUMENTS
    fronts: dict[str, tuple[Make, str, Mapping[str, Any]]] = {
        "/mcp 2025-06-18, session": (calls.in_session, "tools/call", call),
        "/mcp 2026-07-28, stateless": (calls.stateless, "tools/call", call),
        "/rpc tools/call": (calls.rpc, "tools/call", call),
        "/rpc, tool name as method": (calls.rpc, tool, arguments),
    }
    entries = [
        Entry(name, partial(_checked, child, make, method, params), targets=CALL_TARGETS)
        for name, (make, method, params) in fronts.items()
    ]
    batch = partial(_batch, child, call)
    return [*entries, Entry("/rpc, batch of 50", batch, calls.BATCH, 5, targets=BATCH_TARGETS)]


def _checked(child: Child, make: Make, method: str, params: Mapping[str, Any]) -> Subject:
    return calls.checked(child, make(child.port, method, params))


def _batch(child: Child, call: Mapping[str, Any]) -> Subject:
    request = calls.rpc_batch(child.port, "tools/call", call)
    calls.check_batch(request.send().body)
    return calls.checked(child, request)


def _floor(rig: Rig, stack: ExitStack) -> Subject:
    return calls.forwarded(stack.enter_context(rivals.floor(rig)))


def _ceiling(rig: Rig, stack: ExitStack) -> Subject:
    return calls.forwarded(stack.enter_context(rivals.ceiling(rig)))


def _peer(rig: Rig, stack: ExitStack) -> Subject:
    """A handshake revision: with 2026-07-28, FastMCP 4.1 goes through all its tools each time."""
    child = stack.enter_context(rivals.fastmcp(rig, rig.write_description(OPERATIONS)))
    return _checked(child, calls.in_session, "tools/call", calls.call("getItem"))


def measure_lists(rig: Rig) -> list[Row]:
    return [row for size in PAGES for row in _measure_page(rig, size)]


def _measure_page(rig: Rig, size: int) -> list[Row]:
    with rivals.floor(rig) as bare, gateway(rig, size) as child:
        request = calls.in_session(child.port, "tools/list", {})
        page = request.send().body
        _check_page(page, size)
        HttpRequest(bare.port, "/bytes", "PUT", bodies=(page,)).send()
        name = f"{size:,} tool{'s' * (size > 1)}, {len(page) / 1000:,.1f} kB"
        plain = HttpRequest(bare.port, "/bytes", "GET")
        base = Entry(
            f"floor: bare Starlette, the same bytes ({name})",
            partial(Subject, bare, plain, TOOLS),
            unit="lists/s",
        )
        ours = Entry(
            f"tools/list, {name}",
            partial(Subject, child, request, TOOLS),
            unit="lists/s",
            targets=LIST_TARGETS if size == PAGES[-1] else (),
        )
        return race(rig, base, [ours])


def _check_page(page: bytes, size: int) -> None:
    result = msgspec.json.decode(page)["result"]
    if len(result["tools"]) != size or result.get("nextCursor"):
        raise Unavailable(f"a page of {len(result['tools'])} tools, expected {size} on one page")
