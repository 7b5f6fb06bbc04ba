"""The light-hybrid-4j dialect: actions, their ids, and Status, the shape of its errors.

Codes, texts and HTTP statuses are those of light-4j's `status.yml`; codes that begin with ERR18
are ours, for errors that light-hybrid-4j has no code for.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict

from schemas.errors import (
    Fault,
    Forbidden,
    InvalidParams,
    InvalidRequest,
    MethodNotAllowed,
    MethodNotFound,
    ParseError,
    PayloadTooLarge,
    TooManyRequests,
    Unavailable,
)

Side = Literal["query", "command"]
TUPLE = ("host", "service", "action", "version")


@dataclass(frozen=True, slots=True)
class Action:
    """One action of a hybrid service, as defined by its description or its decorator."""

    id: str  # host/service/action/version; for a plain JSON-RPC method any name
    description: str = ""
    request_schema: dict[str, Any] | None = None  # self-contained; None: `data` is not checked
    response_schema: dict[str, Any] | None = None
    scope: str | None = None  # scopes, separated by blanks; one of them is enough
    skip_auth: bool = False
    side: Side | None = None  # None: answers on both portal paths
    positional: tuple[str, ...] = ()  # names of the arguments that an array of params holds
    rest: str | None = None  # name of the argument that takes the remaining members


def service_id(payload: Mapping[str, Any]) -> str:
    """The service id in a legacy payload: each part that is present followed by a slash, the
    version last and without one, as light-hybrid-4j builds it. Parts that are not text count
    as missing."""
    host, service, action, version = (
        part if isinstance(part := payload.get(name), str) else "" for name in TUPLE
    )
    return "".join(f"{part}/" for part in (host, service, action) if part) + version


def split(id_: str) -> dict[str, str] | None:
    """The legacy tuple of a service id; None for an id that does not have four parts."""
    parts = id_.split("/")
    return dict(zip(TUPLE, parts, strict=True)) if len(parts) == 4 and all(parts) else None


class Status(Struct, frozen=True, rename="camel"):
    """The body of a failure; the order of the members is that of light-4j."""

    status_code: int
    code: str
    message: str  # UPPER_SNAKE
    description: str
    metadata: dict[str, Any] | UnsetType = UNSET
    severity: str = "ERROR"


class StatusKind(NamedTuple):
    code: str
    http: int
    message: str
    description: str  # with {} for each value
    rpc_code: int  # `error.code` for JSON-RPC clients


INVALID_AUTH_TOKEN = StatusKind(
    "ERR10000", 401, "INVALID_AUTH_TOKEN",
    "Incorrect signature or malformed token in authorization header", rpc_code=401,
)  # fmt: skip
AUTH_TOKEN_EXPIRED = StatusKind(
    "ERR10001", 401, "AUTH_TOKEN_EXPIRED", "Jwt token in authorization header expired", rpc_code=401
)
MISSING_AUTH_TOKEN = StatusKind(
    "ERR10002", 401, "MISSING_AUTH_TOKEN",
    "No Authorization header or the token is not bearer type", rpc_code=401,
)  # fmt: skip
INVALID_SCOPE_TOKEN = StatusKind(
    "ERR10003", 401, "INVALID_SCOPE_TOKEN",
    "Incorrect signature or malformed token in X-Scope-Token header", rpc_code=401,
)  # fmt: skip
SCOPE_TOKEN_EXPIRED = StatusKind(
    "ERR10004", 401, "SCOPE_TOKEN_EXPIRED", "Jwt token in X-Scope-Token expired", rpc_code=401
)
AUTH_TOKEN_SCOPE_MISMATCH = StatusKind(
    "ERR10005", 403, "AUTH_TOKEN_SCOPE_MISMATCH",
    "Scopes {} in authorization token and specification scopes {} are not matched", rpc_code=403,
)  # fmt: skip
SCOPE_TOKEN_SCOPE_MISMATCH = StatusKind(
    "ERR10006", 403, "SCOPE_TOKEN_SCOPE_MISMATCH",
    "Scopes {} in scope token and specification scopes {} are not matched", rpc_code=403,
)  # fmt: skip
METHOD_NOT_ALLOWED = StatusKind(
    "ERR10008", 405, "METHOD_NOT_ALLOWED",
    "Request method {} cannot be found in the path {}.", rpc_code=-32600,
)  # fmt: skip
RUNTIME_EXCEPTION = StatusKind(
    "ERR10010", 500, "RUNTIME_EXCEPTION", "Unexpected runtime exception", rpc_code=-32603
)
# light-hybrid-4j answers these client errors with a 500: its code, our status
NOT_JSON = StatusKind(
    "ERR10010", 400, "RUNTIME_EXCEPTION", "The request cannot be read: {}", rpc_code=-32700
)
NOT_A_REQUEST = StatusKind(
    "ERR10010", 400, "RUNTIME_EXCEPTION", "The request cannot be read: {}", rpc_code=-32600
)
TOKEN_VERIFICATION_EXCEPTION = StatusKind(
    "ERR10090",
    400,
    "TOKEN_VERIFICATION_EXCEPTION",
    "Token verification exception {}.",
    rpc_code=400,
)
VALIDATOR_SCHEMA = StatusKind(
    "ERR11004", 400, "VALIDATOR_SCHEMA", "Schema Validation Error - {}", rpc_code=-32602
)
HANDLER_NOT_FOUND = StatusKind(
    "ERR11200", 400, "HANDLER_NOT_FOUND", "Handler for service {} cannot be found.", rpc_code=-32601
)
METHOD_MISSING = HANDLER_NOT_FOUND._replace(rpc_code=-32600)  # a JSON-RPC request without `method`
REQUEST_BODY_EMPTY = StatusKind(
    "ERR11201",
    400,
    "REQUEST_BODY_EMPTY",
    "Hybrid request body is empty for post method.",
    rpc_code=-32700,
)
REQUEST_CMD_EMPTY = StatusKind(
    "ERR11202", 400, "REQUEST_CMD_EMPTY",
    "Hybrid request cmd parameter is empty for get method.", rpc_code=-32700,
)  # fmt: skip
BAD_IDEMPOTENCY_KEY = StatusKind(
    "ERR18400", 400, "INVALID_IDEMPOTENCY_KEY",
    "Idempotency-Key must have 1 to 128 characters, not {}", rpc_code=-32600,
)  # fmt: skip
IDEMPOTENCY_CONFLICT = StatusKind(
    "ERR18409", 409, "IDEMPOTENCY_CONFLICT", "This Idempotency-Key {}", rpc_code=409
)
LEGACY_SWITCHED_OFF = StatusKind(
    "ERR18410", 400, "LEGACY_SWITCHED_OFF",
    "The legacy payload is no longer served on this path: send JSON-RPC 2.0, "
    'as in {{"jsonrpc":"2.0","method":"host/service/action/version","params":{{}},"id":1}}',
    rpc_code=-32600,
)  # fmt: skip
REQUEST_TOO_LARGE = StatusKind("ERR18413", 413, "REQUEST_TOO_LARGE", "{}", rpc_code=-32600)
FORBIDDEN = StatusKind("ERR18403", 403, "FORBIDDEN", "{}", rpc_code=-32600)
TOO_MANY_REQUESTS = StatusKind("ERR18429", 429, "TOO_MANY_REQUESTS", "{}", rpc_code=1429)
UPSTREAM_FAILED = StatusKind("ERR18502", 502, "UPSTREAM_FAILED", "{}", rpc_code=502)
UNAVAILABLE = StatusKind("ERR18503", 503, "UNAVAILABLE", "{}", rpc_code=1503)
UPSTREAM_TIMEOUT = StatusKind("ERR18504", 504, "UPSTREAM_TIMEOUT", "{}", rpc_code=504)


class StatusFault(Fault):
    """A request that fails with a Status of ours, before its handler ran."""

    def __init__(self, kind: StatusKind, *values: object, text: str | None = None) -> None:
        """`text` becomes `error.message` for JSON-RPC clients; default: the description."""
        description = kind.description.format(*values)
        self.as_status = Status(kind.http, kind.code, kind.message, description)
        super().__init__(text or description, status_members(self.as_status))
        self.code = kind.rpc_code
        self.status = kind.http


class InvalidData(StatusFault):
    """The data of an action violates its schema. The description may quote a value of it."""

    def __init__(self, violation: str) -> None:
        """`violation`: as in `$.id: required property 'id' not found`."""
        super().__init__(VALIDATOR_SCHEMA, violation)
        self._where = violation.partition(": ")[0]

    @property
    def log_message(self) -> str:
        return f"{VALIDATOR_SCHEMA.message} at {self._where}"


class ScopeMismatch(StatusFault):
    """The caller's token, or their X-Scope-Token, lacks the required scopes."""

    def __init__(self, kind: StatusKind, has: Iterable[str], scopes: Iterable[str]) -> None:
        self.scopes = tuple(sorted(scopes))
        super().__init__(kind, _format_scopes(has), _format_scopes(self.scopes))


