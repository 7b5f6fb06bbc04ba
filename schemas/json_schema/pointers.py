"""JSON Pointers (RFC 6901)."""

from typing import Any
from urllib.parse import unquote

ABSENT = object()


def step(node: object, segment: str) -> object:
    """The member of a container; ABSENT when there is none."""
    if isinstance(node, dict):
        return node.get(segment, ABSENT)
    if isinstance(node, list) and segment.isdecimal() and len(segment) < 10:
        return node[int(segment)] if int(segment) < len(node) else ABSENT
    return ABSENT


def segments(pointer: str) -> list[str]:
    """RFC 6901: `#/paths/~1pets/get` gives `["paths", "/pets", "get"]`."""
    return [unescape(part) for part in pointer.split("/")[1:]]


def escape_segment(key: str) -> str:
    """A segment of a JSON pointer (RFC 6901) in a URI fragment."""
    if key.isalnum():
        return key
    return escape(key).replace("%", "%25")


def escape(key: str) -> str:
    """A segment of a JSON pointer as a text of its own."""
    return key.replace("~", "~0").replace("/", "~1")


def unescape(segment: str) -> str:
    """The key that a segment of a JSON pointer stands for."""
    return segment.replace("~1", "/").replace("~0", "~")


def has(tree: Any, pointer: str) -> bool:
    """Whether the pointer exists in `tree`."""
    node = tree
    for segment in segments(unquote(pointer)):
        node = step(node, segment)
        if node is ABSENT:
            return False
    return True
