"""Rates on the path of every call: counted here, or in leases that the shared counter grants.

Where gateways share a counter, asking it for each call would cost more than the call. So a node
takes a lease of several uses and hands those out by itself. Together the nodes never allow more
than the limit in any window: a lease is good for a twentieth of the window, and the counter counts
it for that much longer than the window. The price is that a use counts up to a twentieth of the
window (and 30 s) too long, and that what is left of a lease when it ends is lost: at most a
twentieth of the limit for each node, and only where it used half of that a moment before. A limit
below 40 is counted use by use.

While the counter is away, each node counts by itself, up to the whole limit, or refuses.
"""

import asyncio
import logging
import time
from hashlib import blake2b

import msgspec

from gateway.abc import Counter, RateKey
from gateway.state.windows import MICROS, Window, slot_us
from schemas.errors import Unavailable
from schemas.memo import Memo

log = logging.getLogger("toolgate.limits")

KEYS = 100_000  # that are remembered; those used last
SHARE = 20  # a lease is at most such a part of the limit, and of the window
LONGEST_S = 30.0  # of a lease
AWAY_S = 5.0  # for so long a counter that is away is not asked again
AWAY = "Calls cannot be counted at the moment (limits.when_away); try again later"

_Known = tuple[RateKey, float]


class LocalRates:
    """Counts in the memory of this process."""

    def __init__(self, keys: int = KEYS) -> None:
        self._windows: Memo[_Known, Window] = Memo(keys)

    def __len__(self) -> int:
        return len(self._windows)

    def take(self, key: RateKey, limit: int, window_s: float) -> float:
        known = key, window_s
        window = self._windows.use(known) or self._windows.put(known, Window())
        return window.take(limit, int(time.monotonic() * MICROS), slot_us(window_s))

    async def ask(self, key: RateKey, limit: int, window_s: float) -> float:
        return self.take(key, limit, window_s)

    def give_back(self, key: RateKey, window_s: float) -> None:
        window = self._windows.get((key, window_s))
        if window is not None:
            window.give_back()


class _Lease:
    __slots__ = ("asking", "denied_until", "left", "size", "until", "waiting")

    def __init__(self) -> None:
        self.asking = asyncio.Lock()
        self.waiting = 0  # callers
        self.size = 1  # uses that it had
        self.left = 0
        self.until = 0.0  # monotonic s, as is:
        self.denied_until = 0.0

    def next_size(self, limit: int, now: float) -> int:
        """Twice as many if they went before their time, as many as were used if not."""
        used = self.size - self.left
        wanted = 2 * self.size if not self.left and now < self.until else max(1, used)
        return max(1, min(max(wanted, self.waiting), limit // SHARE))


class LeasedRates:
    """Counts in a counter that nodes share."""

    def __init__(self, counter: Counter, alone: LocalRates | None, keys: int = KEYS) -> None:
        """`alone` counts while the counter is away; without it calls are refused then."""
        self._counter = counter
        self._alone = alone
        self._leases: Memo[_Known, _Lease] = Memo(keys)
        self._away_until = 0.0  # monotonic s

    def take(self, key: RateKey, limit: int, window_s: float) -> float | None:
        lease = self._leases.get((key, window_s))
        now = time.monotonic()
        if lease is not None:
            if lease.left and now < lease.until:
                lease.left -= 1
                return 0.0
            if now < lease.denied_until:
                return lease.denied_until - now
        if now < self._away_until:
            return self._take_alone(key, limit, window_s)
        return None

    async def ask(self, key: RateKey, limit: int, window_s: float) -> float:
        known = key, window_s
        lease = self._leases.use(known) or self._leases.put(known, _Lease())
        lease.waiting += 1
        try:
            async with lease.asking:
                wait_s = self.take(key, limit, window_s)  # others were here before
                if wait_s is None:
                    wait_s = await self._granted(lease, key, limit, window_s)
                return wait_s
        finally:
            lease.waiting -= 1

    def give_back(self, key: RateKey, window_s: float) -> None:
        lease = self._leases.get((key, window_s))
        if lease is not None and time.monotonic() < lease.until:
            lease.left += 1
        elif self._alone is not None:
            self._alone.give_back(key, window_s)

    async def _granted(self, lease: _Lease, key: RateKey, limit: int, window_s: float) -> float:
        began, good_s = time.monotonic(), min(window_s / SHARE, LONGEST_S)
        wanted = lease.next_size(limit, began)
        try:
            verdict = await self._counter.hit(_shared(key), limit, window_s + good_s, wanted)
        except Unavailable:
            if began >= self._away_until:
                alone = self._alone is not None
                log.warning("limits_counted_alone" if alone else "limits_refuse")
            self._away_until = time.monotonic() + AWAY_S
            return self._take_alone(key, limit, window_s)
        if not verdict.allowed:
            lease.left, lease.denied_until = 0, began + verdict.retry_after_s
            return verdict.retry_after_s
        lease.size, lease.left, lease.until = verdict.granted, verdict.granted - 1, began + good_s
        return 0.0

    def _take_alone(self, key: RateKey, limit: int, window_s: float) -> float:
        if self._alone is None:
            raise Unavailable(AWAY)
        return self._alone.take(key, limit, window_s)


def _shared(key: RateKey) -> str:
    """The name of the counter: ids may be long, and hold anything."""
    return f"rates/{blake2b(msgspec.json.encode(key), digest_size=24).hexdigest()}"
