"""Decoder: YAML values in, plain data of the right types out; each mismatch becomes a `Problem`.

One pass reports every mistake. (msgspec alone stops at the first and reports it in Python terms.)
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from msgspec import Meta, Struct, ValidationError, convert
from msgspec.structs import fields

from config.foreign_settings import explanation
from config.yaml_document import (
    UNREADABLE,
    KeyPath,
    Loader,
    Problem,
    SettingsError,
    YamlValue,
    dotted_path,
    expand_text,
)
from schemas.urls import without_credentials

PLAIN = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}

EXCERPT = 60
LISTED_MEMBERS = 10  # members of a section that are listed where none is similar
SAME = 0.85  # similarity, of 1, of a name that is but misspelled
MISSING = object()
WITH_PASSWORDS = (
    ("database", "url"),
    ("database", "read_url"),
    ("state", "redis_url"),
    ("events", "redis_url"),
)  # URLs
SECRET = (
    *(("state", "secret"), ("embedding", "api_key"), ("auth", "development_secret")),
    *(("audit", "key"), ("secrets", "key")),
)
WITH_KEYS = (
    ("embedding", "purposes"),
    ("models", "endpoints"),
    ("models", "strategies"),
)  # their entries have an api_key
SECRET_SOURCE_KEYS = (
    ("headers",),
    ("env",),
    ("credentials",),
    ("exchange",),
)  # keys that hold secrets


class SettingKind(Struct, frozen=True):
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
        """Expectation, which completes "expected ..."."""
        if self.section or self.mapping:
            return "a mapping"
        if self.listing:
            return "a list"
        if self.base is Literal:
            return "one of " + ", ".join(self.arguments)
        return self.meta.description or PLAIN[self.base]

    def has_mark(self, mark: str) -> bool:
        """Whether `settings.py` marks the type: verbatim, file, dashes, capitals."""
        return bool((self.meta.extra or {}).get(mark))


def kind_of(annotation: Any) -> SettingKind:
    bare, optional = annotation, False
    if get_origin(bare) in (Union, UnionType):
        (bare,) = (alternative for alternative in get_args(bare) if alternative is not NoneType)
        optional = True
    meta = Meta()
    if get_origin(bare) is Annotated:
        bare, meta = get_args(bare)
    return SettingKind(
        annotation, get_origin(bare) or bare, arguments=get_args(bare), meta=meta, optional=optional
    )


def members(section: SettingKind) -> Mapping[str, SettingKind]:
    return _members(section.base)[0]


def required_members(section: SettingKind) -> Sequence[str]:
    """Members without a default; those of the groups have theirs in defaults.yaml."""
    return _members(section.base)[1]


@cache  # half the time of reading the settings otherwise
def _members(struct: type[Struct]) -> tuple[Mapping[str, SettingKind], Sequence[str]]:
    """All members, and the names of those that are required."""
    struct_fields = fields(struct)
    required = [field.name for field in struct_fields if field.required]
    return {field.name: kind_of(field.type) for field in struct_fields}, required


def key_kind(mapping: SettingKind) -> SettingKind:
    return kind_of(mapping.arguments[0])


def item_kind(container: SettingKind) -> SettingKind:
    """Kind of a list's items, or of a mapping's values."""
    return kind_of(container.arguments[1 if container.mapping else 0])


def decode_settings(
    tree: YamlValue, root: SettingKind, problems: list[Problem], decoded: Mapping[int, Any]
) -> Any:
    """As `decode`; `decoded` has the data of sections that need not be decoded, by `id`."""
    return _section(tree, root, (), problems, decoded=decoded)


def decode(value: YamlValue, kind: SettingKind, path: KeyPath, problems: list[Problem]) -> Any:
    """Data that `msgspec.convert` accepts for `kind`, provided that no problem was added."""
    if value.loose and not kind.scalar:
        value = _expand(value, problems)
    if value.data is UNREADABLE:
        return MISSING
    if kind.section:
        if kind.optional and value.data is None:
            return None
        return _section(value, kind, path, problems)
    if kind.mapping:
        return _mapping(value, kind, path, problems)
    if kind.listing:
        return _list(value, kind, path, problems)
    return _scalar(value, kind, path, problems)


def _expand(value: YamlValue, problems: list[Problem]) -> YamlValue:
    try:
        return expand_text(value)
    except SettingsError as error:
        problems.extend(error.problems)
        return replace(value, data=UNREADABLE)


def _section(
    value: YamlValue,
    kind: SettingKind,
    path: KeyPath,
    problems: list[Problem],
    *,
    decoded: Mapping[int, Any] = MappingProxyType({}),
) -> Any:
    data = _entries(value, kind, path, problems)
    problems.extend(_missing_keys(value, data, kind, path))
    kinds = members(kind)
    for key in (key for key in data if key not in kinds):
        plain = key.lower().replace("-", "_")
        near = get_close_matches(plain, kinds, n=1, cutoff=SAME)
        hint = "" if near else explanation(dotted_path(path), key)
        near = near if near or hint else get_close_matches(plain, kinds, n=1)
        if not near and not hint and len(kinds) <= LISTED_MEMBERS:
            hint = f"there is {', '.join(kinds)}"
        meant = dotted_path((*path, *near)) if near else None
        # `{value:hunter2}`, without the space, is parsed as one key.
        unknown = path if secret(path) else (*path, key)
        text = "; ".join(filter(None, ("there is no such setting", hint)))
        problems.append(Problem(data[key].where, dotted_path(unknown), text, meant))
    return {
        name: decoded[id(data[name])]
        if id(data[name]) in decoded
        else decode(data[name], kind, (*path, name), problems)
        for name, kind in kinds.items()
        if name in data
    }


def _missing_keys(
    value: YamlValue, data: Mapping[str, YamlValue], kind: SettingKind, path: KeyPath
) -> list[Problem]:
    """Required members that are missing; misspelled ones are reported already."""
    kinds = members(kind)
    if (value.data is not None and not isinstance(value.data, dict)) or data.keys() - kinds:
        return []
    return [
        Problem(
            value.where,
            dotted_path((*path, name)),
            f"expected {kinds[name].expectation}, found nothing",
        )
        for name in required_members(kind)
        if name not in data
    ]


def _mapping(value: YamlValue, kind: SettingKind, path: KeyPath, problems: list[Problem]) -> Any:
    result = {}
    for key, item in _entries(value, kind, path, problems).items():
        name = YamlValue(key, item.where, directory=item.directory)
        if _convert(key, key_kind(kind), name, path=path, problems=problems) is not MISSING:
            result[key] = decode(item, item_kind(kind), (*path, key), problems)
    return result


def _entries(
    value: YamlValue, kind: SettingKind, path: KeyPath, problems: list[Problem]
) -> dict[str, YamlValue]:
    if isinstance(value.data, dict):
        return value.data
    if value.data is not None:  # a key whose entries are all commented out counts as absent
        problems.append(_mismatch(value, value.data, kind, path))
    return {}


def _list(value: YamlValue, kind: SettingKind, path: KeyPath, problems: list[Problem]) -> Any:
    if not isinstance(value.data, list):
        if value.data is not None:
            problems.append(_mismatch(value, value.data, kind, path))
        return ()
    item = item_kind(kind)
    return tuple(
        decode(entry, item, (*path, str(index)), problems) for index, entry in enumerate(value.data)
    )


def _scalar(value: YamlValue, kind: SettingKind, path: KeyPath, problems: list[Problem]) -> Any:
    data = value.data
    if kind.optional and (data is None or (value.loose and not data)):
        return None
    if kind.has_mark("verbatim") and isinstance(data, (bool, int, float, date)):
        data = value.text
    if kind.base is Literal and isinstance(data, bool):  # YAML 1.1 takes `off` for false
        data = value.text
    if value.loose and not kind.textual:
        data = _parse_scalar(value.text)
    if kind.has_mark("outside") and data and value.origin == "here":
        text = "expected ${NAME} or ${file:PATH}; do not put the secret itself in the file"
        problems.append(Problem(value.where, dotted_path(path), text))
        return MISSING
    data = _convert(data, kind, value, path=path, problems=problems)
    if kind.has_mark("file") and data is not MISSING:
        return absolute(data, value.directory)
    if kind.has_mark("module") and data is not MISSING and data.endswith(".py"):
        return absolute(data, value.directory)
    return data


def _parse_scalar(text: str) -> Any:
    """A bare scalar as typed by YAML; what YAML cannot parse stays text."""
    try:
        return yaml.load(text, Loader=Loader)  # noqa: S506 - a SafeLoader, the C one where built
    except (yaml.YAMLError, ValueError):
        return text


def _convert(
    data: Any, kind: SettingKind, value: YamlValue, *, path: KeyPath, problems: list[Problem]
) -> Any:
    try:
        return convert(data, kind.annotation)
    except ValidationError:
        problems.append(_mismatch(value, data, kind, path))
        return MISSING


def absolute(text: str, directory: Path) -> str:
    """A path, absolute; a URL or "" as it is."""
    if not text or "://" in text:
        return text
    home = os.path.expanduser(text)  # noqa: PTH111 - Path.expanduser raises where there is no home
    return str(Path(directory, home).absolute())


def _mismatch(value: YamlValue, data: Any, kind: SettingKind, path: KeyPath) -> Problem:
    hidden = secret(path) or value.origin == "file"  # which may hold any secret
    actual = "a value that is not shown" if hidden else _excerpt(data, kind)
    example = ""
    if kind.listing and isinstance(data, str) and not hidden:
        example = f"; such as [{shorten(without_credentials(data))}]"
    text = f"expected {kind.expectation}, found {actual}{example}"
    return Problem(value.where, dotted_path(path), text)


def secret(path: KeyPath) -> bool:
    # Names of headers too: `{Authorization:Bearer x}`, without the space, is parsed as one key.
    is_secret = path in SECRET or path in WITH_PASSWORDS
    of_model = path[:2] in WITH_KEYS and path[3:] == ("api_key",)
    of_events = path[:1] == ("events",) and path[-1] in ("secret", "old_secret", "password")
    of_login = path[:1] == ("login",) and path[-1] in ("secret", "client_secret")
    sections = path[:1] == ("secrets",) or path[2:3] in SECRET_SOURCE_KEYS
    return is_secret or of_model or of_events or of_login or sections


def _excerpt(data: Any, kind: SettingKind) -> str:
    if isinstance(data, dict):
        return "a mapping"
    if isinstance(data, list):
        return "a list"
    if isinstance(data, str):
        # Text in place of a whole mapping may contain a secret anywhere.
        return "text" if not kind.scalar else f'"{shorten(without_credentials(data))}"'
    words = {None: "nothing", True: "true", False: "false"}
    return words[data] if data is None or isinstance(data, bool) else shorten(str(data))


def shorten(text: str) -> str:
    return text if len(text) <= EXCERPT else text[: EXCERPT - 1] + "…"
