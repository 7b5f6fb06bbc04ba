"""The gateway's own tools: those with which a client finds and describes the others (progressive
disclosure), and that for accounts of callers. Pure.

Their names are reserved (`registry.names.tool_names`).
"""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

from msgspec import Raw

from registry.names.tool_names import (
    CONNECTIONS_TOOL,
    DESCRIBE_TOOL,
    DISCLOSURE_TOOLS,
    FINDING_TOOLS,
    SKILL_TOOLS,
)
from schemas.binding import Does, GatewayBinding
from schemas.jsonrpc import encode
from schemas.tool import Annotations, Tool

SOURCE = "toolgate"  # their source in lists by source

_DESCRIPTION = (
    "Tells everything about one of the tools here: its whole input schema, its output schema, its "
    "whole description and examples. Lists show large tools shortened; ask for the part whose "
    "fields you need by its path."
)
_SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "Name of the tool."},
        "path": {
            "type": "string",
            "description": "A part of its input schema alone: the names of properties from the "
            'arguments down, as in "spec.containers.resources".',
        },
    },
    "required": ["name"],
    "additionalProperties": False,
}
_HINTS = Annotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)

Json = dict[str, Any]


DESCRIBER = Tool(
    id="00000000-0000-0000-0000-000000000000",
    name=DESCRIBE_TOOL,
    title="Describe a tool",
    description=_DESCRIPTION,
    input_schema=Raw(encode(_SCHEMA)),
    output_schema=None,
    annotations=_HINTS,
    binding=GatewayBinding("describe"),
    source=SOURCE,
    digest=f"toolgate {DESCRIBE_TOOL}",
)


_ACCOUNTS_SCHEMA = {
    "type": "object",
    "properties": {
        "action": {"type": "string", "enum": ["list", "link", "disconnect"]},
        "source": {"type": "string", "description": "Of link: the service, as list names it."},
        "connection": {"type": "string", "description": "Of disconnect: the id of a connection."},
    },
    "required": ["action"],
    "additionalProperties": False,
}
ACCOUNTS = Tool(
    id="00000000-0000-0000-0000-000000000000",
    name=CONNECTIONS_TOOL,
    title="My accounts",
    description=(
        "Lists the services whose tools are called with the user's own account there, and their "
        "connections; gives a link by which the user connects one; or disconnects one."
    ),
    input_schema=Raw(encode(_ACCOUNTS_SCHEMA)),
    output_schema=None,
    annotations=Annotations(
        read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False
    ),
    binding=GatewayBinding(CONNECTIONS_TOOL),
    source=SOURCE,
    digest=f"toolgate {CONNECTIONS_TOOL}",
)


DESCRIBES: Does = "describe_tools"
SOURCES_LENGTH = 200  # characters of source names in a description


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
        "each. {answer}"
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
        "arguments": {"type": "object", "description": "As in the tool's input schema."},
    },
    "list_skills": {"query": {**_TEXT, "description": "What the skill should help with."}},
    "use_skill": {
        "name": {**_TEXT, "description": "Name of the skill."},
        "file": {**_TEXT, "description": "One of its files, instead of its instructions."},
        "after": {"type": "integer", "minimum": 0, "description": "Where to read on."},
    },
}
_AS: Json = {
    **_TEXT,
    "enum": ["python", "typescript"],
    "description": "Answer with signatures for programs, instead of schemas.",
}
_REQUIRED_ARGUMENTS: Mapping[Does, list[str]] = {
    "search_tools": ["query"],
    "describe_tools": ["names"],
    "call_tool": ["name"],
    "use_skill": ["name"],
}
_READ_ONLY = Annotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)
_ANSWER = "Answers with the best tools and their input schemas; call them with call_tool."
_PROGRAM_ANSWER = (
    "Answers with the signatures of the best tools; call them in programs of run_code."
)
_UNKNOWN_EFFECTS = Annotations()  # unknown: depends on the tool that is called


def own_tools(
    sources: Iterable[str],
    skills: bool = False,
    limit_maximum: int | None = None,
    *,
    stubs: bool = False,
    programs: bool = False,
) -> Mapping[Does, Tool]:
    """The gateway's own tools, by function. `sources` are those with tools; with `skills`, searches
    and calls can name one; `limit_maximum` is the maximum of a search's `limit`; with `stubs`,
    searches and descriptions can be asked for them; `programs`: a list has those for finding what
    programs call, alone."""
    does = (*DISCLOSURE_TOOLS, *SKILL_TOOLS) if skills else DISCLOSURE_TOOLS
    does = FINDING_TOOLS if programs else does
    texts = {"sources": _sources(sources), "answer": _PROGRAM_ANSWER if programs else _ANSWER}
    return {task: _tool(task, texts, _options(task, skills, limit_maximum, stubs)) for task in does}


def _sources(names: Iterable[str]) -> str:
    """The names of the sources, as text; as many as fit."""
    listed, room = [], SOURCES_LENGTH
    for name in sorted(names):
        room -= len(name) + 2
        if room < 0:
            listed.append("...")
            break
        listed.append(name)
    return f" (of {', '.join(listed)})" if listed else ""


def _options(does: Does, skills: bool, limit_maximum: int | None, stubs: bool) -> Json:
    """The properties of the arguments."""
    properties = dict(_PROPERTIES[does])
    if skills and does in ("search_tools", "call_tool"):
        properties["skill"] = _SKILL
    if limit_maximum is not None and does == "search_tools":
        properties["limit"] = {**properties["limit"], "maximum": limit_maximum}
    if stubs and does in ("search_tools", "describe_tools"):
        properties["as"] = _AS
    return properties


def _tool(does: Does, texts: Mapping[str, str], properties: Json) -> Tool:
    description = _DESCRIPTIONS[does].format(**texts)
    schema: Json = {"type": "object", "properties": properties, "additionalProperties": False}
    if does in _REQUIRED_ARGUMENTS:
        schema["required"] = _REQUIRED_ARGUMENTS[does]
    written = encode(schema)
    return Tool(
        id="00000000-0000-0000-0000-000000000000",
        name=does,
        title=_TITLES[does],
        description=description,
        input_schema=Raw(written),
        output_schema=None,
        annotations=_UNKNOWN_EFFECTS if does == "call_tool" else _READ_ONLY,
        binding=GatewayBinding(does),
        source=SOURCE,
        digest=f"toolgate {does} {sha256(description.encode() + written).hexdigest()}",
    )
