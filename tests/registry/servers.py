"""Other MCP servers, as snapshots of what they have; and who gives those instead of asking."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from registry.sources.import_specs import ImportSpec
from schemas.binding import McpBinding
from schemas.errors import ImportRejected
from schemas.mcp.snapshot import Eras, ItemKind, ServerFacts, Snapshot, SnapshotEntry, SnapshotItem
from schemas.source import McpOptions, Source
from schemas.tool import Annotations, Tool

URL = "http://127.0.0.1:9/mcp"
OBJECT = {"type": "object"}
RESOURCES: dict[str, Any] = {"resources": {}}


def tool(name: str = "echo", **members: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": OBJECT, **members}


def prompt(name: str, **members: Any) -> dict[str, Any]:
    return {"name": name, **members}


def resource(uri: str, **members: Any) -> dict[str, Any]:
    return {"uri": uri, "name": "it", **members}


def template(uri: str, **members: Any) -> dict[str, Any]:
    return {"uriTemplate": uri, "name": "them", **members}


def entry(definition: Any, eras: Eras = "both") -> SnapshotEntry:
    text = definition if isinstance(definition, bytes) else msgspec.json.encode(definition)
    return SnapshotEntry(Raw(text), eras)


def snapshot(
    *tools: Any,
    prompts: tuple[Any, ...] = (),
    resources: tuple[Any, ...] = (),
    templates: tuple[Any, ...] = (),
    facts: ServerFacts | None = None,
    problems: tuple[str, ...] = (),
) -> Snapshot:
    """A server's lists; members are definitions, JSON text or entries."""
    lists = ([_entry(one) for one in each] for each in (tools, prompts, resources, templates))
    return Snapshot(facts or ServerFacts(stateless="2026-07-28"), *map(tuple, lists), problems)


def _entry(definition: Any) -> SnapshotEntry:
    return definition if isinstance(definition, SnapshotEntry) else entry(definition)


class Listed:
    """Gives snapshots as `Lister` does, without servers: those have tests of their own."""

    def __init__(self, snapshots: Mapping[str, Snapshot]) -> None:
        self.snapshots = dict(snapshots)
        self.asked: list[str] = []

    async def __call__(self, spec: ImportSpec) -> bytes:
        self.asked.append(spec.name)
        if spec.name not in self.snapshots:
            raise ImportRejected(f"{spec.name} does not answer")
        return self.snapshots[spec.name].encode()


def spec(name: str = "up", **options: Any) -> ImportSpec:
    fields = {key: options.pop(key) for key in ("include", "exclude") if key in options}
    return ImportSpec(name, URL, kind="mcp", options=McpOptions(**options), **fields)


def source(name: str = "up", kind: str = "mcp", **capabilities: Any) -> Source:
    """A source that is in a catalog; a handshake server with these capabilities."""
    facts = ServerFacts(handshake="2025-11-25", handshake_capabilities=capabilities)
    server = facts if kind == "mcp" else None
    return Source(name, name, kind, URL, URL, True, server=server)


def item(
    kind: ItemKind, key: str, source: str = "up", name: str | None = None, **members: Any
) -> SnapshotItem:
    made = {"prompt": prompt, "resource": resource, "template": template}[kind](key, **members)
    return SnapshotItem(kind, key, name or key, Raw(msgspec.json.encode(made)), source)


def listed_tool(name: str, source: str = "up", **fields: Any) -> Tool:
    """A tool of another server, as a catalog has it; schemas and definition as values."""
    return Tool(
        id=name,
        name=name,
        title=None,
        description="",
        input_schema=Raw(b'{"type":"object"}'),
        output_schema=_raw(fields.pop("output_schema", None)),
        annotations=fields.pop("annotations", Annotations()),
        binding=McpBinding(name),
        source=source,
        digest=fields.pop("digest", name),
        definition=_raw(fields.pop("definition", None)),
    )


def _raw(value: Any) -> Raw | None:
    return None if value is None else Raw(msgspec.json.encode(value))
