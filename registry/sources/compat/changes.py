"""What a comparison of two schemas finds."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
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


class Weight(Enum):
    LOST = "lost"  # values that were accepted are not any more
    IGNORED = "ignored"  # a property that was described is not: it may be sent, and does nothing
    NEW = "new"  # a property that nobody sent until now


@dataclass(frozen=True, slots=True)
class FoundChanges:
    kind: str
    where: str
    before: str = ""
    after: str = ""
    weight: Weight = Weight.LOST


def lost(found: Iterable[FoundChanges]) -> bool:
    return any(one.weight is Weight.LOST for one in found)


def joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
