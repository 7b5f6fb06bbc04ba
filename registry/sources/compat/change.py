"""One thing that a new description changes."""

from typing import Literal

from msgspec import Struct

Kind = Literal[
    "operation", "name", "argument", "required", "type", "enum", "constraint", "schema", "wire",
    "security", "output", "annotation", "description",
]  # fmt: skip


class SchemaChange(Struct, frozen=True):
    kind: Kind
    where: str  # the argument, or the place inside it or the answer: "pet.tags[]"; "": all of it
    breaking: bool  # what worked before may not any more
    text: str  # that reads on after `where`
