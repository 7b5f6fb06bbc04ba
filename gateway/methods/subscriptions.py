"""subscriptions/listen (2026-07-28) and the cancellation of a session's requests."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec import UNSET

from gateway.context import Context, Outbox, Peer
from gateway.methods.capabilities import capabilities, subscribes
from gateway.methods.lists import Lists
from gateway.state.hub import LIST_KINDS, LIST_METHODS, SUBSCRIPTION_LIMIT, Follower, Hub
from gateway.state.sessions import Sessions
from schemas.errors import Fault, InvalidParams, InvalidRequest
from schemas.jsonrpc import Notification, Request, encode
from schemas.mcp.messages import (
    META_SUBSCRIPTION,
    RESOURCE_UPDATED,
    CancelledParams,
    ListenFilter,
    ListenParams,
    ListKind,
    read,
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
            raise InvalidRequest("subscriptions/listen needs a stream to answer on")
        wanted = read(request.params, ListenParams).notifications
        catalog = self._lists.catalog(context)
        meta = {META_SUBSCRIPTION: request.id}
        kinds = _lists(wanted, capabilities(catalog, context.revision))
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
                await self._watch(follower, self._resources(context, wanted), meta, watched)
                params = {"notifications": _honoured(wanted, kinds, watched), "_meta": meta}
                await peer.notify(_message(ACKNOWLEDGED, params))
                await _forward(peer, outbox)
            finally:
                for uri in watched:
                    await self._hub.watches.remove(place, uri, follower)
        return {"resultType": "complete", "_meta": meta}

    async def cancelled(self, context: Context, request: Request) -> None:
        """Handle notifications/cancelled: cancel the named request, if it is this session's."""
        if context.session is not None:
            named = read(request.params, CancelledParams).request_id
            await self._sessions.cancel(context.session, named)

    def _resources(self, context: Context, wanted: ListenFilter) -> list[str]:
        """Requested resources whose servers announce updates. Raises InvalidParams beyond the
        limit."""
        if len(wanted.resource_subscriptions) > SUBSCRIPTION_LIMIT:
            raise InvalidParams(f"A stream can be of {SUBSCRIPTION_LIMIT} resources")
        catalog = self._lists.catalog(context)
        found = []
        for uri in dict.fromkeys(wanted.resource_subscriptions):
            located = self._lists.locate(context, catalog, uri)
            facts = located and catalog.servers.get(located.source.name)
            if facts and subscribes(facts):
                found.append(uri)
        return found

    async def _watch(
        self, follower: Follower, uris: Sequence[str], meta: Mapping[str, Any], watched: list[str]
    ) -> None:
        """Subscribe to resources; `watched` collects the successful ones: servers may refuse."""
        place = (follower.tenant, follower.toolset)
        for uri in uris:
            message = _message(RESOURCE_UPDATED, {"uri": uri, "_meta": meta})
            with suppress(Fault):
                await self._hub.watches.add(place, uri, follower, message)
                watched.append(uri)


def _lists(wanted: ListenFilter, offered: Mapping[str, Any]) -> list[ListKind]:
    asked = {
        "tools": wanted.tools_list_changed,
        "prompts": wanted.prompts_list_changed,
        "resources": wanted.resources_list_changed,
    }
    return [kind for kind in LIST_KINDS if asked[kind] and kind in offered]


def _honoured(
    wanted: ListenFilter, kinds: Sequence[ListKind], uris: Sequence[str]
) -> dict[str, Any]:
    honoured: dict[str, Any] = {f"{kind}ListChanged": True for kind in kinds}
    if wanted.resource_subscriptions:
        honoured["resourceSubscriptions"] = list(uris)
    return honoured


async def _forward(peer: Peer, outbox: Outbox) -> None:
    """Send messages until the outbox is closed. No generator: thousands of these wait."""
    while messages := await outbox.take(None):
        for message in messages:
            await peer.notify(message)


def _message(method: str, params: Any = UNSET) -> bytes:
    return encode(Notification(method, params))
