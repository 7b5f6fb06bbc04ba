"""A second port for clients of LightRAG, which know no path: its requests are those of
`/lightrag/COLLECTION` at the gateway's own port, with all that guards these."""

import socket

from starlette.types import ASGIApp, Receive, Scope, Send

from config.knowledge import KnowledgeSettings
from schemas.errors import ToolgateError

PREFIX = "/lightrag/"
BACKLOG = 128


class LightRagPort:
    """Adds the prefix to the paths of requests that came by one port."""

    def __init__(self, app: ASGIApp, port: int, collection: str) -> None:
        self._app = app
        self._port = port
        self._prefix = PREFIX + collection

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (scope.get("server") or ("", 0))[1] == self._port:
            raw = self._prefix.encode() + scope.get("raw_path", scope["path"].encode())
            scope = {**scope, "path": self._prefix + scope["path"], "raw_path": raw}
        await self._app(scope, receive, send)


def lightrag_listener(settings: KnowledgeSettings, beside: socket.socket) -> socket.socket | None:
    """A socket of that port on the host of another one; None: the settings want none. Workers have
    one each. Raises ToolgateError."""
    port = settings.lightrag.port
    if not settings.enabled or not port or beside.family == socket.AF_UNIX:
        return None
    host = beside.getsockname()[0]
    listener = socket.socket(beside.family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        reason = (error.strerror or str(error)).lower()
        raise ToolgateError(
            f"cannot listen on {host}:{port} (knowledge.lightrag.port): {reason}"
        ) from error
    listener.set_inheritable(False)
    return listener
