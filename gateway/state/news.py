"""Change notifications: the list versions of a catalog, and how far a client's version is
behind."""

import base64
import hashlib
from collections.abc import Mapping
from typing import get_args

from gateway.protocol.sse import VERSION_LENGTH
from registry.catalog.catalog import Catalog
from schemas.jsonrpc import Notification, encode
from schemas.mcp.messages import (
    PROMPTS_CHANGED,
    RESOURCE_UPDATED,
    RESOURCES_CHANGED,
    TOOLS_CHANGED,
    ListKind,
)

KINDS: tuple[ListKind, ...] = get_args(ListKind)
METHODS: Mapping[ListKind, str] = {
    "tools": TOOLS_CHANGED,
    "prompts": PROMPTS_CHANGED,
    "resources": RESOURCES_CHANGED,
}
MESSAGES: Mapping[ListKind, bytes] = {kind: encode(Notification(METHODS[kind])) for kind in KINDS}
_DIGITS = VERSION_LENGTH // len(KINDS)


def fingerprint(catalog: Catalog, rules: bytes = b"") -> str:
    """The version of the lists of `catalog`: a digest of equal length for each, the same for equal
    lists under equal visibility `rules`.

    Short, because it is part of event ids: two versions collide once in 16 million times.
    """
    digests = [catalog.digests[kind] for kind in KINDS]
    if rules:
        digests = [hashlib.sha256(digest + rules).digest() for digest in digests]
    return "".join(base64.urlsafe_b64encode(digest).decode()[:_DIGITS] for digest in digests)


def changed(told: str, now: str) -> list[ListKind]:
    """The lists that differ in two versions."""
    slices = [slice(n * _DIGITS, (n + 1) * _DIGITS) for n in range(len(KINDS))]
    return [kind for kind, part in zip(KINDS, slices, strict=True) if told[part] != now[part]]


def updated(uri: str) -> bytes:
    return encode(Notification(RESOURCE_UPDATED, {"uri": uri}))
