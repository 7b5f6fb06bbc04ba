"""Operations over HTTP: authentication, routes, parsing of requests, responses.

Who may call an operation, and how it is answered, is up to the API that serves them.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import anyio
from anyio import CancelScope
from starlette.types import Receive, Scope, Send

from gateway.context import Identify, Identity, Principal, new_request_id
from gateway.operations.operation import ALL, Operation, OperationInput, allows
from gateway.operations.operation_server import OperationResponse, problem_response
from gateway.operations.problems import ProblemDetails, bad_request, lacks_scope, not_found
from gateway.operations.progress_streams import ProgressStream, wants_events
from gateway.operations.request_parsing import (
    Headers,
    check_accept,
    headers_of,
    read_body,
    read_names,
    read_query,
    receive_body,
    segments,
)
from gateway.protocol.challenges import REALM, challenge
from schemas.errors import Fault, TooManyRequests, Unavailable
from schemas.hybrid import ScopeMismatch
from schemas.similar_names import did_you_mean

T = TypeVar("T")

log = logging.getLogger("toolgate.operations")

# Responses are private and must not be cached or rendered by a browser.
COMMON = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
}
GET_BYTES = 65536  # read of the body of an operation without one

Routes = Mapping[tuple[str, ...], Mapping[str, Operation]]
"""Operations by the parts of their path and by method."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedRequest:
    """A request for an operation, its path read and the rest unparsed."""

    operation: Operation
    identity: Identity
    names: Mapping[str, str]  # path parameters
    query: bytes
    headers: Headers  # by lower-case name
    request_id: str
    client: str  # address
    body: bytes = b""
    stream: ProgressStream | None = None  # of the client's, where it wants the progress

    @property
    def principal(self) -> Principal:
        return self.identity.principal

    def parse(self) -> OperationInput:
        """Raises ProblemDetails."""
        read_names(self.operation, self.names)
        query = read_query(self.operation, self.query)
        body = read_body(self.operation, self.body, self.headers)
        return OperationInput(self.principal, self.names, query=query, body=body)


