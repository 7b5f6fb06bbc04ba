"""Run-time introspection of the types in `settings.py`: nesting, items, members, expectations."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from msgspec import Meta, Struct
from msgspec.structs import fields

PLAIN = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


@dataclass(frozen=True, slots=True)
class SettingKind:
    """One annotation without its `| None` and its `Annotated`."""

    annotation: Any  # whole, for msgspec
    base: Any  # bool, int, float, str, Literal, a Struct, Mapping or tuple
    arguments: tuple[Any, ...]  # of Literal, Mapping and tuple
    meta: Meta
    optional: bool

    @property
    def section(self) -> bool:
        return isinstance(self.base, type) and issubclass(self.base, Struct)

    @property
    def mapping(self) -> bool:
        return self.base is Mapping

    @property
    def listing(self) -> bool:
        return self.base is tuple

    @property
    def scalar(self) -> bool:
        return not (self.section or self.mapping or self.listing)

    @property
    def textual(self) -> bool:
        return self.base in (str, Literal)

    @property
    def expectation(self) -> str:
        """Completes "expected ..."."""
        if self.section or self.mapping:
            return "a mapping"
        if self.listing:
            return "a list"
        if self.base is Literal:
            return "one of " + ", ".join(self.arguments)
        return self.meta.description or PLAIN[self.base]

    def marked(self, mark: str) -> bool:
        """Whether `settings.py` marks the type: verbatim, file, dashes, capitals."""
        return bool((self.meta.extra or {}).get(mark))


def kind_of(annotation: Any) -> SettingKind:
    bare, optional = annotation, False
    if get_origin(bare) in (Union, UnionType):
        (bare,) = (one for one in get_args(bare) if one is not NoneType)
        optional = True
    meta = Meta()
    if get_origin(bare) is Annotated:
        bare, meta = get_args(bare)
    return SettingKind(annotation, get_origin(bare) or bare, get_args(bare), meta, optional)


def members(section: SettingKind) -> dict[str, SettingKind]:
    return {field.name: kind_of(field.type) for field in fields(section.base)}


def needed(section: SettingKind) -> list[str]:
    """The members without a default; those of the groups have theirs in defaults.yaml."""
    return [field.name for field in fields(section.base) if field.required]


def key_kind(mapping: SettingKind) -> SettingKind:
    return kind_of(mapping.arguments[0])


def item_kind(container: SettingKind) -> SettingKind:
    """Of a list's items, or of a mapping's values."""
    return kind_of(container.arguments[1 if container.mapping else 0])
