"""Parked calls: a server asks in the middle of a 2026-07-28 client's call, and the client's next
request resumes the call, on any node."""

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Raw, Struct

from gateway.abc import RelayRequest
from gateway.context import Context
from gateway.protocol.sealed import Sealer
from gateway.upstreams.mcp.handshake import ROUNDS, canonical
from gateway.upstreams.mcp.listeners import ClientHearer, News
from gateway.upstreams.mcp.parking import INPUT_REQUIRED, Members, ParkedCall, Parking, Work
from gateway.upstreams.mcp.remote import RemoteParking
from schemas.errors import InvalidParams
from schemas.jsonrpc import encode

PURPOSE = "parked call"
METHODS = frozenset({"tools/call", "prompts/get", "resources/read"})  # MRTR: these and no others


class ParkedState(Struct, frozen=True, array_like=True):
    """Content of the gateway's own requestState."""

    node: str
    call: str


class Deferred:
    def __init__(
        self,
        parking: Parking,
        remote: RemoteParking,
        node: str,
        sealer: Callable[[], Awaitable[Sealer]],
        parked_s: float,
    ) -> None:
        self._parking = parking
        self._remote = remote
        self._node = node
        self._sealer = sealer
        self._parked_s = parked_s

    def possible(self, asked: RelayRequest, context: Context) -> bool:
        """Whether a call may be parked, or is parked already."""
        if asked.method not in METHODS:
            return False
        return "requestState" in asked.params or not self._parking.full(context.principal.key)

    async def run(self, asked: RelayRequest, context: Context, news: News, work: Work) -> Members:
        """The result of `work`, or an input_required result when its server asks the client."""
        bound = _bound(asked, context)
        sealer = await self._sealer()
        hearer = ClientHearer(context, news)

        def state(parked: ParkedState) -> str:
            return sealer.seal(PURPOSE, parked, bound, self._parked_s)

        def own_state(call: ParkedCall) -> str:
            return state(ParkedState(self._node, call.id))

        owner = context.principal.key
        if (given := asked.params.get("requestState")) is None:
            call = self._parking.start(owner, work, hearer)
            return await self._parking.run(call, own_state)
        if not isinstance(given, str):
            raise InvalidParams("requestState must be a string, as it was given")
        parked = sealer.unseal(PURPOSE, given, ParkedState, bound)
        answers = _answers_to(asked)
        if parked.node == self._node:
            call = self._parking.take_up(parked.call, owner, answers, hearer)
            return await self._parking.run(call, own_state)
        members = await self._remote.take_up(parked.node, parked.call, answers, context, hearer)
        if members.get("resultType") == INPUT_REQUIRED:
            return {**members, "requestState": Raw(encode(state(parked)))}
        return members


def _answers_to(asked: RelayRequest) -> dict[str, Any]:
    responses = asked.params.get("inputResponses")
    return responses if isinstance(responses, dict) else {}


def _bound(asked: RelayRequest, context: Context) -> bytes:
    """Digest that a requestState is bound to: this caller, and the same request repeated."""
    same = {name: said for name, said in asked.params.items() if name not in {*ROUNDS, "_meta"}}
    text = canonical([context.principal.key, asked.source.name, asked.method, same])
    return hashlib.sha256(text.encode()).digest()
