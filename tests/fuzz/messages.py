"""Messages for the fronts: right ones, and right ones with something wrong. Pure."""

from collections.abc import Mapping
from random import Random
from typing import Any

from tests.fuzz.values import Members, Verbatim, scalar, spell, string, value

ACTIONS = (
    "echo", "say", "void", "store", "find", "secret", "open", "refuse", "complain", "nobody",
)  # fmt: skip
SERVICES = tuple(f"example.org/fuzz/{name}/1.0.0" for name in ACTIONS)
PLAIN = ("subtract", "gather", "getPet", "createPet", "listPets", "deletePet", "slow")
TOOLS = (*PLAIN, *(f"fuzz_{name}" for name in ACTIONS))  # as MCP knows them
VERBS = (
    "tools/list", "tools/call", "tools/call", "rpc.discover", "ping", "initialize",
    "server/discover", "subscriptions/listen", "notifications/initialized",
    "notifications/cancelled", "notifications/nobody", "",
)  # fmt: skip
TUPLE = ("host", "service", "action", "version")
VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
MODERN = "2026-07-28"
REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", MODERN, "2099-01-01")

Message = dict[str, Any]


def identity(r: Random) -> Any:
    """An id, mostly of a legal type."""
    roll = r.random()
    if roll < 0.6:
        return r.randint(0, 10**9)
    return r.choice(("", "1", "b0f3-é", "x" * 200)) if roll < 0.75 else value(r, 1)


def arguments(r: Random) -> Any:
    """What the actions and tools of the fixture take, mostly."""
    roll = r.random()
    if roll < 0.3:
        return value(r, 2)
    right = {
        "id": r.choice((1, 7, 404, 500, "a", scalar(r))),
        "name": r.choice(("Rex", "x", scalar(r))),
        "text": r.choice((string(r), scalar(r), spell(r, value(r, 1)).decode("latin-1"))),
        "minuend": r.choice((42, 2.5, scalar(r))),
        "subtrahend": 23,
        "age": r.choice((3, -1, scalar(r))),
        "tags": ["a", string(r)],
    }
    return {name: of for name, of in right.items() if r.random() < 0.7}


def rpc(r: Random) -> Message:
    """A JSON-RPC 2.0 request or notification."""
    method = r.choice(r.choice((SERVICES, SERVICES, PLAIN, VERBS)))
    message: Message = {"jsonrpc": "2.0", "method": method}
    if r.random() < 0.9:
        message["params"] = call(r) if method == "tools/call" else arguments(r)
    if r.random() < 0.8:
        message["id"] = identity(r)
    return message


def call(r: Random) -> Any:
    """Params of tools/call."""
    name = r.choice((*SERVICES, *TOOLS, scalar(r)))
    return {"name": name, "arguments": arguments(r)} if r.random() < 0.9 else value(r)


def legacy(r: Random) -> Message:
    """The payload of light-hybrid-4j, with what the portal's pages add to it."""
    message: Message = dict(zip(TUPLE, r.choice(SERVICES).split("/"), strict=True))
    if r.random() < 0.9:
        message["data"] = arguments(r)
    if r.random() < 0.2:
        message |= {"title": string(r), "success": "/app/done", "rest": scalar(r)}
    return message


def mcp(r: Random) -> Message:
    """A request of a session."""
    message = rpc(r)
    roll = r.random()
    if roll < 0.45:
        right = {"name": r.choice(TOOLS), "arguments": arguments(r)}
        message |= {"method": "tools/call", "params": right if r.random() < 0.7 else call(r)}
    elif roll < 0.55:
        message |= {"method": r.choice(("ping", "tools/list")), "params": {}}
    elif roll < 0.6:
        params = {"protocolVersion": r.choice(REVISIONS), "capabilities": {}, "clientInfo": {}}
        message |= {"method": "initialize", "params": params}
    elif roll < 0.65:
        message |= {"method": "notifications/cancelled", "params": {"requestId": identity(r)}}
    if "id" in message and r.random() < 0.8:
        message["id"] = r.randint(0, 10**9)
    return message


def stateless(r: Random) -> Message:
    """A request that carries its revision and the client's capabilities itself."""
    message = mcp(r)
    params = message.get("params")
    if isinstance(params, dict):
        meta = {VERSION: r.choice((MODERN, MODERN, MODERN, *REVISIONS)), CAPABILITIES: {}}
        meta = {name: of if r.random() < 0.95 else value(r, 1) for name, of in meta.items()}
        message["params"] = {**params, "_meta": meta}
    return message


def batch(r: Random, make: Any) -> Any:
    size = r.choice((0, 1, 1, 2, 2, 3, 4, 6, 10, 25))
    if r.random() < 0.005:
        size = r.choice((200, 999, 1001, 10_000))
        return [make(r)] * size
    members = []
    for _ in range(size):
        message = make(r)
        members.append(message if r.random() < 0.8 else twist_message(r, message))
    return members


def twist_message(r: Random, message: Mapping[str, Any]) -> Any:
    """`message` with one thing wrong."""
    members = Members(message.items())
    at = r.randrange(len(members))
    name, old = members[at]
    match r.randrange(8):
        case 0:
            del members[at]
        case 1 | 2:
            members[at] = (name, value(r, 1))
        case 3:
            members.append((string(r), value(r, 1)))
        case 4:
            members.append((_respell_name(name), r.choice((old, value(r, 1)))))
        case 5:
            other = legacy(r) if "jsonrpc" in message else rpc(r)
            members.append(r.choice(tuple(other.items())))
        case 6 if isinstance(old, dict) and old:
            inner = Members(old.items())
            inner.append(r.choice(inner))
            members[at] = (name, inner)
        case _:
            return r.choice((value(r), [message], Members(r.sample(members, len(members)))))
    return members


def _respell_name(name: str) -> Verbatim:
    """The same name in other letters."""
    return Verbatim(b'"' + b"".join(b"\\u%04x" % ord(one) for one in name) + b'"')
