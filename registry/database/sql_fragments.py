"""Statements composed once, and pieces of them that caches have as keys."""

import re
from dataclasses import dataclass
from typing import LiteralString

from psycopg import sql
from psycopg.abc import AdaptContext

# A quoted text, or the indentation of a line.
_INDENTATION = re.compile(rb"('[^']*')|\n\s+")


def compose(template: LiteralString, **parts: sql.Composable) -> bytes:
    """The statement of a template with its parts: the same bytes each time, so that psycopg
    prepares it once. Parts are pieces of SQL; psycopg would take plain values for literals.

    Lines lose their indentation: psycopg parses a statement of more than 4,096 bytes again each
    time.
    """
    statement = sql.SQL(template).format(**parts).as_bytes()
    return _INDENTATION.sub(lambda match: match[1] or b"\n", statement)


@dataclass(frozen=True)
class Fragment(sql.Composable):
    """A piece of a statement, composed once. Other pieces of psycopg have no hash."""

    text: bytes

    @classmethod
    def of(cls, piece: sql.Composable) -> "Fragment":
        return cls(piece.as_bytes())

    def as_bytes(self, context: AdaptContext | None = None) -> bytes:  # noqa: ARG002 - the signature of psycopg
        return self.text

    def as_string(self, context: AdaptContext | None = None) -> str:  # noqa: ARG002 - as above
        return self.text.decode()
