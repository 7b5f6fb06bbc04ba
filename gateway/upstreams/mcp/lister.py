"""Reads all lists of another MCP server, in every era that it speaks, into one snapshot."""

from collections.abc import Mapping

import msgspec
from msgspec import Raw

from config.settings import Upstream as Limits
from gateway.upstreams.connections import UpstreamFailed
from gateway.upstreams.mcp.link import Link
from gateway.upstreams.mcp.pool import PLAIN
from gateway.upstreams.mcp.probe import Spoken
from gateway.upstreams.mcp.server import Server
from gateway.upstreams.mcp.servers import Servers
from registry.found import ImportSpec
from schemas.errors import Fault, ImportRejected, MethodNotFound, RelayedFault
from schemas.mcp.snapshot import Entry, Eras, ServerFacts, Snapshot
from schemas.source import McpOptions, Source

# method of a list -> member of its result, member that names an entry, capability
LISTS: Mapping[str, tuple[str, str, str]] = {
    "tools/list": ("tools", "name", "tools"),
    "prompts/list": ("prompts", "name", "prompts"),
    "resources/list": ("resources", "uri", "resources"),
    "resources/templates/list": ("resourceTemplates", "uriTemplate", "resources"),
}

Lists = dict[str, list[tuple[str, Raw]]]  # method -> (name, definition) in the server's order


class Lister:
    def __init__(self, servers: Servers, limits: Limits) -> None:
        self._servers = servers
        self._limits = limits

    async def __call__(self, spec: ImportSpec) -> bytes:
        """An encoded Snapshot. Raises ImportRejected."""
        server = self._servers.of(source_of(spec))
        try:
            return (await self.snapshot(server)).encode()
        except (UpstreamFailed, Fault) as error:
            raise ImportRejected(f"The MCP server cannot be read: {error}") from error

    async def snapshot(self, server: Server) -> Snapshot:
        """Raises UpstreamFailed, and RelayedFault when a list is refused."""
        spoken = await server.spoken()
        problems: list[str] = []
        stateless: Lists = {}
        handshake: Lists = {}
        if spoken.eras["stateless"]:
            stateless = await self._lists(await server.stateless(), server, problems)
        if spoken.eras["handshake"]:
            async with server.pool.lease(PLAIN, None) as link:
                handshake = await self._lists(link, server, problems)
        tools, prompts, resources, templates = (
            _merged(method, stateless, handshake) for method in LISTS
        )
        noted = tuple(dict.fromkeys(problems))
        return Snapshot(_facts(spoken), tools, prompts, resources, templates, noted)

    async def _lists(self, link: Link, server: Server, problems: list[str]) -> Lists:
        lists: Lists = {}
        for method, (_, _, capability) in LISTS.items():
            if capability not in link.capabilities:
                continue
            try:
                lists[method] = await self._list(link, server, method, problems)
            except RelayedFault as fault:
                # a server may have resources and no templates; what else fails must not pass for
                # a list that is empty now
                if fault.code != MethodNotFound.code or method == "tools/list":
                    raise
        return lists

    async def _list(
        self, link: Link, server: Server, method: str, problems: list[str]
    ) -> list[tuple[str, Raw]]:
        member, naming, _ = LISTS[method]
        found: list[tuple[str, Raw]] = []
        cursor: str | None = None
        seen: set[str] = set()
        for _ in range(self._limits.mcp_list_pages):
            params = {} if cursor is None else {"cursor": cursor}
            members = await link.request(method, params, None, server.timeout)
            found += _entries(members.get(member), method, naming, problems)
            cursor = _cursor(members)
            if len(found) > self._limits.mcp_list_items:
                problems.append(f"{method} has over {self._limits.mcp_list_items} entries: cut off")
                return found[: self._limits.mcp_list_items]
            if cursor is None:
                return found
            if cursor in seen:
                problems.append(f"{method} gave a cursor twice: its pages go in a circle")
                return found
            seen.add(cursor)
        problems.append(f"{method} has over {self._limits.mcp_list_pages} pages: cut off")
        return found


def source_of(spec: ImportSpec) -> Source:
    """The source that `spec` is about to become."""
    url = None if isinstance(spec.options, McpOptions) and spec.options.command else spec.location
    return Source(
        id="",
        name=spec.name,
        kind="mcp",
        location=spec.location,
        base_url=url,
        base_url_trusted=True,
        options=spec.options,
    )


def _facts(spoken: Spoken) -> ServerFacts:
    handshake, stateless = spoken.handshake, spoken.stateless
    newest = stateless or handshake
    return ServerFacts(
        handshake=handshake.revision.name if handshake else None,
        handshake_capabilities=dict(handshake.capabilities) if handshake else {},
        stateless=stateless.revision.name if stateless else None,
        stateless_capabilities=dict(stateless.capabilities) if stateless else {},
        instructions=newest.instructions if newest else "",
        info=dict(newest.server_info) if newest else {},
    )


def _entries(
    raw: Raw | None, method: str, naming: str, problems: list[str]
) -> list[tuple[str, Raw]]:
    try:
        listed = msgspec.json.decode(raw or b"null", type=list[Raw])
    except msgspec.DecodeError:
        problems.append(f"{method} answered no array")
        return []
    entries = []
    for definition in listed:
        try:
            name = msgspec.json.decode(definition, type=dict[str, Raw]).get(naming, b"")
            entries.append((msgspec.json.decode(name, type=str), definition))
        except msgspec.DecodeError:
            problems.append(f"{method}: an entry has no {naming}")
    return entries


def _cursor(members: Mapping[str, Raw]) -> str | None:
    try:
        return msgspec.json.decode(members.get("nextCursor", b"null"), type=str | None)
    except msgspec.DecodeError:
        return None


def _merged(method: str, stateless: Lists, handshake: Lists) -> tuple[Entry, ...]:
    """What either era lists, once; defined as 2026-07-28 has it where that lists it too."""
    new, old = stateless.get(method, []), handshake.get(method, [])
    in_new, in_old = {name for name, _ in new}, dict(old)

    def eras(name: str) -> Eras:
        if name in in_new and name in in_old:
            return "both"
        return "stateless" if name in in_new else "handshake"

    both = [(name, _with_execution(definition, in_old.get(name))) for name, definition in new]
    listed = [*both, *((name, definition) for name, definition in old if name not in in_new)]
    return tuple(Entry(definition, eras(name)) for name, definition in listed)


def _with_execution(new: Raw, old: Raw | None) -> Raw:
    """`new`, and whether the tool runs as a task of 2025-11-25: 2026-07-28 has no word for it."""
    if old is None or b'"execution"' not in bytes(old):
        return new
    execution = msgspec.json.decode(old, type=dict[str, Raw]).get("execution")
    members = msgspec.json.decode(new, type=dict[str, Raw])
    return (
        new if execution is None else Raw(msgspec.json.encode({**members, "execution": execution}))
    )
