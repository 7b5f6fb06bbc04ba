"""Skill drafts generated from the tags of an OpenAPI description. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from registry.display.schema_summaries import first_sentence, shorten
from registry.documents.containers import unpack
from registry.documents.yaml_and_json import parse
from registry.skills.folders import SkillFolder
from registry.skills.skill_md import (
    DESCRIPTION_LIMIT,
    NAME_LIMIT,
    NAMED_LIMIT,
    compose,
    needed_access,
    read_document,
)
from schemas.errors import ImportRejected
from schemas.skill_files import SKILL_FILE
from schemas.tool import Tool

TAG_TEXT_LENGTH = 600  # characters of a tag's own text, in a description
LINE_LENGTH = 160  # characters per tool, in the instructions
TITLES_LISTED = 12  # tools listed in a description
_ORDER = ("GET", "HEAD", "QUERY", "OPTIONS", "POST", "PUT", "PATCH")  # DELETE, and others, last
_HEADINGS = {
    "read": "Look things up first",
    "write": "Then add and change",
    "execute": "Then change; these may overwrite or destroy, so check with the user where in doubt",
}


def tag_texts(document: bytes, source: str) -> dict[str, str]:
    """Descriptions of the tags in a stored description, by name."""
    bundle = unpack(document, source)
    try:
        tags = parse(bundle.files[bundle.entry], bundle.entry).get("tags")
    except ImportRejected:  # not an OpenAPI description
        return {}
    tags_ = [tag for tag in tags if isinstance(tag, dict)] if isinstance(tags, list) else []
    return {str(tag.get("name")): str(tag.get("description") or "").strip() for tag in tags_}


def generate_skills(
    source: str,
    tools: Iterable[Tool],
    tools_by_tag: Mapping[str, Sequence[str]],
    tag_text: Mapping[str, str],
    *,
    tags: Sequence[str] = (),
) -> list[SkillFolder]:
    """One skill for each tag, or each selected tag. `tools_by_tag` has the ids of the tools of a
    tag, `tag_text` its description."""
    by_id = {tool.id: tool for tool in tools}
    folders = []
    used_names: set[str] = set()
    for tag, ids in tools_by_tag.items():
        tools_of_tag = sorted((by_id[id_] for id_ in ids if id_ in by_id), key=_sort_key)
        if not tools_of_tag or (tags and tag not in tags):
            continue
        name = _name(source, tag, used_names)
        used_names.add(name)
        folders.append(
            _folder(name, source, tag, tools_of_tag[:NAMED_LIMIT], tag_text=tag_text.get(tag, ""))
        )
    return folders


def _folder(
    name: str, source: str, tag: str, tools: Sequence[Tool], *, tag_text: str
) -> SkillFolder:
    metadata = {
        "name": name,
        "description": _description(source, tag, tools, tag_text),
        "allowed-tools": " ".join(tool.name for tool in tools),
        "metadata": {"generated-from": f"tag {tag} of {source}"},
    }
    text = compose(metadata, _instructions(source, tag, tools, tag_text))
    where = f"{name}/{SKILL_FILE}"
    return SkillFolder(where, read_document(text.encode(), where), ())


def _description(source: str, tag: str, tools: Sequence[Tool], tag_text: str) -> str:
    first = shorten(" ".join(tag_text.split()), TAG_TEXT_LENGTH) or f"Works with {tag} of {source}."
    titles = [_title(tool).rstrip(".") for tool in tools[:TITLES_LISTED]]
    more = ", and more" if len(tools) > TITLES_LISTED else ""
    return shorten(f"{first} Use it to: {'; '.join(titles)}{more}.", DESCRIPTION_LIMIT)


def _instructions(source: str, tag: str, tools: Sequence[Tool], tag_text: str) -> str:
    parts = [f"# {' '.join(tag.split())} ({source})"]
    if tag_text:
        parts.append(tag_text)
    parts.append(
        "Ids and other values that a tool needs come from the tools that look things up; do not "
        "guess them."
    )
    for level, heading in _HEADINGS.items():
        lines = [_line(tool) for tool in tools if needed_access(tool.annotations) == level]
        if lines:
            parts.append(f"## {heading}\n\n" + "\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _line(tool: Tool) -> str:
    required = _required_arguments(tool)
    needs = f" (needs {', '.join(required)})" if required else ""
    return f"- `{tool.name}`: {_title(tool)}{needs}"


def _title(tool: Tool) -> str:
    return (
        first_sentence(" ".join((tool.title or tool.description).split()), LINE_LENGTH) or tool.name
    )


def _required_arguments(tool: Tool) -> list[str]:
    schema = msgspec.json.decode(tool.input_schema)
    required: Any = schema.get("required") if isinstance(schema, dict) else None
    return [str(argument) for argument in required] if isinstance(required, list) else []


def _sort_key(tool: Tool) -> tuple[bool, int, int, str]:
    """Sort key: read-only tools first, then by method, then by number of required arguments."""
    reads = needed_access(tool.annotations) == "read"
    method = tool.binding.method.upper()
    rank = _ORDER.index(method) if method in _ORDER else len(_ORDER)
    return not reads, rank, len(_required_arguments(tool)), tool.name


def _name(source: str, tag: str, used_names: set[str]) -> str:
    """A skill name: "pets" and "Store orders!" give "pets-store-orders"; a duplicate ends with 2. A
    tag without a letter that a name may have is "tag"."""
    words = re.findall(r"[a-z0-9]+", f"{source} {tag}".lower())
    tag_words = re.findall(r"[a-z0-9]+", tag.lower())
    base = "-".join(words if tag_words else [*words, "tag"])[: NAME_LIMIT - 5].strip("-")
    name, number = base, 1
    while name in used_names:
        number += 1
        name = f"{base}-{number}"
    return name
