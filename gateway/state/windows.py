"""Sliding windows, alike in every store.

A window is counted in slots, and a slot counts until all of it has left the window. So there are
never more than `limit` uses in any window; the price is that a use counts for up to a sixtieth of
the window too long. Kept are at most 61 numbers per key, whatever the limit.

Not the `limits` package: its exact strategy keeps a time per use and asks the store twice for a
verdict, its cheap one lets more than the limit through, and neither knows PostgreSQL.
"""

from collections import deque
from collections.abc import Mapping

from gateway.abc import Verdict

SLOTS = 60
MICROS = 1_000_000


def slot_us(window_s: float) -> int:
    """How long a slot is, microseconds."""
    return max(1, round(window_s * MICROS / SLOTS))


def live(uses: Mapping[int, int], now_us: int, slot_us: int) -> dict[int, int]:
    """The slots that still count, oldest first."""
    current = now_us // slot_us
    return {slot: uses[slot] for slot in sorted(uses) if slot >= current - SLOTS}


def admit(uses: dict[int, int], limit: int, now_us: int, slot_us: int, wanted: int = 1) -> Verdict:
    """Count up to `wanted` uses in `uses`, whose slots are `live`, as far as they are allowed."""
    left = limit - sum(uses.values())
    if left > 0:
        current, granted = now_us // slot_us, min(left, wanted)
        uses[current] = uses.get(current, 0) + granted
        return Verdict(granted, left - granted, 0.0)
    return Verdict(0, 0, _pause_us(uses, left, now_us, slot_us) / MICROS)


class Window:
    """The same for one key in memory, in a microsecond: the sum is kept, not made."""

    __slots__ = ("_slots", "_total")

    def __init__(self) -> None:
        self._slots: deque[list[int]] = deque()  # number and uses, oldest first
        self._total = 0

    def take(self, limit: int, now_us: int, slot_us: int) -> float:
        """Count one use: 0, or the seconds until it is allowed."""
        slots, current = self._slots, now_us // slot_us
        while slots and slots[0][0] < current - SLOTS:
            self._total -= slots.popleft()[1]
        if self._total >= limit:
            uses = {slot: count for slot, count in slots}  # noqa: C416 - pairs are lists
            return _pause_us(uses, limit - self._total, now_us, slot_us) / MICROS
        if slots and slots[-1][0] == current:
            slots[-1][1] += 1
        else:
            slots.append([current, 1])
        self._total += 1
        return 0.0

    def give_back(self) -> None:
        """The last use was none."""
        if self._slots and self._slots[-1][1]:
            self._slots[-1][1] -= 1
            self._total -= 1


def _pause_us(uses: Mapping[int, int], left: int, now_us: int, slot_us: int) -> int:
    """Until so many slots have left the window that one more use fits in."""
    for slot, count in uses.items():
        left += count
        if left > 0:
            return (slot + SLOTS + 1) * slot_us - now_us
    return (SLOTS + 1) * slot_us  # a limit of 0: never
