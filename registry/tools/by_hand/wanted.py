"""A tool as a person asks for it, on the command line or in a file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from schemas.binding import Language
from schemas.hybrid import Side
from schemas.source import Source
from schemas.tool import Annotations, Tool

WAYS = ("rest", "graphql", "hybrid", "mcp", "function", "script", "code")
Lifecycle = Literal["active", "deprecated", "retired"]
Cost = Literal["low", "medium", "high"]
Weight = Annotated[float, Meta(gt=0, le=100)]
ToolName = Annotated[
    str, Meta(pattern=r"\A[A-Za-z0-9_-]{1,64}\Z")
]  # as in registry.names.tool_names
Name128 = Annotated[str, Meta(max_length=128)]
Name64 = Annotated[str, Meta(max_length=64)]


class ToolRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Exactly one of WAYS says what a call does; `url` or `source` where it goes."""

    name: ToolName
    description: str = ""
    title: str | None = None
    input_schema: dict[str, Any] | None = None
    output_schema: dict[str, Any] | None = None
    rest: str | None = None  # GET https://api.example.com/pets/{id}, or GET /pets/{id}
    graphql: str | None = None  # query ($id: ID!) { pet(id: $id) { name } }
    hybrid: str | None = None  # host/service/action/version
    mcp: str | None = None  # name of a tool of `source`
    function: str | None = None  # a name in `functions` of the settings
    script: str | None = None  # path of a file with source code
    code: str | None = None  # the source code itself
    language: Language | None = None  # of `script` and `code`
    url: str | None = None
    source: str | None = None
    scope: str | None = None  # of a hybrid action
    side: Side | None = None
    dialect: Literal["jsonrpc", "legacy"] = "jsonrpc"
    annotations: Annotations | None = None
    tags: tuple[str, ...] = ()
    toolsets: tuple[str, ...] = ()
    examples: tuple[dict[str, Any], ...] = ()  # arguments of calls
    keywords: tuple[str, ...] = ()
    domain: Name128 | None = None
    namespace: Name128 | None = None
    tier: Name64 | None = None
    weight: Weight | None = None
    lifecycle: Lifecycle | None = None
    personas: str | None = None
    cost: Cost | None = None


@dataclass(frozen=True, slots=True)
class KnownFunction:
    """A function of the settings."""

    schema: dict[str, Any] | None  # of its arguments, if its annotations say it
    description: str
    takes: tuple[str, ...]  # names of its parameters


@dataclass(frozen=True, slots=True)
class KnownSources:
    """What tools made by hand can be made of."""

    sources: Mapping[str, Source] = field(default_factory=dict)  # by name
    tools: tuple[Tool, ...] = ()
    functions: Mapping[str, KnownFunction] = field(default_factory=dict)  # by name in the settings
    source_bytes: int = 2**18  # of a script
