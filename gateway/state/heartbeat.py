"""Heartbeat of a node in the store that all nodes share."""

import asyncio
import logging

from gateway.abc import SessionStore
from schemas.errors import Unavailable

log = logging.getLogger("toolgate.sessions")

FIRST_BEAT_S = 0.1


async def beat(store: SessionStore, node: str, every_s: float) -> None:
    """Send heartbeats until cancelled; a node counts as dead after three missed ones. Returns at
    once where nodes share no store."""
    pause_s = min(every_s, FIRST_BEAT_S)  # the store may not be there yet
    while store.shared:
        try:
            await store.beat(node, 3 * every_s)
            pause_s = every_s
        except Unavailable:
            if pause_s == every_s:
                log.warning("beat_missed")
        await asyncio.sleep(pause_s)
