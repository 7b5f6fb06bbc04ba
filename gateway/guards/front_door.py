"""The way to the protocol fronts: by exact path, and only when there is something to serve.

Before the router, because every call comes through here, and a dictionary beats regular
expressions. Nothing is listed or called before the catalog is there: an empty list would be
believed.
"""

from collections.abc import Callable, Mapping

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.guards.refusal import refuse
from schemas.errors import Fault, Unavailable


class FrontDoor:
    """Sends a request to the front of its path, 503 while `ready()` says no or `shed()` why not,
    else further on."""

    def __init__(
        self,
        app: ASGIApp,
        fronts: Mapping[str, ASGIApp],
        ready: Callable[[], bool],
        shed: Callable[[], Fault | None] = lambda: None,
    ) -> None:
        self._app = app
        self._fronts = fronts
        self._ready = ready
        self._shed = shed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # `/mcp/` is meant for `/mcp`; a redirect would lose the body of a POST
        path = scope["path"].rstrip("/") if scope["type"] == "http" else ""
        front = self._fronts.get(path)
        if front is None:
            await self._app(scope, receive, send)
        elif not self._ready():
            fault = Unavailable("The gateway is starting or stopping; /ready says more")
            await refuse(scope, receive, send, fault)
        elif (overload := self._shed()) is not None:
            await refuse(scope, receive, send, overload)
        else:
            await front(scope, receive, send)
