"""Chunks and their mentions as rows, each checked against the JSON Schema of its kind: chunks come
from processes that read what is not trusted, and from modules that others wrote. Pure."""

import re
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.operations.problems import invalid
from gateway.wings.documents.chunking.chunks import Chunk
from gateway.wings.documents.chunking.mentions import normal
from schemas.json_schema.validators import compile_validator

BY_PARSER = frozenset({"import", "inherit", "call"})
SYMBOLS = frozenset({"identifier", "call", "import", "inherit"})
DEFINITIONS = (
    "class",
    "enum",
    "function",
    "interface",
    "method",
    "module",
    "struct",
    "trait",
    "type",
)
_TEXT = {"type": "string", "pattern": "^[^\\u0000]*$"}  # PostgreSQL has no NUL in texts
_PLACE = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
_LINE = {**_PLACE, "minimum": 1}
_CHUNK: dict[str, Any] = {
    "type": "object",
    "properties": {
        "kind": {**_TEXT, "minLength": 1, "maxLength": 64},
        "start_byte": _PLACE,
        "end_byte": _LINE,
        "start_line": _LINE,
        "end_line": _LINE,
        "page": {**_LINE, "type": ["integer", "null"]},
        "header": _TEXT,
        "symbol": _TEXT,
        "weight": {"type": ["number", "null"], "minimum": 0, "maximum": 1},
    },
}
_DEFINITION = {
    "allOf": [_CHUNK, {"properties": {"symbol": {"minLength": 1}, "page": {"type": "null"}}}]
}
_ANY = compile_validator(_CHUNK)
_BY_KIND = dict.fromkeys(DEFINITIONS, compile_validator(_DEFINITION))
NORM_BYTES = 1000  # of a name as it is compared; longer ones fit into no index
_QUALIFIER = re.compile(r"(?<=\S)\s+\([^()]*\)\Z")  # "Jaguar (car)" is about a Jaguar, too


def rows(document_id: str, content: bytes, chunks: Sequence[Chunk]) -> list[dict[str, Any]]:
    """The chunks as rows of a document. The id of a chunk is made of what it says: it stays where
    others change. Raises ProblemDetails with a JSON Pointer to what is not valid."""
    occurrences: Counter[str] = Counter()
    namespace = uuid.UUID(document_id)
    rows = []
    for ordinal, chunk in enumerate(chunks):
        text = _text(content, chunk, ordinal)
        name = "\0".join((chunk.kind, chunk.header, chunk.symbol, *chunk.subjects, text))
        occurrences[name] += 1
        row = {
            "id": str(uuid.uuid5(namespace, f"{name}\0{occurrences[name]}")),
            "ordinal": ordinal,
            "kind": chunk.kind,
            "start_byte": chunk.start,
            "end_byte": chunk.end,
            "start_line": chunk.start_line,
            "end_line": chunk.end_line,
            "page": chunk.page,
            "header": chunk.header,
            "symbol": chunk.symbol,
            "weight": chunk.weight,
        }
        validator = _BY_KIND.get(chunk.kind, _ANY)
        if not validator.is_valid(row):
            error = next(validator.iter_errors(row))
            raise invalid(f"/chunks/{ordinal}/{error.instance_path[0]}: {error.message[:200]}.")
        rows.append(row)
    return rows


def _text(content: bytes, chunk: Chunk, ordinal: int) -> str:
    """Raises ProblemDetails for a span that is none of the text, or that cuts a character."""
    if not 0 <= chunk.start < chunk.end <= len(content):
        raise invalid(f"/chunks/{ordinal}/end_byte: expected a span within {len(content)} bytes.")
    try:
        return content[chunk.start : chunk.end].decode()
    except UnicodeDecodeError as error:
        text = f"/chunks/{ordinal}/start_byte: expected whole characters of UTF-8."
        raise invalid(text) from error


def symbols_of(chunks: Sequence[Chunk]) -> list[dict[str, Any]]:
    """The definitions in chunks as rows."""
    symbols: list[dict[str, Any]] = []
    for definition in (defined for chunk in chunks for defined in chunk.definitions):
        symbol = dot_name(definition.symbol)
        scope, _, name = symbol.rpartition(".")
        if not 0 < len(symbol.encode()) <= NORM_BYTES:
            continue
        bases = dict.fromkeys(dot_name(base).rpartition(".")[2] for base in definition.bases)
        symbols.append(
            {
                "ordinal": len(symbols),
                "symbol": symbol,
                "name": name,
                "scope": scope,
                "kind": definition.kind,
                "visibility": definition.visibility,
                "signature": definition.signature,
                "start_byte": definition.start,
                "end_byte": definition.end,
                "start_line": definition.start_line,
                "end_line": definition.end_line,
                "bases": [base for base in bases if 0 < len(base.encode()) <= NORM_BYTES],
            }
        )
    return symbols


def dot_name(name: str) -> str:
    """A name in code with dots between its parts, whatever the language has there."""
    return name.replace("::", ".").replace("->", ".")


def mentions_of(rows: Sequence[Mapping[str, Any]], chunks: Sequence[Chunk]) -> list[dict[str, Any]]:
    """The mentions of chunks as rows. What a chunk is about is named by the whole of it."""
    mentions = []
    for row, chunk in zip(rows, chunks, strict=True):
        named = [
            (name, "symbol" if chunk.symbol else "name", "subject", chunk.start, chunk.end)
            for subject in chunk.subjects
            for name in dict.fromkeys((subject, _QUALIFIER.sub("", subject)))
        ]
        named += [
            (mention.name, mention.type, mention.role, mention.start, mention.end)
            for mention in chunk.mentions
        ]
        for name, type_, role, start, end in named:
            norm = normal(name)
            if 0 < len(norm.encode()) <= NORM_BYTES:
                mentions.append(
                    {
                        "id": row["id"],
                        "norm": norm,
                        "role": role,
                        "start_byte": start - chunk.start,
                        "end_byte": end - chunk.start,
                        "type": "symbol" if type_ in SYMBOLS else type_,
                        "name": name,
                        "method": "parser" if role in BY_PARSER else "rule",
                    }
                )
    return mentions
