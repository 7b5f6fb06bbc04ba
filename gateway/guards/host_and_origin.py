"""Host and Origin checks against DNS rebinding: a web page must not reach a gateway on localhost.

DNS rebinding makes a page's own host name resolve to 127.0.0.1; the Host and Origin headers still
reveal it (MCP 2025-11-25, transports: security warning). An absent Origin is no browser's
cross-site request and is let in. A request of HTTP/1.1 has exactly one Host (RFC 9112, 3.2).
"""

import re
from collections.abc import Awaitable, Collection, Sequence

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.guards.error_responses import refuse
from schemas.errors import Fault, Forbidden, InvalidRequest

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")
LOOPBACK_ORIGIN = r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?"
HOSTS_REMEMBERED = 100  # a port is part of the header, and a client may vary it
FOREIGN_HOST = "This host name is not served here (server.allowed_hosts)"
NO_HOST = "A request of HTTP/1.1 needs a Host header"
HOSTS = "A request has one Host header, not several"
FOREIGN_ORIGIN = "This origin may not call the gateway (server.allowed_origins)"
OPEN_PATHS = frozenset({"/health", "/ready"})  # probes use the IP address


class OriginGuard:
    """Refuses foreign hosts and origins with 403; answers browsers of known origins with CORS."""

    def __init__(
        self,
        app: ASGIApp,
        hosts: Sequence[str],
        origins: Sequence[str],
        any_origin: Collection[str] = (),
    ) -> None:
        """`any_origin`: paths that check, or answer, every origin themselves, as do those below
        them."""
        self._app = app
        self._any_origin = frozenset(any_origin)
        self._below_any = tuple(f"{path}/" for path in any_origin)
        self._for_browsers = CORSMiddleware(
            app,
            allow_origins=[origin.lower().rstrip("/") for origin in origins],
            allow_origin_regex=LOOPBACK_ORIGIN,
            allow_methods=["GET", "POST", "PUT", "DELETE"],
            # Without this header a page that sends cookies cannot read the answer. Protocols and
            # APIs ignore cookies; their callers are identified by Authorization, which browsers
            # never add on their own. The console, which has cookies, refuses foreign pages.
            allow_credentials=True,
            allow_headers=["*"],
            expose_headers=[
                "Mcp-Session-Id",
                "X-Request-Id",
                "WWW-Authenticate",
                "Retry-After",
                "ETag",
                "Deprecation",
                "Sunset",
                "Link",
            ],
        )
        self._hosts = frozenset(host.lower() for host in (*LOOPBACK_HOSTS, *hosts))
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)
        self._loopback = re.compile(LOOPBACK_ORIGIN)
        self._seen_hosts: set[bytes] = set()  # accepted Host headers, as sent

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] != "http":
            return self._app(scope, receive, send)
        pairs = scope["headers"]
        fields = dict(pairs)  # of most requests, which repeat no header and come from no browser
        if (
            fields.get(b"host") in self._seen_hosts
            and b"origin" not in fields
            and len(fields) == len(pairs)
        ):
            return self._app(scope, receive, send)
        return self._check(scope, receive, send)

    async def _check(self, scope: Scope, receive: Receive, send: Send) -> None:
        app, host, checked = self._app, None, scope["path"] not in OPEN_PATHS
        for name, value in scope["headers"]:
            if name == b"host":
                if host is not None:
                    await refuse(scope, receive, send, InvalidRequest(HOSTS))
                    return
                host = value
            elif name == b"origin" and checked and not self._is_for_all(scope["path"]):
                if not self._known_origin(value.decode("latin-1").lower()):
                    await refuse(scope, receive, send, Forbidden(FOREIGN_ORIGIN))
                    return
                app = self._for_browsers
        if host not in self._seen_hosts and (fault := self._refusal(scope, host, checked)):
            await refuse(scope, receive, send, fault)
            return
        await app(scope, receive, send)

    def _is_for_all(self, path: str) -> bool:
        return path in self._any_origin or path.startswith(self._below_any)

    def _refusal(self, scope: Scope, host: bytes | None, checked: bool) -> Fault | None:
        """The fault of a Host header; for probes (not `checked`) it only has to be present."""
        if host is None:
            return InvalidRequest(NO_HOST) if scope.get("http_version") == "1.1" else None
        return Forbidden(FOREIGN_HOST) if checked and not self._known_host(host) else None

    def _known_host(self, header: bytes) -> bool:
        host = header.decode("latin-1").lower()
        is_known = host in self._hosts or re.sub(r":\d+$", "", host) in self._hosts
        if is_known and len(self._seen_hosts) < HOSTS_REMEMBERED:
            self._seen_hosts.add(header)
        return is_known

    def _known_origin(self, origin: str) -> bool:
        return origin in self._origins or self._loopback.fullmatch(origin) is not None
