"""Rate limits on the path of every call: sliding windows, counted locally or in leases of a shared
counter.

A window is counted in slots, and a slot counts until all of it has left the window. So there are
never more than `limit` uses in any window; the price is that a use counts for up to a sixtieth of
the window too long. At most 61 numbers are kept per key, whatever the limit.

Not the `limits` package: its exact strategy keeps a time per use and queries the store twice for a
verdict, its cheap one exceeds the limit, and neither supports PostgreSQL.

Where gateways share a counter, a round trip per call would cost more than the call. So a node takes
a lease of several uses and spends them locally. Together the nodes never exceed the limit in any
window: a lease is valid for a twentieth of the window, and the counter counts it for that much
longer than the window. The price is that a use counts up to a twentieth of the window (and 30 s)
too long, and that the unused rest of a lease is lost when it expires: at most a twentieth of the
limit for each node, and only where it used half of that a moment before. A limit below 40 is
counted without leases.

While the counter is unavailable, each node counts by itself, up to the whole limit, or refuses.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from ipaddress import IPv6Address

import msgspec

from gateway.abc import Counter, RateBound, RateKey, Verdict
from schemas.errors import Unavailable
from schemas.memo import Memo

SLOTS = 60
MICROS = 1_000_000

log = logging.getLogger("toolgate.limits")


KEYS = 100_000  # in the LRU cache
SHARE = 20  # a lease is at most this fraction (1/20) of the limit, and of the window
LONGEST_S = 30.0  # maximum length of a lease
RETRY_S = 5.0  # pause before an unavailable counter is retried
COUNTER_UNAVAILABLE = "The rate-limit counter is unavailable (limits.when_away); try again later"


def slot_us(window_s: float) -> int:
    """Length of a slot, microseconds."""
    return max(1, round(window_s * MICROS / SLOTS))


def live(uses: Mapping[int, int], now_us: int, slot_us: int) -> dict[int, int]:
    """The slots still inside the window, oldest first."""
    current = now_us // slot_us
    return {slot: uses[slot] for slot in sorted(uses) if slot >= current - SLOTS}


def admit(
    uses: dict[int, int], limit: int, now_us: int, slot_us: int, *, wanted: int = 1
) -> Verdict:
    """Count up to `wanted` uses in `uses`, whose slots are `live`, as far as the limit allows."""
    left = limit - sum(uses.values())
    if left > 0:
        current, granted = now_us // slot_us, min(left, wanted)
        uses[current] = uses.get(current, 0) + granted
        return Verdict(granted, left - granted, 0.0)
    return Verdict(0, 0, _pause_us(uses, left, now_us, slot_us) / MICROS)


class Window:
    """Sliding window of one key in memory, half a microsecond per use: the sum is maintained."""

    __slots__ = ("_full", "_newest", "_of_full", "newest_ends_us", "slot_us", "total")

    def __init__(self, slot_us: int) -> None:
        self.slot_us = slot_us
        self.total = 0  # uses, those beyond the full slots are of the newest slot
        self.newest_ends_us = 0
        self._newest = -1
        self._full: deque[tuple[int, int]] = deque()  # slots before it and their uses, oldest first
        self._of_full = 0  # their sum

    def take(self, limit: int, now_us: int) -> float:
        """Count one use; returns 0, or the seconds until it is allowed."""
        current = now_us // self.slot_us
        if self._newest != current:
            self._begin(current)
        if self.total >= limit:
            uses = dict(self._full) | {current: self.total - self._of_full}
            return _pause_us(uses, limit - self.total, now_us, self.slot_us) / MICROS
        self.total += 1
        return 0.0

    def _begin(self, current: int) -> None:
        """Begin a slot, and forget those that have left the window."""
        if self.total > self._of_full:
            self._full.append((self._newest, self.total - self._of_full))
        while self._full and self._full[0][0] < current - SLOTS:
            self.total -= self._full.popleft()[1]
        self._of_full = self.total
        self._newest, self.newest_ends_us = current, (current + 1) * self.slot_us

    def give_back(self) -> None:
        """Undo the last use."""
        if self.total > self._of_full:
            self.total -= 1
        elif self._full:
            slot, uses = self._full.pop()
            if uses > 1:
                self._full.append((slot, uses - 1))
            self.total = self._of_full = self.total - 1


def _pause_us(uses: Mapping[int, int], left: int, now_us: int, slot_us: int) -> int:
    """Microseconds until enough slots have left the window for one more use."""
    for slot, count in uses.items():
        left += count
        if left > 0:
            return (slot + SLOTS + 1) * slot_us - now_us
    return (SLOTS + 1) * slot_us  # a limit of 0: never


_Bucket = tuple[RateKey, float]


class LocalRates:
    """Rate limits in the memory of this process."""

    def __init__(self, keys: int = KEYS) -> None:
        self._keys = keys
        self._windows: Memo[_Bucket, Window] = Memo(keys)
        self._find: Callable[[_Bucket], Window | None] = self._windows.get

    def __len__(self) -> int:
        return len(self._windows)

    def take(self, key: RateKey, limit: int, window_s: float) -> float:
        """Count one use of `key`: 0, or the seconds until it is allowed."""
        return self._window((key, window_s)).take(limit, int(time.monotonic() * MICROS))

    def take_all(self, bounds: Sequence[RateBound], first: int = 0) -> tuple[int, float] | None:
        now_us, find, place = int(time.monotonic() * MICROS), self._find, first
        for _, bucket, most, _ in bounds[first:] if first else bounds:
            window = find(bucket) or self._window(bucket)
            if now_us < window.newest_ends_us and window.total < most:  # as in `take`
                window.total += 1
            elif wait_s := window.take(most, now_us):
                return place, wait_s
            place += 1
        return None

    def _window(self, bucket: _Bucket) -> Window:
        """The window of a bucket, the newest now."""
        windows = self._windows
        window = windows.use(bucket) or windows.put(bucket, Window(slot_us(bucket[1])))
        if 2 * len(windows) > self._keys:
            self._find = (
                windows.use
            )  # before, nothing is evicted, so that the order does not matter
        return window

    async def acquire(self, key: RateKey, limit: int, window_s: float) -> float:
        return self.take(key, limit, window_s)

    def give_back(self, key: RateKey, window_s: float) -> None:
        window = self._windows.get((key, window_s))
        if window is not None:
            window.give_back()


class _Lease:
    __slots__ = ("denied_until", "left", "renewing", "size", "until", "waiting")

    def __init__(self) -> None:
        self.renewing = asyncio.Lock()
        self.waiting = 0  # callers
        self.size = 1  # uses granted
        self.left = 0
        self.until = 0.0  # monotonic s, as is the next
        self.denied_until = 0.0

    def next_size(self, limit: int, now: float) -> int:
        """Adaptive lease size: doubled when the last lease ran out early, else the number of uses
        spent."""
        used = self.size - self.left
        wanted = 2 * self.size if not self.left and now < self.until else max(1, used)
        return max(1, min(max(wanted, self.waiting), limit // SHARE))


class LeasedRates:
    """Rate limits in a counter that nodes share."""

    def __init__(self, counter: Counter, fallback: LocalRates | None, keys: int = KEYS) -> None:
        """Rate limits on `counter`; `fallback` counts while it is unavailable, and without
        `fallback` calls are refused then."""
        self._counter = counter
        self._fallback = fallback
        self._leases: Memo[_Bucket, _Lease] = Memo(keys)
        self._retry_at = 0.0  # monotonic s

    def take_all(
        self, bounds: Sequence[RateBound], first: int = 0
    ) -> tuple[int, float | None] | None:
        for place in range(first, len(bounds)):
            _, (key, window_s), most, _ = bounds[place]
            wait_s = self.take(key, most, window_s)
            if wait_s is None or wait_s:
                return place, wait_s
        return None

    def take(self, key: RateKey, limit: int, window_s: float) -> float | None:
        """Count one use of `key` by the node's lease: 0, or the seconds until it is allowed; None
        where the counter has to decide. Raises Unavailable."""
        lease = self._leases.get((key, window_s))
        now = time.monotonic()
        if lease is not None:
            if lease.left and now < lease.until:
                lease.left -= 1
                return 0.0
            if now < lease.denied_until:
                return lease.denied_until - now
        if now < self._retry_at:
            return self._take_from_fallback(key, limit, window_s)
        return None

    async def acquire(self, key: RateKey, limit: int, window_s: float) -> float:
        bucket = key, window_s
        lease = self._leases.use(bucket) or self._leases.put(bucket, _Lease())
        lease.waiting += 1
        try:
            async with lease.renewing:
                wait_s = self.take(key, limit, window_s)  # an earlier caller may have renewed it
                if wait_s is None:
                    wait_s = await self._granted(lease, key, limit, window_s)
                return wait_s
        finally:
            lease.waiting -= 1

    def give_back(self, key: RateKey, window_s: float) -> None:
        lease = self._leases.get((key, window_s))
        if lease is not None and time.monotonic() < lease.until:
            lease.left += 1
        elif self._fallback is not None:
            self._fallback.give_back(key, window_s)

    async def _granted(self, lease: _Lease, key: RateKey, limit: int, window_s: float) -> float:
        began, good_s = time.monotonic(), min(window_s / SHARE, LONGEST_S)
        wanted = lease.next_size(limit, began)
        try:
            verdict = await self._counter.hit(_shared(key), limit, window_s + good_s, wanted)
        except Unavailable:
            if began >= self._retry_at:
                fallback = self._fallback is not None
                log.warning("rate_limits_local" if fallback else "rate_limits_unavailable")
            self._retry_at = time.monotonic() + RETRY_S
            return self._take_from_fallback(key, limit, window_s)
        if not verdict.allowed:
            lease.left, lease.denied_until = 0, began + verdict.retry_after_s
            return verdict.retry_after_s
        lease.size, lease.left, lease.until = verdict.granted, verdict.granted - 1, began + good_s
        return 0.0

    def _take_from_fallback(self, key: RateKey, limit: int, window_s: float) -> float:
        if self._fallback is None:
            raise Unavailable(COUNTER_UNAVAILABLE)
        return self._fallback.take(key, limit, window_s)


def _shared(key: RateKey) -> str:
    """Key in the shared counter, a digest: ids may be long, and contain any character."""
    return f"rates/{blake2b(msgspec.json.encode(key), digest_size=24).hexdigest()}"


def network_of(address: str) -> str:
    """Rate-limit key of a client address: IPv4 whole, IPv6 by its /64 network, which one subscriber
    has (RFC 4291, 2.5.4)."""
    if ":" not in address:
        return address
    try:
        found = IPv6Address(address)
    except ValueError:
        return address
    return str(found.ipv4_mapped or IPv6Address(int(found) >> 64 << 64))
