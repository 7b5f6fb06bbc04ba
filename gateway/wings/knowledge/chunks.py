"""Chunks and their mentions as rows. Pure."""

import re
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.documents.chunking.chunks import Chunk
from gateway.documents.chunking.mentions import normal

BY_PARSER = frozenset({"import", "inherit", "call"})
SYMBOLS = frozenset({"identifier", "call", "import", "inherit"})
NORM_BYTES = 1000  # of a name as it is compared; longer ones fit into no index
_QUALIFIER = re.compile(r"(?<=\S)\s+\([^()]*\)\Z")  # "Jaguar (car)" is about a Jaguar, too


def rows(document_id: str, content: bytes, chunks: Sequence[Chunk]) -> list[dict[str, Any]]:
    """The chunks as rows of a document. The id of a chunk is made of what it says: it stays where
    others change."""
    seen: Counter[str] = Counter()
    namespace = uuid.UUID(document_id)
    found = []
    for ordinal, one in enumerate(chunks):
        text = content[one.start : one.end].decode()
        name = "\0".join((one.kind, one.header, one.symbol, *one.subjects, text))
        seen[name] += 1
        found.append(
            {
                "id": str(uuid.uuid5(namespace, f"{name}\0{seen[name]}")),
                "ordinal": ordinal,
                "kind": one.kind,
                "start_byte": one.start,
                "end_byte": one.end,
                "start_line": one.start_line,
                "end_line": one.end_line,
                "page": one.page,
                "header": one.header,
                "symbol": one.symbol,
            }
        )
    return found


def symbols_of(chunks: Sequence[Chunk]) -> list[dict[str, Any]]:
    """The definitions in chunks as rows."""
    found: list[dict[str, Any]] = []
    for one in (defined for chunk in chunks for defined in chunk.definitions):
        symbol = dotted(one.symbol)
        scope, _, name = symbol.rpartition(".")
        if not 0 < len(symbol.encode()) <= NORM_BYTES:
            continue
        bases = dict.fromkeys(dotted(base).rpartition(".")[2] for base in one.bases)
        found.append(
            {
                "ordinal": len(found),
                "symbol": symbol,
                "name": name,
                "scope": scope,
                "kind": one.kind,
                "visibility": one.visibility,
                "signature": one.signature,
                "start_byte": one.start,
                "end_byte": one.end,
                "start_line": one.start_line,
                "end_line": one.end_line,
                "bases": [base for base in bases if 0 < len(base.encode()) <= NORM_BYTES],
            }
        )
    return found


def dotted(name: str) -> str:
    """A name in code with dots between its parts, whatever the language has there."""
    return name.replace("::", ".").replace("->", ".")


def mentions_of(rows: Sequence[Mapping[str, Any]], chunks: Sequence[Chunk]) -> list[dict[str, Any]]:
    """The mentions of chunks as rows. What a chunk is about is named by the whole of it."""
    found = []
    for row, chunk in zip(rows, chunks, strict=True):
        named = [
            (name, "symbol" if chunk.symbol else "name", "subject", chunk.start, chunk.end)
            for subject in chunk.subjects
            for name in dict.fromkeys((subject, _QUALIFIER.sub("", subject)))
        ]
        named += [(one.name, one.type, one.role, one.start, one.end) for one in chunk.mentions]
        for name, type_, role, start, end in named:
            norm = normal(name)
            if 0 < len(norm.encode()) <= NORM_BYTES:
                found.append(
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
    return found
