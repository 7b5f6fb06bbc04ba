"""Settings of registries of MCP servers, and of the programs that are installed from them. Their
reasons are in `defaults.yaml`."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from config.value_types import END, Bytes, Directory, HeaderValue, HttpUrl, Seconds

PackageKind = Literal["oci", "mcpb", "pypi", "npm"]
Program = Annotated[
    str, Meta(pattern=r"^[A-Za-z0-9_./~-][^\x00]*" + END, description="a command, or its path")
]


class RegistrySettings(Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of `registries`."""

    url: HttpUrl
    token: HeaderValue = ""


class PackageSettings(Struct, frozen=True, forbid_unknown_fields=True):
    kinds: tuple[PackageKind, ...]
    folder: Directory
    limit_bytes: Bytes
    timeout_s: Seconds
    npm_url: HttpUrl
    pypi_url: HttpUrl
    npm: Program
    node: Program
    npx: Program
    python: Program
    uvx: Program
    docker: Program
