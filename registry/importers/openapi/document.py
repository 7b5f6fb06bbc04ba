"""OpenAPI documents: their version, and the resolution of each `$ref`."""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from registry.importers.openapi.multi_file_documents import (
    FILES,
    MissingFile,
    original_reference,
    scan,
)
from schemas.errors import ImportRejected
from schemas.json_schema.pointers import ABSENT, escape_segment, segments, step
from schemas.json_schema.references import reference_of, siblings
from schemas.untrusted_json import mapping, sequence, text

_FLOWS = {"application": "clientCredentials", "accessCode": "authorizationCode"}


def upgrade(root: dict[str, Any]) -> dict[str, Any]:
    """`root` with `servers` and `components`. Reference targets keep their place, so references
    need no rewriting; operations are upgraded one by one."""
    schemes = {
        name: _security_scheme(mapping(scheme))
        for name, scheme in mapping(root.get("securityDefinitions")).items()
    }
    components = {"securitySchemes": schemes, "schemas": mapping(root.get("definitions"))}
    return {
        **root,
        "servers": list(servers(root, root.get("schemes"))),
        "components": components,
        # Azure: paths that differ in their queries only
        "paths": _paths(root),
    }


def _paths(root: dict[str, Any]) -> Any:
    paths, more = root.get("paths"), mapping(root.get("x-ms-paths"))
    return {**paths, **more} if more and isinstance(paths, dict) else paths


def servers(root: dict[str, Any], schemes: object) -> Iterator[dict[str, Any]]:
    """Server Objects from `host`, `basePath` and `schemes`, the best first. Without `schemes` it is
    that of the description's own URL (2.0, "Swagger Object"), and for a file https."""
    host = text(root.get("host"))
    stated = text(root.get("basePath")).strip("/")
    base = f"/{stated}" if stated else ""
    if "://" in host:  # often a URL, although illegal
        scheme, _, rest = host.partition("://")
        schemes, host = [scheme.lower()], rest.partition("/")[0]
    if not host:
        yield {"url": base or "/"}
        return
    http_schemes = [scheme for scheme in ("https", "http") if scheme in sequence(schemes)]
    for scheme in http_schemes:
        yield {"url": f"{scheme}://{host}{base}"}
    if not http_schemes:
        yield {"url": f"//{host}{base}"}
        yield {"url": f"https://{host}{base}"}


def _security_scheme(scheme: dict[str, Any]) -> dict[str, Any]:
    kind = scheme.get("type")
    if kind == "basic":
        return {**scheme, "type": "http", "scheme": "basic"}
    if kind != "oauth2":
        return scheme
    flow = text(scheme.get("flow"))
    members = ("authorizationUrl", "tokenUrl", "scopes")
    stated = {key: scheme[key] for key in members if key in scheme}
    common = {key: value for key, value in scheme.items() if key not in (*members, "flow")}
    return {**common, "flows": {_FLOWS.get(flow, flow): stated}}


def version_of(root: dict[str, Any]) -> tuple[int, int]:
    """The version: (2, 0), (3, 0), (3, 1) or (3, 2). Raises `ImportRejected`."""
    supported = "Supported: Swagger 2.0, OpenAPI 3.0, 3.1 and 3.2"
    stated, swagger = root.get("openapi"), root.get("swagger")
    # unquoted in YAML, `openapi: 3.1` and `swagger: 2.0` are numbers
    if match := re.match(r"3\.([012])(\.|-|$)", str(stated).strip()):
        return 3, int(match[1])
    if re.fullmatch(r"2(\.0)*", str(swagger).strip()):
        return 2, 0
    if stated is not None:
        raise ImportRejected(f"This is OpenAPI {str(stated)[:40]!r}. {supported}.")
    if swagger is not None:
        raise ImportRejected(f"This is Swagger {str(swagger)[:40]!r}. {supported}.")
    raise ImportRejected(_missing_version_text(root, supported))


def _missing_version_text(root: dict[str, Any], versions: str) -> str:
    if _is_hybrid(root):
        return (
            "This describes a hybrid service: `toolgate import hybrid` reads it, and `hybrid:` in "
            "the settings."
        )
    if "overlay" in root and "actions" in root:
        return (
            "This is an OpenAPI Overlay, which lists changes to a description. Apply it "
            "first, and import what comes out."
        )
    if format_ := _other_format(root):
        return f"This is {format_}, which is not read: convert it to OpenAPI first. {versions}."
    return (
        f"This is no OpenAPI description: `openapi` is missing, and `swagger` as well. {versions}."
    )


def _other_format(root: dict[str, Any]) -> str:
    """The name of another format of descriptions; "" for none that is known."""
    if "asyncapi" in root:
        return "an AsyncAPI document"
    if "swaggerVersion" in root:
        return f"Swagger {str(root['swaggerVersion'])[:10]}"
    if isinstance(root.get("item"), list) and "info" in root:
        return "a Postman collection"
    if "entries" in mapping(root.get("log")):
        return "a HAR archive"
    if "title" in root and any(key.startswith("/") for key in root):
        return "a RAML document"
    return ""


def _is_hybrid(root: dict[str, Any]) -> bool:
    """Whether it is a spec.yaml or a schema.json of light-hybrid-4j."""
    ids = (key for key in root if key.count("/") == 3 and not key.startswith("/"))
    return {"host", "service", "action"} <= root.keys() or next(ids, None) is not None


REF_HOPS = 32  # chained `$ref`s; longer chains are loops

__all__ = [
    "REF_HOPS",
    "MissingReference",
    "OpenApiDocument",
    "SkipOperation",
    "canonical",
    "server_urls",
]


class SkipOperation(Exception):
    """This operation cannot become a tool; `str()` is the reason."""


