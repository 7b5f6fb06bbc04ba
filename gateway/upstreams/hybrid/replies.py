"""What a hybrid service answered, as the results of the calls that it was asked for. Pure.

An answer that cannot be believed (no envelope, another call's id) is a failure that says so; where
the service is, it does not say.
"""

import codecs
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from gateway.upstreams.http import answers
from gateway.upstreams.http.answers import by_status, no_answer, status_failure
from gateway.upstreams.http.client import HttpResponse
from gateway.upstreams.rest.serialize import is_json
from schemas.hybrid import UPSTREAM_FAILED, Status, StatusFault, status_members
from schemas.tool import TextContent, ToolResult

VOID = ToolResult(())
MESSAGE_BYTES = 500  # a longer text is a page, or a stack trace
_NO_RESULTS = frozenset({"text/html", "application/xhtml+xml"})
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Envelope(Struct):
    jsonrpc: Any = UNSET
    id: Any = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


class _Error(Struct):
    code: Any = None
    message: Any = None
    data: Raw | UnsetType = UNSET


_envelope = msgspec.json.Decoder(_Envelope)
_members = msgspec.json.Decoder(list[Raw])
_error = msgspec.json.Decoder(_Error)
_anything = msgspec.json.Decoder()
_string = msgspec.json.Decoder(str)


def read_legacy(response: HttpResponse, source: str, request_id: str) -> ToolResult:
    """The result that a raw answer is: JSON where it is any, whatever type it claims to have."""
    if not _fine(response):
        return _refusal(response, source)
    if not response.body:
        return VOID
    raw = answers.structure(response.body)
    if isinstance(raw, Raw):
        return _success(raw)
    kind = answers.media_type(response)
    if kind in _NO_RESULTS or is_json(kind):
        return no_answer(f"{source} answered with {_told(kind)}, and no result can be read in it")
    return ToolResult((answers.content(response, request_id, lenient=True),))


def read_single(response: HttpResponse, id_: int, source: str) -> ToolResult:
    """The result of a JSON-RPC request that went alone, and that was no notification."""
    if _fine(response) and not response.body.strip():
        return VOID  # light-hybrid-4j says nothing where a handler returned nothing
    envelope = None if _redirects(response) else _decode(response.body)
    if envelope is None or (envelope.error is UNSET and not _fine(response)):
        return _no_envelope(response, source)
    if envelope.id is None and envelope.error is not UNSET:
        return _read(envelope, response.status, source)  # it could not tell whose call failed
    if not _same(envelope.id, id_):
        return no_answer(f"{source} answered with the id of another call")
    return _read(envelope, response.status, source)


def read_batch(response: HttpResponse, ids: Sequence[int], source: str) -> list[ToolResult]:
    """The results of the calls `ids`, in their order, whatever order the answers came in."""
    members = _split(response)
    if members is None:
        return [_refused_batch(response, source)] * len(ids)
    answered: dict[int, list[_Envelope]] = {id_: [] for id_ in ids}
    for member in members:
        envelope = _decode(member)
        if envelope is not None and type(envelope.id) in (int, float) and envelope.id in answered:
            answered[int(envelope.id)].append(envelope)
    return [_only(answered[id_], source) for id_ in ids]


def _split(response: HttpResponse) -> list[Raw] | None:
    """The members of an answer to a batch; None when it is none."""
    if not _fine(response):
        return None
    body = response.body.removeprefix(codecs.BOM_UTF8)
    try:
        body.decode()  # the decoder does not look into what it passes on
        return _members.decode(body or b"[]")  # no answer at all: one is missing to each call
    except _UNREADABLE:
        return None


def _only(found: list[_Envelope], source: str) -> ToolResult:
    if len(found) == 1:
        return _read(found[0], 200, source)
    count = "this call more than once" if found else "every call of a batch but this one"
    return no_answer(f"{source} answered {count}")


def _refused_batch(response: HttpResponse, source: str) -> ToolResult:
    """What each call of a batch gets that was answered as a whole."""
    envelope = None if _redirects(response) else _decode(response.body)
    if envelope is not None and envelope.error is not UNSET:
        return _read(envelope, response.status, source)
    if _fine(response):
        return no_answer(f"{source} did not answer a batch with an array of JSON-RPC responses")
    return _refusal(response, source)


