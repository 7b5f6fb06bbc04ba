"""Detection of a description's kind from its bytes, for users who picked the wrong importer."""

import re

SDL = re.compile(
    rb'\A(?:\s|#[^\n]*|"""(?:[^"]|"(?!""))*"""|"[^"\n]*")*'
    rb"(?:extend\s+)?(?:schema\s*[@{]|(?:type|interface|union|enum|input|scalar)\s+\w+|directive\s*@)"
)
MARKS = (  # kind, and a pattern unique to it
    ("openapi", re.compile(rb'(?m)^\s*(?:\{\s*)?"?(?:openapi|swagger)"?\s*:')),
    ("graphql", re.compile(rb'\A\s*\{(?:[^{}]{0,200}\{)?\s*"__schema"\s*:')),
    ("hybrid", re.compile(rb"(?m)^service\s*:[^\n]*$[\s\S]*^action\s*:")),
)
LOOKED_AT = 65_536  # bytes


def looks_like(data: bytes) -> str | None:
    """The importer for such a text: "openapi", "graphql" or "hybrid"; None: unknown."""
    head = data[:LOOKED_AT].removeprefix(b"\xef\xbb\xbf")
    if SDL.match(head):
        return "graphql"
    return next((kind for kind, mark in MARKS if mark.search(head)), None)
