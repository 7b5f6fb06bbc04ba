"""The gateway as an OAuth 2.1 protected resource: metadata, resource identifiers, scopes.

RFC 9728 (metadata of the resource), RFC 6750 section 3 (challenges), and their use by MCP
revisions: clients of 2025-06-18 and later look for the metadata; those of 2025-03-26 look for that
of the authorization server at our own origin.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from msgspec.json import encode
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from config.access import OAuth
from gateway.context import Identify, Identity, new_request_id
from gateway.guards.error_responses import refusal
from schemas.errors import Fault, InvalidRequest
from schemas.hybrid import AUTH_TOKEN_SCOPE_MISMATCH, ScopeMismatch

WELL_KNOWN = "/.well-known/oauth-protected-resource"

NAME = "Toolgate"
METADATA_AGE_S = 300  # max-age of the metadata
CHALLENGE = b'Bearer realm="toolgate"'
SCOPE = b'scope="'


class ResourceIdentifiers:
    def __init__(
        self, public_url: str, endpoints: Collection[str], *, main: str = "", whole: bool = False
    ) -> None:
        """Resource identifiers. `endpoints` are paths; `main` is the default one: "" for the whole
        server. `whole`: tokens are issued for the server, not for one endpoint."""
        self._public = urlsplit(public_url.rstrip("/")) if public_url else None
        self._endpoints = frozenset(endpoints)
        self._main = main
        self._whole = whole

    @property
    def endpoints(self) -> Collection[str]:
        return self._endpoints

    def serve(self, endpoints: Collection[str]) -> None:
        """Replace the endpoints."""
        self._endpoints = frozenset(endpoints)

    def endpoint(self, path: str) -> str | None:
        """The endpoint that serves `path`: an exact match or a parent."""
        path = path.rstrip("/")
        while path:
            if path in self._endpoints:
                return path
            path = path.rpartition("/")[0]
        return None

    def described_endpoint(self, path: str) -> str | None:
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
        """Origin and path prefix of all endpoints. Without `public_url` they come from the client's
        Host, which the origin guard has checked."""
        if self._public is not None:
            return f"{self._public.scheme}://{self._public.netloc}", self._public.path
        host = next((value for name, value in scope["headers"] if name == b"host"), b"")
        if host:
            return f"{scope['scheme']}://{host.decode('latin-1')}", ""
        address, port = scope["server"]  # HTTP/1.0
        return f"{scope['scheme']}://{address}:{port}", ""


Metadata = Callable[[], Awaitable[bytes]]
"""The metadata of the authorization server, encoded. Raises Fault."""


class UnknownResource(InvalidRequest):
    status = 404


def demanding(identify: Identify, scopes: Sequence[str]) -> Identify:
    """Wrap `identify` to refuse verified principals that lack a scope of `scopes`. Without
    required scopes or authentication it changes no result."""
    if not scopes:
        return identify
    required_scopes = frozenset(scopes)

    async def demand(scope: Scope) -> Identity:
        identity = await identify(scope)
        has = identity.principal.scopes
        if identity.refusal is not None or not identity.verified or required_scopes <= has:
            return identity
        fault = ScopeMismatch(AUTH_TOKEN_SCOPE_MISMATCH, has, required_scopes)
        return replace(identity, refusal=fault)

    return demand


class Challenges:
    """Completes the WWW-Authenticate of every front: the URL of the resource metadata (RFC 9728,
    section 5.1), and all scopes that the token needs."""

    def __init__(self, app: ASGIApp, resources: ResourceIdentifiers, scopes: Sequence[str]) -> None:
        self._app = app
        self._resources = resources
        self._required = tuple(scopes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def completing(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] in (401, 403):
                message["headers"] = [
                    (name, self._complete(scope, value) if name == b"www-authenticate" else value)
                    for name, value in message["headers"]
                ]
            await send(message)

        await self._app(scope, receive, completing if scope["type"] == "http" else send)

    def _complete(self, scope: Scope, challenge: bytes) -> bytes:
        endpoint = self._resources.endpoint(scope["path"])
        if endpoint is None or not challenge.startswith(CHALLENGE):
            return challenge
        url = self._resources.metadata_url(scope, endpoint).encode("latin-1")
        return b'%b, resource_metadata="%b"' % (self._merge_scopes(challenge), url)

    def _merge_scopes(self, challenge: bytes) -> bytes:
        """Merge the scopes into one list, those that every call requires first."""
        before, parameter, after = challenge.partition(SCOPE)
        named, end, remainder = after.partition(b'"')
        scopes = dict.fromkeys([*self._required, *named.decode("latin-1").split()])
        if not scopes:
            return challenge
        scope = " ".join(scopes).encode("latin-1")
        return (
            before + parameter + scope + end + remainder
            if parameter
            else b'%b, scope="%b"' % (before, scope)
        )


class WellKnown:
    """The documents below /.well-known; 404 where none applies."""

    def __init__(
        self,
        oauth: OAuth,
        resources: ResourceIdentifiers,
        legacy: Metadata | None,
        *,
        own_server: str = "",
        scopes: Sequence[str] = (),
    ) -> None:
        """The metadata of `resources`. `legacy` gives the authorization server's own metadata;
        None: it is not served. `own_server`: the gateway's login, if it is on, which knows
        `scopes`."""
        self._oauth = oauth
        self._servers = [*([own_server] if own_server else []), *oauth.authorization_servers]
        self._scopes = [*dict.fromkeys((*oauth.required_scopes, *oauth.scopes_supported, *scopes))]
        # clients in browsers register and log in from any origin
        self._open = {"Access-Control-Allow-Origin": "*"} if own_server else {}
        self._resources = resources
        self._legacy = legacy

    async def resource(self, request: Request) -> Response:
        """Metadata of the server and of each endpoint (RFC 9728, section 3.2)."""
        return await self._answer(request, self._resource)

    async def authorization_server(self, request: Request) -> Response:
        """Metadata of the authorization server at the gateway's origin (RFC 8414), where clients of
        2025-03-26 look for it."""
        return await self._answer(request, self._authorization_server)

    async def _answer(
        self, request: Request, serve: Callable[[Scope, str], Awaitable[bytes]]
    ) -> Response:
        try:
            endpoint = self._resources.described_endpoint("/" + request.path_params.get("path", ""))
            if endpoint is None:
                raise UnknownResource("There is no metadata of a protected resource by this path")
            body = await serve(request.scope, endpoint)
        except Fault as fault:
            return refusal(fault)
        headers = {
            "Cache-Control": f"public, max-age={METADATA_AGE_S}",
            "X-Request-Id": new_request_id(),
            **self._open,
        }
        return Response(body, headers=headers, media_type="application/json")

    async def _resource(self, scope: Scope, endpoint: str) -> bytes:
        oauth = self._oauth
        document = {
            "resource": self._resources.identifier(scope, endpoint),
            "authorization_servers": self._servers,
            "scopes_supported": self._scopes,
            "bearer_methods_supported": ["header"],
            "resource_name": f"{NAME} {endpoint}".strip(),
            "resource_documentation": oauth.documentation,
        }
        # RFC 9728, section 3.2: members without a value are omitted
        return encode({name: value for name, value in document.items() if value})

    async def _authorization_server(self, _scope: Scope, _endpoint: str) -> bytes:
        if self._legacy is None:
            raise UnknownResource("There is no metadata of an authorization server here")
        return await self._legacy()
