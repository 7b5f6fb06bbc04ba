"""The file of `toolgate export`: its YAML, the lines of its entries, and their types.

    rules:
      no-deletes:
        effect: deny
        tools: [delete_*]

A section has the name of a view, an entry its key, and its members are those of the request that
makes it. Values that are defaults are left out, so that the same things have the same file.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import yaml
from msgspec.structs import fields

from config.yaml_document import check_text, syntax_problem
from schemas.errors import ToolgateError
from schemas.mismatch import explain_mismatch
from schemas.similar_names import did_you_mean

Json = dict[str, Any]
Sections = dict[str, dict[str, Json]]  # section -> key -> members

VERSION_KEY, VERSION = "toolgate_export", 1
SECRETS = "secrets"  # references: source -> scheme -> kind
DEPTH_LIMIT = 100


class DocumentError(ToolgateError):
    """Mistakes in the file; the message has a line for each, with its place."""


def join_mistakes(mistakes: Iterable[DocumentError]) -> DocumentError:
    return DocumentError("\n".join(map(str, mistakes)))


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
            check_text(text)
            root = yaml.compose(text, Loader=_Loader)
            data = {} if root is None else yaml.safe_load(text)
        except yaml.MarkedYAMLError as error:
            line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
            raise DocumentError(f"{name}{line}: {syntax_problem(error, text)}") from error
        except yaml.YAMLError as error:
            raise DocumentError(f"{name}: it is not YAML") from error
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

    def entries(
        self, sections: Sequence[str], mistakes: list[DocumentError]
    ) -> Iterator[tuple[str, str, Json]]:
        """Section, key and members of each entry. `mistakes` gets sections that are not among
        `sections`, and what is no mapping."""
        for section, entries in self.sections.items():
            if section not in sections:
                hint = did_you_mean(str(section), sections) or f"There are: {', '.join(sections)}."
                mistakes.append(self.error((section,), f"there is no such section. {hint}"))
                continue
            if not isinstance(entries, dict | None):
                mistakes.append(self.error((section,), "expected a mapping of names"))
                continue
            for key, entry in (entries or {}).items():
                if not isinstance(key, str):
                    text = "expected a name in quotes, which is text"
                    mistakes.append(self.error((section, key), text))
                elif not isinstance(entry, dict | None):
                    mistakes.append(self.error((section, key), "expected a mapping of members"))
                else:
                    yield section, key, entry or {}

    def convert(self, path: Sequence[str | int], data: Any, kind: Any) -> Any:
        """`data`, at `path`, as a value of a type. Raises DocumentError with all mistakes."""
        try:
            return msgspec.convert(data, kind)
        except msgspec.ValidationError as error:
            texts = msgspec.to_builtins(data)  # YAML has times
            problems = explain_mismatch(texts, kind, error)
            mistakes = (self.error([*path, *problem.path], problem.message) for problem in problems)
            raise join_mistakes(mistakes) from None

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
