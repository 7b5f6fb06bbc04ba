"""The file of `toolgate export`: its YAML, the lines of its entries, and their types.

    rules:
      no-deletes:
        effect: deny
        tools: [delete_*]

A section has the name of a view, an entry its key, and its members are those of the request that
makes it. Values that are defaults are left out, so that the same things have the same file.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import yaml
from msgspec.structs import fields

from schemas.errors import ToolgateError
from schemas.similar_names import did_you_mean

Json = dict[str, Any]
Sections = dict[str, dict[str, Json]]  # section -> key -> members

VERSION_KEY, VERSION = "toolgate_export", 1
SECRETS = "secrets"  # references: source -> scheme -> kind
DEPTH_LIMIT = 100
_PLACE = re.compile(r" - at `(?P<path>[^`]*)`$")
_STEP = re.compile(r"\.([A-Za-z_][\w-]*)|\[(\d+)\]|(\[\.\.\.\])")
_UNKNOWN = re.compile(r"unknown field `(?P<name>[^`]*)`")


class DocumentError(ToolgateError):
    """A mistake in the file; the message has its line."""


class _Loader(yaml.SafeLoader):
    """Refuses aliases, which let a small file stand for a huge one."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, "aliases are not read", mark)
        return super().compose_node(parent, index)


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as blocks, and no aliases."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def dump(sections: Mapping[str, Any]) -> str:
    written = {VERSION_KEY: VERSION, **{name: rows for name, rows in sections.items() if rows}}
    text: str = yaml.dump(
        written, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100,
        default_flow_style=False,
    )  # fmt: skip
    return text


def without_defaults(value: Any) -> Any:
    """Plain data of a request, without members that are at their defaults."""
    if isinstance(value, msgspec.Struct):
        config = value.__struct_config__
        tag = {config.tag_field: config.tag} if config.tag_field else {}
        members = {
            field.encode_name: without_defaults(getattr(value, field.name))
            for field in fields(value)
            if field.required or getattr(value, field.name) != _default(field)
        }
        return {**tag, **members}
    if isinstance(value, Mapping):
        return {str(name): without_defaults(member) for name, member in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [without_defaults(member) for member in value]
    return msgspec.to_builtins(value)


def _default(field: msgspec.structs.FieldInfo) -> Any:
    factory = field.default_factory
    return field.default if factory is msgspec.NODEFAULT else factory()


class Document:
    """A file that was read: its sections, and where their parts are."""

    def __init__(self, name: str, text: str) -> None:
        """Raises DocumentError."""
        self._name = name
        try:
            root = yaml.compose(text, Loader=_Loader)
            data = {} if root is None else yaml.safe_load(text)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            line = f":{mark.line + 1}" if mark else ""
            reason = getattr(error, "problem", None) or "it is not YAML"
            raise DocumentError(f"{name}{line}: {reason}") from error
        except RecursionError as error:
            raise DocumentError(f"{name}: it is nested too deeply") from error
        except ValueError as error:  # such as that of the date 2030-13-01
            raise DocumentError(f"{name}: {error}") from error
        self._root = root
        if not isinstance(data, dict):
            raise self.error((), "expected a mapping of sections, as `toolgate export` writes it")
        self._check_keys(root)
        if data.pop(VERSION_KEY, None) != VERSION:
            raise self.error((), f"expected {VERSION_KEY}: {VERSION}, as `toolgate export` writes")
        self.sections: dict[str, Any] = data

    def error(self, path: Sequence[str | int], text: str) -> DocumentError:
        """`path`: of the member that is wrong."""
        dotted = ".".join(map(str, path))
        line = self._line(path)
        return DocumentError(f"{self._name}:{line}: {f'{dotted}: ' if dotted else ''}{text}")

    def entries(self, sections: Sequence[str]) -> Iterator[tuple[str, str, Json]]:
        """Section, key and members of each entry. Raises DocumentError for a section that is not
        one of `sections`."""
        for section, entries in self.sections.items():
            if section not in sections:
                hint = did_you_mean(str(section), sections) or f"There are: {', '.join(sections)}."
                raise self.error((section,), f"there is no such section. {hint}")
            if not isinstance(entries, dict | None):
                raise self.error((section,), "expected a mapping of names")
            for key, entry in (entries or {}).items():
                if not isinstance(key, str):
                    raise self.error((section, key), "expected a name in quotes, which is text")
                if not isinstance(entry, dict | None):
                    raise self.error((section, key), "expected a mapping of members")
                yield section, key, entry or {}

    def convert(self, path: Sequence[str | int], data: Any, kind: Any) -> Any:
        """`data`, at `path`, as a value of a type. Raises DocumentError."""
        try:
            return msgspec.convert(data, kind)
        except msgspec.ValidationError as error:
            text = str(error)
            match = _PLACE.search(text)
            inner = list(_steps(match["path"])) if match else []
            text = _PLACE.sub("", text)
            if unknown := _UNKNOWN.search(text):
                members = sorted(_members_at(msgspec.inspect.type_info(kind), data, inner))
                hint = did_you_mean(unknown["name"], members) or f"There are: {', '.join(members)}."
                inner.append(unknown["name"])
                text = f"there is no such member. {hint}"
            raise self.error([*path, *inner], text[:1].lower() + text[1:]) from None

    def _check_keys(self, node: Any, path: tuple[str, ...] = ()) -> None:
        if not isinstance(node, yaml.MappingNode) or len(path) > DEPTH_LIMIT:
            return
        seen = set()
        for key, value in node.value:
            if key.value in seen:
                raise DocumentError(
                    f"{self._name}:{key.start_mark.line + 1}: {key.value} is there twice"
                )
            seen.add(key.value)
            self._check_keys(value, (*path, key.value))

    def _line(self, path: Sequence[str | int]) -> int:
        node, line = self._root, 1
        for step in path:
            if isinstance(node, yaml.MappingNode):
                pair = next((pair for pair in node.value if pair[0].value == str(step)), None)
                if pair is None:
                    break
                node, line = pair[1], pair[0].start_mark.line + 1
            elif isinstance(node, yaml.SequenceNode) and isinstance(step, int):
                node = node.value[step]
                line = node.start_mark.line + 1
        return line


def _members_at(kind: msgspec.inspect.Type, data: Any, path: Sequence[str | int]) -> set[str]:
    """Names of the members that the value at `path` of `data` may have, in a union those of all
    alternatives that its tag does not rule out."""
    match kind:
        case msgspec.inspect.UnionType(types):
            return set().union(*(_members_at(alternative, data, path) for alternative in types))
        case msgspec.inspect.StructType(tag_field=str(tag_field), tag=tag) if (
            not isinstance(data, dict) or data.get(tag_field) != tag
        ):
            return set()
        case msgspec.inspect.StructType(fields=members) if not path:
            return {member.encode_name for member in members}
        case msgspec.inspect.StructType(fields=members):
            step = path[0]
            within = [member.type for member in members if member.encode_name == step]
            return set().union(*(_members_at(member, data[step], path[1:]) for member in within))
        case msgspec.inspect.CollectionType(item_type) if path:
            return _members_at(item_type, data[path[0]], path[1:])
    return set()


def _steps(path: str) -> Iterator[str | int]:
    """Steps of a path of msgspec, as `$.files[0].path`, up to a mapping, whose keys it hides."""
    for name, number, hidden in _STEP.findall(path):
        if hidden:
            return
        yield name or int(number)
