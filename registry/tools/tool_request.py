"""The request for a tool made by hand, and the sources and functions that it may name."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from config.value_types import END
from schemas.binding import Language
from schemas.hybrid import Side
from schemas.source import Source
from schemas.tool import Annotations, Tool

TOOL_KINDS = ("rest", "graphql", "hybrid", "mcp", "function", "code")
ToolName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9_-]{1,128}" + END,
        description="a name of at most 128 letters, digits, _ and -",
    ),
]  # as in registry.names.tool_names
Name128 = Annotated[str, Meta(max_length=128)]
Domain = Annotated[Name128 | None, Meta(description="routing domain")]
Namespace = Annotated[Name128 | None, Meta(description="semantic namespace")]
Tier = Annotated[
    Annotated[str, Meta(max_length=64)] | None,
    Meta(description="sensitivity tier, of policy.tiers"),
]
Weight = Annotated[
    Annotated[float, Meta(gt=0, le=100)] | None, Meta(description="weight in search")
]
Lifecycle = Annotated[
    Literal["active", "deprecated", "retired"] | None,
    Meta(description="lifecycle; retired tools are not found"),
]


class ToolRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Exactly one of TOOL_KINDS defines the call; `url` or `source` its target."""

    name: ToolName
    description: Annotated[str, Meta(description="description for models")] = ""
    title: Annotated[str | None, Meta(description="name for people")] = None
    input_schema: Annotated[
        dict[str, Any] | None, Meta(description="JSON Schema of the arguments")
    ] = None
    output_schema: Annotated[
        dict[str, Any] | None, Meta(description="JSON Schema of the results")
    ] = None
    rest: Annotated[
        str | None, Meta(description='HTTP request, as "GET https://example.com/pets/{id}"')
    ] = None
    graphql: Annotated[
        str | None, Meta(description="GraphQL operation with one field, a query or a mutation")
    ] = None
    hybrid: Annotated[
        str | None, Meta(description="action of a hybrid service: host/service/action/version")
    ] = None
    mcp: Annotated[str | None, Meta(description="tool of the MCP server `source`")] = None
    function: Annotated[str | None, Meta(description="function of `functions` in the settings")] = (
        None
    )
    code: Annotated[
        str | None, Meta(description="source code of a script that defines main(arguments)")
    ] = None
    language: Annotated[Language | None, Meta(description="language of the script")] = None
    url: Annotated[
        str | None, Meta(description="target of a GraphQL operation or a hybrid action")
    ] = None
    source: Annotated[
        str | None, Meta(description="source whose base URL and credentials are used")
    ] = None
    scope: Annotated[
        str | None, Meta(description="scopes of a hybrid action; one of them is required")
    ] = None
    side: Annotated[Side | None, Meta(description="portal path of a hybrid action")] = None
    dialect: Annotated[
        Literal["jsonrpc", "legacy"], Meta(description="dialect of a hybrid service")
    ] = "jsonrpc"
    annotations: Annotated[
        Annotations | None, Meta(description="hints about the effect of a call")
    ] = None
    tags: Annotated[tuple[str, ...], Meta(description="tag")] = ()
    toolsets: Annotated[tuple[str, ...], Meta(description="toolset of the tool")] = ()
    examples: Annotated[
        tuple[dict[str, Any], ...], Meta(description="arguments of an example call")
    ] = ()
    keywords: Annotated[tuple[str, ...], Meta(description="keyword for the search")] = ()
    domain: Domain = None
    namespace: Namespace = None
    tier: Tier = None
    weight: Weight = None
    lifecycle: Lifecycle = None
    personas: Annotated[str | None, Meta(description="target personas")] = None
    cost: Annotated[Literal["low", "medium", "high"] | None, Meta(description="cost of a call")] = (
        None
    )


class KnownFunction(Struct, frozen=True):
    """A function of the settings."""

    schema: dict[str, Any] | None  # of its arguments, if its annotations define it
    description: str
    takes: tuple[str, ...]  # names of its parameters


class KnownSources(Struct, frozen=True):
    """The sources and functions that tools made by hand can use."""

    sources: Mapping[str, Source] = {}  # by name
    tools: tuple[Tool, ...] = ()
    functions: Mapping[str, KnownFunction] = {}  # by name in the settings
    source_bytes: int = 2**18  # of a script
