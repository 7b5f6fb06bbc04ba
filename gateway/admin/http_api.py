"""The admin API over HTTP: scopes, rate limits, and the audit of its actions.

A secret in a response is not stored: a repeated request gets the response without it.

Dispatches declared operations; it does not know what they do.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec
from msgspec import Struct

from config.access import Admin as Settings
from gateway.audit.records import AuditEntry, argument_digest, storable_text
from gateway.context import Identify, Identity, Principal
from gateway.operations.operation import Operation
from gateway.operations.operation_server import (
    Defer,
    IdempotentRunner,
    OperationResponse,
    OperationServer,
)
from gateway.operations.problems import ProblemDetails
from gateway.operations.rest_api import OperationApi, ReceivedRequest, Routes, check_scope
from gateway.state.rate_windows import LocalRates, network_of
from schemas.errors import TooManyRequests
from schemas.retry_after import whole_seconds


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
        key = ("", network_of(client)) if stranger else identity.principal.key
        wait_s = self._rates.take(key, self._most, self._window_s)
        if wait_s:
            raise self._too_many(wait_s)

    def _too_many(self, wait_s: float) -> TooManyRequests:
        text = (
            f"Too many requests: at most {self._most} in {self._window_s:g} s (admin.requests); "
            f"try again in {whole_seconds(wait_s)} s."
        )
        return TooManyRequests(text, wait_s, "admin.requests")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminAction:
    """A request and its outcome, for the audit log."""

    principal: Principal
    operation: str
    names: Mapping[str, str]
    status: int
    request_id: str
    client: str  # address
    body: bytes  # empty where it holds a secret

    @property
    def subject(self) -> str:
        """The entry of the path; without one what the body names, as that of a new key does."""
        return "/".join(self.names.values()) or _named_in(self.body)

    def entry(self, recorded: datetime, key: bytes, front: str = "admin") -> AuditEntry:
        return AuditEntry(
            self.principal.tenant,
            recorded,
            principal=storable_text(self.principal.id),
            mark=self.principal.mark,
            front=front,
            method=self.operation,
            subject=storable_text(self.subject),
            decision="deny" if self.status in (401, 403) else "allow",
            outcome="ok" if self.status < 400 else str(self.status),
            request_bytes=len(self.body),
            digest=argument_digest(key, self.body) if self.body else "",
            request_id=self.request_id,
            client=self.client,
        )


class _NamedEntry(Struct, frozen=True):
    name: str = ""


class _NamedBody(Struct, frozen=True):
    """The members of a body that name its subject."""

    name: str = ""
    subject: str | None = None
    jti: str | None = None
    tools: tuple[_NamedEntry | str, ...] = ()  # texts are no new ones


_named_body = msgspec.json.Decoder(_NamedBody)


def _named_in(body: bytes) -> str:
    try:
        named = _named_body.decode(body)
    except msgspec.DecodeError:  # none, or one that was refused
        return ""
    tool_names = ", ".join(tool.name for tool in named.tools if isinstance(tool, _NamedEntry))
    return named.name or named.subject or named.jti or tool_names


Record = Callable[[AdminAction], None]


class AdminApi(OperationApi):
    def __init__(
        self,
        settings: Settings,
        identify: Identify,
        *,
        operations: Sequence[Operation],
        repeats: IdempotentRunner,
        record: Record,
        refusal: ProblemDetails | None = None,
        defer: Defer | None = None,
    ) -> None:
        """The service of `operations`. `refusal`: fault returned to every request. `record` is
        called with every action. `defer` stores jobs; without it all operations answer at once."""
        limit = "admin.body_limit_bytes"
        super().__init__(settings.path, settings.body_limit_bytes, limit, identify)
        self.rates = RequestRates(settings)
        self._repeats = repeats
        self._defer = defer
        self._record = record
        self._refusal = refusal
        self.serve(operations)

    def serve(self, operations: Sequence[Operation]) -> None:
        """Replace the operations."""
        self.operations = OperationServer(operations, self._repeats, self._root, self._defer)

    def routes(self) -> Routes:
        return self.operations.routes

    def admit(self, identity: Identity, client: str) -> None:
        if self._refusal is not None:
            raise replace(self._refusal)  # raising the same instance again would grow its traceback
        self.rates.count(identity, client)

    def authorize(self, request: ReceivedRequest) -> None:
        check_scope(request.principal, request.operation.scope)

    async def answer(self, request: ReceivedRequest) -> OperationResponse:
        operation_input = request.parse()
        return await self.operations.answer(
            request.operation,
            operation_input,
            headers=request.headers,
            body=request.body,
            request_id=request.request_id,
        )

    def remember(self, action: AdminAction) -> None:
        """Record an action that did not come over HTTP."""
        self._record(action)

    def record(self, request: ReceivedRequest, status: int) -> None:
        operation = request.operation
        if status < 400 and not operation.audited:
            return
        recorded_body = b"" if operation.secret else request.body
        self._record(
            AdminAction(
                principal=request.principal,
                operation=operation.id,
                names=request.names,
                status=status,
                request_id=request.request_id,
                client=request.client,
                body=recorded_body,
            )
        )
