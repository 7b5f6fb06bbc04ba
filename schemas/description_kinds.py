"""Kinds of descriptions of services, told from the beginning of their text."""

import re
from collections.abc import Mapping

SDL_SIGNATURE = re.compile(
    rb'\A(?:\s|#[^\n]*|"""(?:[^"]|"(?!""))*"""|"[^"\n]*")*'
    rb"(?:extend\s+)?(?:schema\s*[@{]|(?:type|interface|union|enum|input|scalar)\s+\w+|directive\s*@)"
)
SIGNATURES = (  # kind, and a pattern unique to it
    ("openapi", re.compile(rb'(?m)^\s*(?:\{\s*)?"?(?:openapi|swagger)"?\s*:')),
    ("graphql", re.compile(rb'\A\s*\{(?:[^{}]{0,200}\{)?\s*"__schema"\s*:')),
    ("hybrid", re.compile(rb"(?m)^service\s*:[^\n]*$[\s\S]*^action\s*:")),
)
DETECTION_BYTES = 65_536  # bytes
DESCRIPTIONS: Mapping[str, str] = {
    "openapi": "an OpenAPI description",
    "graphql": "a GraphQL schema",
    "hybrid": "the description of a hybrid service",
}
"""What the importers read, in words."""


def looks_like(data: bytes) -> str | None:
    """The importer for such a text: "openapi", "graphql" or "hybrid"; None: unknown."""
    head = data[:DETECTION_BYTES].removeprefix(b"\xef\xbb\xbf")
    if SDL_SIGNATURE.match(head):
        return "graphql"
    return next((kind for kind, signature in SIGNATURES if signature.search(head)), None)
