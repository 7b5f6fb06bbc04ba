"""Sliding windows, alike in every store.

A window is counted in slots, and a slot counts until all of it has left the window. So there are
never more than `limit` uses in any window; the price is that a use counts for up to a sixtieth of
the window too long. Kept are at most 61 numbers per key, whatever the limit.

Not the `limits` package: its exact strategy keeps a time per use and asks the store twice for a
verdict, its cheap one lets more than the limit through, and neither knows PostgreSQL.
"""

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


def admit(uses: dict[int, int], limit: int, now_us: int, slot_us: int) -> Verdict:
    """Count one use in `uses`, whose slots are `live`, if it is allowed."""
    left = limit - sum(uses.values())
    if left > 0:
        current = now_us // slot_us
        uses[current] = uses.get(current, 0) + 1
        return Verdict(True, left - 1, 0.0)
    return Verdict(False, 0, _pause_us(uses, left, now_us, slot_us) / MICROS)


def _pause_us(uses: Mapping[int, int], left: int, now_us: int, slot_us: int) -> int:
    """Until so many slots have left the window that one more use fits in."""
    for slot, count in uses.items():
        left += count
        if left > 0:
            return (slot + SLOTS + 1) * slot_us - now_us
    return (SLOTS + 1) * slot_us  # a limit of 0: never