class OperationApi(ABC):
    """An ASGI application that serves operations below `root`."""

    def __init__(
        self,
        root: str,
        limit_bytes: int,
        limit: str,
        identify: Identify,
        *,
        keep_alive_s: float | None = None,
    ) -> None:
        """`limit`: the setting that `limit_bytes`, the largest body, is from. `keep_alive_s`:
        between the keep-alives of streams; None: long operations have none."""
        self._keep_alive_s = keep_alive_s
        self._root = root
        self._limit_bytes = limit_bytes
        self._limit = limit
        self._identify = identify

    @abstractmethod
    def routes(self) -> Routes:
        """The operations that are served now. Raises ProblemDetails while none is."""

    @abstractmethod
    async def answer(self, request: ReceivedRequest) -> OperationResponse:
        """The response to a request whose body was read. Raises ProblemDetails."""

    def admit(self, identity: Identity, client: str) -> None:  # noqa: B027 - optional
        """Check and count a request, before it is routed. Raises ProblemDetails, and
        TooManyRequests."""

    def authorize(self, request: ReceivedRequest) -> None:  # noqa: B027 - optional
        """Check the right to call the operation, before the body is read. Raises
        ProblemDetails."""

    def record(self, request: ReceivedRequest, status: int) -> None:  # noqa: B027 - optional
        """Record a request and the status of its response."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = new_request_id()
        stream = self._stream(scope, send, request_id)
        try:
            response = await self._respond(scope, receive, request_id, stream)
        except ProblemDetails as problem:
            response = problem_response(problem, request_id)
        except Exception:
            extra = {"request_id": request_id, "path": scope["path"][:100]}
            log.exception("unexpected_error", extra=extra)
            crash = ProblemDetails(
                500, "internal", "Internal error; the gateway's log has the story."
            )
            response = problem_response(crash, request_id)
        if stream is None or not await stream.finish(response):
            await send_response(send, response, request_id, head=scope["method"] == "HEAD")

    def _stream(self, scope: Scope, send: Send, request_id: str) -> ProgressStream | None:
        if self._keep_alive_s is None or not wants_events(headers_of(scope)):
            return None
        return ProgressStream(send, request_id, self._keep_alive_s)

    async def _respond(
        self, scope: Scope, receive: Receive, request_id: str, stream: ProgressStream | None
    ) -> OperationResponse:
        identity = await self._identify(scope)
        client = (scope.get("client") or ("", 0))[0]
        self._admit(identity, client)
        headers = headers_of(scope)
        check_known(identity)
        methods, names = self._route(segments(scope, self._root))
        allow = ", ".join(sorted({*methods, "OPTIONS", *(["HEAD"] if "GET" in methods else [])}))
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        if method == "OPTIONS":
            return OperationResponse(204, headers={"Allow": allow})
        operation = methods.get(method)
        if operation is None:
            text = f"{scope['method'][:20]} is not for this path; it takes {allow}."
            raise ProblemDetails(405, "method-not-allowed", text, headers={"Allow": allow})
        received = ReceivedRequest(
            operation=operation,
            identity=identity,
            names=names,
            query=scope["query_string"],
            headers=headers,
            request_id=request_id,
            client=client,
            stream=stream.used_by(operation) if stream is not None else None,
        )
        return await self._answer_received(received, receive)

    async def _answer_received(
        self, request: ReceivedRequest, receive: Receive
    ) -> OperationResponse:
        response = None
        try:
            self.authorize(request)
            if request.stream is None:
                check_accept(request.headers)
            request = replace(request, body=await self._body(request, receive))
            if request.operation.waits or request.stream is not None:
                beside = [] if request.stream is None else [request.stream.beat]
                response = await run_while_connected(
                    receive, partial(self.answer, request), *beside
                )
            else:
                response = await self.answer(request)
        except ProblemDetails as problem:
            response = problem_response(problem, request.request_id)
        finally:
            self.record(request, response.status if response is not None else 500)
        return response

    def _admit(self, identity: Identity, client: str) -> None:
        """Raises ProblemDetails."""
        try:
            self.admit(identity, client)
        except TooManyRequests as fault:
            raise again_later(fault) from fault

    async def _body(self, request: ReceivedRequest, receive: Receive) -> bytes:
        """The request body. Raises ProblemDetails. Operations by GET take none; a small one is read
        to report it."""
        is_get = request.operation.method == "GET"
        most = min(self._limit_bytes, GET_BYTES) if is_get else self._limit_bytes
        try:
            return await receive_body(receive, request.headers, most, self._limit)
        except (TooManyRequests, Unavailable) as fault:  # memory budget of bodies exceeded
            raise again_later(fault) from fault

    def _route(self, segments: list[str] | None) -> tuple[Mapping[str, Operation], dict[str, str]]:
        """Operations of a path, and its path parameters. Raises ProblemDetails."""
        for parts, methods in self.routes().items() if segments is not None else ():
            if segments is None or len(parts) != len(segments):
                continue
            pairs = list(zip(parts, segments, strict=True))
            if all(part == part_ or (part[0] == "{" and part_) for part, part_ in pairs):
                return methods, {part[1:-1]: part_ for part, part_ in pairs if part[0] == "{"}
        problem = not_found("resource", "/".join(segments or ["?"]))
        resources = {parts[0] for parts in self.routes()}
        if segments and segments[0] not in resources:
            problem.detail = f"{problem.detail} {did_you_mean(segments[0], resources)}".rstrip()
        raise problem


async def run_while_connected(
    receive: Receive,
    work: Callable[[], Awaitable[T]],
    *beside: Callable[[], Coroutine[Any, Any, None]],
) -> T:
    """The result of `work` for the client of a request, whose body was read; `beside` runs as long.
    Raises ProblemDetails and Fault, and ProblemDetails for a client that went away."""
    results: list[T] = []
    failure: ProblemDetails | Fault | None = None
    async with anyio.create_task_group() as group:
        group.start_soon(_cancel_when_gone, receive, group.cancel_scope)
        for task in beside:
            group.start_soon(task)
        try:
            results.append(await work())
        except (ProblemDetails, Fault) as error:
            failure = error
        group.cancel_scope.cancel()
    if failure is not None:
        raise failure
    if not results:
        raise bad_request("The client went away.")
    return results[0]


async def _cancel_when_gone(receive: Receive, scope: CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


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


def again_later(fault: TooManyRequests | Unavailable) -> ProblemDetails:
    headers = {"Retry-After": str(fault.retry_after)}
    kind = "too-many-requests" if fault.status == 429 else "unavailable"
    return ProblemDetails(fault.status, kind, fault.message, headers=headers)


def check_known(identity: Identity) -> None:
    """Raises ProblemDetails for refused callers."""
    if identity.refusal is not None:
        raise refusal_problem(identity.refusal)


def refusal_problem(fault: Fault) -> ProblemDetails:
    """Problem of a refused caller: 401 without valid credentials, 403 without a scope that each
    call requires or where a hook refuses, 503 while the credentials cannot be verified."""
    if isinstance(fault, TooManyRequests | Unavailable):
        return again_later(fault)
    status = fault.failed_status(401)
    kinds = {401: "unauthorized", 403: "forbidden"}
    kind = "insufficient-scope" if isinstance(fault, ScopeMismatch) else kinds.get(status, "failed")
    value = challenge(fault) or (REALM if status == 401 else None)
    headers = {} if value is None else {"WWW-Authenticate": value}
    return ProblemDetails(status, kind, fault.message, headers=headers)


def check_scope(principal: Principal, scope: str) -> None:
    """Raises ProblemDetails without the scope."""
    if not allows(principal, scope):
        value = f'{REALM}, error="insufficient_scope", scope="{scope}"'
        is_admin = ALL in principal.scopes
        raise lacks_scope(scope, {"WWW-Authenticate": value}, is_admin=is_admin)
