"""Parses requests into the declared types, or reports what is wrong with them."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec
from msgspec.structs import fields
from starlette.types import Receive, Scope

from gateway.operations.operation import Operation
from gateway.operations.problems import (
    BODY_MISTAKEN,
    PARAMETER_MISTAKEN,
    Mistake,
    ProblemDetails,
    bad_request,
    invalid,
    not_found,
)
from schemas.errors import Fault
from schemas.json_schema.pointers import escape
from schemas.jsonrpc import decode_strict
from schemas.mismatch import explain_mismatch

_TAG = re.compile(r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"')

Headers = Mapping[str, str]


def headers_of(scope: Scope) -> Headers:
    """Headers by lower-case name. Raises ProblemDetails for a duplicate that must be unique."""
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        key, text = name.decode("latin-1"), value.decode("latin-1").strip(" \t")
        if key in headers and key in {"content-type", "idempotency-key", "content-length"}:
            raise bad_request("A header is there twice.", Mistake("expected it once", header=key))
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


def segments(scope: Scope, root: str) -> list[str] | None:
    """The decoded path segments below `root`; None for invalid UTF-8."""
    raw = scope.get("raw_path") or scope["path"].encode()
    pieces = raw.split(b"?", 1)[0].decode("latin-1")[len(root) :].strip("/").split("/")
    try:
        return [unquote_to_bytes(piece).decode() for piece in pieces]
    except UnicodeDecodeError:
        return None


def read_names(operation: Operation, names: Mapping[str, str]) -> None:
    """Check path parameters. Raises ProblemDetails for names that no entry can have: none is found,
    and none is created."""
    for name, value in names.items():
        if "\0" in value:
            raise not_found(name, value)
        kind = operation.type_of(name)
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            if not operation.creates or name != operation.names[-1]:
                raise not_found(name, value) from error
            problem = explain_mismatch(value, kind, error)[0]
            mistake = Mistake(problem.message, parameter=name)
            raise invalid(f"No {name} can have this name.", mistake) from error


def read_query(operation: Operation, text: bytes) -> Any:
    """Raises ProblemDetails."""
    try:
        pairs = parse_qsl(
            text.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=50
        )
    except ValueError as error:
        raise bad_request("The query cannot be read.") from error
    values: dict[str, str] = {}
    for name, value in pairs:
        if name in values:
            raise bad_request("A parameter is there twice.", _parameter(name, "expected it once"))
        values[name] = value
    return converted_query(operation, values)


def converted_query(operation: Operation, values: Mapping[str, Any]) -> Any:
    """Raises ProblemDetails: 400 for a parameter that is not as described, 422 for parameters that
    contradict each other."""
    try:
        query = msgspec.convert(values, operation.query, strict=False)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, ValueError):  # of __post_init__
            mistake = Mistake(str(error.__cause__))
            raise invalid("The parameters contradict each other.", mistake) from error
        problems = explain_mismatch(_plain_query(operation, values), operation.query, error)
        mistakes = (
            _parameter(str(problem.path[0]) if problem.path else "", problem.message)
            for problem in problems
        )
        raise bad_request(PARAMETER_MISTAKEN, *mistakes) from error
    names = zip(query.__struct_fields__, query.__struct_encode_fields__, strict=True)
    for name, parameter in names:  # msgspec takes the text "null" for None where that is allowed
        if values.get(parameter) is not None and getattr(query, name) is None:
            detail = "expected a value, found the text null"
            raise bad_request(PARAMETER_MISTAKEN, _parameter(parameter, detail))
    return query


def read_body(operation: Operation, data: bytes, headers: Headers) -> Any:
    """Raises ProblemDetails."""
    if operation.body is None or (not data and operation.optional_body):
        if data:
            raise bad_request(f"{operation.method} {operation.path} takes no body.")
        return None
    media_type, _, parameters = headers.get("content-type", "").partition(";")
    charset = parameters.lower().replace(" ", "").replace('"', "")
    if media_type.strip().lower() != "application/json" or charset not in {"", "charset=utf-8"}:
        text = "The body has to be application/json in UTF-8."
        raise ProblemDetails(
            415, "unsupported-media-type", text, headers={"Accept": "application/json"}
        )
    try:
        value = decode_strict(data)
    except (Fault, ValueError) as error:
        reason = error.message if isinstance(error, Fault) else "it is no JSON"
        raise bad_request(f"The body cannot be read: {reason}") from error
    if b"\\u0000" in data:
        refuse_nul(value)
    return convert_body(value, operation.body, secret=operation.secret)


def refuse_nul(value: Any) -> None:
    """Raises ProblemDetails for text with NUL, which the database cannot store."""
    if has_nul(value):
        raise ProblemDetails(422, "invalid", "No text in the body may have a NUL character.")


def convert_body(value: Any, kind: Any, *, secret: bool = False) -> Any:
    """Decode to `kind`. Raises ProblemDetails with the errors and their places. `secret`: errors do
    not show values."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        problems = explain_mismatch(value, kind, error, secret=secret)
        mistakes = (
            Mistake(problem.message, pointer=_pointer(problem.path)) for problem in problems
        )
        raise invalid(BODY_MISTAKEN, *mistakes) from error


