"""The admin API over HTTP: authentication, scopes, rate limits, idempotency keys, dispatch,
responses.

A secret in a response is not stored: a repeated request gets the response without it.

Dispatches declared operations; it does not know what they do.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from starlette.types import Receive, Scope, Send

from config.access import Admin as Settings
from gateway.context import Identify, Identity, Principal, new_request_id
from gateway.networks import network
from gateway.operations.operation import (
    Operation,
    OperationInput,
    ProblemDetails,
    allows,
    not_found,
)
from gateway.operations.requests import (
    Headers,
    check_accept,
    headers_of,
    read_body,
    read_names,
    read_query,
    receive_body,
    segments,
)
from gateway.operations.serving import (
    OperationResponse,
    OperationServer,
    Repeats,
    problem_response,
)
from gateway.state.rates import LocalRates
from schemas.errors import TooManyRequests, Unavailable, whole_seconds

# Responses are private and must not be cached or rendered by a browser.
COMMON = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
}


async def send_response(
    send: Send, response: OperationResponse, request_id: str, *, head: bool
) -> None:
    """`head`: send the headers only."""
    headers = {**COMMON, "x-request-id": request_id}
    headers |= {name.lower(): value for name, value in response.headers.items()}
    if response.status not in {204, 304}:
        headers |= {"content-type": response.media_type, "content-length": str(len(response.body))}
    pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": response.status, "headers": pairs})
    body = b"" if head or response.status in {204, 304} else response.body
    await send({"type": "http.response.body", "body": body})


class RequestRates:
    def __init__(self, settings: Settings) -> None:
        self._most = settings.requests
        self._window_s = settings.per_s
        self._rates = LocalRates()

    def count(self, identity: Identity, client: str) -> None:
        """Count one request of a principal, or of a client address for anonymous callers. Raises
        TooManyRequests."""
        if not self._most:
            return
        stranger = identity.refusal is not None
        key = ("", network(client)) if stranger else identity.principal.key
        wait_s = self._rates.take(key, self._most, self._window_s)
        if wait_s:
            raise self._too_many(wait_s)

    def _too_many(self, wait_s: float) -> TooManyRequests:
        text = (
            f"Too many requests: at most {self._most} in {self._window_s:g} s (admin.requests); "
            f"try again in {whole_seconds(wait_s)} s."
        )
        return TooManyRequests(text, wait_s, "admin.requests")


log = logging.getLogger("toolgate.admin")

GET_BYTES = 65536  # read of the body of an operation without one
REALM = 'Bearer realm="toolgate"'


@dataclass(frozen=True, slots=True)
class AdminAction:
    """A request and its outcome, for the audit log."""

    principal: Principal
    operation: str
    names: Mapping[str, str]
    status: int
    request_id: str
    client: str  # address
    body: bytes  # empty where it holds a secret


Record = Callable[[AdminAction], None]


class AdminApi:
    def __init__(
        self,
        settings: Settings,
        identify: Identify,
        operations: Sequence[Operation],
        repeats: Repeats,
        record: Record,
        refusal: ProblemDetails | None = None,
    ) -> None:
        """`refusal`: fault returned to every request. `record` is called with every action."""
        self._root = settings.path
        self._limit_bytes = settings.body_limit_bytes
        self._identify = identify
        self.rates = RequestRates(settings)
        self._repeats = repeats
        self._record = record
        self._refusal = refusal
        self.serve(operations)

    def serve(self, operations: Sequence[Operation]) -> None:
        """Replace the operations."""
        self.operations = OperationServer(operations, self._repeats, self._root)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = new_request_id()
        try:
            response = await self._respond(scope, receive, request_id)
        except ProblemDetails as problem:
            response = problem_response(problem, request_id)
        except Exception:
            extra = {"request_id": request_id, "path": scope["path"][:100]}
            log.exception("unexpected_error", extra=extra)
            crash = ProblemDetails(
                500, "internal", "Internal error; the gateway's log has the story."
            )
            response = problem_response(crash, request_id)
        await send_response(send, response, request_id, head=scope["method"] == "HEAD")

    async def _respond(self, scope: Scope, receive: Receive, request_id: str) -> OperationResponse:
        if self._refusal is not None:
            raise replace(self._refusal)  # raising the same instance again would grow its traceback
        identity = await self._identify(scope)
        client = (scope.get("client") or ("", 0))[0]
        self._count(identity, client)
        headers = headers_of(scope)
        principal = check_known(identity, headers)
        methods, names = self._route(segments(scope, self._root))
        allow = ", ".join(sorted({*methods, "OPTIONS", *(["HEAD"] if "GET" in methods else [])}))
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        if method == "OPTIONS":
            return OperationResponse(204, headers={"Allow": allow})
        operation = methods.get(method)
        if operation is None:
            text = f"{scope['method'][:20]} is not for this path; it takes {allow}."
            raise ProblemDetails(405, "method-not-allowed", text, headers={"Allow": allow})
        body, response = b"", None
        try:
            check_scope(principal, operation.scope)
            check_accept(headers)
            body = await self._body(scope, receive, headers)
            read_names(names)
            asked = OperationInput(
                principal,
                names,
                read_query(operation, scope["query_string"]),
                read_body(operation, body, headers),
            )
            response = await self.operations.answer(operation, asked, headers, body, request_id)
        except ProblemDetails as problem:
            response = problem_response(problem, request_id)
        finally:
            status = response.status if response is not None else 500
            kept = b"" if operation.secret else body
            self._record(
                AdminAction(principal, operation.id, names, status, request_id, client, kept)
            )
        return response

    def _count(self, identity: Identity, client: str) -> None:
        """Apply the rate limit. Raises Problem."""
        try:
            self.rates.count(identity, client)
        except TooManyRequests as fault:
            raise again_later(fault) from fault

    async def _body(self, scope: Scope, receive: Receive, headers: Headers) -> bytes:
        """The request body. Raises Problem. Operations by GET take none; a small one is read to
        report it."""
        limit = min(self._limit_bytes, GET_BYTES) if scope["method"] == "GET" else self._limit_bytes
        try:
            return await receive_body(receive, headers, limit)
        except (TooManyRequests, Unavailable) as fault:  # memory budget of bodies exceeded
            raise again_later(fault) from fault

    def _route(self, found: list[str] | None) -> tuple[dict[str, Operation], dict[str, str]]:
        """Operations of a path, and its path parameters. Raises Problem."""
        for parts, methods in self.operations.routes.items() if found is not None else ():
            if found is None or len(parts) != len(found):
                continue
            pairs = list(zip(parts, found, strict=True))
            if all(part == one or (part[0] == "{" and one) for part, one in pairs):
                return methods, {part[1:-1]: one for part, one in pairs if part[0] == "{"}
        raise not_found("resource", "/".join(found or ["?"]))


def again_later(fault: TooManyRequests | Unavailable) -> ProblemDetails:
    headers = {"Retry-After": str(fault.retry_after)}
    kind = "too-many-requests" if fault.status == 429 else "unavailable"
    return ProblemDetails(fault.status, kind, fault.message, headers=headers)


def check_known(identity: Identity, headers: Headers) -> Principal:
    """The principal. Raises Problem for anonymous callers."""
    if identity.refusal is None:
        return identity.principal
    came = "authorization" in headers or "x-api-key" in headers
    challenge = f'{REALM}, error="invalid_token"' if came else REALM
    detail = identity.refusal.message
    raise ProblemDetails(401, "unauthorized", detail, headers={"WWW-Authenticate": challenge})


def check_scope(principal: Principal, scope: str) -> None:
    """Raises Problem without the scope."""
    if scope and not allows(principal, scope):
        challenge = f'{REALM}, error="insufficient_scope", scope="{scope}"'
        text = f"This takes the scope {scope}."
        raise ProblemDetails(
            403, "insufficient-scope", text, headers={"WWW-Authenticate": challenge}
        )
