"""Settings of client profiles: what clients and their model providers accept in tools."""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from config.types import Count, NameLimit, ProfileName, ServerName, ToolTokens


class Profile(Struct, frozen=True, forbid_unknown_fields=True):
    """What a client, or the provider of its model, accepts in a tool definition; by default
    everything."""

    clients: tuple[str, ...] = ()
    name_limit: NameLimit = 64
    name_prefix: str = ""
    name_letter: bool = False
    arguments: str = ""
    root_unions: bool = True
    unions: tuple[Literal["anyOf", "oneOf", "allOf"], ...] = ("anyOf", "oneOf", "allOf")
    references: bool = True
    nullable: bool = False
    text_enums: bool = False
    items: bool = False
    describes: bool = False
    formats: tuple[str, ...] | None = None
    keywords: tuple[str, ...] | None = None
    depth: Count | None = None


class ProfilesSettings(Struct, frozen=True, forbid_unknown_fields=True):
    default: ProfileName
    server_name: ServerName
    own: Mapping[ProfileName, Profile]
    tool_tokens: Mapping[ProfileName, ToolTokens]
