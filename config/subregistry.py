"""Settings of the subregistry wing, an MCP registry of toolsets. Their reasons are in
`defaults.yaml`."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from config.value_types import END, Amount, Count, File, OptionalUrl

Namespace = Annotated[
    str,
    Meta(
        pattern=r"^([A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+)?" + END,
        max_length=100,
        description="a reversed domain such as com.example",
    ),
]
OptionalSha256 = Annotated[
    str, Meta(pattern=r"^([0-9a-f]{64})?" + END, description="64 hexadecimal digits, or nothing")
]


class ApprovedServer(Struct, frozen=True, forbid_unknown_fields=True):
    """A server of others that is listed: one version of it, in a file."""

    file: File
    sha256: OptionalSha256 = ""
    registry: OptionalUrl = ""


class SubregistrySettings(Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool
    namespace: Namespace
    access: Literal["open", "token"]
    entries: tuple[ApprovedServer, ...]
    page_size: Annotated[int, Meta(ge=1, le=100, description="a whole number from 1 to 100")]
    versions: Count
    max_age_s: Amount
