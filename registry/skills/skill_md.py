"""SKILL.md: front matter and instructions, as agentskills.io/specification defines them. Pure.

An access level is compared with the tool's own hints (MCP `ToolAnnotations`, whose defaults are
those of the specification: not read-only, destructive). Where a description changes and a tool
declares more than before, the skill needs a higher level, too.

Extensions stand in `metadata`, whose values are strings: `version`, and of ours `toolgate-requires`
and `toolgate-suggests` (names of skills), `toolgate-parent` (one), and `toolgate-access`
(`TOOL=read` and so on, where a tool is not to have the level that it needs).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import takewhile
from typing import Any, Literal, NoReturn, get_args

import msgspec
import yaml
from msgspec import Raw, Struct

from registry.documents.yaml_and_json import parse_yaml
from schemas.errors import ImportRejected
from schemas.invisible_characters import visible, without_hidden, without_hidden_in
from schemas.skill_files import SKILL_FILE
from schemas.tool import Annotations

Access = Literal["read", "write", "execute"]
LEVELS: tuple[Access, ...] = get_args(Access)


def access_of(text: str) -> Access | None:
    return next((level for level in LEVELS if level == text), None)


def needed_access(annotations: Annotations) -> Access:
    """The lowest level that allows a tool with these hints."""
    if annotations.read_only_hint is True:
        return "read"
    return "write" if annotations.destructive_hint is False else "execute"


def allows(access: Access, annotations: Annotations) -> bool:
    return LEVELS.index(access) >= LEVELS.index(needed_access(annotations))


NAME_LIMIT = 64
DESCRIPTION_LIMIT = 1024
FRONT_LIMIT = 65_536  # characters
STORED_LIMIT = 6 * FRONT_LIMIT  # bytes of it as JSON, which may write a character as six
VERSION_LIMIT = 20
NAMED_LIMIT = 1000  # tools, or skills, in one document
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
NAME_RULE = f"at most {NAME_LIMIT} characters out of a-z, 0-9 and single hyphens between them"
REQUIRES, SUGGESTS = "toolgate-requires", "toolgate-suggests"
PARENT, ACCESS = "toolgate-parent", "toolgate-access"
PREFIX = "toolgate-"
KEYS = (REQUIRES, SUGGESTS, PARENT, ACCESS)

_FENCE = "---"
# `Bash(git add:*) Read` are two: patterns of arguments may hold spaces.
_TOOL = re.compile(r"[^\s,()]+(?:\([^()]*\))?")
_MCP_PREFIX = re.compile(r"mcp__.+?__")  # prefix that clients add to the tools of a server

Json = dict[str, Any]


class _Front(Struct, rename={"allowed_tools": "allowed-tools"}):
    allowed_tools: Any = None


_front = msgspec.json.Decoder(_Front)


@dataclass(frozen=True, slots=True)
class SkillDocument:
    """A SKILL.md; `front_matter + instructions` is the complete text, verbatim."""

    name: str
    description: str
    front_matter: str  # fences included
    instructions: str
    metadata: Json  # the front matter
    tools: tuple[str, ...] = ()  # named by `allowed-tools`, in its order
    access: Mapping[str, Access] = field(default_factory=dict)  # of some of them
    requires: tuple[str, ...] = ()
    suggests: tuple[str, ...] = ()
    parent: str | None = None
    version: str | None = None

    @property
    def text(self) -> str:
        return self.front_matter + self.instructions


def read_document(content: bytes, where: str) -> SkillDocument:
    """Parse a SKILL.md. Raises ImportRejected with a message that begins with `where`."""
    text = _text(content, where)
    front_matter, inside = _split(text, where)
    metadata = parse_yaml("\n" + inside, where, unique=True)  # so that lines count from the fence
    if not isinstance(metadata, dict):
        _reject(where, "the front matter must be an object with name and description")
    _check_storable(metadata, where)
    extra = metadata.get("metadata") or {}
    if not isinstance(extra, dict):
        _reject(where, "metadata must be an object of texts")
    return SkillDocument(
        checked_name(metadata.get("name"), where),
        _description(metadata.get("description"), where),
        front_matter,
        text[len(front_matter) :],
        metadata=metadata,
        tools=_tools(metadata.get("allowed-tools"), where),
        access=_access(_text_of(extra, ACCESS, where), where),
        requires=_skills(extra, REQUIRES, where),
        suggests=_skills(extra, SUGGESTS, where),
        parent=next(iter(_skills(extra, PARENT, where)), None),
        version=_version(extra.get("version", metadata.get("version")), where),
    )


def check_imported_document(document: SkillDocument, where: str) -> None:
    """Checks on import that stored documents are exempt from, as they may be older than a check.
    Raises ImportRejected for `toolgate-` metadata without effect, and for invisible characters."""
    check_invisible(document.text.removeprefix("\ufeff"), where)
    for key, value in document.metadata.items():
        if without_hidden_in(pair := {key: value}) is not pair:
            text = "an escape stands for an invisible character; remove it"
            _reject(where, f"{visible(key)[:80]}: {text}")
    for key in document.metadata.get("metadata") or {}:
        if isinstance(key, str) and key.startswith(PREFIX) and key not in KEYS:
            _reject(where, f"metadata.{key[:80]} is unknown; {_instead(key)}")
    for tool in document.access:
        if tool not in document.tools:
            _reject(where, f"metadata.{ACCESS} names {tool[:80]!r}, which allowed-tools does not")


def check_invisible(text: str, where: str) -> None:
    """Raises ImportRejected for invisible characters that a model would read: they can hide
    instructions from a reviewer."""
    if without_hidden(text) == text:
        return
    for number, line in enumerate(text.split("\n"), start=1):
        if without_hidden(line) != line:
            at = sum(1 for _ in takewhile(_same, zip(line, without_hidden(line), strict=False)))
            excerpt = visible(line[max(at - 20, 0) : at + 10])
            _reject(where, f"line {number} has invisible characters: {excerpt}; remove them")


def _same(pair: tuple[str, str]) -> bool:
    return pair[0] == pair[1]


def _instead(key: str) -> str:
    named = {key.removeprefix(PREFIX): key for key in KEYS}  # the rest is the same in all of them
    near = get_close_matches(key[:80].removeprefix(PREFIX), named, n=1)
    return f"did you mean {named[near[0]]}?" if near else f"there is {', '.join(KEYS)}"


def checked_name(name: Any, where: str) -> str:
    """The name. Raises ImportRejected for an invalid skill name."""
    if not isinstance(name, str) or not name:
        _reject(where, "name is missing: the front matter needs name and description")
    if len(name) > NAME_LIMIT or not NAME.fullmatch(name):
        _reject(where, f"name {name[:80]!r} must have {NAME_RULE}")
    return name


def compose(metadata: Json, instructions: str) -> str:
    """The text of a SKILL.md with this front matter."""
    head = yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True, width=88)
    return f"{_FENCE}\n{head}{_FENCE}\n\n{instructions}"


def tools_of(metadata: bytes | Raw) -> tuple[str, ...]:
    """The tools named by stored front matter."""
    named = _front.decode(metadata).allowed_tools
    return _tools(named, SKILL_FILE) if isinstance(named, str | list) else ()


def own_name(tool: str) -> str:
    """The local name of a tool that a document names with a client's prefix."""
    return _MCP_PREFIX.sub("", tool, count=1) if tool.startswith("mcp__") else tool