class ServiceFailed(Fault):
    """A hybrid service ran and answered with an error of its own."""

    def __init__(self, status: int, body: Any) -> None:
        """`body` is the decoded Status object, or text, as it came with the HTTP `status`."""
        self.body = body
        status = status if 400 <= status <= 599 else 502
        members = body if isinstance(body, dict) else {}
        texts = (members.get("message"), members.get("code"), None if members else body)
        message = next(
            (text for text in texts if isinstance(text, str) and text), "The call failed"
        )
        super().__init__(message, members or None)
        code = members.get("statusCode")
        self.code = code if type(code) is int else status
        self.status = status


def _format_scopes(scopes: Iterable[str]) -> str:
    return f"[{', '.join(sorted(scopes))}]"


def status_members(status: Status) -> dict[str, Any]:
    """The wire form, not yet encoded."""
    members = asdict(status)
    members["statusCode"] = members.pop("status_code")
    order = ("statusCode", "code", "message", "description", "metadata", "severity")
    return {name: members[name] for name in order if members[name] is not UNSET}


def status_fault(fault: Fault) -> StatusFault:
    """`fault` as the Status of light-hybrid-4j."""
    if isinstance(fault, StatusFault):
        return fault
    kind = next((kind for of, kind in _KINDS if isinstance(fault, of)), RUNTIME_EXCEPTION)
    return StatusFault(kind, *([fault.message] if "{}" in kind.description else []))


_KINDS: tuple[tuple[type[Fault], StatusKind], ...] = (
    (ParseError, NOT_JSON),
    (PayloadTooLarge, REQUEST_TOO_LARGE),
    (Forbidden, FORBIDDEN),
    (MethodNotAllowed, METHOD_NOT_ALLOWED._replace(description="{}")),  # filled in already
    (InvalidRequest, NOT_A_REQUEST),
    (MethodNotFound, HANDLER_NOT_FOUND._replace(description="{}")),
    (InvalidParams, VALIDATOR_SCHEMA),
    (TooManyRequests, TOO_MANY_REQUESTS),
    (Unavailable, UNAVAILABLE),
)
