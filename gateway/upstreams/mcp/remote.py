"""Calls parked on one node and resumed on another: the protocol between the two nodes.

The node with the client's answers notifies the node of the call over the bus, and reads the outcome
from a log stream that it named.
"""

import asyncio
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Raw, Struct

from gateway.abc import Log, SessionStore
from gateway.context import Context
from gateway.state.bus import Bus
from gateway.upstreams.mcp.link import Hearer
from gateway.upstreams.mcp.parking import Members, Parking
from schemas.errors import Fault, InternalError, RelayedFault, Unreachable
from schemas.jsonrpc import encode

TAKE_UP, ABANDON = "take up call", "abandon call"
OUTCOME_UNKNOWN = "The gateway that ran this call has ended; its outcome is not known"
TAKEN_UP_S = 10.0  # time limit for a node to confirm that the call is resumed
LOOK_EVERY_S = 2.0  # interval of the liveness check of the other node


class _Said(Struct, omit_defaults=True):
    """One event of the stream: the confirmation, a notification on the way, or the outcome."""

    method: str = ""
    params: dict[str, Any] = {}
    members: dict[str, Raw] | None = None
    error: "_Failed | None" = None


class _Failed(Struct):
    code: int
    message: str
    data: Any = None


_said = msgspec.json.Decoder(_Said).decode


class RemoteParking:
    def __init__(self, bus: Bus, log: Log, nodes: SessionStore, parking: Parking) -> None:
        self._bus = bus
        self._log = log
        self._nodes = nodes
        self._parking = parking
        bus.on(TAKE_UP, self._take_up)
        bus.on(ABANDON, self._abandon)

    async def take_up(
        self, node: str, call: str, answers: Mapping[str, Any], context: Context, hearer: Hearer
    ) -> Members:
        """Resume a call of another node; the caller of this sets the requestState. Raises what the
        call raises, and Unreachable when that node is gone."""
        stream = f"r/{secrets.token_urlsafe(12)}"
        ended = False
        try:
            # not over the bus, whose messages go to every node
            await self._log.append(_answers(stream), encode(answers))
            owner = context.principal.key
            await self._bus.say(TAKE_UP, to=node, call=call, owner=owner, stream=stream)
            members = await self._outcome(node, stream, hearer)
            ended = True
            return members
        except Fault:
            ended = True
            raise
        finally:
            if not ended:
                await self._bus.say(ABANDON, to=node, call=call, owner=context.principal.key)

    async def _outcome(self, node: str, stream: str, hearer: Hearer) -> Members:
        wake, after = asyncio.Event(), ""
        taken_up_by = time.monotonic() + TAKEN_UP_S
        with self._log.watch(stream, wake.set):
            while True:
                wake.clear()
                for event in await self._log.read(stream, after):
                    after = event.id
                    said = _said(event.data)
                    if said.members is not None:
                        await self._log.drop(stream)
                        return said.members
                    if said.error is not None:
                        raise RelayedFault(said.error.code, said.error.message, said.error.data)
                    if said.method:
                        await hearer.notified(said.method, said.params)
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_EVERY_S):
                        await wake.wait()
                        continue
                late = not after and time.monotonic() > taken_up_by
                if late or not await self._nodes.beats(node):
                    raise Unreachable(OUTCOME_UNKNOWN)

    async def _take_up(self, message: dict[str, Any]) -> None:
        if message["to"] != self._bus.node:
            return
        stream = message["stream"]
        try:
            call = self._parking.take_up(
                message["call"],
                tuple(message["owner"]),
                await self._answers(stream),
                _Far(self._log, stream),
            )
            await self._log.append(stream, encode(_Said()))
            members = await self._parking.run(call, lambda _call: "")
            said = _Said(members=members)
        except Fault as fault:
            said = _Said(error=_Failed(fault.code, fault.message, fault.data))
        except Exception:
            unexpected = _Failed(InternalError.code, "Internal error")
            await self._log.append(stream, encode(_Said(error=unexpected)))
            raise
        await self._log.append(stream, encode(said))

    async def _answers(self, stream: str) -> dict[str, Any]:
        """The client's answers, as the other node stored them."""
        [written] = await self._log.read(_answers(stream), "", 1)
        await self._log.drop(_answers(stream))
        answers: dict[str, Any] = msgspec.json.decode(written.data)
        return answers

    async def _abandon(self, message: dict[str, Any]) -> None:
        if message["to"] == self._bus.node:
            self._parking.abandon(message["call"], tuple(message["owner"]))


class _Far:
    """A Hearer for a client of another node: appends notifications to the log stream."""

    def __init__(self, log: Log, stream: str) -> None:
        self._log = log
        self._stream = stream

    async def notified(self, method: str, params: dict[str, Any]) -> None:
        await self._log.append(self._stream, encode(_Said(method, params)))

    async def asked(self, method: str, params: dict[str, Any]) -> Any:
        raise NotImplementedError  # questions of a parked call are returned in its result


def _answers(stream: str) -> str:
    return f"{stream}/answers"
