"""Sliding windows, by arithmetic alone."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.state.windows import MICROS, SLOTS, admit, live, slot_us

WINDOW_S = 1.0
START_US = 1_700_000_000 * MICROS
PAUSES = st.lists(st.integers(0, MICROS // 2), min_size=1, max_size=100)


@given(PAUSES, st.integers(1, 10))
def test_no_window_ever_has_more_uses_than_the_limit(pauses: list[int], limit: int) -> None:
    slot, uses, now, allowed = slot_us(WINDOW_S), dict[int, int](), START_US, list[int]()
    for pause in pauses:
        now += pause
        uses = live(uses, now, slot)
        if admit(uses, limit, now, slot).allowed:
            allowed.append(now)
    for moment in allowed:
        assert sum(moment - WINDOW_S * MICROS < one <= moment for one in allowed) <= limit


@given(PAUSES, st.integers(1, 10))
def test_the_pause_is_just_as_long_as_it_has_to_be(pauses: list[int], limit: int) -> None:
    slot, uses, now = slot_us(WINDOW_S), dict[int, int](), START_US
    for pause in pauses:
        now += pause
        uses = live(uses, now, slot)
        verdict = admit(uses, limit, now, slot)
        if not verdict.allowed:
            then = now + round(verdict.retry_after_s * MICROS)
            assert admit(live(uses, then, slot), limit, then, slot).allowed
            assert not admit(live(uses, then - 1, slot), limit, then - 1, slot).allowed


@given(PAUSES)
def test_what_is_kept_does_not_grow_with_the_limit(pauses: list[int]) -> None:
    slot, uses, now = slot_us(WINDOW_S), dict[int, int](), START_US
    for pause in pauses:
        now += pause // 100
        uses = live(uses, now, slot)
        admit(uses, 1_000_000, now, slot)
        assert len(uses) <= SLOTS + 1


def test_a_limit_that_was_lowered_counts_at_once() -> None:
    slot, now = slot_us(WINDOW_S), START_US
    uses = {now // slot - 30: 5, now // slot: 5}
    verdict = admit(uses, 6, now, slot)
    assert not verdict.allowed
    then = now + round(verdict.retry_after_s * MICROS)
    assert sum(live(uses, then, slot).values()) == 5


def test_a_window_is_never_too_short_to_be_divided() -> None:
    assert slot_us(0.000_000_1) == 1
