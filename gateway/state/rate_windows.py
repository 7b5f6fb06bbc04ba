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

A busy node takes its next lease in the background, when a quarter of the uses or an eighth of the
time is left (single-flight for each key), so that calls do not wait for the counter. What is left
and what is taken ahead are together no more than one lease.

While the counter is unavailable, each node counts by itself, up to the whole limit, or refuses.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from ipaddress import IPv6Address

import msgspec

from gateway.interfaces import Counter, RateBound, RateKey, TakeAll, Verdict
from gateway.state.background_tasks import BackgroundTasks
from schemas.errors import Unavailable
from schemas.memo import Memo

SLOTS = 60
MICROS = 1_000_000

log = logging.getLogger("toolgate.limits")


KEYS = 100_000  # in the LRU cache
SHARE = 20  # a lease is at most this fraction (1/20) of the limit, and of the window
LONGEST_S = 30.0  # maximum length of a lease
LOW, LATE = 4, 8  # fractions (1/4, 1/8) of uses and time left at which a lease is renewed ahead
RETRY_S = 5.0  # pause before an unavailable counter is retried
COUNTER_UNAVAILABLE = "The rate-limit counter is unavailable (limits.when_down); try again later"


def slot_us(window_s: float) -> int:
    """Length of a slot, microseconds."""
    return max(1, round(window_s * MICROS / SLOTS))


def live(uses: Mapping[int, int], now_us: int, slot_us: int) -> dict[int, int]:
    """The slots still inside the window, oldest first. Uses of later slots, as after a clock went
    back, count as of now: else they would until the clock is there again."""
    current, slots = now_us // slot_us, dict[int, int]()
    for slot in sorted(uses):
        if slot >= current - SLOTS:
            counted_slot = min(slot, current)
            slots[counted_slot] = slots.get(counted_slot, 0) + uses[slot]
    return slots


def admit(
    uses: dict[int, int], limit: int, now_us: int, slot_us: int, *, count: int = 1
) -> Verdict:
    """Count up to `count` uses in `uses`, whose slots are `live`, as far as the limit allows."""
    free = limit - sum(uses.values())
    if free > 0:
        current, granted = now_us // slot_us, min(free, count)
        uses[current] = uses.get(current, 0) + granted
        return Verdict(granted, free - granted, 0.0)
    return Verdict(0, 0, _pause_us(uses, free, now_us, slot_us) / MICROS)


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


def _pause_us(uses: Mapping[int, int], free: int, now_us: int, slot_us: int) -> int:
    """Microseconds until enough slots have left the window for one more use."""
    for slot, count in uses.items():
        free += count
        if free > 0:
            return (slot + SLOTS + 1) * slot_us - now_us
    return (SLOTS + 1) * slot_us  # a limit of 0: never


_Bucket = tuple[RateKey, float]


class LocalRates:
    """Rate limits in the memory of this process."""

    def __init__(self, keys: int = KEYS) -> None:
        self._keys = keys
        self._windows: Memo[_Bucket, Window] = Memo(keys)
        self._find: Callable[[_Bucket], Window | None] = self._windows.get
        self._evicts = False  # windows may be evicted: it has more than half of its keys

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

    def prepare(self, bounds: Sequence[RateBound]) -> TakeAll:
        windows: list[tuple[Window, int]] = []  # of the bounds, for as long as none is evicted

        def take_prepared() -> tuple[int, float] | None:
            if not windows or self._evicts:
                stopped = self.take_all(bounds)
                if stopped is None and not self._evicts:
                    windows.extend((self._window(bound.bucket), bound.most) for bound in bounds)
                return stopped
            now_us = int(time.monotonic() * MICROS)
            for window, most in windows:
                if now_us < window.newest_ends_us and window.total < most:  # as in `take`
                    window.total += 1
                elif wait_s := window.take(most, now_us):
                    return windows.index((window, most)), wait_s
            return None

        return take_prepared

    def _window(self, bucket: _Bucket) -> Window:
        """The window of a bucket, the newest now."""
        windows = self._windows
        window = windows.use(bucket) or windows.put(bucket, Window(slot_us(bucket[1])))
        if 2 * len(windows) > self._keys:
            # before, nothing is evicted, so that the order does not matter
            self._find, self._evicts = windows.use, True
        return window

    async def acquire(self, key: RateKey, limit: int, window_s: float) -> float:
        return self.take(key, limit, window_s)

    def give_back(self, key: RateKey, window_s: float) -> None:
        window = self._windows.get((key, window_s))
        if window is not None:
            window.give_back()

    async def settle(self) -> None:
        """Nothing runs in the background."""


