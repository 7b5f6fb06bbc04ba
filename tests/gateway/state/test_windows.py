"""Sliding windows, by arithmetic alone."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.state.rate_windows import MICROS, SLOTS, Window, admit, live, slot_us

WINDOW_S = 1.0
START_US = 1_700_000_000 * MICROS
PAUSES = st.lists(st.integers(0, MICROS // 2), min_size=1, max_size=100)


@given(PAUSES, st.integers(1, 10))
def test_no_window_ever_has_more_uses_than_the_limit(pauses: list[int], limit: int) -> None:
    slot, uses, now, allowed = slot_us(WINDOW_S), dict[int, int](), START_US, list[int]()
    for pause in pauses:
        now += pause
        uses = live(uses, now, slot)
        if admit(uses, limit, now, slot).is_allowed:
            allowed.append(now)
    for moment in allowed:
        assert sum(moment - WINDOW_S * MICROS < one <= moment for one in allowed) <= limit


@given(PAUSES, st.integers(1, 10))
def test_retry_after_is_exact(pauses: list[int], limit: int) -> None:
    slot, uses, now = slot_us(WINDOW_S), dict[int, int](), START_US
    for pause in pauses:
        now += pause
        uses = live(uses, now, slot)
        verdict = admit(uses, limit, now, slot)
        if not verdict.is_allowed:
            then = now + round(verdict.retry_after_s * MICROS)
            assert admit(live(uses, then, slot), limit, then, slot).is_allowed
            assert not admit(live(uses, then - 1, slot), limit, then - 1, slot).is_allowed


@given(PAUSES)
def test_memory_of_a_window_is_independent_of_the_limit(pauses: list[int]) -> None:
    slot, uses, now = slot_us(WINDOW_S), dict[int, int](), START_US
    for pause in pauses:
        now += pause // 100
        uses = live(uses, now, slot)
        admit(uses, 1_000_000, now, slot)
        assert len(uses) <= SLOTS + 1


def test_uses_of_a_clock_that_went_back_count_from_now_on() -> None:
    slot, now = slot_us(WINDOW_S), START_US
    ahead = {now // slot + 3600: 2, now // slot + 7200: 1}
    uses = live(ahead, now, slot)
    verdict = admit(uses, 3, now, slot)
    assert not verdict.is_allowed
    assert verdict.retry_after_s <= WINDOW_S * (SLOTS + 1) / SLOTS
    then = now + round(verdict.retry_after_s * MICROS)
    assert admit(live(uses, then, slot), 3, then, slot).is_allowed


def test_a_limit_that_was_lowered_counts_at_once() -> None:
    slot, now = slot_us(WINDOW_S), START_US
    uses = {now // slot - 30: 5, now // slot: 5}
    verdict = admit(uses, 6, now, slot)
    assert not verdict.is_allowed
    then = now + round(verdict.retry_after_s * MICROS)
    assert sum(live(uses, then, slot).values()) == 5


def test_a_window_is_never_too_short_to_be_divided() -> None:
    assert slot_us(0.000_000_1) == 1


@given(PAUSES, st.integers(1, 10))
def test_a_window_in_memory_agrees_with_a_stored_window(pauses: list[int], limit: int) -> None:
    slot, uses, now, window = (
        slot_us(WINDOW_S),
        dict[int, int](),
        START_US,
        Window(slot_us(WINDOW_S)),
    )
    for pause in pauses:
        now += pause
        uses = live(uses, now, slot)
        assert window.take(limit, now) == admit(uses, limit, now, slot).retry_after_s


@given(PAUSES, st.integers(1, 10), st.integers(1, 10))
def test_several_uses_at_once_are_granted_up_to_the_limit(
    pauses: list[int], limit: int, wanted: int
) -> None:
    slot, uses, now = slot_us(WINDOW_S), dict[int, int](), START_US
    for pause in pauses:
        now += pause
        uses = live(uses, now, slot)
        left = limit - sum(uses.values())
        verdict = admit(uses, limit, now, slot, count=wanted)
        assert (verdict.granted, verdict.remaining) == (
            min(wanted, left),
            left - min(wanted, left),
        )


def test_returned_uses_can_be_taken_again() -> None:
    window = Window(slot_us(WINDOW_S))
    assert window.take(1, START_US) == 0
    assert window.take(1, START_US) > 0
    window.give_back()
    assert window.take(1, START_US) == 0
