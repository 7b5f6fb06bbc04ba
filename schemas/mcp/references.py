"""References to a server's resources in the metadata that it sends: `_meta` and `annotations`, of
definitions, results and contents. Pure.

The URIs of MCP Apps (`_meta.ui.resourceUri`, SEP-1865) are such references. Data of tools, and what
lies deeper than LEVELS, stays as it is.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from schemas.errors import ParseError
from schemas.jsonrpc import decode_json, encode, nests_within

UI = "ui://"  # scheme of the pages of MCP Apps, which hosts accept no other for
LEVELS = 64  # of metadata
METADATA = ("_meta", "annotations")

Refer = Callable[[str], str]
"""The URI that clients know, for a text that refers to a resource of the server; else the text."""

_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode


def refer_members(members: dict[str, Raw], refer: Refer) -> dict[str, Raw]:
    """`members` with the references in their metadata as clients know them; the same object if
    there are none."""
    for name in METADATA:
        if name in members and (after := _refer_members(members[name], refer)) is not None:
            members = {**members, name: after}
    return members


def refer_definition(definition: Raw, refer: Refer) -> Raw:
    """The same for the JSON of an object; the same object if there are none."""
    members = _decode_members(definition)
    after = refer_members(members, refer)
    return definition if after is members else Raw(encode(after))


def _refer_members(metadata: Raw, refer: Refer) -> Raw | None:
    """None: nothing changes."""
    text = bytes(metadata)
    if not nests_within(text, LEVELS):
        return None
    try:
        before = decode_json(text)
    except ParseError:  # such as a number out of range: clients may be able to read it
        return None
    after = _refer_in(before, refer)
    return None if after is before else Raw(encode(after))


def _refer_in(value: Any, refer: Refer) -> Any:
    if isinstance(value, str):
        after = refer(value)
        return value if after == value else after
    if isinstance(value, Mapping):
        members = {name: _refer_in(inner, refer) for name, inner in value.items()}
        return members if any(members[name] is not value[name] for name in members) else value
    if isinstance(value, list):
        items = [_refer_in(inner, refer) for inner in value]
        return items if any(a is not b for a, b in zip(items, value, strict=True)) else value
    return value
