"""Bytes to a Schema: SDL or the JSON of an introspection, detected by content."""

from registry.importers.graphql.introspection import read_introspection
from registry.importers.graphql.schema import Schema
from registry.importers.graphql.sdl import read_sdl
from registry.importers.openapi import parse
from schemas.errors import ImportRejected

# Shopify's admin API has about 3,500
TYPES_LIMIT = 20_000
_EXPECTED = "expected GraphQL SDL, or the JSON answer of an introspection"


def load(data: bytes, location: str) -> Schema:
    """Parse `data`; `location` (path or URL) is for messages. Raises ImportRejected."""
    head = data[:256].removeprefix(b"\xef\xbb\xbf").lstrip()
    if head.startswith((b"{", b"\xff\xfe", b"\xfe\xff")):
        schema = read_introspection(parse(data, location, _EXPECTED), location)
    else:
        schema = read_sdl(_text(data, location), location)
    if len(schema.types) > TYPES_LIMIT:
        raise ImportRejected(f"{location} has more than {TYPES_LIMIT:,} types, the limit.")
    return schema


def _text(data: bytes, location: str) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ImportRejected(f"{location}, line {line}: not valid UTF-8.") from error
    if not text.strip():
        raise ImportRejected(f"{location} is empty; {_EXPECTED}.")
    if text.lstrip().startswith("<"):
        raise ImportRejected(f"{location} is HTML or XML; {_EXPECTED}.")
    if text.lstrip().startswith(("openapi:", "swagger:")):
        raise ImportRejected(
            f"{location}: this is an OpenAPI description; use `toolgate import openapi`."
        )
    return text
