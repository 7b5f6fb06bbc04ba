"""Findings of a comparison of two schemas."""

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
    where: str  # path in the arguments or the answer: "pet.tags[]"; "": the root
    breaking: bool  # what worked before may fail now
    text: str  # continues the sentence after `where`


class Weight(Enum):
    LOST = "lost"  # values accepted before are rejected now
    IGNORED = "ignored"  # a property is no longer described: it may be sent, without effect
    NEW = "new"  # a property that no caller sent until now


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
