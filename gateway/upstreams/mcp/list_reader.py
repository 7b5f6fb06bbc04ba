"""Reads all lists of another MCP server, in every era that it speaks, into one snapshot.

Lists are read as a client with all capabilities: servers have tools only for clients that they may
ask, such as those of elicitation. A call is made with the capabilities of its own client.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from config.settings import UpstreamSettings as Limits
from gateway.upstreams.http.source_pools import UpstreamFailed
from gateway.upstreams.mcp.handshake import ALL_ASKABLE, SupportedEras, canonical
from gateway.upstreams.mcp.link_and_handlers import Link
from gateway.upstreams.mcp.message_parsers import first_members
from gateway.upstreams.mcp.server import McpServer
from gateway.upstreams.mcp.server_set import Servers
from gateway.upstreams.mcp.session_pool import SHARED_KEY, SessionKey
from registry.sources.import_specs import ImportSpec
from schemas.errors import Fault, ImportRejected, MethodNotFound, RelayedFault
from schemas.mcp.messages import META_CAPABILITIES
from schemas.mcp.snapshot import Eras, ServerFacts, Snapshot, SnapshotEntry
from schemas.source import Source

# method of a list -> member of its result, member that names an entry, capability
LISTS: Mapping[str, tuple[str, str, str]] = {
    "tools/list": ("tools", "name", "tools"),
    "prompts/list": ("prompts", "name", "prompts"),
    "resources/list": ("resources", "uri", "resources"),
    "resources/templates/list": ("resourceTemplates", "uriTemplate", "resources"),
}

LISTING_KEY = SessionKey(canonical(ALL_ASKABLE))
LISTING_META: Mapping[str, Any] = {"_meta": {META_CAPABILITIES: ALL_ASKABLE}}  # without sessions
NO_MEMBERS: Mapping[str, Any] = {}

DEFINITION_BYTES = 2**20  # of one entry

Lists = dict[str, list[tuple[str, Raw]]]  # method -> (name, definition) in the server's order


class _Reading:
    """Byte budget and problems of one server's listing; of its pages only definitions are kept."""

    def __init__(self, name: str, limits: Limits) -> None:
        self.items_limit = limits.mcp_list_items
        self._name = name
        self._left_bytes = self._limit_bytes = limits.mcp_list_bytes
        self._problems: dict[str, None] = {}

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(self._problems)

    def problem(self, text: str) -> None:
        self._problems[text] = None

    def copy(self, definition: Raw) -> Raw:
        """A copy of `definition`, which is a slice of its page. Raises UpstreamFailed."""
        self.charge(len(definition))
        return definition.copy()

    def charge(self, size: int) -> None:
        """Deduct `size` from the byte budget. Raises UpstreamFailed when it is used up."""
        self._left_bytes -= size
        if self._left_bytes < 0:
            limit_bytes = self._limit_bytes
            raise UpstreamFailed(
                f"{self._name} lists more than {limit_bytes} bytes (upstream.mcp_list_bytes)"
            )


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
            detail = error.detail if isinstance(error, UpstreamFailed) else ""
            raise ImportRejected(f"The MCP server cannot be read: {error}{detail}") from error

    async def snapshot(self, server: McpServer) -> Snapshot:
        """The snapshot of the server's lists. Raises UpstreamFailed, also over the size limit, and
        RelayedFault when a list is refused."""
        supported = await server.supported_eras()
        reading = _Reading(server.source.name, self._limits)
        stateless: Lists = {}
        handshake: Lists = {}
        if supported.eras["stateless"]:
            stateless = await self._lists(await server.stateless(), server, reading)
        if supported.eras["handshake"]:
            # the watcher holds the shared session: where it is the only one, lists are read in it
            key = LISTING_KEY if server.pool.limit > 1 else SHARED_KEY
            async with server.pool.lease(key, None) as link:
                handshake = await self._lists(link, server, reading)
        tools, prompts, resources, templates = (
            _merge(method, stateless, handshake) for method in LISTS
        )
        if (target := server.redirected_to) is not None:
            reading.problem(
                f"its URL redirects to {target}: name that one instead, which saves a request in "
                "each call"
            )
        facts = _facts(supported)
        return Snapshot(
            facts,
            tools,
            prompts=prompts,
            resources=resources,
            templates=templates,
            problems=reading.problems,
        )

    async def _lists(self, link: Link, server: McpServer, reading: _Reading) -> Lists:
        lists: Lists = {}
        for method, (_, _, capability) in LISTS.items():
            if capability not in link.capabilities:
                continue
            try:
                lists[method] = await self._list(link, server, method, reading)
            except RelayedFault as fault:
                # a server may have resources and no templates; any other failure must not be taken
                # for an empty list
                if fault.code != MethodNotFound.code or method == "tools/list":
                    raise
        return lists

    async def _list(
        self, link: Link, server: McpServer, method: str, reading: _Reading
    ) -> list[tuple[str, Raw]]:
        member = LISTS[method][0]
        every = NO_MEMBERS if link.facts.revision.handshake else LISTING_META
        items_left = reading.items_limit
        entries: list[tuple[str, Raw]] = []
        cursor: str | None = None
        cursors: set[str] = set()
        for _ in range(self._limits.mcp_list_pages):
            params = every if cursor is None else {**every, "cursor": cursor}
            members = await link.request(method, params, None, server.timeout)
            listed = _read_list(members.get(member), method, reading)
            entries += _entries(listed[:items_left], method, reading)
            cursor = _cursor(members)
            reading.charge(len(cursor or ""))
            items_left -= len(listed)
            if items_left < 0:
                reading.problem(f"{method} has over {reading.items_limit} entries: cut off")
                return entries
            if cursor is None:
                return entries
            if cursor in cursors:
                reading.problem(f"{method} gave a cursor twice: its pages go in a circle")
                return entries
            cursors.add(cursor)
        reading.problem(f"{method} has over {self._limits.mcp_list_pages} pages: cut off")
        return entries


