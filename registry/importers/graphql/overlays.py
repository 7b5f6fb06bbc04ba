"""Overlay file: the gateway owner's settings for single fields, beside the description."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from registry.importers.openapi.x_toolgate import ExtensionSettings, merge_marks
from schemas.errors import ImportRejected


class FieldMarks(ExtensionSettings, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Settings of a field of Query or Mutation."""

    selection: str | None = None  # { id name owner { login } }


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    operations: dict[str, FieldMarks] = msgspec.field(default_factory=dict)
    defaults: FieldMarks = msgspec.field(default_factory=FieldMarks)


_NO_MARKS = FieldMarks()


@dataclass(frozen=True, slots=True)
class GraphQLOverlay:
    """The marks of one description, keyed by `Query.pets` or `pets`."""

    operations: Mapping[str, FieldMarks] = field(default_factory=dict)
    defaults: FieldMarks = _NO_MARKS

    def of(self, root: str, name: str) -> FieldMarks:
        for key in (f"{root}.{name}", name):
            if key in self.operations:
                return _over(self.defaults, self.operations[key])
        return self.defaults


def read_overlay(document: Mapping[str, Any], location: str) -> GraphQLOverlay:
    """Raises ImportRejected, which names the location of the error."""
    try:
        overlay_file = msgspec.convert(document, _File)
    except msgspec.ValidationError as error:
        raise ImportRejected(f"{location}: {error}; expected {_OVERLAY_EXPECTED}.") from error
    return GraphQLOverlay(overlay_file.operations, overlay_file.defaults)


_KEYS = [key for key in FieldMarks.__struct_fields__ if key != "media_type"]
_OVERLAY_EXPECTED = (
    '`operations`, as in {"Query.pets": {"selection": "{ id name }"}}, and `defaults`, with any of '
    + ", ".join(_KEYS)
)


def _over(defaults: FieldMarks, marks: FieldMarks) -> FieldMarks:
    selection = marks.selection or defaults.selection
    return FieldMarks(**asdict(merge_marks(defaults, marks)), selection=selection)
