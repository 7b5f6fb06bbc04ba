"""Lifecycle of a client: initialize, ping, server/discover, log levels, cancellation and
subscriptions.

Clients of 2026-07-28 send the log level with each request instead."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec import UNSET

from gateway.context import Context, Outbox, Peer, Session
from gateway.interfaces import SessionChange
from gateway.methods.capabilities import capabilities, require, subscribes
from gateway.methods.lists import Lists
from gateway.methods.results_by_revision import SERVER, STAMP
from gateway.state.change_streams import (
    LIST_KINDS,
    LIST_METHODS,
    SUBSCRIPTION_LIMIT,
    Follower,
    Hub,
    Owner,
)
from gateway.state.sessions import Sessions
from registry.catalog.catalog import Catalog
from schemas.errors import Fault, InvalidParams, InvalidRequest
from schemas.jsonrpc import Notification, Request, encode
from schemas.mcp.messages import (
    LOG_LEVELS,
    META_SUBSCRIPTION,
    RESOURCE_UPDATED,
    CancelledParams,
    DiscoverResult,
    InitializeResult,
    LevelParams,
    ListenFilter,
    ListenParams,
    ListKind,
    read,
)
from schemas.mcp.revisions import SUPPORTED

Change = Callable[[Session, SessionChange], Awaitable[None]]


class LogLevels:
    def __init__(self, lists: Lists, change: Change) -> None:
        """`change` stores a session's log level where all nodes read it."""
        self._lists = lists
        self._change = change

    async def set_level(self, context: Context, request: Request) -> dict[str, Any]:
        """Store the session's level; it is sent to servers with the next call, per client."""
        require(self._lists.catalog(context), "logging", request.method)
        level = read(request.params, LevelParams).level
        if level not in LOG_LEVELS:
            expected = ", ".join(LOG_LEVELS)
            raise InvalidParams(f"Unknown log level: {level[:40]!r}; expected one of {expected}")
        session = context.session
        if session is not None:  # even if the local copy has this level: it may be stale
            await self._change(session, SessionChange(log_level=level))
        return {}


INSTRUCTIONS_LIMIT = 4000  # characters; they precede every conversation


class Lifecycle:
    def __init__(self, lists: Lists, instructions: str) -> None:
        """`instructions`: of toolsets that have none of their own."""
        self._lists = lists
        self._instructions = instructions

    async def initialize(self, context: Context, _request: Request) -> InitializeResult:
        """The transport has opened the session and negotiated the revision."""
        catalog, revision = self._lists.catalog(context), context.revision
        instructions = self._instructions_text(context, catalog)
        return InitializeResult(
            revision.name, capabilities(catalog, revision), SERVER, instructions
        )

    async def discover(self, context: Context, _request: Request) -> DiscoverResult:
        catalog = self._lists.catalog(context)
        return DiscoverResult(
            supported_versions=SUPPORTED,
            capabilities=capabilities(catalog, context.revision),
            result_type="complete",
            ttl_ms=self._lists.ttl_ms(context),
            cache_scope="private",
            meta=STAMP,
            instructions=self._instructions_text(context, catalog),
        )

    async def ping(self, _context: Context, _request: Request) -> dict[str, Any]:
        return {}

    def _instructions_text(self, context: Context, catalog: Catalog) -> str:
        """The gateway's instructions, then those of each server under its name."""
        toolset = self._lists.toolset(context)
        gateway_text = (toolset and toolset.instructions) or self._instructions
        theirs = [
            f"## {name}\n\n{facts.instructions.strip()}"
            for name, facts in sorted(catalog.servers.items())
            if facts.instructions.strip()
        ]
        instructions = "\n\n".join([gateway_text, *theirs] if gateway_text else theirs)
        return (
            instructions
            if len(instructions) <= INSTRUCTIONS_LIMIT
            else instructions[: INSTRUCTIONS_LIMIT - 1] + "…"
        )


ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


