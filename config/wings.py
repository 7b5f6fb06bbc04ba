"""Settings that all wings share."""

from typing import Literal

from msgspec import Struct

WingName = Literal[
    "memory",
    "events",
    "agent",
    "knowledge",
    "librarian",
    "code",
    "a2a",
    "subregistry",
    "notifications",
]


class WingsSettings(Struct, frozen=True, forbid_unknown_fields=True):
    optional: tuple[WingName, ...]
