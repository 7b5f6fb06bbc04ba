"""`x-toolgate`: the gateway owner's settings for an operation, in its description or in an overlay
file.

In the description it stands on the document, a path item, an operation, a parameter or a property
of a body. An overlay file has the same settings for descriptions that cannot be edited:

    defaults: {enabled: false}
    operations:
      GET /pets: {enabled: true, name: pets, arguments: {X-Trace: {hide: true, value: none}}}
      createPet: {enabled: true, toolsets: [shop]}

Settings nearer to the operation win, and the overlay wins over the description.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType, field

from registry.importers.openapi.document import SkipOperation
from schemas.errors import ImportRejected

KEY = "x-toolgate"


class ArgumentMarks(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Settings of a parameter or a property of the body."""

    hide: bool = False  # not offered; `value` is sent, else the schema's default, else none
    value: Any = UNSET
    name: str | None = None  # of the argument
    description: str | None = None


class ExtensionSettings(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Settings of an operation, merged with those of the document and the path item."""

    enabled: bool | UnsetType = UNSET  # UNSET: not stated
    name: str | None = None  # of the tool
    title: str | None = None
    description: str | None = None
    toolsets: tuple[str, ...] = ()
    examples: tuple[dict[str, Any], ...] = ()  # arguments of calls
    media_type: str | None = None  # of the request body, one of those described
    arguments: dict[str, ArgumentMarks] = field(default_factory=dict)  # by name on the wire


class Overlay(Struct, frozen=True):
    """An overlay file."""

    operations: dict[str, ExtensionSettings] = field(
        default_factory=dict
    )  # by "GET /pets" or operationId
    defaults: ExtensionSettings = ExtensionSettings()


NO_MARKS = ExtensionSettings()
NO_OVERLAY = Overlay()

_ARGUMENT = ArgumentMarks.__struct_fields__
_OPERATION = ExtensionSettings.__struct_fields__
_SHARED_MEMBERS = ("enabled", "toolsets", "media_type", "arguments")  # apply to several operations

_M = TypeVar("_M", ArgumentMarks, ExtensionSettings)


def operation_marks(holder: Mapping[str, Any]) -> ExtensionSettings:
    """Marks on an Operation Object. Raises `SkipOperation` for invalid ones, since it is unknown
    whether the operation was to be visible."""
    return _on(holder, _OPERATION, KEY)


def shared_marks(holder: Mapping[str, Any], place: str) -> ExtensionSettings:
    """Marks on the document or a path item, for all its operations. Raises `SkipOperation`."""
    return _on(holder, _SHARED_MEMBERS, f"{KEY} of {place}")


def argument_marks(holder: Mapping[str, Any]) -> ArgumentMarks | None:
    """Marks on a Parameter Object or a property's schema. Raises `SkipOperation`."""
    if KEY not in holder:
        return None
    try:
        return _convert(holder[KEY], ArgumentMarks, _ARGUMENT, KEY)
    except ValueError as error:
        raise SkipOperation(str(error)) from error


def merge_marks(base: ExtensionSettings, nearer: ExtensionSettings) -> ExtensionSettings:
    """Merge marks: toolsets add up; of other settings, and of each argument, the nearer one
    wins."""
    return ExtensionSettings(
        enabled=base.enabled if nearer.enabled is UNSET else nearer.enabled,
        name=nearer.name or base.name,
        title=nearer.title or base.title,
        description=nearer.description or base.description,
        toolsets=tuple(dict.fromkeys((*base.toolsets, *nearer.toolsets))),
        examples=nearer.examples or base.examples,
        media_type=nearer.media_type or base.media_type,
        arguments={**base.arguments, **nearer.arguments},
    )


def overlay(content: dict[str, Any], location: str) -> Overlay:
    """Parse an overlay file. Raises `ImportRejected`: its owner can correct it."""
    try:
        _only(content, ("defaults", "operations"), "the overlay")
        named = content.get("operations") or {}
        if not isinstance(named, dict):
            raise ValueError("`operations` must be an object by request line or operationId")
        return Overlay(
            {key: _marks(value, _OPERATION, f"operations.{key}") for key, value in named.items()},
            _marks(content.get("defaults") or {}, _SHARED_MEMBERS, "defaults"),
        )
    except ValueError as error:
        raise ImportRejected(f"{location}: {error}.") from error


def _on(holder: Mapping[str, Any], keys: tuple[str, ...], where: str) -> ExtensionSettings:
    if KEY not in holder:
        return NO_MARKS
    try:
        return _marks(holder[KEY], keys, where)
    except ValueError as error:
        raise SkipOperation(str(error)) from error


def _marks(raw: object, keys: tuple[str, ...], where: str) -> ExtensionSettings:
    marks = _convert(raw, ExtensionSettings, keys, where)
    if blank := [name for name in marks.toolsets if not name.strip()]:
        raise ValueError(f"{where}: a toolset cannot be called {blank[0]!r}")
    return marks


def _convert(raw: object, kind: type[_M], keys: tuple[str, ...], where: str) -> _M:
    """Raises ValueError, which names what was expected."""
    _only(raw, keys, where)
    arguments = raw.get("arguments") if isinstance(raw, dict) else None
    if "arguments" in keys and isinstance(arguments, dict):
        for name, marks in arguments.items():
            _only(marks, _ARGUMENT, f"{where}.arguments.{name}")
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"{where}: {str(error)[:200]}") from error


def _only(raw: object, keys: tuple[str, ...], where: str) -> None:
    if not isinstance(raw, dict):
        raise ValueError(f"{where} must be an object with any of {', '.join(keys)}")
    for key in raw:
        if key not in keys:
            expected = ", ".join(keys)
            raise ValueError(f"{where}: unknown key {str(key)[:80]!r}, expected {expected}")
