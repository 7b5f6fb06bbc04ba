"""JSON-RPC 2.0 messages: decode, classify, encode (https://www.jsonrpc.org/specification).

One parse per body. A well-formed request takes the typed path; anything else is parsed a second
time, untyped, to report exactly what is wrong and to find the id that the answer must carry.

Objects with duplicate member names are refused (RFC 8259, section 4: parsers differ on their
meaning), which the decoder does not do. `is_all_of` detects them: re-encoding what was decoded
gives as many strings as the body has, unless a member was dropped. That costs 0.5 to 0.9 us for a
small request, which takes 0.2 to 0.4 us to decode, and more for a body full of escapes.

Deviations, on purpose: an id may be any number, string or null on decoding (the MCP revisions
narrow that themselves), and unknown members of a message are ignored.
"""

import json
from itertools import accumulate
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from schemas.errors import DuplicateKeys, Fault, InvalidRequest, ParseError

RequestId = int | float | str | None
Params = dict[str, Any] | list[Any]

LARGE_RESULT_BYTES = 65536
NAME_BYTES = 65536
TOO_DEEP = "The body is nested too deeply"
DEPTH = 200  # default limit of nesting levels

_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[{]}")
_PIECE_BYTES = 1 << 20  # some 10 ms
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")  # as signed bytes: 1 and -1

T = TypeVar("T")


class Request(Struct, frozen=True):
    """A call, or a notification when `id` is UNSET."""

    jsonrpc: Literal["2.0"]
    method: str
    params: Params | UnsetType = UNSET
    id: RequestId | UnsetType = UNSET


class Response(Struct, frozen=True):
    """A client's response to a request of ours; its result is passed on undecoded."""

    id: RequestId
    result: Any = UNSET
    error: Any = UNSET


class Invalid(Struct, frozen=True):
    """A member of a body that is not a message; `id` is None where it could not be read."""

    id: RequestId
    fault: Fault


Message = Request | Response | Invalid


class ErrorObject(Struct, frozen=True, omit_defaults=True):
    code: int
    message: str
    data: Any = UNSET


class Reply(Struct, frozen=True, tag_field="jsonrpc", tag="2.0"):
    """A successful answer; `result` is already encoded."""

    id: RequestId
    result: Raw


class ErrorReply(Struct, frozen=True, tag_field="jsonrpc", tag="2.0"):
    id: RequestId
    error: ErrorObject


class Notification(Struct, frozen=True, tag_field="jsonrpc", tag="2.0", omit_defaults=True):
    """A notification that the server sends to a client."""

    method: str
    params: Any = UNSET


_request = msgspec.json.Decoder(Request)
_requests = msgspec.json.Decoder(list[Request])
_anything = msgspec.json.Decoder()
_encoder = msgspec.json.Encoder()

encode = _encoder.encode
decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
"""The members of a JSON object; their values are carried, not read."""


def pieces(reply: Reply | ErrorReply) -> list[bytes | memoryview]:
    """The encoded reply, a large result as a piece of its own: joining would copy it."""
    if (
        isinstance(reply, ErrorReply)
        or len(result := memoryview(reply.result)) < LARGE_RESULT_BYTES
    ):
        return [encode(reply)]
    return [b'{"jsonrpc":"2.0","id":' + encode(reply.id) + b',"result":', result, b"}"]


def decode(body: bytes, batch_limit: int, depth_limit: int = DEPTH) -> Message | list[Message]:
    """Return the message, or the batch, in `body`.

    Raises ParseError, also for more than `depth_limit` levels, DuplicateKeys, and InvalidRequest
    for a batch of more than `batch_limit` members: checked before they are classified, because a
    small body can hold millions.
    """
    if body.count(b"[") + body.count(b"{") > depth_limit:
        require_shallow(body, depth_limit)
    plain = decode_plain(body, batch_limit)
    if plain is not None:
        return plain
    value = decode_strict(body)
    if isinstance(value, list):
        return [classify(member) for member in check_batch_size(value, batch_limit)]
    return classify(value)


def require_shallow(body: bytes, limit: int) -> None:
    """Raises ParseError for JSON text of more than `limit` levels."""
    if not nests_within(body, limit):
        raise ParseError(f"{TOO_DEEP}: more than {limit} levels (limits.json_depth)")


def nests_within(text: bytes, limit: int) -> bool:
    """Whether JSON text has at most `limit` levels. One pass, without recursion: 0.1 us for most
    texts, which have fewer brackets than that, else some 15 ms per MB of brackets.

    Long texts are read in pieces, so that other threads run in between."""
    if text.count(b"[") + text.count(b"{") <= limit:
        return True
    depth, in_string, escape = 0, 0, b""
    for start in range(0, len(text), _PIECE_BYTES):
        piece = escape + text[start : start + _PIECE_BYTES]
        backslashes = len(piece) - len(piece.rstrip(b"\\"))
        escape = b"\\" * (backslashes % 2)  # its character is in the next piece
        parts = _strip_escapes(piece[: len(piece) - len(escape)]).split(b'"')
        brackets = b"".join(parts[in_string::2]).translate(_STEPS, _NO_BRACKETS)
        steps = memoryview(brackets).cast("b")
        if max(accumulate(steps, initial=depth)) > limit:
            return False
        depth += sum(steps)
        in_string ^= (len(parts) - 1) & 1
    return True


