"""Places for work that several tenants share, given out in fair turns.

A place that becomes free goes to the next tenant, and within a tenant to the next owner, in
rotation; requests of one owner are served in their order. Long work takes a turn for each of its
slices, so that a tenant with forty requests gets as much as one with a single request. Work that
has no slices keeps a place in reserve for tenants, and one for owners, that have none.
"""

import sys
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

import anyio


class FairLimiter:
    def __init__(
        self,
        places: int,
        *,
        reserve: bool = False,
        of_tenant: int = sys.maxsize,
        of_owner: int = sys.maxsize,
    ) -> None:
        """`reserve`: one more place each for a tenant and for an owner that hold none, so that
        neither waits for the end of what others began. `of_tenant`, `of_owner`: places that one
        may hold."""
        self._places = places
        self.of_tenant, self.of_owner = of_tenant, of_owner
        self._reserve = reserve
        self._held: Counter[tuple[str, ...]] = Counter()  # of all, by tenant, and by owner
        # tenants and owners in the order of their next turns
        self._waiting: OrderedDict[str, OrderedDict[str, deque[anyio.Event]]] = OrderedDict()

    @asynccontextmanager
    async def turn(self, tenant: str, owner: str) -> AsyncIterator[None]:
        """One place within, for `owner` of `tenant`."""
        await self.acquire(tenant, owner)
        try:
            yield
        finally:
            self.release(tenant, owner)

    def take(self, tenant: str, owner: str) -> bool:
        """Take a place without waiting, until `release`; False: there is none for `owner`."""
        if not self.has_place(tenant, owner):
            return False
        self._held.update([(), (tenant,), (tenant, owner)])
        return True

    async def acquire(self, tenant: str, owner: str) -> None:
        """Take a place, once it is the turn of `owner`, until `release`."""
        if self.take(tenant, owner):
            return
        turn = anyio.Event()
        owners = self._waiting.setdefault(tenant, OrderedDict())
        owners.setdefault(owner, deque()).append(turn)
        try:
            await turn.wait()
        except BaseException:
            if turn.is_set():
                self.release(tenant, owner)
            else:
                self._leave(tenant, owner, turn)
            raise

    def shortage(self, tenant: str, owner: str) -> Literal["owner", "tenant", "all"]:
        """The limit that `owner` waits for: of its places, of its tenant's, or of all."""
        if self._held[tenant, owner] >= self.of_owner:
            return "owner"
        return "tenant" if self._held[tenant,] >= self.of_tenant else "all"

    @property
    def places_by_owner(self) -> dict[tuple[str, str], int]:
        """Places by the tenants and owners that hold them."""
        return {(key[0], key[1]): count for key, count in self._held.items() if len(key) == 2}

    @property
    def free(self) -> int:
        """Places that nobody holds."""
        return self._places - self._held[()]

    def has_place(self, tenant: str, owner: str) -> bool:
        """Whether `owner` need not wait."""
        counts = self._held
        if counts[tenant,] >= self.of_tenant or counts[tenant, owner] >= self.of_owner:
            return False
        places = self._places
        if self._reserve:
            places += (not counts[tenant,]) + (not counts[tenant, owner])
        return counts[()] < places

    def release(self, tenant: str, owner: str) -> None:
        self._held -= Counter([(), (tenant,), (tenant, owner)])
        while self._pass_place():  # one place more is free where the tenant lost its reserve
            pass

    def _pass_place(self) -> bool:
        """Whether the next one that waits and may have a place was given one."""
        for next_tenant, owners in self._waiting.items():
            for next_owner, turns in owners.items():
                if self.take(next_tenant, next_owner):
                    turns.popleft().set()
                    self._rotate(next_tenant, next_owner)
                    return True
        return False

    def _rotate(self, tenant: str, owner: str) -> None:
        """Move the tenant and its owner behind the others, or away if they wait for nothing."""
        owners = self._waiting[tenant]
        if owners[owner]:
            owners.move_to_end(owner)
        else:
            del owners[owner]
        if owners:
            self._waiting.move_to_end(tenant)
        else:
            del self._waiting[tenant]

    def _leave(self, tenant: str, owner: str, turn: anyio.Event) -> None:
        owners = self._waiting[tenant]
        owners[owner].remove(turn)
        if not owners[owner]:
            del owners[owner]
        if not owners:
            del self._waiting[tenant]