class MissingReference(SkipOperation):
    """The target of a `$ref` does not exist."""


class OpenApiDocument:
    """A parsed description. Every pointer is resolved once.

    `root` is that of an OpenAPI 3 document, of Swagger 2.0 too: its servers, security schemes and
    schemas are provided where 3.x has them, and operations are upgraded lazily.
    """

    def __init__(self, root: dict[str, Any]) -> None:
        """Raises `ImportRejected` for versions other than 2.0, 3.0, 3.1 and 3.2."""
        self.version = version_of(root)
        self.root = upgrade(root) if self.version == (2, 0) else root
        self._found: dict[str, object] = {}
        self._anchors: dict[str, str] | None = None

    @property
    def old_schemas(self) -> bool:
        """Whether Schema Objects are those of 3.0 or 2.0 rather than JSON Schema 2020-12."""
        return self.version <= (3, 0)

    def schema_name(self, pointer: str) -> str | None:
        """The component name, as in `Pet`; None for a pointer outside the named schemas."""
        prefix = "#/definitions/" if self.version == (2, 0) else "#/components/schemas/"
        name = pointer.removeprefix(prefix)
        return segments(f"/{name}")[0] if name != pointer and "/" not in name else None

    def find(self, ref: str) -> Any:
        """The target of `ref`. Raises `MissingReference`."""
        pointer = canonical(ref)
        if pointer not in self._found:
            self._found[pointer] = self._walk(pointer, _Hops())
        target = self._found[pointer]
        if isinstance(target, MissingFile):
            raise MissingReference(
                f"$ref {original_reference(ref)!r} cannot be read: {target.reason}"
            )
        if target is ABSENT:
            raise MissingReference(f"$ref {original_reference(ref)!r} points at nothing")
        return target

    def resolve(self, node: object) -> dict[str, Any]:
        """`node`, or the object at the end of its `$ref`s, with `summary` and `description` beside
        a `$ref` kept (3.1, section 4.8.23). Not for schemas: they may be circular."""
        overrides: dict[str, Any] = {}
        ref: object = None
        for _ in range(REF_HOPS):
            value = node if isinstance(node, dict) else {}
            ref = reference_of(value)
            if ref is None:
                return {**value, **overrides} if overrides else value
            for key in ("summary", "description"):
                if key in value:
                    overrides.setdefault(key, value[key])
            node = self.find(ref)
        raise SkipOperation(f"$ref {original_reference(str(ref))!r} never ends")

    def with_target(self, item: dict[str, Any]) -> dict[str, Any]:
        """An object with the members of its `$ref` target; its own members win, where 3.0 leaves it
        undefined."""
        resolved = item
        for _ in range(REF_HOPS):
            if "$ref" not in resolved:
                return resolved
            resolved = {**mapping(self.find(str(resolved["$ref"]))), **siblings(resolved)}
        raise SkipOperation(f"$ref {original_reference(str(item['$ref']))!r} never ends")

    def named_members(self, node: object) -> dict[str, Any]:
        """A map of schemas by name. A `$ref` in place of the map is followed, although no version
        allows it: each schema of the target becomes a reference, so that circular maps stay small.
        Raises `SkipOperation`."""
        members: dict[str, Any] = {}
        for _ in range(REF_HOPS):
            value = mapping(node)
            ref = reference_of(value)
            if ref is None:
                return {**value, **members}
            members = {**siblings(value), **members}
            node = {
                name: member if name == "$ref" else {"$ref": f"{ref}/{escape_segment(name)}"}
                for name, member in mapping(self.find(ref)).items()
            }
        raise SkipOperation(f"$ref {original_reference(str(ref))!r} never ends")

    def _walk(self, pointer: str, hops: "_Hops") -> object:
        """Resolve `pointer`, following references on its path."""
        if pointer != "#" and not pointer.startswith("#/"):
            pointer = self._anchor_pointer(pointer)
        node: object = self.root
        for segment in segments(pointer):
            if isinstance(node, MissingFile):
                break
            child = step(node, segment)
            while child is ABSENT and hops.left and "$ref" in (holder := mapping(node)):
                node = self._walk(canonical(str(holder["$ref"])), hops.next())
                child = step(node, segment)
            node = node if isinstance(node, MissingFile) else child
        return node

    def _anchor_pointer(self, pointer: str) -> str:
        """Pointer of a `$anchor` (JSON Schema 2020-12, section 8.2.2)."""
        if self._anchors is None:
            entry_document = {key: value for key, value in self.root.items() if key != FILES}
            self._anchors = scan("", entry_document).anchors
        return f"#{self._anchors.get(pointer[1:], '/' + pointer[1:])}"


class _Hops:
    """Budget of references for one look-up, its parts included."""

    def __init__(self) -> None:
        self.left = REF_HOPS

    def next(self) -> "_Hops":
        self.left -= 1
        return self


def canonical(ref: str) -> str:
    """Canonical pointer, one per target: `#/paths/~1pets%2F` and `#/paths/~1pets/` are the same."""
    if not ref.startswith("#"):
        raise MissingReference(f"$ref {ref!r} points into another document, which is not read")
    return unquote(ref)


def server_urls(servers: object) -> Iterator[str]:
    """The URLs of a `servers` list, variables replaced by their defaults, else by their first
    value."""
    for server in servers if isinstance(servers, list) else []:
        url = mapping(server).get("url")
        if not isinstance(url, str) or not url.strip():
            continue
        for name, variable in mapping(mapping(server).get("variables")).items():
            choices = sequence(mapping(variable).get("enum")) or [None]
            default = mapping(variable).get("default", choices[0])
            if default is not None:
                url = url.replace(f"{{{name}}}", str(default))
        yield url.strip()
