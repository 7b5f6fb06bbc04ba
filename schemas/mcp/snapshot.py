"""What another MCP server says about itself and has, as it was when it was last asked.

The snapshot is the document that an import of kind "mcp" reads: one encoded `Snapshot`. Definitions
are carried as they came.
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
    """What a server said of itself; None for an era that it does not speak."""

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
    problems: tuple[str, ...] = ()  # what was wrong with its lists, in words for the operator

    def encode(self) -> bytes:
        return msgspec.json.encode(self)


decode_snapshot = msgspec.json.Decoder(Snapshot).decode


@dataclass(frozen=True, slots=True)
class SnapshotItem:
    """A prompt, a resource or a resource template of another server, as clients may ask for it."""

    kind: ItemKind
    key: str  # its name, URI or URI template at its server
    name: str  # the same as clients know it: unique among the items of its kind
    definition: Raw  # as its server sent it
    source: str
    eras: Eras = "both"
    since: float = 0.0  # when its server was first seen to list it, in seconds since 1970