class Subscriptions:
    def __init__(self, hub: Hub, sessions: Sessions, lists: Lists) -> None:
        self._hub = hub
        self._sessions = sessions
        self._lists = lists

    async def listen(self, context: Context, request: Request) -> dict[str, Any]:
        """Stream the requested notifications until the client disconnects or the gateway stops."""
        peer = context.peer
        if peer is None:
            raise InvalidRequest("subscriptions/listen needs a stream: accept text/event-stream")
        filter_ = read(request.params, ListenParams).notifications
        catalog = self._lists.catalog(context)
        meta = {META_SUBSCRIPTION: request.id}
        kinds = _lists(filter_, capabilities(catalog, context.revision))
        messages = {kind: _message(LIST_METHODS[kind], {"_meta": meta}) for kind in kinds}
        outbox = Outbox()
        outbox.still = context.identity.still
        follower = Follower(context.principal.tenant, context.toolset, outbox, messages)
        place = (follower.tenant, follower.toolset)
        watched: list[str] = []
        # without tokens all clients share one principal and are indistinguishable
        owner = context.principal.key if context.identity.verified else None
        with self._hub.stream(outbox, follower, owner):
            try:
                uris = self._resources(context, filter_)
                await self._watch(follower, uris, meta, watched, owner=owner)
                params = {"notifications": _honoured_kinds(filter_, kinds, watched), "_meta": meta}
                await peer.notify(_message(ACKNOWLEDGED, params))
                await _forward(peer, outbox)
            finally:
                for uri in watched:
                    await self._hub.watches.remove(place, uri, follower)
        return {"resultType": "complete", "_meta": meta}

    async def cancel(self, context: Context, request: Request) -> None:
        """Handle notifications/cancelled: cancel the named request, if it is this session's."""
        if context.session is not None:
            named = read(request.params, CancelledParams)
            await self._sessions.cancel(context.session, named.request_id, named.reason or "")

    def _resources(self, context: Context, filter_: ListenFilter) -> list[str]:
        """Requested resources whose servers announce updates. Raises InvalidParams beyond the
        limit."""
        uris = filter_.resource_subscriptions or ()
        if len(uris) > SUBSCRIPTION_LIMIT:
            raise InvalidParams(f"A stream can be of {SUBSCRIPTION_LIMIT} resources")
        catalog = self._lists.catalog(context)
        addresses = []
        for uri in dict.fromkeys(uris):
            located = self._lists.locate(context, catalog, uri)
            facts = located and catalog.servers.get(located.source.name)
            if facts and subscribes(facts):
                addresses.append(uri)
        return addresses

    async def _watch(
        self,
        follower: Follower,
        uris: Sequence[str],
        meta: Mapping[str, Any],
        subscriptions: list[str],
        *,
        owner: Owner | None,
    ) -> None:
        """Subscribe to resources; `subscriptions` collects the successful ones: servers may
        refuse, and `owner` has a share."""
        place = (follower.tenant, follower.toolset)
        for uri in uris:
            message = _message(RESOURCE_UPDATED, {"uri": uri, "_meta": meta})
            with suppress(Fault):
                await self._hub.watches.add(place, uri, follower, message, owner=owner)
                subscriptions.append(uri)


def _lists(filter_: ListenFilter, offered: Mapping[str, Any]) -> list[ListKind]:
    lists = {
        "tools": filter_.tools_list_changed,
        "prompts": filter_.prompts_list_changed,
        "resources": filter_.resources_list_changed,
    }
    return [kind for kind in LIST_KINDS if lists[kind] and kind in offered]


def _honoured_kinds(
    filter_: ListenFilter, kinds: Sequence[ListKind], uris: Sequence[str]
) -> dict[str, Any]:
    honoured: dict[str, Any] = {f"{kind}ListChanged": True for kind in kinds}
    if filter_.resource_subscriptions:
        honoured["resourceSubscriptions"] = list(uris)
    return honoured


async def _forward(peer: Peer, outbox: Outbox) -> None:
    """Send messages until the outbox is closed. No generator: thousands of these wait."""
    while messages := await outbox.take(None):
        for message in messages:
            await peer.notify(message)


def _message(method: str, params: Any = UNSET) -> bytes:
    return encode(Notification(method, params))