def source_of(spec: ImportSpec) -> Source:
    """The source that `spec` is about to become."""
    url = None if spec.options.command else spec.location
    return Source(
        id="",
        name=spec.name,
        kind="mcp",
        location=spec.location,
        base_url=url,
        base_url_trusted=url is not None and not spec.options.guarded,
        options=spec.options,
    )


def _facts(eras: SupportedEras) -> ServerFacts:
    handshake, stateless = eras.handshake, eras.stateless
    newest = stateless or handshake
    return ServerFacts(
        handshake=handshake.revision.name if handshake else None,
        handshake_capabilities=dict(handshake.capabilities) if handshake else {},
        stateless=stateless.revision.name if stateless else None,
        stateless_capabilities=dict(stateless.capabilities) if stateless else {},
        instructions=newest.instructions if newest else "",
        info=dict(newest.server_info) if newest else {},
    )


def _read_list(raw: Raw | None, method: str, reading: _Reading) -> list[Raw]:
    try:
        return first_members(raw or b"null", reading.items_limit)
    except msgspec.DecodeError:
        reading.problem(f"{method} answered no array")
        return []


def _entries(listed: Sequence[Raw], method: str, reading: _Reading) -> list[tuple[str, Raw]]:
    naming = LISTS[method][1]
    entries = []
    for definition in listed:
        if len(definition) > DEFINITION_BYTES:
            reading.problem(f"{method}: an entry of over {DEFINITION_BYTES} bytes was left out")
            continue
        try:
            name = msgspec.json.decode(definition, type=dict[str, Raw]).get(naming, b"")
            entries.append((msgspec.json.decode(name, type=str), reading.copy(definition)))
        except msgspec.DecodeError:
            reading.problem(f"{method}: an entry has no {naming}")
    return entries


def _cursor(members: Mapping[str, Raw]) -> str | None:
    try:
        return msgspec.json.decode(members.get("nextCursor", b"null"), type=str | None)
    except msgspec.DecodeError:
        return None


def _merge(method: str, stateless: Lists, handshake: Lists) -> tuple[SnapshotEntry, ...]:
    """Entries of both eras without duplicates; the 2026-07-28 definition takes precedence."""
    new, old = stateless.get(method, []), handshake.get(method, [])
    in_new, in_old = {name for name, _ in new}, dict(old)

    def eras(name: str) -> Eras:
        if name in in_new and name in in_old:
            return "both"
        return "stateless" if name in in_new else "handshake"

    merged = [(name, _with_execution(definition, in_old.get(name))) for name, definition in new]
    listed = [*merged, *((name, definition) for name, definition in old if name not in in_new)]
    return tuple(SnapshotEntry(definition, eras(name)) for name, definition in listed)


def _with_execution(new: Raw, old: Raw | None) -> Raw:
    """`new` with the 2025-11-25 task support (`execution`), for which 2026-07-28 has no member."""
    if old is None or b'"execution"' not in bytes(old):
        return new
    execution = msgspec.json.decode(old, type=dict[str, Raw]).get("execution")
    members = msgspec.json.decode(new, type=dict[str, Raw])
    return (
        new if execution is None else Raw(msgspec.json.encode({**members, "execution": execution}))
    )