def decode_plain(body: bytes, batch_limit: int) -> Request | list[Message] | None:
    """Decode well-formed requests without further members, as `decode` does; None for any other
    body, which `decode` has to parse again."""
    try:
        if body.lstrip()[:1] == b"[":
            batch = check_batch_size(_requests.decode(body), batch_limit)
            return [*batch] if is_all_of(body, batch) else None
        request = _request.decode(body)
        return request if is_all_of(body, request) else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def decode_strict(body: bytes) -> Any:
    """Decode unambiguous JSON text. Raises ParseError and DuplicateKeys."""
    value = decode_json(body)
    try:
        if not is_all_of(body, value):
            raise DuplicateKeys(_twice(body))
    except RecursionError as error:
        raise ParseError(TOO_DEEP) from error
    return value


def _twice(body: bytes) -> str:
    """Error message that names the duplicate member; for a large body, without the name."""
    if len(body) <= NAME_BYTES:
        try:
            json.loads(body, object_pairs_hook=_unique, parse_int=str, parse_float=str)
        except DuplicateKeys as fault:
            return fault.message
    return "An object has a member twice"


def is_all_of(body: bytes, decoded: Any) -> bool:
    """Whether `decoded` has as many strings as the JSON text that it was decoded from."""
    encoded = encode(decoded)
    if b"\\" in body or b"\\" in encoded:
        body, encoded = _strip_escapes(body), _strip_escapes(encoded)
    return body.count(b'"') == encoded.count(b'"')


def _strip_escapes(text: bytes) -> bytes:
    """The JSON text without escaped quotes: each one left begins or ends a string."""
    # a backslash escapes the character behind it, itself first of all
    return text.replace(b"\\\\", b"").replace(b'\\"', b"")


def _unique(members: list[tuple[str, Any]]) -> None:
    names: set[str] = set()
    for name, _ in members:
        if name in names:
            raise DuplicateKeys(f"An object has the member {name[:100]!r} twice")
        names.add(name)


def check_batch_size(batch: list[T], limit: int) -> list[T]:
    """The batch, checked for its size. Raises InvalidRequest when it has more than `limit`
    members."""
    if len(batch) > limit:
        text = f"The batch has {len(batch)} items; at most {limit} are served"
        raise InvalidRequest(text, {"limit": limit})
    return batch


def decode_json(body: bytes) -> Any:
    """Decode any JSON text. Raises ParseError with the position and the reason."""
    try:
        return _anything.decode(body)
    except UnicodeDecodeError as error:
        raise ParseError("The body is not valid UTF-8") from error
    except RecursionError as error:
        raise ParseError(TOO_DEEP) from error
    except msgspec.ValidationError as error:  # 1e400
        raise ParseError(f"The body holds a value out of range: {error}") from error
    except msgspec.DecodeError as error:
        raise ParseError(_reason(body, error)) from error


def _reason(body: bytes, error: msgspec.DecodeError) -> str:
    if not body.strip():
        return "The body is empty"
    if b"\\ud" in body.lower() and _is_lenient_json(body):
        return "A string holds half of a surrogate pair (\\uD800 to \\uDFFF), which is no character"
    return f"Not JSON: {error}"


def _is_lenient_json(body: bytes) -> bool:
    """Whether only the content of its strings is invalid, which the decoder calls truncated."""
    try:
        json.loads(body, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return False
    return True


def classify(value: Any) -> Message:
    """Classify one decoded member of a body (JSON-RPC 2.0, sections 4 and 5)."""
    if not isinstance(value, dict):
        return Invalid(None, InvalidRequest(f"A message is an object, not {json_type(value)}"))
    id_ = value.get("id", UNSET)
    legible = is_id(id_)
    answer_to: RequestId = id_ if legible else None
    if value.get("jsonrpc") != "2.0":
        return Invalid(answer_to, InvalidRequest('"jsonrpc" must be exactly "2.0"'))
    if id_ is not UNSET and not legible:
        actual = json_type(id_)
        return Invalid(None, InvalidRequest(f'"id" must be a string or a number, not {actual}'))
    if "method" not in value:
        if id_ is not UNSET and ("result" in value) != ("error" in value):
            return Response(answer_to, value.get("result", UNSET), value.get("error", UNSET))
        return Invalid(answer_to, InvalidRequest('"method" is missing'))
    return _request_of(value, answer_to)


def is_id(value: Any) -> bool:
    """Whether JSON-RPC 2.0 allows the value as an id; others are not echoed."""
    return value is None or (isinstance(value, int | float | str) and not isinstance(value, bool))


def _request_of(value: dict[str, Any], answer_to: RequestId) -> Message:
    method, params = value["method"], value.get("params")
    if params is None:  # the SDKs call it optional, and many write the null
        params = UNSET
    if not isinstance(method, str):
        actual = json_type(method)
        return Invalid(answer_to, InvalidRequest(f'"method" must be a string, not {actual}'))
    if params is not UNSET and not isinstance(params, dict | list):
        actual = json_type(params)
        return Invalid(
            answer_to, InvalidRequest(f'"params" must be an object or an array, not {actual}')
        )
    return Request("2.0", method, params, value.get("id", UNSET))


def error_reply(id_: RequestId, fault: Fault, request_id: str | None = None) -> ErrorReply:
    """The error response to a request that failed with `fault`."""
    data: Any = fault.data  # of a relayed error: any JSON that the other server sent
    if request_id is not None and (data is None or isinstance(data, dict)):
        data = {**(data or {}), "requestId": request_id}
    return ErrorReply(id_, ErrorObject(fault.code, fault.message, UNSET if data is None else data))


def json_type(value: Any) -> str:
    """The JSON type of a decoded value, with its article, for human-readable messages."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list() | tuple():
            return "an array"
        case _:
            return "an object"