def _text(content: bytes, where: str) -> str:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        _reject(where, "it is no UTF-8 text")
    if "\x00" in text:
        _reject(where, "it is no text: it holds a NUL character")
    return text


def _split(text: str, where: str) -> tuple[str, str]:
    """The text up to the end of the front matter, and the text inside it."""
    start = 1 if text.startswith("\ufeff") else 0
    end = text.find("\n", start)
    if text[start : end if end >= 0 else None].rstrip() != _FENCE:
        _reject(where, f"it must begin with a line {_FENCE}, the front matter (name, description)")
    inside = at = end + 1 if end >= 0 else len(text)
    while at < min(len(text), FRONT_LIMIT):
        end = text.find("\n", at)
        after = end + 1 if end >= 0 else len(text)
        if text[at:after].rstrip() == _FENCE:
            return text[:after], text[inside:at]
        at = after
    missing = f"the front matter does not end: a second line {_FENCE} is missing"
    long = f"the front matter has more than {FRONT_LIMIT:,} characters"
    raise ImportRejected(f"{where}: {long if at >= FRONT_LIMIT else missing}.")


def _check_storable(metadata: Json, where: str) -> None:
    """Checks for values that YAML can express and JSON, or a database, cannot."""
    try:
        written = msgspec.json.encode(metadata)
    except (OverflowError, UnicodeEncodeError, RecursionError) as error:
        raise ImportRejected(f"{where}: the front matter holds what JSON cannot.") from error
    if len(written) > STORED_LIMIT:
        _reject(where, "aliases expand the front matter too much")
    if b"\\u0000" in written:
        _reject(where, "the front matter holds a NUL character")


