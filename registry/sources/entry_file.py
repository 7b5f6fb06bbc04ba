"""The entry file of a description in several files."""

import re

from registry.documents.containers import Container, Unreadable
from registry.importers.openapi import parse
from schemas.errors import ImportRejected

_SUFFIXES = (".yaml", ".yml", ".json")
_USUAL = re.compile(r"(openapi|swagger)\.(ya?ml|json)", re.IGNORECASE)
_KEYS = ("openapi", "swagger")
_LISTED = 10  # names in one message


def entry_of(place: Container, location: str, limit_bytes: int) -> str:
    """The entry file. Raises ImportRejected when there is none, or more than one."""
    names = [name for name in place.names() if name.lower().endswith(_SUFFIXES)]
    usual = [name for name in names if _USUAL.fullmatch(name.rpartition("/")[2])]
    found = _shallowest(usual) or _described(place, names, limit_bytes)
    if len(found) == 1:
        return found[0]
    if found:
        listed = ", ".join(found[:_LISTED]) + (", ..." if len(found) > _LISTED else "")
        raise ImportRejected(
            f"{location} holds several descriptions: {listed}. Name the one to import (--entry, or "
            "`entry` in the settings)."
        )
    raise ImportRejected(
        f"{location} holds no OpenAPI description: expected openapi.yaml, openapi.json or the "
        "like, or a file with `openapi` or `swagger` at its root."
    )


def _shallowest(names: list[str]) -> list[str]:
    depth = min((name.count("/") for name in names), default=0)
    return [name for name in names if name.count("/") == depth]


def _described(place: Container, names: list[str], limit_bytes: int) -> list[str]:
    found = []
    for name in names:
        try:
            data = place.read(name, limit_bytes)
        except Unreadable:
            continue
        limit_bytes -= len(data)
        if _begins(data, name):
            found.append(name)
    return found


def _begins(data: bytes, name: str) -> bool:
    if not any(key.encode() in data for key in _KEYS):
        return False
    try:
        root = parse(data, name)
    except ImportRejected:
        return False
    return any(isinstance(root.get(key), str | int | float) for key in _KEYS)
