"""Typed access to untrusted JSON: a value of the wrong type counts as absent."""

from typing import Any


def mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def sequence(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


def nested_at_most(value: object, levels: int) -> bool:
    """Whether containers in `value` are nested at most `levels` deep."""
    layer = [value]
    for _ in range(levels + 1):
        layer = [child for node in layer for child in _children(node)]
        if not layer:
            return True
    return False


def _children(node: object) -> list[Any]:
    """The members of a container; one stand-in for an empty one, which is a level, too."""
    if isinstance(node, dict):
        return list(node.values()) or [None]
    if isinstance(node, list):
        return node or [None]
    return []
