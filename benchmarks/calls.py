"""The measured requests: the same call of one tool, through every front."""

from collections.abc import Mapping
from contextlib import closing
from http.client import HTTPConnection
from typing import Any

import msgspec

from benchmarks.load import Subject
from benchmarks.processes import Child
from benchmarks.request import JSON_HEADERS, Answer, HttpRequest, Unavailable, expect

SESSION_REVISION = "2025-06-18"
STATELESS_REVISION = "2026-07-28"
BATCH = 50
TIMEOUT_S = 30.0
IDS = 4096  # a session refuses an id that is still running, and some calls are slow
NEEDLE = b"Aluminium desk lamp"  # stands in the stub's item

ARGUMENTS = {"id": 1}
_META = "io.modelcontextprotocol"
_INITIALIZE = {
    "protocolVersion": SESSION_REVISION,
    "capabilities": {},
    "clientInfo": {"name": "toolgate-benchmarks", "version": "1"},
}
HELLO = msgspec.json.encode(
    {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": _INITIALIZE}
)
GREETING = msgspec.json.encode({"jsonrpc": "2.0", "method": "notifications/initialized"})


def messages(method: str, params: Mapping[str, Any]) -> tuple[bytes, ...]:
    """The same request under many ids."""
    numbers = range(1, IDS + 1)
    return tuple(msgspec.json.encode(_message(method, params, number)) for number in numbers)


def session_headers(port: int) -> dict[str, str]:
    """Open a 2025-06-18 session and return the headers that its requests carry."""
    with closing(HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)) as connection:
        return open_session(connection)


def open_session(connection: HTTPConnection) -> dict[str, str]:
    """The same on a connection that is kept."""
    initialize = HttpRequest(connection.port, "/mcp", bodies=(HELLO,))
    answer = initialize.send_on(connection)
    expect(answer, b'"protocolVersion"')
    headers = {**JSON_HEADERS, "mcp-protocol-version": SESSION_REVISION}
    if identity := answer.headers.get("mcp-session-id"):
        headers["mcp-session-id"] = identity
    HttpRequest(connection.port, "/mcp", bodies=(GREETING,), headers=headers).send_on(connection)
    return headers


def in_session(port: int, method: str, params: Mapping[str, Any]) -> HttpRequest:
    """A request to /mcp in a session of its own."""
    headers = session_headers(port)
    return HttpRequest(port, "/mcp", bodies=messages(method, params), headers=headers)


def stateless(port: int, method: str, params: Mapping[str, Any], path: str = "/mcp") -> HttpRequest:
    """A 2026-07-28 request: everything that a session would hold travels with it."""
    meta = {f"{_META}/protocolVersion": STATELESS_REVISION, f"{_META}/clientCapabilities": {}}
    headers = {
        **JSON_HEADERS,
        "mcp-protocol-version": STATELESS_REVISION,
        "mcp-method": method,
        **({"mcp-name": params["name"]} if "name" in params else {}),
    }
    bodies = messages(method, {**params, "_meta": meta})
    return HttpRequest(port, path, bodies=bodies, headers=headers)


def result(answer: Answer) -> dict[str, msgspec.Raw]:
    """Raises Unavailable for an error."""
    members = msgspec.json.decode(answer.body, type=dict[str, msgspec.Raw])
    if "result" not in members:
        raise Unavailable(f"answered {answer.body[:200].decode(errors='replace')}")
    return msgspec.json.decode(members["result"], type=dict[str, msgspec.Raw])


def rpc(port: int, method: str, params: Mapping[str, Any], path: str = "/rpc") -> HttpRequest:
    return HttpRequest(port, path, bodies=messages(method, params))


def rpc_batch(port: int, method: str, params: Mapping[str, Any], path: str = "/rpc") -> HttpRequest:
    members = [_message(method, params, number) for number in range(1, BATCH + 1)]
    return HttpRequest(port, path, bodies=(msgspec.json.encode(members),))


def call(name: str) -> dict[str, Any]:
    """Params of tools/call."""
    return {"name": name, "arguments": ARGUMENTS}


def checked(child: Child, request: HttpRequest) -> Subject:
    """Raises Unavailable unless the call gives the upstream's item."""
    expect(request.send(), NEEDLE)
    return Subject(child, request, NEEDLE)


def forwarded(child: Child) -> Subject:
    """The same call as the floor and the ceiling understand it."""
    arguments = msgspec.json.encode(ARGUMENTS)
    return checked(child, HttpRequest(child.port, "/forward", bodies=(arguments,)))


def find_tool(port: int) -> str:
    """What the gateway calls the operation `getItem`."""
    names = [tool["name"] for tool in list_tools(port)]
    for name in names:
        if name.lower().replace("_", "").replace("-", "").endswith("getitem"):
            return str(name)
    raise Unavailable(f"no tool for getItem among {names[:5]}")


def list_tools(port: int) -> list[dict[str, Any]]:
    answer = rpc(port, "tools/list", {}).send()
    expect(answer, b'"tools"')
    tools: list[dict[str, Any]] = msgspec.json.decode(answer.body)["result"]["tools"]
    return tools


def check_batch(body: bytes) -> None:
    members = msgspec.json.decode(body)
    good = [reply for reply in members if "result" in reply and not reply["result"].get("isError")]
    if len(good) != BATCH:
        raise Unavailable(f"{len(good)} of {BATCH} members answered with a result")


def _message(method: str, params: Mapping[str, Any], number: int) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
