"""A hybrid service in Python, for gateways of tests: one action for each way to answer."""

import asyncio
import threading
from dataclasses import dataclass, field
from typing import Any

from gateway import hybrid


@dataclass
class State:
    """What the commands did; `hold` waits for `release`, and says that it does."""

    done: list[Any] = field(default_factory=list)
    calls: list[hybrid.Call] = field(default_factory=list)
    threads: list[int] = field(default_factory=list)
    holding: asyncio.Event = field(default_factory=asyncio.Event)
    release: asyncio.Event = field(default_factory=asyncio.Event)
    stopped: bool = False  # `hold` was cancelled


state = State()  # replaced for every test

RULE = "lightapi.net/rule/{}/0.1.0"
KEYS = {"type": "object", "required": ["hostId", "ruleId"],
        "properties": {"hostId": {"type": "string"}, "ruleId": {"type": "string"}}}  # fmt: skip
EXPIRED = {
    "statusCode": 401,
    "code": "ERR10001",
    "message": "AUTH_TOKEN_EXPIRED",
    "description": 'The "token" has expired',
    "severity": "ERROR",
}


@hybrid.action(RULE.format("deleteRule"), schema=KEYS, scope="portal.w", side="command")
async def delete_rule(data: Any, call: hybrid.Call) -> str:
    """Deletes a rule."""
    state.done.append(data)
    state.calls.append(call)
    return "OK"


@hybrid.action(RULE.format("updateRule"), schema=KEYS, scope="portal.w", side="command")
def update_rule(data: Any) -> None:
    state.done.append(data)
    state.threads.append(threading.get_ident())
    raise hybrid.Failure(400, EXPIRED)


@hybrid.action(RULE.format("getRules"), scope="portal.r", side="query")
def get_rules(data: Any) -> Any:
    state.done.append(data)
    return {"rules": [], "asked": data}


@hybrid.action(RULE.format("echo"))
async def echo(data: Any) -> Any:
    return data


@hybrid.action(RULE.format("public"), skip_auth=True)
async def public(_data: Any) -> Any:
    return {"open": True}


@hybrid.action(RULE.format("hold"), side="command")
async def hold(data: Any) -> Any:
    state.done.append(data)
    state.holding.set()
    try:
        await state.release.wait()
    except asyncio.CancelledError:
        state.stopped = True
        raise
    return {"done": len(state.done)}


@hybrid.action(RULE.format("label"), schema={"type": "string", "minLength": 2})
async def label(data: str) -> str:
    return data.upper()


@hybrid.action(RULE.format("void"))
async def void(_data: Any) -> None:
    pass


@hybrid.action(RULE.format("crash"))
async def crash(data: Any) -> None:
    state.done.append(data)
    raise RuntimeError("secret: /srv/rules.py at 10.0.0.1")


@hybrid.action(RULE.format("text"))
async def text(_data: Any) -> str:
    return 'a "text"'


@hybrid.action(RULE.format("jsonText"))
async def json_text(_data: Any) -> str:
    return '{"n": 9007199254740993}'


@hybrid.action(RULE.format("busy"))
async def busy(_data: Any) -> None:
    raise hybrid.Failure(503, "Try later")


@hybrid.action(RULE.format("codeOnly"))
async def code_only(_data: Any) -> None:
    raise hybrid.Failure(409, {"code": "ERR12345"})


@hybrid.action("subtract", schema={"type": "object", "required": ["minuend", "subtrahend"]},
               positional=("minuend", "subtrahend"))  # fmt: skip
async def subtract(data: Any) -> Any:
    return data["minuend"] - data["subtrahend"]


@hybrid.action("sum", schema={"type": "object"}, rest="numbers")
async def total(data: Any) -> Any:
    return sum(data.get("numbers", []))
