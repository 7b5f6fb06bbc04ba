"""Bytes to a document: JSON or YAML, told apart by content. Errors name line and column."""

import json
from pathlib import PurePosixPath
from typing import Any, NoReturn

import msgspec

from registry.importers.openapi.load_yaml import parse_yaml
from schemas.errors import DuplicateKeys, ImportRejected, ParseError
from schemas.jsonrpc import decode_strict

_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_EXPECTED = "expected an OpenAPI description, a JSON or YAML object"


def parse(
    data: bytes, location: str, expected: str = _EXPECTED, *, unique: bool = False
) -> dict[str, Any]:
    """The document in `data`; `location` (path or URL) is for messages and the file extension,
    `expected` for messages. `unique` refuses keys that stand twice in one object.

    Raises `ImportRejected` when it is neither JSON nor YAML, or not an object.
    """
    content = _decode(data, location)
    if not content.strip():
        raise ImportRejected(f"{location} is empty; {expected}.")
    if content.lstrip().startswith("<"):
        raise ImportRejected(f"{location} is HTML or XML; {expected}.")
    document = _parse_text(content, location, unique)
    if not isinstance(document, dict):
        raise ImportRejected(f"{location} holds a {_kind(document)}; {expected}.")
    return document


def _decode(data: bytes, location: str) -> str:
    encoding = "utf-16" if data[:2] in _UTF16_MARKS else "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ImportRejected(f"{location}, line {line}: not valid {error.encoding}.") from error


def _parse_text(content: str, location: str, unique: bool) -> Any:
    """JSON when it starts like JSON. Flow-style YAML does too: `.yaml` gets a second try."""
    if content.lstrip()[0] not in "{[":
        return parse_yaml(content, location, unique=unique)
    try:
        return decode_strict(content.encode()) if unique else msgspec.json.decode(content)
    except DuplicateKeys as error:
        raise ImportRejected(f"{location}: {error}.") from error
    except RecursionError as error:
        raise ImportRejected(f"{location} is nested too deeply to be read.") from error
    except (msgspec.DecodeError, ParseError, UnicodeEncodeError) as error:
        if PurePosixPath(location).suffix in (".yaml", ".yml"):
            return parse_yaml(content, location, unique=unique)
        _reject_json(content, location, error)


def _reject_json(content: str, location: str, cause: Exception) -> NoReturn:
    """Ask the standard library where it breaks: msgspec knows only the byte."""
    try:
        json.loads(content, parse_int=str, parse_float=str)
    except json.JSONDecodeError as error:
        where = f"{location}, line {error.lineno}, column {error.colno}"
        raise ImportRejected(f"{where}: not valid JSON: {error.msg}.") from cause
    except RecursionError as error:
        raise ImportRejected(f"{location} is nested too deeply to be read.") from error
    # what only the standard library reads: NaN, numbers of any size, half a surrogate pair
    raise ImportRejected(f"{location}: not valid JSON (RFC 8259): {cause}.") from cause


def _kind(value: object) -> str:
    return {list: "list", str: "text", bool: "boolean", type(None): "null"}.get(
        type(value), "number"
    )
