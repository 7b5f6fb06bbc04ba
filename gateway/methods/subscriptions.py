"""subscriptions/listen (2026-07-28) and the cancellation of a session's requests."""

from typing import Any

from gateway.context import Context, Outbox, Peer
from gateway.state.hub import Hub
from schemas.errors import InvalidRequest
from schemas.jsonrpc import Notification, Request, encode
from schemas.mcp.messages import (
    META_SUBSCRIPTION,
    TOOLS_CHANGED,
    CancelledParams,
    ListenParams,
    read,
)

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


class Subscriptions:
    def __init__(self, hub: Hub, keep_alive_s: float) -> None:
        self._hub = hub
        self._keep_alive_s = keep_alive_s

    async def listen(self, context: Context, request: Request) -> dict[str, Any]:
        """Tell the client what it asked to hear, until it goes or the gateway stops."""
        peer = context.peer
        if peer is None:
            raise InvalidRequest("subscriptions/listen needs a stream to answer on")
        wanted = read(request.params, ListenParams).notifications
        meta = {META_SUBSCRIPTION: request.id}
        honoured = {"toolsListChanged": True} if wanted.tools_list_changed else {}
        outbox = Outbox()
        tenant = context.principal.tenant
        with self._hub.stream(outbox):
            if wanted.tools_list_changed:
                self._hub.follow(tenant, outbox, _message(TOOLS_CHANGED, {"_meta": meta}))
            try:
                await peer.notify(
                    _message(ACKNOWLEDGED, {"notifications": honoured, "_meta": meta})
                )
                await self._forward(peer, outbox)
            finally:
                self._hub.leave(tenant, outbox)
        return {"resultType": "complete", "_meta": meta}

    async def cancelled(self, context: Context, request: Request) -> None:
        """notifications/cancelled: stop the request it names, if it is this session's."""
        if context.session is not None:
            context.session.cancel(read(request.params, CancelledParams).request_id)

    async def _forward(self, peer: Peer, outbox: Outbox) -> None:
        async for messages in outbox.batches(self._keep_alive_s):
            for message in messages:
                await peer.notify(message)
            if not messages:
                await peer.keep_alive()


def _message(method: str, params: dict[str, Any]) -> bytes:
    return encode(Notification(method, params))
