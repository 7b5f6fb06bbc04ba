"""The admin API over HTTP: identity, scopes, rates, repeats, operations, answers.

A secret that an answer holds is not kept: who repeats the request gets the rest of it.

Knows operations as they are declared, and nothing of what they do.
"""

import hashlib
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import msgspec
import psycopg
from msgspec import Struct
from psycopg_pool import PoolTimeout
from starlette.types import Receive, Scope, Send

from config.access import Admin as Settings
from gateway.context import Identify, Identity, Principal, new_request_id
from gateway.networks import network
from gateway.operations.answering import answering, value_of
from gateway.operations.operation import (
    MEDIA_TYPE,
    Mistake,
    Operation,
    OperationInput,
    OperationOutput,
    ProblemDetails,
    TaggedView,
    allows,
    bad_request,
    changed,
    not_found,
    unavailable,
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
    tags,
)
from gateway.state.once import NoDatabase, Once, OtherRequest, Owner, Unfinished
from gateway.state.rates import LocalRates
from schemas.errors import TooManyRequests, Unavailable, whole_seconds

# Answers are for who asked and for now, and nothing for a browser to make something of.
COMMON = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class AdminResponse:
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    media_type: str = "application/json"


def problem_response(problem: ProblemDetails, request_id: str) -> AdminResponse:
    return AdminResponse(problem.status, problem.encode(request_id), problem.headers, MEDIA_TYPE)


def tag_of(value: Any) -> str:
    """The entity tag of a representation: the same for the same bytes (RFC 9110, 8.8.3), but for
    the members that a TaggedView leaves out."""
    told = value
    if isinstance(value, TaggedView):
        members = msgspec.structs.asdict(value)
        told = {name: one for name, one in members.items() if name not in value.untagged}
    return f'"{hashlib.sha256(msgspec.json.encode(told)).hexdigest()[:32]}"'


async def send_response(
    send: Send, response: AdminResponse, request_id: str, *, head: bool
) -> None:
    """`head`: only what would stand in front of the body."""
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
        """One request of a principal; strangers are told apart by address. Raises Problem."""
        if not self._most:
            return
        stranger = identity.refusal is not None
        key = ("", network(client)) if stranger else identity.principal.key
        wait_s = self._rates.take(key, self._most, self._window_s)
        if wait_s:
            raise _too_many(self._most, self._window_s, whole_seconds(wait_s))


def _too_many(most: int, window_s: float, wait_s: int) -> ProblemDetails:
    text = (
        f"Too many requests: at most {most} in {window_s:g} s (admin.requests); try again in "
        f"{wait_s} s."
    )
    return ProblemDetails(429, "too-many-requests", text, headers={"Retry-After": str(wait_s)})


log = logging.getLogger("toolgate.admin")

KEY = re.compile(r"[\x21-\x7e]{1,128}")


class _Kept(Struct):
    status: int
    body: str
    headers: dict[str, str]
    media_type: str


_kept = msgspec.json.Decoder(_Kept)

Done = tuple[
    AdminResponse, AdminResponse
]  # what is told, and what is told to who repeats the request


class Repeats:
    def __init__(self, once: Once) -> None:
        self._once = once

    async def run(
        self,
        key: str,
        principal: Principal,
        what: str,
        request: bytes,
        work: Callable[[], Awaitable[Done]],
    ) -> AdminResponse:
        """Do `work`, or give what it gave before. Raises Problem, and what `work` raises: then
        nothing is kept."""
        if not KEY.fullmatch(key):
            text = "expected 1 to 128 visible ASCII characters"
            raise bad_request("The key cannot be used.", Mistake(text, header="Idempotency-Key"))
        owner = Owner(principal.tenant, principal.id[:256], f"admin {what}", key)
        try:
            earlier = await self._once.claim(owner, request)
        except OtherRequest as error:
            text = "The Idempotency-Key was used for a different request."
            raise ProblemDetails(422, "idempotency-key-reused", text) from error
        except Unfinished as error:
            text = "A request with this Idempotency-Key still runs, or its outcome is not known."
            raise ProblemDetails(409, "idempotency-key-in-use", text) from error
        except (psycopg.OperationalError, PoolTimeout, NoDatabase) as error:
            raise unavailable("The database does not answer; nothing was done.") from error
        if earlier is not None:
            return _restored(earlier)
        # Else the key would belong to nobody knows what.
        with anyio.CancelScope(shield=True):
            return await self._first(owner, work)
        raise AssertionError  # a scope that nobody cancels swallows nothing

    async def _first(self, owner: Owner, work: Callable[[], Awaitable[Done]]) -> AdminResponse:
        try:
            told, again = await work()
        except BaseException:
            await self._settle(owner, None)
            raise
        await self._settle(owner, again if again.status < 500 else None)
        return told

    async def _settle(self, owner: Owner, again: AdminResponse | None) -> None:
        try:
            if again is None:
                await self._once.release(owner)
            else:
                await self._once.keep(owner, _encoded(again))
        except (psycopg.OperationalError, PoolTimeout, NoDatabase):
            log.exception("admin_key_not_kept")