def _description(description: Any, where: str) -> str:
    if not isinstance(description, str) or not description.strip():
        _reject(where, "description is missing: say what the skill does and when to use it")
    if len(description) > DESCRIPTION_LIMIT:
        _reject(
            where, f"description has {len(description):,} of at most {DESCRIPTION_LIMIT} characters"
        )
    return description.strip()


def _tools(value: Any, where: str) -> tuple[str, ...]:
    """The tool names of a string separated by spaces or commas, or of a list."""
    if value is None:
        return ()
    texts = value if isinstance(value, list) else [value]
    if not all(isinstance(text, str) for text in texts):
        _reject(where, "allowed-tools must be a text, names of tools with spaces between them")
    return _limit_names(
        [name for text in texts for name in _TOOL.findall(text)], "allowed-tools", where
    )


def _skills(extra: Json, key: str, where: str) -> tuple[str, ...]:
    names = _text_of(extra, key, where).replace(",", " ").split()
    for name in names:
        if len(name) > NAME_LIMIT or not NAME.fullmatch(name):
            _reject(where, f"metadata.{key} names {name[:80]!r}; a skill's name has {NAME_RULE}")
    return _limit_names(names, f"metadata.{key}", where)


def _access(text: str, where: str) -> dict[str, Access]:
    by_name: dict[str, Access] = {}
    for pair in _limit_names(text.replace(",", " ").split(), f"metadata.{ACCESS}", where):
        tool, equals, level = pair.partition("=")
        access = access_of(level)
        if not equals or not tool or access is None:
            _reject(
                where,
                f"metadata.{ACCESS}: {pair[:80]!r} must be TOOL=read, TOOL=write or TOOL=execute",
            )
        by_name[tool] = access
    return by_name


def _version(version: Any, where: str) -> str | None:
    if version is None:
        return None
    if not isinstance(version, str | int | float) or isinstance(version, bool):
        _reject(where, "metadata.version must be a text")
    text = str(version).strip()
    if not text or len(text) > VERSION_LIMIT:
        _reject(where, f"metadata.version must have 1 to {VERSION_LIMIT} characters")
    return text


def _text_of(extra: Json, key: str, where: str) -> str:
    text = extra.get(key) or ""
    if not isinstance(text, str):
        _reject(where, f"metadata.{key} must be a text")
    return text


def _limit_names(names: list[str], field: str, where: str) -> tuple[str, ...]:
    if len(names) > NAMED_LIMIT:
        _reject(where, f"{field} has {len(names):,} of at most {NAMED_LIMIT:,} names")
    return tuple(dict.fromkeys(names))


def _reject(where: str, problem: str) -> NoReturn:
    raise ImportRejected(f"{where}: {problem}.")
