"""Limits of connections in tests: the defaults, with changes."""

from typing import Any

from msgspec.structs import replace

from config.connections import ConnectionsSettings
from config.load import load


def limits(**changes: Any) -> ConnectionsSettings:
    return replace(load(None, {}).connections, **changes)
