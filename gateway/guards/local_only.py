"""Local access only: pages for operators, while no caller is authenticated."""

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.guards.error_responses import refuse
from gateway.guards.metrics_access import is_local
from schemas.errors import Forbidden

LOCAL_ONLY = (
    "Without authentication (auth.mode is none) the console is for browsers on the gateway's "
    "machine that no proxy forwards; set auth.mode to keys or jwt"
)


class LocalOnly:
    """Refuses requests of other machines, and all that a proxy forwards: a proxy can pass on any
    address that a client made up."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not is_local(scope):
            await refuse(scope, receive, send, Forbidden(LOCAL_ONLY))
            return
        await self._app(scope, receive, send)