async def receive_body(receive: Receive, headers: Headers, limit_bytes: int, limit: str) -> bytes:
    """Read the body. Raises ProblemDetails when it is larger than `limit_bytes`, which the setting
    `limit` has, or the client disconnects."""
    declared = headers.get("content-length", "0")
    if declared.isdecimal() and int(declared[:20]) > limit_bytes:
        raise too_large(limit_bytes, limit)
    data = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise bad_request("The body ended too early.")
        data += message.get("body", b"")
        if len(data) > limit_bytes:
            raise too_large(limit_bytes, limit)
        if not message.get("more_body", False):
            return bytes(data)


def check_accept(headers: Headers) -> None:
    """Raises ProblemDetails if Accept excludes JSON."""
    accepted = headers.get("accept", "*/*")
    ranges = [part.split(";")[0].strip().lower() for part in accepted.split(",")]
    refused = {part.split(";")[0].strip().lower() for part in accepted.split(",") if _is_zero(part)}
    if not {"*/*", "application/*", "application/json", ""} & (set(ranges) - refused):
        raise ProblemDetails(406, "not-acceptable", "Answers are application/json.")


def tags(header: str) -> tuple[str, ...]:
    """The entity tags of If-Match or If-None-Match, or "*"; none if malformed."""
    if header == "*":
        return ("*",)
    return () if _TAG.sub("", header).strip(", \t") else tuple(_TAG.findall(header))


def has_nul(value: Any) -> bool:
    """Whether a text contains NUL, which the database cannot store. However deep `value` is."""
    waiting = [value]
    while waiting:
        value_ = waiting.pop()
        if isinstance(value_, dict):
            waiting += (*value_, *value_.values())
        elif isinstance(value_, list):
            waiting += value_
        elif isinstance(value_, str) and "\0" in value_:
            return True
    return False


def _is_zero(media_range: str) -> bool:
    return re.search(r";\s*q=0(\.0*)?\s*(;|$)", media_range) is not None


def too_large(limit_bytes: int, limit: str) -> ProblemDetails:
    text = f"The body has more than {limit_bytes} bytes ({limit})."
    return ProblemDetails(413, "too-large", text, headers={"Connection": "close"})


def _parameter(name: str, text: str) -> Mistake:
    return Mistake(text, parameter=name[:100])


def _plain_query(operation: Operation, values: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters, which are texts, as the types that they can be read as."""
    kinds = {field.encode_name: field.type for field in fields(operation.query)}
    return {
        name: _read_as(value, kinds[name]) if name in kinds else value
        for name, value in values.items()
    }


def _read_as(value: Any, kind: Any) -> Any:
    for as_type in (kind, int, float, bool):
        try:
            converted = msgspec.convert(value, as_type, strict=False)
        except msgspec.ValidationError:
            continue
        return msgspec.to_builtins(converted)
    return value


def _pointer(path: tuple[str | int, ...]) -> str:
    return "".join(f"/{escape(str(step))}" for step in path)
