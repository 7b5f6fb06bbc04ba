"""The gateway's own tools with which a client finds the others, where there are too many to be
listed. Pure.

Their names are theirs alone (`registry.names.reserved`).
"""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

from msgspec import Raw

from registry.display.describing import SOURCE
from schemas.binding import Does, GatewayBinding
from schemas.jsonrpc import encode
from schemas.tool import Annotations, Tool

DESCRIBES: Does = "describe_tools"
FINDING: tuple[Does, ...] = ("search_tools", "describe_tools", "call_tool")
SKILLS: tuple[Does, ...] = ("list_skills", "use_skill")
SOURCES_TOLD = 200  # characters of the names of sources in a description

Json = dict[str, Any]

_TEXT = {"type": "string"}
_SKILL = {**_TEXT, "description": "Only tools of this skill: its name, or the handle of use_skill."}

_TITLES: Mapping[Does, str] = {
    "search_tools": "Find tools",
    "describe_tools": "Describe tools",
    "call_tool": "Call a tool",
    "list_skills": "List skills",
    "use_skill": "Use a skill",
}
_DESCRIPTIONS: Mapping[Does, str] = {
    "search_tools": (
        "Finds tools by what they do: there are many more here than are listed{sources}. Say what "
        "a tool should do, in plain words; for a request of several steps write a sentence for "
        "each. Answers with the best tools and their input schemas; call them with call_tool."
    ),
    "describe_tools": (
        "Tells everything about tools whose names are known: whole input and output schemas and "
        "descriptions, or with a path the part of an input schema whose fields are needed."
    ),
    "call_tool": "Calls a tool that search_tools found, and answers as that tool does.",
    "list_skills": (
        "Lists skills: instructions for a kind of work, with the tools for it. Look here first "
        "when a request is more than a single call."
    ),
    "use_skill": "Loads the instructions of a skill and the tools that belong to it.",
}
_PROPERTIES: Mapping[Does, Json] = {
    "search_tools": {
        "query": {**_TEXT, "description": "What the tool should do."},
        "limit": {"type": "integer", "minimum": 1, "description": "How many tools at most."},
        "domain": {**_TEXT, "maxLength": 128, "description": "Only tools of this domain."},
        "detail": {
            "enum": ["schemas", "names"],
            "type": "string",
            "description": '"names" leaves input schemas out.',
        },
    },
    "describe_tools": {
        "names": {"type": "array", "items": _TEXT, "minItems": 1},
        "path": {
            **_TEXT,
            "description": 'Names of properties from the arguments down, as in "spec.containers".',
        },
    },
    "call_tool": {
        "name": {**_TEXT, "description": "Name of the tool."},
        "arguments": {"type": "object", "description": "As the tool's input schema says."},
    },
    "list_skills": {"query": {**_TEXT, "description": "What the skill should help with."}},
    "use_skill": {
        "name": {**_TEXT, "description": "Name of the skill."},
        "file": {**_TEXT, "description": "One of its files, instead of its instructions."},
        "after": {"type": "integer", "minimum": 0, "description": "Where to read on."},
    },
}
_REQUIRED: Mapping[Does, list[str]] = {
    "search_tools": ["query"],
    "describe_tools": ["names"],
    "call_tool": ["name"],
    "use_skill": ["name"],
}
_ASKS = Annotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)
_ACTS = Annotations()  # whatever the tool does that is called


def own_tools(
    sources: Iterable[str], skills: bool = False, most: int | None = None
) -> Mapping[Does, Tool]:
    """By what they do. `sources` are those whose tools there are; with `skills` search and calls
    can be of one; `most` that a search may be asked for."""
    does = (*FINDING, *SKILLS) if skills else FINDING
    told = {"sources": _sources(sources)}
    return {one: _tool(one, told, skills, most) for one in does}


def _sources(names: Iterable[str]) -> str:
    """Whose tools there are, in words; as many as there is room for."""
    listed, left = [], SOURCES_TOLD
    for name in sorted(names):
        left -= len(name) + 2
        if left < 0:
            listed.append("...")
            break
        listed.append(name)
    return f" (of {', '.join(listed)})" if listed else ""


def _tool(does: Does, told: Mapping[str, str], skills: bool, most: int | None) -> Tool:
    description = _DESCRIPTIONS[does].format(**told)
    properties = dict(_PROPERTIES[does])
    if skills and does in ("search_tools", "call_tool"):
        properties["skill"] = _SKILL
    if most is not None and does == "search_tools":
        properties["limit"] = {**properties["limit"], "maximum": most}
    schema: Json = {"type": "object", "properties": properties, "additionalProperties": False}
    if does in _REQUIRED:
        schema["required"] = _REQUIRED[does]
    written = encode(schema)
    return Tool(
        id="00000000-0000-0000-0000-000000000000",
        name=does,
        title=_TITLES[does],
        description=description,
        input_schema=Raw(written),
        output_schema=None,
        annotations=_ACTS if does == "call_tool" else _ASKS,
        binding=GatewayBinding(does),
        source=SOURCE,
        digest=f"toolgate {does} {sha256(description.encode() + written).hexdigest()}",
    )
