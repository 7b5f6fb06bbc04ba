"""What OAuth calls the endpoints of this gateway: resource identifiers (RFC 8707, section 2), and
where their metadata stands (RFC 9728, section 3)."""

from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.types import Scope

WELL_KNOWN = "/.well-known/oauth-protected-resource"


class ResourceIdentifiers:
    def __init__(
        self, public_url: str, endpoints: Collection[str], *, main: str = "", whole: bool = False
    ) -> None:
        """`endpoints` are paths, and `main` is the one that is meant where none is named: "" for
        the server. `whole`: tokens are for the server, and not for one of them."""
        self._public = urlsplit(public_url.rstrip("/")) if public_url else None
        self._endpoints = frozenset(endpoints)
        self._main = main
        self._whole = whole

    def serve(self, endpoints: Collection[str]) -> None:
        """These are the endpoints from now on."""
        self._endpoints = frozenset(endpoints)

    def endpoint(self, path: str) -> str | None:
        """The endpoint that serves `path`, which is its own or one below."""
        path = path.rstrip("/")
        while path:
            if path in self._endpoints:
                return path
            path = path.rpartition("/")[0]
        return None

    def described(self, path: str) -> str | None:
        """The endpoint whose metadata has this path after WELL_KNOWN, with or without the path of
        `public_url` in front; "" for the server."""
        prefix = self._public.path if self._public else ""
        path = path.rstrip("/")
        if prefix and (path == prefix or path.startswith(f"{prefix}/")):
            path = path[len(prefix) :]
        return self.endpoint(path) if path else self._main

    def identifier(self, scope: Scope, endpoint: str) -> str:
        origin, prefix = self._base(scope)
        return origin + prefix + ("" if self._whole else endpoint)

    def metadata_url(self, scope: Scope, endpoint: str) -> str:
        origin, prefix = self._base(scope)
        return f"{origin}{WELL_KNOWN}{prefix}{endpoint}"

    def _base(self, scope: Scope) -> tuple[str, str]:
        """Origin, and the path in front of all of ours. Without `public_url` the client knows
        best: its Host is one that is served here, or it would not have come this far."""
        if self._public is not None:
            return f"{self._public.scheme}://{self._public.netloc}", self._public.path
        host = next((value for name, value in scope["headers"] if name == b"host"), b"")
        if host:
            return f"{scope['scheme']}://{host.decode('latin-1')}", ""
        address, port = scope["server"]  # HTTP/1.0
        return f"{scope['scheme']}://{address}:{port}", ""
