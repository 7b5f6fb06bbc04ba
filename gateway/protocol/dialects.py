"""One parser, two dialects: JSON-RPC 2.0, and the legacy payload {host, service, action, version,
data} of light-hybrid-4j. Body in, messages out; outcome in, answer out. Knows no transport.

A body must mean the same to every parser: a body in both dialects at once is rejected, and so are
duplicate members. Strict rules answer as light-hybrid-4j does wherever one of its clients can
notice; every other difference is listed in tests/vectors/LEDGER.md.
"""

from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from schemas.errors import Fault, InvalidParams, InvalidRequest, Overloaded, ParseError
from schemas.hybrid import (
    HANDLER_NOT_FOUND,
    LEGACY_SWITCHED_OFF,
    METHOD_MISSING,
    NOT_A_REQUEST,
    TUPLE,
    VALIDATOR_SCHEMA,
    ServiceFailed,
    Side,
    StatusFault,
    service_id,
    status_fault,
)
from schemas.jsonrpc import (
    DEPTH,
    ErrorObject,
    ErrorReply,
    Invalid,
    Message,
    Reply,
    Request,
    RequestId,
    check_batch_size,
    classify,
    decode_plain,
    decode_strict,
    encode,
    error_reply,
    is_all_of,
    is_id,
    json_type,
    pieces,
    require_shallow,
)
from schemas.mcp.revisions import Revision

Pieces = bytes | list[bytes | memoryview]
JSON, TEXT = b"application/json", b"text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Rules:
    """How one path parses and answers."""

    revision: Revision  # revision of its JSON-RPC messages
    spec: bool  # strict JSON-RPC 2.0; else as light-hybrid-4j
    legacy: bool = True  # whether the legacy payload is served
    wrapped: bool = True  # errors before the handler use an envelope
    side: Side | None = None
    auth_first: bool = True
    void_body: bytes = b""  # of a legacy answer without a result
    legacy_headers: tuple[tuple[bytes, bytes], ...] = ()  # of every legacy answer


class Legacy(Struct, frozen=True):
    """A legacy payload, converted to a request; its id has no meaning."""

    request: Request


@dataclass(frozen=True, slots=True)
class Payload:
    """The result of a hybrid action: JSON text, plain text, or None without a result."""

    body: bytes | None
    is_text: bool = False


class Answer(Struct, frozen=True):
    """One HTTP answer."""

    status: int
    body: Pieces = b""
    media_type: bytes = JSON


def read(
    body: bytes, rules: Rules, batch_limit: int, depth_limit: int = DEPTH
) -> Message | Legacy | list[Message]:
    """Parse `body`. Raises the Fault that rejects it as a whole."""
    if body.count(b"[") + body.count(b"{") > depth_limit:
        require_shallow(body, depth_limit)
    if rules.legacy and b"jsonrpc" not in body and (legacy := _plain_legacy(body)) is not None:
        return legacy
    plain = decode_plain(body, batch_limit)
    if plain is None:
        value = decode_strict(body)
        if isinstance(value, list):
            return [_member(member, rules) for member in check_batch_size(value, batch_limit)]
        return _single(value, rules)
    if rules.spec:
        return plain
    return [_lenient(member) for member in plain] if isinstance(plain, list) else _lenient(plain)


class _Payload(Struct, forbid_unknown_fields=True):
    host: str
    service: str
    action: str
    version: str
    data: Any = UNSET


_payload = msgspec.json.Decoder(_Payload)


def _plain_legacy(body: bytes) -> Legacy | None:
    """A legacy payload with all of its parts and no further members; None for any other body,
    which has to be parsed again. It takes a fifth of the time."""
    try:
        payload = _payload.decode(body)
        parts = (payload.host, payload.service, payload.action, payload.version)
        id_ = "/".join(parts)
        if id_.count("/") != 3 or not all(parts) or not is_all_of(body, payload):
            return None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return Legacy(Request("2.0", id_, payload.data, 0))


def _single(value: Any, rules: Rules) -> Message | Legacy:
    if not isinstance(value, dict):
        raise InvalidRequest(f"A request is an object, not {json_type(value)}")
    if _is_legacy(value, rules) and not _is_mixed(value):
        if not rules.legacy:
            raise StatusFault(LEGACY_SWITCHED_OFF)
        id_ = service_id(value)
        if any("/" in part for name in TUPLE if isinstance(part := value.get(name), str)):
            # two tuples must not name one action: a gateway in front may have judged the other
            raise StatusFault(HANDLER_NOT_FOUND, id_[:512])
        return Legacy(Request("2.0", id_, value.get("data", UNSET), 0))
    return _member(value, rules)


