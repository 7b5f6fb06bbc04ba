"""server.json and the answers of an MCP registry (v0.1), after the schema of 2025-12-11.

The structs are that schema: what does not fit them is refused. Unknown members are ignored, as the
schema allows them. All texts were written by strangers: they are shown, never believed.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

OFFICIAL = "io.modelcontextprotocol.registry/official"
SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
# A document of the two older versions means the same in this one.
SCHEMA_VERSIONS = frozenset({"2025-10-11", "2025-10-17", "2025-12-11"})
NAME_PATTERN = r"^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$(?!\n)"

_SCHEMA_URL = re.compile(r"/schemas/([^/]+)/server\.schema\.json$")
_RANGE = re.compile(r"^[\^~<>=]|[*|]|(^|\.)[xX](\.|$)|\s-\s")

ServerName = Annotated[
    str,
    Meta(
        min_length=3,
        max_length=200,
        pattern=NAME_PATTERN,
        description="the name of a server, as in io.github.user/weather",
    ),
]
ShortText = Annotated[str, Meta(min_length=1, max_length=100)]
Sha256 = Annotated[
    str, Meta(pattern=r"^[a-f0-9]{64}$(?!\n)", description="a SHA-256, of 0-9 and a-f")
]
Url = Annotated[str, Meta(pattern=r"^https?://[^\s]+$(?!\n)", description="an http(s) URL")]

Status = Literal["active", "deprecated", "deleted"]


class _Json(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Base of objects: members that have their default are left out of JSON."""


class Input(_Json, frozen=True, kw_only=True):
    """A value that is fixed (`value`), or asked for."""

    description: str = ""
    is_required: bool = False
    format: Literal["string", "number", "boolean", "filepath"] = "string"
    value: str | None = None
    is_secret: bool = False
    default: str | None = None
    placeholder: str = ""
    choices: tuple[str, ...] = ()


class InputWithVariables(Input, frozen=True, kw_only=True):
    """An input, whose `value` may have `{names}` of variables in it."""

    variables: Mapping[str, Input] = field(default_factory=dict)


class KeyValueInput(InputWithVariables, frozen=True, kw_only=True):
    """A header, or a variable of the environment."""

    name: str


class PositionalArgument(
    InputWithVariables, frozen=True, kw_only=True, tag_field="type", tag="positional"
):
    """One element of a command line."""

    value_hint: str = ""
    is_repeated: bool = False

    def __post_init__(self) -> None:
        if self.value is None and not self.value_hint:
            raise ValueError("Expected value or valueHint in a positional argument")


class NamedArgument(InputWithVariables, frozen=True, kw_only=True, tag_field="type", tag="named"):
    """A flag, and its value if it has one."""

    name: str
    is_repeated: bool = False


Argument = PositionalArgument | NamedArgument


class Transport(_Json, frozen=True, kw_only=True):
    """How a package is spoken to."""

    type: Literal["stdio", "streamable-http", "sse"]
    url: Url | None = None
    headers: tuple[KeyValueInput, ...] = ()

    def __post_init__(self) -> None:
        if (self.url is None) != (self.type == "stdio"):
            raise ValueError(f"Expected {'no ' * (self.type == 'stdio')}url beside {self.type}")


class Remote(_Json, frozen=True, kw_only=True):
    """A server at an address, a template with `{names}` of variables."""

    type: Literal["streamable-http", "sse"]
    url: Url
    headers: tuple[KeyValueInput, ...] = ()
    variables: Mapping[str, Input] = field(default_factory=dict)


class PostInstallStep(_Json, frozen=True, kw_only=True):
    """A step that a person takes after an installation: a text, which nothing runs."""

    description: str
    command: str = ""
    documentation: str = ""
    optional: bool = False


class Package(_Json, frozen=True, kw_only=True):
    """A program that speaks MCP."""

    registry_type: str  # npm, pypi, oci, nuget, mcpb, or another that is not supported here
    identifier: Annotated[str, Meta(min_length=1, max_length=2048)]
    transport: Transport
    registry_base_url: Url | None = None
    version: Annotated[str, Meta(min_length=1, max_length=255)] | None = None
    file_sha256: Sha256 | None = None
    runtime_hint: str = ""
    runtime_arguments: tuple[Argument, ...] = ()
    package_arguments: tuple[Argument, ...] = ()
    environment_variables: tuple[KeyValueInput, ...] = ()
    post_install_instructions: tuple[PostInstallStep, ...] = ()  # of the draft after 2025-12-11

    def __post_init__(self) -> None:
        _check_version(self.version)


class Repository(_Json, frozen=True, kw_only=True):
    url: Url
    source: str
    id: str = ""
    subfolder: str = ""


class Icon(_Json, frozen=True, kw_only=True):
    src: Annotated[str, Meta(max_length=255)]
    mime_type: str = ""
    sizes: tuple[str, ...] = ()
    theme: Literal["light", "dark"] | None = None


class ServerDetail(_Json, frozen=True, kw_only=True):
    """One version of a server: the content of server.json."""

    schema: str = field(name="$schema", default="")
    name: ServerName
    description: ShortText
    version: Annotated[str, Meta(min_length=1, max_length=255)]
    title: ShortText | None = None
    repository: Repository | None = None
    website_url: str = ""
    icons: tuple[Icon, ...] = ()
    packages: tuple[Package, ...] = ()
    remotes: tuple[Remote, ...] = ()
    meta: Mapping[str, Any] = field(name="_meta", default_factory=dict)

    def __post_init__(self) -> None:
        _check_version(self.version)

    @property
    def namespace(self) -> str:
        return self.name.partition("/")[0]


class OfficialMeta(_Json, frozen=True, kw_only=True, omit_defaults=False):
    """Facts of a registry about a version, under the key of the official one."""

    status: Status = "active"
    published_at: str = ""
    updated_at: str = ""
    is_latest: bool = False
    status_message: str = ""


class ServerResponse(_Json, frozen=True, kw_only=True):
    """One version, as a registry answers it."""

    server: ServerDetail
    meta: Mapping[str, Any] = field(name="_meta", default_factory=dict)


class ListMetadata(_Json, frozen=True, kw_only=True):
    next_cursor: str | None = None
    count: int | None = None


class ServerList(_Json, frozen=True, kw_only=True):
    """An answer with several versions."""

    servers: tuple[ServerResponse, ...]
    metadata: ListMetadata = ListMetadata()


def schema_version(url: object) -> str:
    """The version that a `$schema` names; the whole text of one that is none of server.json's."""
    match = _SCHEMA_URL.search(str(url))
    return match[1] if match else str(url)


def _check_version(version: str | None) -> None:
    """Raises ValueError for ranges: a version is one."""
    if version is not None and (version == "latest" or _RANGE.search(version)):
        raise ValueError(f"Expected one version, found the range {version}")
