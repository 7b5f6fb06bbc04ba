"""Dispatch to the protocol fronts by exact path, once the catalog is loaded.

It stands before the router because every call passes here, and a dictionary lookup beats regular
expressions. Listing and calling wait for the catalog: clients would believe an empty list.
"""

from collections.abc import Awaitable, Callable, Mapping

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.guards.error_responses import refuse
from schemas.errors import Fault, Unavailable


class FrontDoor:
    """Dispatches a request to the front of its path, and others to the router; 503 while `ready()`
    is false or `shed()` returns a fault."""

    def __init__(
        self,
        app: ASGIApp,
        fronts: Mapping[str, ASGIApp],
        ready: Callable[[], bool],
        shed: Callable[[], Fault | None] = lambda: None,
        *,
        find: Callable[[str], ASGIApp | None] = lambda _path: None,
    ) -> None:
        """A door to `fronts`, and to those that `find` makes for a path they lack."""
        self._app = app
        self._fronts = fronts
        self._ready = ready
        self._shed = shed
        self._find = find

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        # `/mcp/` means `/mcp`; a redirect would lose the body of a POST
        path = scope["path"].rstrip("/") if scope["type"] == "http" else ""
        front = self._fronts.get(path) or self._find(path)
        if front is None:
            return self._app(scope, receive, send)
        if not self._ready():
            fault = Unavailable("The gateway is starting or stopping; /ready has the details")
            return refuse(scope, receive, send, fault)
        if (overload := self._shed()) is not None:
            return refuse(scope, receive, send, overload)
        return front(scope, receive, send)