def _is_legacy(value: dict[str, Any], rules: Rules) -> bool:
    if rules.spec:
        return "jsonrpc" not in value and _has_parts(value)
    return value.get("jsonrpc") != "2.0"


def _is_mixed(value: dict[str, Any]) -> bool:
    return "jsonrpc" in value and _has_parts(value)


def _has_parts(value: dict[str, Any]) -> bool:
    return any(part in value for part in TUPLE)


def _member(value: Any, rules: Rules) -> Message:
    if isinstance(value, dict) and _is_mixed(value):
        id_ = value.get("id")
        text = f'"jsonrpc" excludes the legacy members ({", ".join(TUPLE)}): send one or the other'
        fault = InvalidRequest(text)
        return Invalid(id_ if is_id(id_) else None, fault)
    if rules.spec or not isinstance(value, dict) or value.get("jsonrpc") != "2.0":
        return classify(value)
    return _strict(value)


def _strict(value: dict[str, Any]) -> Message:
    """A JSON-RPC object as light-hybrid-4j reads it: an id may be any value, and null means no
    id."""
    id_: RequestId = value.get("id")
    method, params = value.get("method"), value.get("params", UNSET)
    if method is None:
        return Invalid(id_, StatusFault(METHOD_MISSING, "", text='"method" is missing'))
    if not isinstance(method, str):
        text = f'"method" must be a string, not {json_type(method)}'
        return Invalid(id_, StatusFault(NOT_A_REQUEST, text, text=text))
    if id_ is not None and not isinstance(params, dict | list | None | UnsetType):
        text = f"$: an object is expected, not {json_type(params)}"
        return Invalid(id_, StatusFault(VALIDATOR_SCHEMA, text, text=f"Invalid params: {text}"))
    return Request("2.0", method, params, UNSET if id_ is None else id_)


def _lenient(message: Message) -> Message:
    if isinstance(message, Request) and message.id is None:
        return replace(message, id=UNSET)
    return message


def legacy_answer(outcome: Any, rules: Rules) -> Answer:
    """The answer to a legacy payload: the result as it is, or a Status."""
    match outcome:
        case Payload(None):
            return Answer(200, rules.void_body)
        case Payload(bytes(body), is_text):
            return Answer(200, body, TEXT if is_text else JSON)
        case ServiceFailed(body=str(text)):
            return Answer(outcome.status, text.encode(), TEXT)
        case ServiceFailed():
            return Answer(outcome.status, encode(outcome.body))
        case Fault():
            fault = status_fault(outcome)
            return Answer(fault.status, encode(fault.as_status))
    return Answer(200, encode(outcome))


def reply(id_: RequestId, outcome: Any, rules: Rules, request_id: str) -> Reply | ErrorReply:
    """The envelope of a JSON-RPC answer."""
    if not isinstance(outcome, Fault):
        return Reply(id_, outcome)
    if rules.revision.tools_are_methods:
        return error_reply(id_, outcome, request_id)
    if isinstance(outcome, ServiceFailed):
        return error_reply(id_, outcome)
    data = {**(status_fault(outcome).data or {}), **(outcome.data or {})}
    return ErrorReply(id_, ErrorObject(outcome.code, outcome.message, data))


def rpc_answer(id_: RequestId, outcome: Any, rules: Rules, request_id: str) -> Answer:
    """The answer to a single JSON-RPC request."""
    if not isinstance(outcome, Fault):
        return Answer(200, pieces(Reply(id_, outcome)))
    if not rules.wrapped and not isinstance(outcome, ServiceFailed | InvalidParams):
        return legacy_answer(outcome, rules)
    return Answer(_status(outcome, rules), encode(reply(id_, outcome, rules, request_id)))


def refusal(body: bytes, fault: Fault, rules: Rules, request_id: str) -> Answer:
    """The answer to a `body` rejected as a whole: a Status where the dialect is unknown, because it
    is no JSON. An array can only be a batch of JSON-RPC."""
    readable = not isinstance(fault, ParseError)
    modern = body.lstrip()[:1] == b"[" or (readable and b'"jsonrpc"' in body)
    if rules.spec or modern:
        return rpc_answer(None, fault, rules, request_id)
    return legacy_answer(fault, rules)


def _status(fault: Fault, rules: Rules) -> int:
    """The HTTP status: 200 for an error of JSON-RPC, except a 401, 403, 429 or overload."""
    if not rules.spec:
        return fault.status if isinstance(fault, ServiceFailed) else status_fault(fault).status
    keeps_status = fault.status in {401, 403, 429} or isinstance(fault, Overloaded)
    return fault.status if keeps_status else 200
