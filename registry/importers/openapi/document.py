"""The document as a whole: its version, and what a `$ref` points at."""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from registry.importers.openapi.values import mapping
from schemas.errors import ImportRejected

REF_HOPS = 32  # a `$ref` to a `$ref` to ...: longer chains are loops

_ABSENT = object()


class Skip(Exception):
    """This operation cannot become a tool; `str()` is the reason."""


class Missing(Skip):
    """A `$ref` points at nothing."""


class Document:
    """A parsed OpenAPI 3 document. Every pointer is followed once."""

    def __init__(self, root: dict[str, Any]) -> None:
        """Raises `ImportRejected` for versions other than 3.0, 3.1 and 3.2."""
        self.root = root
        self.version = _version(root)
        self._found: dict[str, object] = {}

    @property
    def old_schemas(self) -> bool:
        """Whether Schema Objects are 3.0's dialect rather than JSON Schema 2020-12."""
        return self.version == (3, 0)

    def find(self, ref: str) -> Any:
        """What the local `ref` points at. Raises `Missing`, or `Skip` for another document."""
        pointer = canonical(ref)
        if pointer not in self._found:
            self._found[pointer] = _walk(self.root, pointer)
        found = self._found[pointer]
        if found is _ABSENT:
            raise Missing(f"$ref {ref!r} points at nothing")
        return found

    def resolve(self, node: object) -> dict[str, Any]:
        """`node`, or the object at the end of its `$ref`s, with `summary` and `description`
        beside a `$ref` kept (3.1, section 4.8.23). Not for schemas: they may be circular."""
        overrides: dict[str, Any] = {}
        for _ in range(REF_HOPS):
            value = mapping(node)
            ref = value.get("$ref")
            if not isinstance(ref, str):
                return {**value, **overrides} if overrides else value
            for key in ("summary", "description"):
                if key in value:
                    overrides.setdefault(key, value[key])
            node = self.find(ref)
        raise Skip(f"$ref {ref!r} never ends")


def canonical(ref: str) -> str:
    """One spelling per target: `#/paths/~1pets%2F` and `#/paths/~1pets/` are the same."""
    if not ref.startswith("#"):
        raise Skip(f"$ref {ref!r} points into another document, which is not read")
    return unquote(ref)


def segments(pointer: str) -> list[str]:
    """RFC 6901: `#/paths/~1pets/get` gives `["paths", "/pets", "get"]`."""
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def _walk(root: object, pointer: str) -> object:
    if pointer != "#" and not pointer.startswith("#/"):
        return _ABSENT  # an $anchor: a name, not a place
    node = root
    for segment in segments(pointer):
        if isinstance(node, dict) and segment in node:
            node = node[segment]
        elif isinstance(node, list) and segment.isdecimal() and int(segment) < len(node):
            node = node[int(segment)]
        else:
            return _ABSENT
    return node


def _version(root: dict[str, Any]) -> tuple[int, int]:
    supported = "Supported: OpenAPI 3.0, 3.1 and 3.2"
    if "swagger" in root:
        raise ImportRejected(f"This is Swagger {root['swagger']}. {supported}.")
    stated = root.get("openapi")
    if stated is None and _is_hybrid(root):
        raise ImportRejected(
            "This describes a hybrid service: `toolgate import hybrid` reads it, and `hybrid:` in "
            "the settings."
        )
    if stated is None:
        raise ImportRejected(f"This is no OpenAPI description: `openapi` is missing. {supported}.")
    # unquoted in YAML, `openapi: 3.1` is a number
    match = re.match(r"3\.([012])(\.|-|$)", str(stated).strip())
    if match is None:
        raise ImportRejected(f"This is OpenAPI {str(stated)[:40]!r}. {supported}.")
    return 3, int(match[1])


def _is_hybrid(root: dict[str, Any]) -> bool:
    """Whether it is a spec.yaml or a schema.json of light-hybrid-4j."""
    ids = (key for key in root if key.count("/") == 3 and not key.startswith("/"))
    return {"host", "service", "action"} <= root.keys() or next(ids, None) is not None


def server_urls(servers: object) -> Iterator[str]:
    """The URLs of a `servers` list, variables replaced by their defaults."""
    for server in servers if isinstance(servers, list) else []:
        url = mapping(server).get("url")
        if not isinstance(url, str) or not url.strip():
            continue
        for name, variable in mapping(mapping(server).get("variables")).items():
            default = mapping(variable).get("default")
            if default is not None:
                url = url.replace(f"{{{name}}}", str(default))
        yield url.strip()
