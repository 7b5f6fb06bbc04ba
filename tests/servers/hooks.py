"""Hooks for tests: functions of Python, which remember what they were told, and an endpoint."""

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from gateway.http_client.webhooks import sign, verify

SECRET = "whsec_" + "YQ" * 16 + "=="
MODULE = "tests.servers.hooks"
EVENTS: list[dict[str, Any]] = []
__version__ = "7.1"


async def remember(event: dict[str, Any]) -> None:
    EVENTS.append(event)


def rename(event: dict[str, Any]) -> Mapping[str, Any] | None:
    """Names a pet after its caller's wish in another spelling; `old` becomes a wrong argument."""
    EVENTS.append(event)
    name = event["arguments"].get("name")
    event["arguments"]["name"] = "changed in its own copy"
    if name == "old":
        return {"arguments": {"name": 5}}
    return None if name is None else {"arguments": {"name": f"{name} the second"}}


def add_long_name(event: dict[str, Any]) -> Mapping[str, Any]:
    return {"arguments": {**event["arguments"], "x" * 5000: 1}}


def refuse(event: dict[str, Any]) -> Mapping[str, Any]:
    EVENTS.append(event)
    return {"refuse": "not today"}


def crash(event: dict[str, Any]) -> None:
    EVENTS.append(event)
    raise RuntimeError("a secret of the operator")


def sleep(event: dict[str, Any]) -> None:
    time.sleep(0.3)  # a function that blocks, in its thread


GATE = threading.Event()


def wait_for_gate(event: dict[str, Any]) -> Mapping[str, Any]:
    """Answers to Ann when the gate opens, and to others at once."""
    if event["principal"] == "ann":
        GATE.wait(10)
    return {"refuse": "was asked"}


def wait_for_anybody(event: dict[str, Any]) -> None:
    GATE.wait(10)


def answer(event: dict[str, Any]) -> Mapping[str, Any]:
    return {"answer": {"content": [{"type": "text", "text": "of the hook"}]}}


def stamp(event: dict[str, Any]) -> Mapping[str, Any]:
    """Adds a text to each result."""
    EVENTS.append(event)
    if "error" in event:
        return {"result": {"content": [{"type": "text", "text": "hidden"}], "isError": True}}
    if "content" not in event["result"]:
        return {}
    content = [*event["result"]["content"], {"type": "text", "text": "card 4111-1111"}]
    return {"result": {**event["result"], "content": content}}


@dataclass
class Endpoint:
    """A hook over HTTP. `said` is what it answers; `replays`: with what it signed first;
    `answering_secret`: it signs with; `elsewhere`: it redirects."""

    said: Any = None
    answering_secret: str = SECRET
    replays: bool = False
    elsewhere: str = ""
    heard: list[dict[str, Any]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    first: Response | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        body = await request.body()
        id_ = verify(request.headers, body, [SECRET], time.time())
        self.heard.append(json.loads(body))
        self.headers.append(dict(request.headers))
        if self.elsewhere:
            response = Response(status_code=307, headers={"Location": self.elsewhere})
        elif self.replays and self.first is not None:
            response = self.first
        else:
            data = b"" if self.said is None else json.dumps(self.said).encode()
            signed = sign(id_, int(time.time()), data, [self.answering_secret])
            response = Response(data, media_type="application/json", headers=signed)
        self.first = self.first or response
        await response(scope, receive, send)


def credential(event: dict[str, Any]) -> Mapping[str, Any]:
    EVENTS.append(event)
    return {"headers": {"Authorization": f"Bearer of-{event['principal']}"}}


def smuggle(event: dict[str, Any]) -> Mapping[str, Any]:
    return {"headers": {"X-A": "a\r\nHost: evil.example"}}


def promote(event: dict[str, Any]) -> Mapping[str, Any]:
    """Roles of a directory, for Ann alone; Eve has left."""
    EVENTS.append(event)
    if event["principal"] == "eve":
        return {"refuse": "has left"}
    return (
        {"roles": ["keeper"], "attributes": {"team": "red"}} if event["principal"] == "ann" else {}
    )


LEFT: set[str] = set()


def have_left(event: dict[str, Any]) -> Mapping[str, Any]:
    """A directory that people leave."""
    return {"refuse": "has left"} if event["principal"] in LEFT else {"roles": ["keeper"]}


def hide(event: dict[str, Any]) -> Mapping[str, Any]:
    EVENTS.append(event)
    names = [tool["name"] for tool in event["tools"]]
    return {"hide": [name for name in names if name.startswith("delete")]}
