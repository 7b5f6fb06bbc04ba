"""Bindings: how one tool's arguments become one call to the service behind it.

A binding is data. It is stored as JSON in `tool_t.binding`, told apart by its `type` tag, and
executed by the upstream that `gateway/app/` registers for its class.
"""

from typing import Literal

from msgspec import Struct

from schemas.hybrid import Side
from schemas.mcp.snapshot import Eras

Location = Literal["path", "query", "header", "cookie"]
Style = Literal[
    "simple", "label", "matrix", "form", "spaceDelimited", "pipeDelimited", "deepObject"
]


class Parameter(Struct, frozen=True, omit_defaults=True):
    """One OpenAPI parameter (OpenAPI 3.1, section 4.8.12) and the tool argument that feeds it."""

    argument: str  # key in the tool's arguments
    name: str  # name on the wire
    location: Location
    style: Style
    explode: bool
    allow_reserved: bool = False
    media_type: str | None = None  # a `content` parameter: the value is serialised as this type


class Body(Struct, frozen=True, omit_defaults=True):
    """The request body. Exactly one of `properties` and `argument` is set."""

    media_type: str
    required: bool = False
    properties: tuple[tuple[str, str], ...] | None = None  # (argument, body property): hoisted
    argument: str | None = None  # the whole body is this one argument


class OpenAPIBinding(Struct, frozen=True, tag="openapi", omit_defaults=True):
    """One operation of a REST service."""

    method: str  # upper case
    path: str  # template as in the description: /repos/{owner}/{repo}
    parameters: tuple[Parameter, ...] = ()
    body: Body | None = None
    server: str | None = None  # absolute URL of the operation's own server, if it has one


class ServiceBinding(Struct, frozen=True, omit_defaults=True):
    """One action of a hybrid service, wherever it runs."""

    service: str  # its id: host/service/action/version
    scope: str | None = None  # scopes, separated by blanks; one of them is enough
    skip_auth: bool = False
    side: Side | None = None  # None: answers on both portal paths
    validated: bool = True  # False: the action says nothing about its data, so all is let through
    argument: str | None = None  # the whole `data`, no object, is this one argument


class HybridBinding(ServiceBinding, frozen=True, tag="hybrid", omit_defaults=True):
    """An action of a service behind the gateway."""


class PythonBinding(ServiceBinding, frozen=True, tag="python", omit_defaults=True):
    """An action of a Python service inside the gateway."""

    positional: tuple[str, ...] = ()  # names of the arguments that an array of params holds
    rest: str | None = None  # name of the argument that takes the members after those


class Mirrored(Struct, frozen=True):
    """An argument that 2026-07-28 clients repeat in a header (its `x-mcp-header`)."""

    path: tuple[str, ...]  # names of properties, from the arguments down to the value
    header: str  # what follows `Mcp-Param-`


class McpBinding(Struct, frozen=True, tag="mcp", omit_defaults=True):
    """One tool of another MCP server."""

    name: str  # as that server calls it
    eras: Eras = "both"
    mirrored: tuple[Mirrored, ...] = ()


Binding = OpenAPIBinding | HybridBinding | PythonBinding | McpBinding