class _Lease:
    __slots__ = (
        "ahead", "denied_until", "fresh_until", "left", "low", "renewing", "renews_ahead", "since",
        "size", "until", "waiting",
    )  # fmt: skip

    def __init__(self) -> None:
        self.renewing = asyncio.Lock()
        self.renews_ahead = False  # a task does
        self.waiting = 0  # callers
        self.ahead: tuple[int, float] | None = None  # uses of the next lease, and until when
        self.denied_until = 0.0  # monotonic s, as are all times here
        self.spend(1, 0.0, 0.0)
        self.left = 0

    def spend(self, uses: int, now: float, until: float) -> None:
        """Spend `uses` uses from now on."""
        self.size = self.left = uses
        self.since, self.until = now, until
        self.low = uses // LOW  # 0, too few to renew ahead: the next caller waits
        self.fresh_until = until - (until - now) / LATE if self.low else until

    def keep_to_the_end(self) -> None:
        """Leave out the renewal ahead of this lease."""
        self.low, self.fresh_until = 0, self.until

    def next_size(self, limit: int, now: float) -> int:
        """Adaptive lease size: doubled when the last lease ran out early, else the number of uses
        spent."""
        used = self.size - self.left
        size = 2 * self.size if not self.left and now < self.until else max(1, used)
        return max(1, min(max(size, self.waiting), limit // SHARE))

    def size_ahead(self, limit: int, now: float, good_s: float) -> int:
        """Size of the lease after this one: what is spent in the next `good_s` seconds at the pace
        of this one, without what is still spent of this one."""
        used, passed_s = self.size - self.left, now - self.since
        size = 2 * self.size
        if passed_s > 0:
            pace = used / passed_s
            size = min(size, round(pace * good_s - min(self.left, pace * (self.until - now))))
        return min(size, limit // SHARE - self.left)


class LeasedRates:
    """Rate limits in a counter that nodes share."""

    def __init__(self, counter: Counter, fallback: LocalRates | None, keys: int = KEYS) -> None:
        """Rate limits on `counter`; `fallback` counts while it is unavailable, and without
        `fallback` calls are refused then."""
        self._counter = counter
        self._fallback = fallback
        self._leases: Memo[_Bucket, _Lease] = Memo(keys)
        self._retry_at = 0.0  # monotonic s; 0: the counter answers
        self._renewals = BackgroundTasks()

    def prepare(self, bounds: Sequence[RateBound]) -> TakeAll:
        return partial(self.take_all, bounds)

    def take_all(
        self, bounds: Sequence[RateBound], first: int = 0
    ) -> tuple[int, float | None] | None:
        now, find, place = time.monotonic(), self._leases.get, first
        for _, bucket, most, _ in bounds[first:] if first else bounds:
            lease = find(bucket)
            if lease is not None and lease.left > lease.low and now < lease.fresh_until:
                lease.left -= 1
            else:
                wait_s = self._take(lease, bucket, most, now)
                if wait_s is None or wait_s:
                    return place, wait_s
            place += 1
        return None

    def take(self, key: RateKey, limit: int, window_s: float) -> float | None:
        """Count one use of `key` by the node's lease: 0, or the seconds until it is allowed; None
        where the counter has to decide. Raises Unavailable."""
        bucket = key, window_s
        return self._take(self._leases.get(bucket), bucket, limit, time.monotonic())

    def _take(self, lease: _Lease | None, bucket: _Bucket, limit: int, now: float) -> float | None:
        if lease is not None:
            if self._spend(lease, bucket, limit, now):
                return 0.0
            if now < lease.denied_until:
                return lease.denied_until - now
        if now < self._retry_at:
            return self._take_from_fallback(*bucket, limit)
        return None

    def _spend(self, lease: _Lease, bucket: _Bucket, limit: int, now: float) -> bool:
        """Spend a use of the lease, or of the one that was taken ahead; false if neither is
        left."""
        if lease.ahead is not None and not (lease.left and now < lease.until):
            granted, until = lease.ahead
            lease.ahead = None
            if now < until:  # else the size of the next one depends on what was spent of this
                lease.spend(granted, now, until)
        if not lease.left or now >= lease.until:
            return False
        lease.left -= 1
        if lease.left <= lease.low or now >= lease.fresh_until:
            self._renew_ahead(lease, bucket, limit, now)
        return True

    def _renew_ahead(self, lease: _Lease, bucket: _Bucket, limit: int, now: float) -> None:
        """Take the next lease in the background, unless that is under way or without hope."""
        if lease.renews_ahead or not lease.low or now < max(lease.denied_until, self._retry_at):
            return
        size = lease.size_ahead(limit, now, _good_s(bucket))
        if size < 1:
            lease.keep_to_the_end()
            return
        lease.renews_ahead = True
        self._renewals.start(self._renewed_ahead(lease, bucket, limit, size))

    async def _renewed_ahead(self, lease: _Lease, bucket: _Bucket, limit: int, size: int) -> None:
        before = lease.until
        try:
            async with lease.renewing:  # callers that find nothing left wait for this
                if lease.until != before:
                    return  # a caller was faster
                began = time.monotonic()
                verdict = await self._ask_counter(bucket, limit, size)
                lease.keep_to_the_end()
                if verdict.is_allowed:
                    self._leases.use(bucket)
                    lease.ahead = verdict.granted, began + _good_s(bucket)
                else:
                    lease.denied_until = began + verdict.retry_after_s
        except Unavailable:
            pass  # logged; what is left is spent, then what `limits.when_down` says holds
        finally:
            lease.renews_ahead = False

    async def acquire(self, key: RateKey, limit: int, window_s: float) -> float:
        bucket = key, window_s
        lease = self._leases.use(bucket) or self._leases.put(bucket, _Lease())
        lease.waiting += 1
        try:
            async with lease.renewing:
                wait_s = self.take(key, limit, window_s)  # an earlier caller may have renewed it
                if wait_s is None:
                    wait_s = await self._take_lease(lease, bucket, limit)
                return wait_s
        finally:
            lease.waiting -= 1

    def give_back(self, key: RateKey, window_s: float) -> None:
        lease = self._leases.get((key, window_s))
        if lease is not None and time.monotonic() < lease.until:
            lease.left += 1
        elif self._fallback is not None:
            self._fallback.give_back(key, window_s)

    async def settle(self) -> None:
        """Wait for the renewals that are under way."""
        await self._renewals.drain()

    async def _take_lease(self, lease: _Lease, bucket: _Bucket, limit: int) -> float:
        began = time.monotonic()
        try:
            verdict = await self._ask_counter(bucket, limit, lease.next_size(limit, began))
        except Unavailable:
            return self._take_from_fallback(*bucket, limit)
        if not verdict.is_allowed:
            lease.left, lease.denied_until = 0, began + verdict.retry_after_s
            return verdict.retry_after_s
        lease.spend(verdict.granted, began, began + _good_s(bucket))
        lease.left -= 1
        return 0.0

    async def _ask_counter(self, bucket: _Bucket, limit: int, count: int) -> Verdict:
        """Up to `count` uses from the shared counter. Raises Unavailable; then the counter is not
        asked for a while, and after that by one caller, for whom no other waits."""
        (key, window_s), retry_at = bucket, self._retry_at
        began = time.monotonic()
        if retry_at:
            self._retry_at = began + RETRY_S
        try:
            verdict = await self._counter.hit(
                _shared_key(key), limit, window_s + _good_s(bucket), count
            )
        except Unavailable:
            if retry_at or began >= self._retry_at:  # not each of those that asked at once
                fallback = self._fallback is not None
                log.warning("rate_limits_local" if fallback else "rate_limits_unavailable")
            self._retry_at = time.monotonic() + RETRY_S
            raise
        self._retry_at = 0.0
        return verdict

    def _take_from_fallback(self, key: RateKey, window_s: float, limit: int) -> float:
        if self._fallback is None:
            raise Unavailable(COUNTER_UNAVAILABLE)
        return self._fallback.take(key, limit, window_s)


def _good_s(bucket: _Bucket) -> float:
    """Length of a lease."""
    return min(bucket[1] / SHARE, LONGEST_S)


def _shared_key(key: RateKey) -> str:
    """Key in the shared counter, a digest: ids may be long, and contain any character."""
    return f"rates/{blake2b(msgspec.json.encode(key), digest_size=24).hexdigest()}"


def network_of(address: str) -> str:
    """Rate-limit key of a client address: IPv4 whole, IPv6 by its /64 network, which one subscriber
    has (RFC 4291, 2.5.4)."""
    if ":" not in address:
        return address
    try:
        parsed = IPv6Address(address)
    except ValueError:
        return address
    return str(parsed.ipv4_mapped or IPv6Address(int(parsed) >> 64 << 64))