def _decode(body: bytes | Raw) -> _Envelope | None:
    """A JSON-RPC 2.0 response (section 5), if it is one; null counts as no error."""
    try:
        if isinstance(body, bytes):
            body = body.removeprefix(codecs.BOM_UTF8)
            body.decode()
        envelope = _envelope.decode(body)
    except _UNREADABLE:
        return None
    if envelope.error is not UNSET and bytes(envelope.error) == b"null":
        envelope.error = UNSET
    whole = (envelope.result is UNSET) != (envelope.error is UNSET)
    return envelope if envelope.jsonrpc == "2.0" and whole else None


def _same(given: object, id_: int) -> bool:
    return type(given) in (int, float) and given == id_


def _read(envelope: _Envelope, status: int, source: str) -> ToolResult:
    if isinstance(envelope.result, Raw):
        return _success(envelope.result)
    try:
        error = _error.decode(envelope.error or b"")
    except msgspec.DecodeError:
        return no_answer(f"{source} answered with an error that is no JSON-RPC error object")
    return _rpc_failure(error, status)


def _success(raw: Raw) -> ToolResult:
    """Text is text only: a model reads it as it is, and no structure would say more."""
    text = str(memoryview(raw), "utf-8")
    match text.lstrip()[:1]:
        case '"':
            return ToolResult((TextContent(_string.decode(raw)),))
        case "n":
            return VOID
    return ToolResult((TextContent(text),), raw)


def _rpc_failure(error: _Error, status: int) -> ToolResult:
    told = _status_object(error.data)
    if told is not None and isinstance(error.data, Raw):
        if not _is_error(status):
            status = next(filter(_is_error, (told.get("statusCode"), error.code)), 500)
        return status_failure(status, told, error.data)
    if not _is_error(status):
        status = error.code if _is_error(error.code) else 500
    built = _built(error, status)
    return status_failure(status, built, built)


def _built(error: _Error, status: int) -> dict[str, Any]:
    """A Status that says what an error without one said."""
    message = error.message if isinstance(error.message, str) else "The call failed"
    data = _plain(error.data)
    description = data if isinstance(data, str) and data else message
    rest: dict[str, Any] | UnsetType = UNSET
    if data is not None and not isinstance(data, str):
        rest = data if isinstance(data, dict) else {"data": data}
    return status_members(Status(status, str(error.code), message, description, rest))


def _refusal(response: HttpResponse, source: str) -> ToolResult:
    """An HTTP error, with or without a Status. light-hybrid-4j often leaves its type out."""
    status = response.status
    if not _is_error(status):  # a redirect: no action said that, so its status is none
        return no_answer(f"{source} answered HTTP {status}: redirects are not followed")
    raw = answers.structure(response.body)
    told = _status_object(raw)
    if told is not None and isinstance(raw, Raw):
        return by_status(response, status_failure(status, told, raw))
    if isinstance(raw, Raw) or _is_message(response):
        return answers.error(response)
    # a page of some proxy, and what stands in it is for the people who run that
    kind = _told(answers.media_type(response)) if response.body else "nothing"
    fault = StatusFault(
        UPSTREAM_FAILED._replace(http=status), f"{source} answered HTTP {status} with {kind}"
    )
    return by_status(response, status_failure(status, fault.data))


def _is_message(response: HttpResponse) -> bool:
    """Whether the text of an error is one that an action wrote for its caller."""
    kind = answers.media_type(response)
    return kind in {"", "text/plain"} and 0 < len(response.body) <= MESSAGE_BYTES


def _told(kind: str) -> str:
    return kind or "text of no type"


def _no_envelope(response: HttpResponse, source: str) -> ToolResult:
    if not _fine(response):
        return _refusal(response, source)
    return no_answer(f"{source} did not answer with a JSON-RPC response")


def _status_object(raw: Raw | UnsetType) -> dict[str, Any] | None:
    """What the Status in `raw` says, if that is one: an object with a code or a statusCode."""
    value = _plain(raw)
    if not isinstance(value, dict):
        return None
    known = isinstance(value.get("code"), str) or type(value.get("statusCode")) is int
    return value if known else None


def _plain(raw: Raw | UnsetType) -> Any:
    """`raw` decoded; None where it holds what cannot be, such as 1e400."""
    try:
        return None if raw is UNSET else _anything.decode(raw)
    except _UNREADABLE:
        return None


def _fine(response: HttpResponse) -> bool:
    return 200 <= response.status < 300


def _redirects(response: HttpResponse) -> bool:
    return 300 <= response.status < 400  # its body may say an address of the inside


def _is_error(status: object) -> bool:
    return type(status) is int and 400 <= status <= 599
