"""The table of peers: one call of one tool, which ends as the same GET of the same service, through
each gateway in turn in one run; each on one core, right after the floor.

Floor and nginx forward the request and know nothing of MCP. The others take tools/call of MCP
2025-06-18 and make the request of its arguments.
"""

from contextlib import ExitStack
from functools import partial

from benchmarks import calls, contextforge, rivals
from benchmarks.load import Subject
from benchmarks.race import Entry, race
from benchmarks.request import HttpRequest, Unavailable
from benchmarks.rig import Rig
from benchmarks.table import Row
from benchmarks.toolgate import gateway

OPERATIONS = 100  # tools behind those that read a description
SLOW = 5  # times a slice: ContextForge answers some 30 calls a second on 32 connections
REVISION = {"mcp-protocol-version": calls.SESSION_REVISION}


def measure_peers(rig: Rig) -> list[Row]:
    with ExitStack() as stack:
        floor = Entry("peers: floor, bare Starlette + aiohttp", partial(_floor, rig, stack))
        fastmcp = Entry("peers: FastMCP", partial(_fastmcp, rig, stack))
        entries = [
            Entry("peers: Toolgate", partial(_toolgate, rig, stack)),
            Entry("peers: nginx, a reverse proxy", partial(_nginx, rig, stack)),
            Entry("peers: Envoy, mcp_json_rest_bridge", partial(_envoy, rig, stack)),
            fastmcp,
            Entry("peers: ContextForge", partial(_contextforge, rig, stack), stretch=SLOW),
            Entry("peers: agentgateway", _agentgateway),
        ]
        return race(rig, floor, entries, fastmcp)


def _floor(rig: Rig, stack: ExitStack) -> Subject:
    return calls.forwarded(stack.enter_context(rivals.floor(rig)))


def _nginx(rig: Rig, stack: ExitStack) -> Subject:
    return calls.forwarded(stack.enter_context(rivals.ceiling(rig)))


def _toolgate(rig: Rig, stack: ExitStack) -> Subject:
    child = stack.enter_context(gateway(rig, OPERATIONS))
    params = calls.call(calls.find_tool(child.port))
    return calls.checked(child, calls.in_session(child.port, "tools/call", params))


def _fastmcp(rig: Rig, stack: ExitStack) -> Subject:
    child = stack.enter_context(rivals.fastmcp(rig, rig.write_description(OPERATIONS)))
    params = calls.call("getItem")
    return calls.checked(child, calls.in_session(child.port, "tools/call", params))


def _envoy(rig: Rig, stack: ExitStack) -> Subject:
    """It keeps no sessions."""
    child = stack.enter_context(rivals.mcp_envoy(rig))
    return calls.checked(child, calls.in_session(child.port, "tools/call", calls.call("getItem")))


def _contextforge(rig: Rig, stack: ExitStack) -> Subject:
    forge = stack.enter_context(rivals.context_forge(rig))
    bodies = calls.messages("tools/call", calls.call(contextforge.TOOL))
    headers = {**forge.headers, **REVISION}
    request = HttpRequest(forge.child.port, "/mcp/", bodies=bodies, headers=headers)
    return calls.checked(forge.child, request)


def _agentgateway() -> Subject:
    raise Unavailable(
        "absent: no package registry has it (PyPI's agentgateway is another program); its releases"
        " are at github.com/agentgateway/agentgateway, and it has to be added to this table"
    )
