"""Snapshot of another MCP server: what it announced of itself and its lists, when last fetched.

The snapshot is the document that an import of kind "mcp" reads: one encoded `Snapshot`. Definitions
are kept unchanged.
"""

from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

Eras = Literal["both", "handshake", "stateless"]
"""In which eras its server lists a thing: those that begin with `initialize`, 2026-07-28 or both.

Servers exist that list other tools in one than in the other."""

ItemKind = Literal["prompt", "resource", "template"]


class ServerFacts(Struct, frozen=True, omit_defaults=True):
    """Facts that a server announced; None for an era that it does not support."""

    handshake: str | None = None  # newest revision with `initialize` that it agreed to
    handshake_capabilities: dict[str, Any] = {}
    stateless: str | None = None  # "2026-07-28"
    stateless_capabilities: dict[str, Any] = {}
    instructions: str = ""
    info: dict[str, Any] = {}  # its serverInfo


class SnapshotEntry(Struct, frozen=True):
    """A definition of a list, and which eras list it."""

    definition: Raw  # a JSON object
    eras: Eras = "both"


class Snapshot(Struct, frozen=True, omit_defaults=True):
    facts: ServerFacts
    tools: tuple[SnapshotEntry, ...] = ()
    prompts: tuple[SnapshotEntry, ...] = ()
    resources: tuple[SnapshotEntry, ...] = ()
    templates: tuple[SnapshotEntry, ...] = ()
    problems: tuple[str, ...] = ()  # problems of its lists, described for the operator

    def encode(self) -> bytes:
        return msgspec.json.encode(self)


decode_snapshot = msgspec.json.Decoder(Snapshot).decode


@dataclass(frozen=True, slots=True)
class SnapshotItem:
    """A prompt, resource or resource template of another server, as exposed to clients."""

    kind: ItemKind
    key: str  # its name, URI or URI template at its server
    name: str  # the same as clients know it: unique among the items of its kind
    definition: Raw  # as its server sent it
    source: str
    eras: Eras = "both"
    since: float = 0.0  # when its server was first seen to list it, in seconds since 1970
