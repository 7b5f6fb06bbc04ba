"""How far a skill may use a tool. Pure.

A level is held against what the tool says of itself (MCP `ToolAnnotations`, whose defaults are
those of the specification: not read-only, destructive). Where a description changes and a tool
says more of itself than before, the skill has to be given more, too.
"""

from typing import Literal, get_args

from schemas.tool import Annotations

Access = Literal["read", "write", "execute"]
LEVELS: tuple[Access, ...] = get_args(Access)

MEANING = {
    "read": "tools that say that they only read",
    "write": "tools that say that they destroy nothing",
    "execute": "any tool",
}


def access_of(text: str) -> Access | None:
    return next((level for level in LEVELS if level == text), None)


def needed(annotations: Annotations) -> Access:
    """The least level that allows a tool that says this of itself."""
    if annotations.read_only_hint is True:
        return "read"
    return "write" if annotations.destructive_hint is False else "execute"


def allows(access: Access, annotations: Annotations) -> bool:
    return LEVELS.index(access) >= LEVELS.index(needed(annotations))
