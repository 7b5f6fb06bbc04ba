"""A dispatcher with verbs of its own, and what surrounds a message."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec import UNSET, Raw

from gateway.context import Context, Identity, Principal, Session
from gateway.protocol.dispatcher import Dispatcher, Method
from schemas.errors import InvalidParams, MethodNotFound
from schemas.jsonrpc import Request
from schemas.mcp.revisions import JSON_RPC, Revision

NOTES = ("update", "notify_hello", "notifications/hello")
PRINCIPAL = Principal("p", "tenant")
IDENTITY = Identity(PRINCIPAL)


@dataclass
class Verbs:
    """Methods that record what they were asked; `hold` runs until `release` is set."""

    calls: list[Request] = field(default_factory=list)
    release: asyncio.Event = field(default_factory=asyncio.Event)
    holding: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    now: int = 0
    most: int = 0
    stopped: int = 0

    async def subtract(self, _context: Context, request: Request) -> int:
        """minuend - subtrahend, by position or by name."""
        match request.params:
            case [a, b] | {"minuend": a, "subtrahend": b}:
                return a - b
        raise InvalidParams("two numbers")

    async def sum(self, _context: Context, request: Request) -> int:
        return 0 if request.params is UNSET else sum(request.params)

    async def get_data(self, _context: Context, _request: Request) -> Raw:
        return Raw(b'["hello",5]')

    async def note(self, _context: Context, request: Request) -> None:
        self.calls.append(request)

    async def crash(self, _context: Context, _request: Request) -> None:
        raise RuntimeError("secret: postgres://user:password@10.0.0.1")

    async def unwritable(self, _context: Context, _request: Request) -> Any:
        return object()

    async def half_a_character(self, _context: Context, _request: Request) -> str:
        return "\ud800"

    async def hold(self, _context: Context, request: Request) -> str:
        self.now += 1
        self.most = max(self.most, self.now)
        self.holding.release()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.stopped += 1
            raise
        finally:
            self.now -= 1
        return "held"

    async def missing(self, _context: Context, request: Request) -> None:
        raise MethodNotFound(f"Method not found: {request.method}")

    def dispatcher(self, *middleware: Any) -> Dispatcher:
        handlers = [self.subtract, self.sum, self.get_data, self.crash, self.hold]
        handlers += [self.unwritable, self.half_a_character]
        methods = {handler.__name__: Method(handler, _always) for handler in handlers}
        methods |= {name: Method(self.note, _always) for name in NOTES}
        methods["mcp_only"] = Method(self.note, lambda revision: revision.mcp)
        return Dispatcher(methods, self.missing, middleware)


def _always(_revision: Revision) -> bool:
    return True


@pytest.fixture
async def verbs(anyio_backend: str) -> Verbs:
    return Verbs()


def context(revision: Revision = JSON_RPC, session: Session | None = None) -> Context:
    return Context(IDENTITY, revision, "r-1", session)


def session(revision: Revision) -> Session:
    return Session("s", revision, PRINCIPAL, {}, {})


def request(method: str, params: Any = UNSET, id_: Any = 1) -> Request:
    return Request("2.0", method, params, id_)


def notification(method: str, params: Any = UNSET) -> Request:
    return Request("2.0", method, params, UNSET)
