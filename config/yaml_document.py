"""Settings as written: YAML text in, values with their source locations out.

It knows YAML, `${NAME}` and `${file:PATH}`, and no settings. Problems of settings have messages
that name the location and the correction.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from msgspec import Struct

from schemas.errors import ToolgateError

KeyPath = tuple[str, ...]  # ("server", "port")
Where = Callable[..., str]  # location of the first of these key paths that is not at its default

TAB = "found a tab, and YAML indents with spaces"
DEPTH_LIMIT = 10  # settings nest four deep; an alias that contains itself would not end
REFERENCE = re.compile(r"\$(?:\$|\{([^}]*)\}|\{)")
UNREADABLE = object()  # the data of a value whose problem is already reported
VARIABLE_PATTERN = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-([^$}]*))?")
FILE = "file:"
FILE_LIMIT_BYTES = 65536


class Problem(Struct, frozen=True):
    """One mistake. `where` is file:line or the name of an environment variable."""

    where: str
    path: str  # server.port; "" for the whole file
    text: str  # "expected a TCP port from 0 to 65535, found 99999"
    suggestion: str | None = None  # the name that was probably meant

    def __str__(self) -> str:
        subject = f"{self.where}: {self.path}" if self.path else self.where
        hint = f"; did you mean {self.suggestion}?" if self.suggestion else ""
        return f"{subject}: {self.text}{hint}"


class SettingsError(ToolgateError):
    """The settings cannot be used. Lists every problem that was found; shows no secret."""

    def __init__(self, *problems: Problem) -> None:
        self.problems = problems
        count = "a problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__("\n  ".join([f"{count} in the settings:", *map(str, problems)]))


def dotted_path(path: KeyPath) -> str:
    return ".".join(path)


Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times faster, where built


Origin = Literal["here", "environment", "file"]  # where the text of a value comes from


@dataclass(frozen=True, slots=True)
class YamlValue:
    """A scalar, a `dict[str, Value]` or a `list[Value]`, and where it comes from."""

    data: Any
    where: str  # file:line or the name of a variable
    directory: Path  # what a relative path in it is relative to
    text: str = ""  # a scalar as it was written
    loose: bool = False  # bare text: the type is determined by its target
    origin: Origin = "here"


class InterpolationError(ValueError):
    """A text cannot be interpolated; with the reason."""


def interpolate(text: str, env: Mapping[str, str], directory: Path) -> tuple[str, Origin]:
    """Interpolate a text: `${NAME}`, `${NAME:-default}` (when unset or empty, as in a shell),
    `${file:PATH}` (the content of a file), `$$` for one `$`. Raises InterpolationError."""
    origin: Origin = "here"

    def replacement(match: re.Match[str]) -> str:
        nonlocal origin
        if match[0] == "$$":
            return "$"
        inside = match[1] or ""
        if inside.startswith(FILE):
            origin = "file"
            return _content(inside.removeprefix(FILE), directory)
        origin = "file" if origin == "file" else "environment"
        return _variable(match[0], inside, env)

    return REFERENCE.sub(replacement, text), origin


def _variable(text: str, inside: str, env: Mapping[str, str]) -> str:
    match = VARIABLE_PATTERN.fullmatch(inside)
    if match is None:
        # Without the default, which may be a secret.
        name, colon, _ = text.partition(":")
        reference = f"{name}:…" if colon else name
        raise InterpolationError(
            f"expected ${{NAME}}, ${{NAME:-default}} or ${{file:PATH}}, found {reference}"
        )
    name, default = match.groups()
    if default is None and name not in env:
        raise InterpolationError(
            f"the environment variable {name} is not set, and there is no default"
        )
    return env.get(name, "") if default is None else env.get(name) or str(default)


def _content(path: str, directory: Path) -> str:
    """Content of a file, without the final newline that editors add."""
    try:
        with Path(directory, path).expanduser().open("rb") as file:
            content = file.read(FILE_LIMIT_BYTES + 1)
        text = content.decode()
    except UnicodeDecodeError:
        raise InterpolationError(
            f"the file {path} is not text in UTF-8"
        ) from None  # the cause quotes it
    except (OSError, ValueError, RuntimeError) as error:
        reason = (getattr(error, "strerror", None) or "cannot be read").lower()
        raise InterpolationError(f"the file {path}: {reason}") from error
    if len(content) > FILE_LIMIT_BYTES:
        raise InterpolationError(f"the file {path} is longer than {FILE_LIMIT_BYTES} bytes")
    return text.removesuffix("\n").removesuffix("\r")


class YamlDocument:
    """One YAML text. Problems are collected in `problems`; a syntax error is raised at once."""

    def __init__(
        self,
        name: str,
        directory: Path,
        env: Mapping[str, str] | None,
        origin: Origin = "here",
    ) -> None:
        """A document to read. `env` None: no interpolation. `name` is a file, or a variable that
        holds YAML."""
        self.name = name
        self.directory = directory
        self.env = env
        self.origin = origin
        self.problems: list[Problem] = []
        self._numbered = False

    def read(self, text: bytes | str, *, lines: bool = True) -> YamlValue:
        """Read the document. `lines` False: a line number would not help, because it is one
        variable's text."""
        self._numbered = lines
        try:
            loader = Loader(text)
            node = loader.get_single_node()
            if node is None:
                return YamlValue(None, self.name, directory=self.directory)
            return self._value(loader, node, (), self._where(node.start_mark))
        except yaml.MarkedYAMLError as error:
            raise SettingsError(self._syntax(error, text)) from error
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise SettingsError(Problem(self.name, "", "expected YAML in UTF-8")) from error

    def _value(self, loader: Any, node: Any, path: KeyPath, where: str) -> YamlValue:
        if len(path) > DEPTH_LIMIT:
            raise SettingsError(Problem(where, dotted_path(path[:3]) + "…", "nested too deeply"))
        if isinstance(node, yaml.MappingNode):
            return YamlValue(self._mapping(loader, node, path), where, directory=self.directory)
        if isinstance(node, yaml.SequenceNode):
            items = [
                self._value(loader, item, (*path, str(index)), self._where(item.start_mark))
                for index, item in enumerate(node.value)
            ]
            return YamlValue(items, where, directory=self.directory)
        return self._scalar(_construct(loader, node), node.value, path, where)

    def _mapping(self, loader: Any, node: Any, path: KeyPath) -> dict[str, YamlValue]:
        members: dict[str, YamlValue] = {}
        for key_node, value_node in node.value:
            where = self._where(key_node.start_mark)
            # `host: {{ HOST }}`, an unrendered template, is a mapping as the key of another.
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else "{…}"
            below = (*path, key)
            if key in members:
                text = f"the key stands twice, first at {members[key].where}"
                self.problems.append(Problem(where, dotted_path(below), text))
            members[key] = self._value(loader, value_node, below, where)
        return members

    def _scalar(self, data: Any, text: str, path: KeyPath, where: str) -> YamlValue:
        if self.env is None or not isinstance(data, str) or "$" not in data:
            return YamlValue(data, where, directory=self.directory, text=text, origin=self.origin)
        try:
            result, origin = interpolate(data, self.env, self.directory)
        except InterpolationError as unfit:
            self.problems.append(Problem(where, dotted_path(path), str(unfit)))
            return YamlValue(UNREADABLE, where, directory=self.directory)
        loose = "${" in data
        return YamlValue(
            result, where, directory=self.directory, text=result, loose=loose, origin=origin
        )

    def _where(self, mark: Any) -> str:
        return f"{self.name}:{mark.line + 1}" if self._numbered else self.name

    def _syntax(self, error: yaml.MarkedYAMLError, text: bytes | str) -> Problem:
        mark = error.problem_mark or error.context_mark
        place = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = syntax_problem(error, text)
        reason = ", ".join(filter(None, (error.context if problem != TAB else "", problem)))
        # Without the excerpt that `str(error)` shows: a secret may stand in it.
        return Problem(
            self._where(mark) if mark else self.name,
            "",
            f"not valid YAML{place}: {reason}",
        )


def check_text(text: str) -> None:
    """Refuse text that only PyYAML's own reader takes: escapes of half a character (a surrogate),
    which nothing can write again. Raises YAMLError."""
    for _ in yaml.parse(text, Loader=Loader):
        pass


def syntax_problem(error: yaml.MarkedYAMLError, text: bytes | str) -> str:
    """The problem of an error in `text`. Of a tab, YAML reports only that it cannot start any
    token."""
    written = text.decode(errors="replace") if isinstance(text, bytes) else text
    lines, mark = written.splitlines(), error.problem_mark
    is_tab = mark and mark.line < len(lines) and lines[mark.line][mark.column :].startswith("\t")
    return TAB if is_tab else error.problem or "it is not YAML"


def _construct(loader: Any, node: Any) -> Any:
    try:
        return loader.construct_object(node)
    except ValueError:  # 2024-99-99 looks like a date but is invalid
        return node.value


def expand_text(value: YamlValue) -> YamlValue:
    """A bare text read as YAML, where its target is a list or a mapping; may raise."""
    document = YamlDocument(value.where, value.directory, None, value.origin)
    result = document.read(value.text, lines=False)
    if document.problems:
        raise SettingsError(*document.problems)
    return result
