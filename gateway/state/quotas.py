"""Quotas of what tenants and the owners in them have stored, in numbers and bytes.

Knows no tables: whoever stores hands over the function that counts. A count serves what comes in
the next second, or for so long that counting takes a twentieth of the time, and what is stored
meanwhile is added to it: a burst over several processes may pass a quota by little.
"""

import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import anyio

COUNT_S = 1.0  # age of a count
COST = 20  # times as long as the counting took
TENANTS = 10_000  # whose counts are held


@dataclass(frozen=True, slots=True)
class Usage:
    number: int = 0
    bytes: int = 0

    def __add__(self, more: "Usage") -> "Usage":
        return Usage(self.number + more.number, self.bytes + more.bytes)


@dataclass(frozen=True, slots=True)
class Quota:
    setting: str  # its key, for those who are refused
    unit: Literal["number", "bytes"]
    most: int
    shared: bool  # by all owners of a tenant; else each owner has as much

    def of(self, usage: Usage) -> int:
        return usage.number if self.unit == "number" else usage.bytes


@dataclass(frozen=True, slots=True)
class QuotaExcess:
    """A quota that an addition would pass, and what is used of it already."""

    quota: Quota
    used: int

    def sentence(self, owner: str, items: str) -> str:
        """The reason of a refusal; `items` are what is counted, in the plural."""
        whose = "tenant" if self.quota.shared else owner
        unit = items if self.quota.unit == "number" else f"bytes of {items}"
        return f"the {whose} has {self.used} {unit}, expected at most {self.quota.most}"


@dataclass(slots=True)
class _Count:
    owners: dict[str, Usage] = field(default_factory=dict)
    total: Usage = Usage()
    ends: float = -math.inf  # on the monotonic clock
    first: anyio.Lock = field(default_factory=anyio.Lock)  # while nothing is counted yet

    def add(self, owner: str, usage: Usage) -> None:
        self.owners[owner] = self.owners.get(owner, Usage()) + usage
        self.total += usage


class UsageQuotas:
    """The counts of tenants, and the largest share of each quota that is used."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts: dict[str, _Count] = {}
        self._shares: dict[str, tuple[Quota, int]] = {}  # by setting: the largest use

    async def take(
        self,
        tenant: str,
        owner: str,
        added: Usage,
        *,
        quotas: Sequence[Quota],
        count: Callable[[], Awaitable[Mapping[str, Usage]]],
    ) -> QuotaExcess | None:
        """Add to what is counted for the owner, or tell the first quota that would be passed.
        `count` is of all owners of the tenant."""
        counted = await self._count_once(tenant, quotas, count)
        for quota in quotas:
            used = quota.of(counted.total if quota.shared else counted.owners.get(owner, Usage()))
            if quota.of(added) > 0 and used + quota.of(added) > quota.most:
                return QuotaExcess(quota, used)
        counted.add(owner, added)
        return None

    async def _count_once(
        self,
        tenant: str,
        quotas: Sequence[Quota],
        count: Callable[[], Awaitable[Mapping[str, Usage]]],
    ) -> _Count:
        if tenant not in self._counts and len(self._counts) >= TENANTS:
            self._counts.clear()
        tenant_count = self._counts.setdefault(tenant, _Count())
        if tenant_count.ends > -math.inf:
            return await self._recount(tenant, tenant_count, quotas, count)
        async with tenant_count.first:  # a quota is compared with a count that is complete
            tenant_count = self._counts.get(tenant, tenant_count)
            return await self._recount(tenant, tenant_count, quotas, count)

    async def _recount(
        self,
        tenant: str,
        tenant_count: _Count,
        quotas: Sequence[Quota],
        count: Callable[[], Awaitable[Mapping[str, Usage]]],
    ) -> _Count:
        began = self._clock()
        if began < tenant_count.ends:
            return tenant_count
        if tenant_count.ends > -math.inf:
            tenant_count.ends = began + COUNT_S  # a single caller counts for all
        owners = dict(await count())
        now = self._clock()
        total = sum(owners.values(), Usage())
        counted = _Count(owners, total, now + max(COUNT_S, COST * (now - began)))
        self._counts[tenant] = counted
        self._note(quotas)
        return counted

    def _note(self, quotas: Sequence[Quota]) -> None:
        for quota in quotas:
            counts = self._counts.values()
            if quota.shared:
                largest = max((quota.of(each.total) for each in counts), default=0)
            else:
                owners = (usage for each in counts for usage in each.owners.values())
                largest = max(map(quota.of, owners), default=0)
            self._shares[quota.setting] = (quota, largest)

    @property
    def shares(self) -> dict[str, float]:
        """The largest share of each quota, by setting, that a tenant or owner uses, as last
        counted here."""
        return {key: largest / quota.most for key, (quota, largest) in sorted(self._shares.items())}
