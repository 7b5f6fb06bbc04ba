"""One setting written into the text of a settings file, whose other text stays as it is, comments
included."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import yaml


class UneditableFile(ValueError):
    """The text cannot be edited safely; with the reason."""


def edit_file(file: Path, section: str, key: str, value: str) -> None:
    """Set `section.key` in a file, which is replaced atomically and keeps its mode and owner.

    Raises UneditableFile, and OSError for a file that is read-only, or whose owner cannot be kept.
    """
    file = file.resolve()
    text = edit_text(file.read_text(encoding="utf-8"), section, key, value)
    if not os.access(file, os.W_OK):  # a new file in its place would ignore its mode
        raise PermissionError(13, "is read-only", str(file))
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    state = file.stat()
    try:  # it may have secrets, so others cannot read it at any time
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            os.fchown(stream.fileno(), state.st_uid, state.st_gid)
            os.fchmod(stream.fileno(), stat.S_IMODE(state.st_mode))
            stream.write(text)
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)


def edit_text(text: str, section: str, key: str, value: str) -> str:
    """`text` with `section.key` set. Raises UneditableFile."""
    scalar = json.dumps(value, ensure_ascii=False)  # a double-quoted scalar of YAML
    try:
        before = yaml.safe_load(text)
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise UneditableFile("it is not YAML") from error
    edited = _insert(text, root, section, f"{key}: {scalar}")
    try:
        after = yaml.safe_load(edited)
    except yaml.YAMLError:
        after = None
    if after != _with_value(before, section, key, value):  # as an alias of another section
        raise UneditableFile(f"its section {section} is not written as usual")
    return edited


def _insert(text: str, root: yaml.Node | None, section: str, line: str) -> str:
    """`text` with `line`, "key: value", in its section."""
    if root is not None and (not isinstance(root, yaml.MappingNode) or root.flow_style):
        raise UneditableFile("it is not a mapping with a line for each section")
    entry = _entry(root, section)
    if entry is None:
        gap = "" if not text or text.endswith("\n") else "\n"
        return f"{text}{gap}{section}:\n  {line}\n"
    name, content = entry
    if not isinstance(content, yaml.MappingNode):
        place = text.index(":", name.end_mark.index) + 1
        return f"{text[:place]}\n  {line}{text[place:]}"
    present = _entry(content, line.partition(":")[0])
    if present is not None:
        start, end = present[0].start_mark.index, present[1].end_mark.index
        return f"{text[:start]}{line}{text[end:]}"
    if content.flow_style:
        place, comma = content.start_mark.index + 1, ", " if content.value else ""
        return f"{text[:place]}{line}{comma}{text[place:]}"
    start = content.value[0][0].start_mark
    indent = " " * start.column
    return f"{text[: start.index]}{line}\n{indent}{text[start.index :]}"


def _entry(node: yaml.Node | None, key: str) -> tuple[yaml.Node, yaml.Node] | None:
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return next(((name, value) for name, value in pairs if name.value == key), None)


def _with_value(data: Any, section: str, key: str, value: str) -> dict[str, Any]:
    root = data or {}
    there = root.get(section)
    return {**root, section: {**(there if isinstance(there, dict) else {}), key: value}}
