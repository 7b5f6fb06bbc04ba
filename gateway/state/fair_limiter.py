"""Places for work that several tenants share, given out in fair turns.

A place that becomes free goes to the next tenant, and within a tenant to the next owner, in
rotation; requests of one owner are served in their order. Long work takes a turn for each of its
slices, so that a tenant with forty requests gets as much as one with a single request.
"""

from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio


class FairLimiter:
    def __init__(self, places: int) -> None:
        self._free = places
        # tenants and owners in the order of their next turns
        self._waiting: OrderedDict[str, OrderedDict[str, deque[anyio.Event]]] = OrderedDict()

    @asynccontextmanager
    async def turn(self, tenant: str, owner: str) -> AsyncIterator[None]:
        """One place within, for `owner` of `tenant`."""
        await self._acquire(tenant, owner)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, tenant: str, owner: str) -> None:
        if self._free:
            self._free -= 1
            return
        turn = anyio.Event()
        owners = self._waiting.setdefault(tenant, OrderedDict())
        owners.setdefault(owner, deque()).append(turn)
        try:
            await turn.wait()
        except BaseException:
            if turn.is_set():
                self._release()
            else:
                self._leave(tenant, owner, turn)
            raise

    def _release(self) -> None:
        """Give the place to the next one that waits; it stays taken meanwhile."""
        if not self._waiting:
            self._free += 1
            return
        tenant, owners = self._waiting.popitem(last=False)
        owner, turns = owners.popitem(last=False)
        turns.popleft().set()
        if turns:
            owners[owner] = turns
        if owners:
            self._waiting[tenant] = owners

    def _leave(self, tenant: str, owner: str, turn: anyio.Event) -> None:
        owners = self._waiting[tenant]
        owners[owner].remove(turn)
        if not owners[owner]:
            del owners[owner]
        if not owners:
            del self._waiting[tenant]
