"""Pieces of statements that caches of statements have as keys."""

from dataclasses import dataclass

from psycopg import sql
from psycopg.abc import AdaptContext


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