def _encoded(response: AdminResponse) -> bytes:
    headers = dict(response.headers)
    kept = _Kept(response.status, response.body.decode(), headers, response.media_type)
    return msgspec.json.encode(kept)


def _restored(data: bytes) -> AdminResponse:
    kept = _kept.decode(data)
    return AdminResponse(kept.status, kept.body.encode(), kept.headers, kept.media_type)


GET_BYTES = 65536  # of a body that no operation takes
REALM = 'Bearer realm="toolgate"'


@dataclass(frozen=True, slots=True)
class AdminAction:
    """What was asked for, and what became of it, for those who remember it."""

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
        """`refusal`: why nobody is served. `record` hears of everything that is asked for."""
        self._root = settings.path
        self._limit_bytes = settings.body_limit_bytes
        self._identify = identify
        self._rates = RequestRates(settings)
        self._repeats = repeats
        self._record = record
        self._refusal = refusal
        self.serve(operations)

    def serve(self, operations: Sequence[Operation]) -> None:
        """These are the operations from now on."""
        self._routes: dict[tuple[str, ...], dict[str, Operation]] = {}
        for one in operations:
            self._routes.setdefault(one.parts, {})[one.method] = one
        self._by_id = {one.id: one for one in operations}

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

    async def _respond(self, scope: Scope, receive: Receive, request_id: str) -> AdminResponse:
        if self._refusal is not None:
            raise replace(self._refusal)  # one that is raised again would grow its traceback
        identity = await self._identify(scope)
        client = (scope.get("client") or ("", 0))[0]
        self._rates.count(identity, client)
        headers = headers_of(scope)
        principal = check_known(identity, headers)
        methods, names = self._route(segments(scope, self._root))
        allow = ", ".join(sorted({*methods, "OPTIONS", *(["HEAD"] if "GET" in methods else [])}))
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        if method == "OPTIONS":
            return AdminResponse(204, headers={"Allow": allow})
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
            response = await self._answer(operation, asked, headers, body, request_id)
        except ProblemDetails as problem:
            response = problem_response(problem, request_id)
        finally:
            status = response.status if response is not None else 500
            kept = b"" if operation.secret else body
            self._record(
                AdminAction(principal, operation.id, names, status, request_id, client, kept)
            )
        return response

    async def _body(self, scope: Scope, receive: Receive, headers: Headers) -> bytes:
        """Raises Problem. No operation takes a body by GET, and a small one is read to say so."""
        limit = min(self._limit_bytes, GET_BYTES) if scope["method"] == "GET" else self._limit_bytes
        try:
            return await receive_body(receive, headers, limit)
        except (TooManyRequests, Unavailable) as fault:  # no room for more of it
            again = {"Retry-After": str(fault.retry_after)}
            kind = "too-many-requests" if fault.status == 429 else "unavailable"
            raise ProblemDetails(fault.status, kind, fault.message, headers=again) from fault

    def _route(self, found: list[str] | None) -> tuple[dict[str, Operation], dict[str, str]]:
        """The operations of a path, and the names in it. Raises Problem."""
        for parts, methods in self._routes.items() if found is not None else ():
            if found is None or len(parts) != len(found):
                continue
            pairs = list(zip(parts, found, strict=True))
            if all(part == one or (part[0] == "{" and one) for part, one in pairs):
                return methods, {part[1:-1]: one for part, one in pairs if part[0] == "{"}
        raise not_found("resource", "/".join(found or ["?"]))

    async def _answer(
        self,
        operation: Operation,
        asked: OperationInput,
        headers: Headers,
        body: bytes,
        request_id: str,
    ) -> AdminResponse:
        key = headers.get("idempotency-key")

        async def work() -> Done:
            try:
                present = await self._present(operation, asked, headers)
                given = await answering(operation, replace(asked, present=present))
            except ProblemDetails as problem:
                refused = problem_response(problem, request_id)
                return refused, refused
            return self._told(operation, given, headers)

        if operation.method != "POST" or key is None:
            return (await work())[0]
        what = f"{operation.id} {'/'.join(asked.names.values())}"
        return await self._repeats.run(key, asked.principal, what, body, work)

    async def _present(self, operation: Operation, asked: OperationInput, headers: Headers) -> Any:
        """What is to be changed, if the request says which it means. Raises Problem: 428, 412."""
        wanted = headers.get("if-match")
        new_only = operation.creates and headers.get("if-none-match") == "*"
        if not operation.match or (wanted is None and not new_only):
            if operation.match == "required":
                new = ", or If-None-Match: * for what is new" if operation.creates else ""
                text = f"It needs If-Match with the ETag of what is to be changed{new}."
                raise ProblemDetails(428, "precondition-required", text)
            return None
        reader = self._by_id[operation.of] if operation.of else self._routes[operation.parts]["GET"]
        try:
            present = await answering(reader, asked)
        except ProblemDetails as problem:
            if problem.status != 404 or not operation.creates:
                raise
            present = None
        tag = None if present is None else tag_of(value_of(present))
        if not _holds(tag, wanted, "*" if new_only else None):
            raise changed()
        return value_of(present)

    def _told(self, operation: Operation, given: Any, headers: Headers) -> Done:
        told = given if isinstance(given, OperationOutput) else OperationOutput(given)
        status = told.status or operation.status
        if told.value is None:
            empty = AdminResponse(status)
            return empty, empty
        body = msgspec.json.encode(told.value)
        also = {"Location": self._root + told.location} if told.location else {}
        if operation.method in {"GET", "PUT"}:
            also["ETag"] = tag_of(told.value)
            partly = isinstance(told.value, TaggedView)  # its tag does not tell whether all is old
            unless = None if partly else headers.get("if-none-match")
            if operation.method == "GET" and unless and not _holds(also["ETag"], None, unless):
                unchanged = AdminResponse(304, headers=also)
                return unchanged, unchanged
        response = AdminResponse(status, body, also)
        if told.untold is None:
            return response, response
        return response, replace(response, body=msgspec.json.encode(told.untold))


def check_known(identity: Identity, headers: Headers) -> Principal:
    """Raises Problem for strangers."""
    if identity.refusal is None:
        return identity.principal
    came = "authorization" in headers or "x-api-key" in headers
    challenge = f'{REALM}, error="invalid_token"' if came else REALM
    detail = identity.refusal.message
    raise ProblemDetails(401, "unauthorized", detail, headers={"WWW-Authenticate": challenge})


def check_scope(principal: Principal, scope: str) -> None:
    """Raises Problem for who may not."""
    if scope and not allows(principal, scope):
        challenge = f'{REALM}, error="insufficient_scope", scope="{scope}"'
        text = f"This takes the scope {scope}."
        raise ProblemDetails(
            403, "insufficient-scope", text, headers={"WWW-Authenticate": challenge}
        )


def _holds(tag: str | None, wanted: str | None, unless: str | None) -> bool:
    """RFC 9110, 13.1: whether a representation with this tag, None of none, is meant."""
    if wanted is not None:
        named = tags(wanted)
        if tag is None or ("*" not in named and tag not in named):  # strong comparison
            return False
    if unless is not None:
        named = tuple(one.removeprefix("W/") for one in tags(unless))
        if tag is not None and ("*" in named or tag in named):
            return False
    return True
