"""A catalog of two servers, and a relay that answers as the test says.

The relay is a stand-in, so that a test can say word for word what a server answers, in any era;
that real servers are asked is for the tests of the relay and of the whole gateway.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from gateway.context import Context, Identity, Principal, Session
from gateway.interfaces import RelayRequest
from gateway.methods.lists import Lists
from gateway.methods.skills.acting_agents import Agents
from gateway.methods.skills.skill_prompts_and_resources import SkillFiles
from gateway.protocol.revision_adapter import Members
from registry.catalog.catalog import Catalog
from registry.catalog.catalogs import Catalogs
from registry.skills.snapshot import Skill
from schemas.binding import McpBinding, MirroredArgument
from schemas.jsonrpc import Request, decode_members, encode
from schemas.mcp.messages import META_CAPABILITIES, META_VERSION
from schemas.mcp.revisions import Revision
from schemas.mcp.snapshot import Eras, ItemKind, ServerFacts, SnapshotItem
from schemas.source import McpOptions, Source
from schemas.tool import Annotations, RelayedResult, Tool

TENANT = "t"
PRINCIPAL = Principal("p", TENANT)
ALL = {
    "tools": {},
    "prompts": {},
    "resources": {"subscribe": True},
    "completions": {},
    "logging": {},
}
FACTS = ServerFacts("2025-11-25", ALL, "2026-07-28", ALL)


def source(name: str, facts: ServerFacts | None = FACTS) -> Source:
    url = f"https://{name}.example/mcp"
    return Source(name, name, "mcp", url, url, True, options=McpOptions(), server=facts)


def item(
    kind: ItemKind, key: str, name: str = "", source: str = "one", eras: Eras = "both"
) -> SnapshotItem:
    by = {"prompt": "name", "resource": "uri", "template": "uriTemplate"}[kind]
    return SnapshotItem(kind, key, name or key, Raw(encode({by: key, "x-own": 1})), source, eras)


def tool(
    name: str, schema: Any = None, mirrored: tuple[MirroredArgument, ...] = (), **more: Any
) -> Tool:
    return Tool(
        id=name,
        name=name,
        title=None,
        description="",
        input_schema=Raw(encode(schema or {"type": "object"})),
        output_schema=None,
        annotations=Annotations(),
        binding=McpBinding(f"own-{name}", mirrored=mirrored),
        source="one",
        digest=name,
        **more,
    )


@dataclass
class Held(Catalogs):
    """Catalogs that hold what a test put there."""

    catalog: Catalog
    _shows_scripts: bool = True

    def of(self, tenant: str, toolset: str | None = None) -> Catalog:
        assert (tenant, toolset) == (TENANT, None)
        return self.catalog


def lists(
    catalog: Catalog, down: Sequence[str] = (), fail_closed: bool = False, page_size: int = 2
) -> Lists:
    return Lists(
        Held(catalog),
        page_size=page_size,
        ttl_ms=1000,
        down=lambda _tenant, _catalog: down,
        fail_closed=fail_closed,
    )


def skill_files(lists: Lists) -> SkillFiles:
    """Of skills that have no files but their own."""

    async def read_file(_tenant: str, _skill: Skill, _path: str) -> bytes | None:
        return None

    return SkillFiles(lists, Agents("agent"), read_file)


@dataclass
class Answers:
    """Implements `Relay`, and `Upstream` for tools of servers."""

    answer: Any = field(default_factory=dict)  # of every request; an exception is raised
    asked: list[RelayRequest] = field(default_factory=list)
    contexts: list[Context] = field(default_factory=list)

    async def request(self, request: RelayRequest, context: Context) -> Members:
        self.asked.append(request)
        self.contexts.append(context)
        if isinstance(self.answer, Exception):
            raise self.answer
        return decode_members(json.dumps(self.answer))

    async def call(
        self, tool: Tool, source: Source | None, arguments: Any, context: Context
    ) -> RelayedResult:
        assert source is not None
        params = {**context.params, "arguments": arguments}
        return RelayedResult(
            await self.request(RelayRequest(source, "tools/call", params), context)
        )

    async def watch(self, source: Source, uri: str) -> None:
        raise AssertionError

    async def unwatch(self, source: Source, uri: str) -> None:
        raise AssertionError


def context(revision: Revision, **more: Any) -> Context:
    """In a session, where the revision has them."""
    session = Session("s", revision, PRINCIPAL, {}, {}) if revision.handshake else None
    return Context(Identity(PRINCIPAL), revision, "r-1", **{"session": session, **more})


META = {META_VERSION: "2026-07-28", META_CAPABILITIES: {}}


def request(method: str, params: Any = UNSET) -> Request:
    return Request("2.0", method, params, 1)


def decode_result(result: Any) -> Any:
    """A result as it goes to the client."""
    return json.loads(msgspec.json.encode(result))
