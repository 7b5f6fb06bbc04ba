"""Headers that repeat the body of a 2026-07-28 request: Mcp-Name and Mcp-Param-*.

Deviation: a header Mcp-Param-* that no argument declares is ignored. Intermediaries have to pass
such headers on, so clients may well send them.
"""

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from schemas.binding import MirroredArgument
from schemas.errors import HeaderMismatch
from schemas.json_schema.keywords import SCHEMA_KEYWORDS
from schemas.json_schema.walk import subschemas
from schemas.jsonrpc import json_type

PARAM = "Mcp-Param-"
ANNOTATION = "x-mcp-header"
NAMED_BY: Mapping[str, str] = {  # what Mcp-Name repeats
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}

_SENTINEL = re.compile(r"=\?base64\?(.*)\?=", re.DOTALL)
_PLAIN = re.compile(r"[!-~](?:[ -~]*[!-~])?")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2
_NUMBER = re.compile(r"-?[0-9]{1,20}(?:\.[0-9]{1,20})?", re.ASCII)
_MIRRORABLE = ("string", "integer", "boolean")


def encode_header(value: str) -> str:
    """`value` encoded for a header: unchanged, or in its `=?base64?...?=` form."""
    if not value or (_PLAIN.fullmatch(value) and not _SENTINEL.fullmatch(value)):
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


def decode_header(value: str | None) -> str | None:
    """Decode the `=?base64?...?=` form of a header value (2026-07-28, transports: value encoding).

    None for a malformed one: it matches nothing.
    """
    match = _SENTINEL.fullmatch(value) if value else None
    if match is None:
        return value
    try:
        raw = base64.b64decode(match[1], validate=True)
        canonical = base64.b64encode(raw).decode() == match[1]
        return raw.decode() if canonical else None
    except ValueError:  # no ASCII, no base64, no UTF-8
        return None


def mirrored_in(schema: Any) -> tuple[MirroredArgument, ...]:
    """The arguments that an input schema wants repeated in headers.

    Raises ValueError with the reason, worded to follow the tool's name, for an invalid
    annotation: clients have to drop such a tool.
    """
    by_header: dict[str, MirroredArgument] = {}
    for path, inner in _positions(schema):
        if ANNOTATION in inner:
            argument = _mirrored_argument(path, inner)
            first = by_header.setdefault(argument.header.lower(), argument)
            if first is not argument:
                where = ".".join(first.path)
                raise _invalid(path, f"{argument.header!r} is the header of {where!r} already")
    return tuple(by_header.values())


def param_headers(
    mirrored_arguments: Sequence[MirroredArgument], arguments: Mapping[str, Any]
) -> dict[str, str]:
    """The headers that a call with these arguments has to carry."""
    headers: dict[str, str] = {}
    for argument in mirrored_arguments:
        text = _header_text(_value(arguments, argument.path))
        if text is not None:
            headers[PARAM + argument.header] = encode_header(text)
    return headers


def check_params(
    mirrored_arguments: Sequence[MirroredArgument],
    headers: Mapping[str, str],
    arguments: Mapping[str, Any],
) -> None:
    """Check the headers of a call. Raises HeaderMismatch unless `headers` (keyed by lower-case
    header names after `Mcp-Param-`) matches the arguments."""
    for argument in mirrored_arguments:
        header, value = headers.get(argument.header.lower()), _value(arguments, argument.path)
        where = ".".join(argument.path)
        if header is None:
            if _header_text(value) is not None:
                text = f"{PARAM}{argument.header} is missing: it must repeat the argument {where!r}"
                raise HeaderMismatch(text)
        elif not _repeats(decode_header(header), value):
            mismatch = (
                "has no value that a header repeats" if _header_text(value) is None else "differs"
            )
            raise HeaderMismatch(
                f"{PARAM}{argument.header} says {header[:100]!r}, "
                f"but the argument {where!r} {mismatch}"
            )


def _positions(root: Any) -> Iterator[tuple[tuple[str, ...] | None, dict[str, Any]]]:
    """Every schema inside `root`, in order, with the properties that lead to it; None where
    another keyword does. Without recursion: foreign schemas may be deep."""
    pending: list[tuple[tuple[str, ...] | None, Any]] = [((), root)]
    while pending:
        path, schema = pending.pop()
        if isinstance(schema, dict):
            yield path, schema
            pending.extend(reversed(list(_inner(path, schema))))


def _inner(
    path: tuple[str, ...] | None, schema: dict[str, Any]
) -> Iterator[tuple[tuple[str, ...] | None, Any]]:
    for keyword, value in schema.items():
        if keyword == "properties" and isinstance(value, dict):
            for name, inner in value.items():
                yield (None if path is None else (*path, name)), inner
        elif keyword in SCHEMA_KEYWORDS:
            yield from ((None, inner) for inner in subschemas(schema, [keyword]))


def _mirrored_argument(path: tuple[str, ...] | None, schema: dict[str, Any]) -> MirroredArgument:
    header, type_ = schema[ANNOTATION], schema.get("type")
    if not path:
        raise _invalid(path, "is only for what `properties` alone lead to")
    if not isinstance(header, str):
        raise _invalid(path, f"must be a string, not {json_type(header)}")
    if not _TOKEN.fullmatch(header):
        raise _invalid(path, f"{header[:60]!r} cannot be part of a header's name")
    if type_ not in _MIRRORABLE:
        named = repr(type_[:60]) if isinstance(type_, str) else json_type(type_)
        raise _invalid(path, f"is only for the types {', '.join(_MIRRORABLE)}, not {named}")
    return MirroredArgument(path, header)


def _invalid(path: tuple[str, ...] | None, reason: str) -> ValueError:
    where = f" of the argument {'.'.join(path)[:100]!r}" if path else ""
    return ValueError(f"{ANNOTATION}{where} {reason}")


def _value(arguments: Mapping[str, Any], path: Sequence[str]) -> Any:
    """The argument at `path`; None if it is null or missing: neither has a header."""
    value: Any = arguments
    for name in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def _header_text(value: Any) -> str | None:
    """Header form of a value; None for values that cannot be in a header."""
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return str(int(value)) if value.is_integer() else repr(value)
        case str() | int():
            return str(value)
    return None


def _repeats(text: str | None, value: Any) -> bool:
    if text is None:
        return False
    if isinstance(value, int | float) and not isinstance(value, bool):
        # 42 and 42.0 are the same integer; client languages differ on the form
        return bool(_NUMBER.fullmatch(text)) and Decimal(text) == value
    return text == _header_text(value)
