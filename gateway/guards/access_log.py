"""Access log: one line per HTTP request, enabled by `logging.access`."""

import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger("toolgate.access")


class AccessLog:
    """Logs method, path, status, time and request id of each request; never the query, which may
    hold secrets."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        fields: dict[str, object] = {"method": scope["method"], "path": scope["path"]}

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = dict(message.get("headers", ()))
                fields["status"] = message["status"]
                fields["request_id"] = headers.get(b"x-request-id", b"").decode()
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            fields["ms"] = round((time.perf_counter() - began) * 1000, 1)
            log.info("request", extra=fields)
