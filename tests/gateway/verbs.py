"""Methods of tests: what upstreams do while a call runs, on command."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from gateway.app.gateway import Gateway
from gateway.context import Context
from gateway.protocol.dispatcher import Method
from schemas.errors import MissingClientCapability, RelayedFault
from schemas.jsonrpc import Notification, Request, encode
from schemas.mcp.revisions import Revision

SAID = "notifications/message"


@dataclass
class Verbs:
    """`test/say` says its `texts`, waits for `release` if it is to `hold`, and says `more`.
    `test/ask` asks the client for what `method` and `params` say, and returns the answer."""

    holding: asyncio.Event = field(default_factory=asyncio.Event)
    release: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)

    def renew(self) -> None:
        """Forget the calls of the test before."""
        self.holding, self.release, self.cancelled = (asyncio.Event() for _ in range(3))

    async def say(self, context: Context, request: Request) -> dict[str, Any]:
        params = _params(request)
        await _tell(context, params.get("texts", ()))
        if params.get("hold"):
            self.holding.set()
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
        await _tell(context, params.get("more", ()))
        return {"said": True}

    async def ask(self, context: Context, request: Request) -> dict[str, Any]:
        params = _params(request)
        assert context.peer is not None
        return {"answer": await context.peer.ask(params["method"], params.get("params"))}

    async def need(self, _context: Context, _request: Request) -> None:
        raise MissingClientCapability("sampling is missing", {"requiredCapabilities": {}})

    async def lack(self, _context: Context, _request: Request) -> None:
        raise RelayedFault(-32601, "Method not found")  # says the server behind us


def install(gateway: Gateway) -> Verbs:
    verbs = Verbs()
    methods = {
        "test/say": verbs.say,
        "test/ask": verbs.ask,
        "test/need": verbs.need,
        "test/lack": verbs.lack,
    }
    known = gateway.dispatcher._methods
    known.update({name: Method(handler, _always) for name, handler in methods.items()})  # type: ignore[attr-defined]
    return verbs


def _params(request: Request) -> dict[str, Any]:
    assert isinstance(request.params, dict)
    return request.params


async def _tell(context: Context, texts: Any) -> None:
    assert context.peer is not None
    for text in texts:
        await context.peer.notify(encode(Notification(SAID, {"level": "info", "data": text})))


def _always(_revision: Revision) -> bool:
    return True
