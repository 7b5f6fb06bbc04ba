"""Times of schedules, also where clocks change."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from schemas.schedules import Schedule


def times(cron: str, zone: str, after: str, count: int) -> list[str]:
    schedule, at = Schedule(cron, zone).times, datetime.fromisoformat(after).timestamp()
    found: list[str] = []
    for _ in range(count):
        at = schedule.get_next(float, start_time=at)
        found.append(datetime.fromtimestamp(at, ZoneInfo(zone)).isoformat())
    return found


@pytest.mark.parametrize(
    ("zone", "day", "skipped", "following"),
    [
        ("Europe/Berlin", "2027-03-27", "2027-03-28T03:00:00+02:00", "2027-03-29T02:15"),
        ("America/New_York", "2027-03-13", "2027-03-14T03:00:00-04:00", "2027-03-15T02:15"),
    ],
)  # fmt: skip
def test_a_time_that_is_skipped_comes_when_the_clock_has_jumped(
    zone: str, day: str, skipped: str, following: str
) -> None:
    """In spring a daily schedule loses no day (mending 35)."""
    first, second = times("15 2 * * *", zone, f"{day}T12:00+00:00", 2)
    assert first == skipped
    assert second.startswith(following)


@pytest.mark.parametrize(
    ("zone", "after", "cron", "expected"),
    [
        (
            "Europe/Berlin", "2027-10-30T12:00+02:00", "15 2 * * *",
            ["2027-10-31T02:15:00+02:00", "2027-10-31T02:15:00+01:00", "2027-11-01T02:15:00+01:00"],
        ),
        (
            "America/New_York", "2027-11-06T12:00-04:00", "15 1 * * *",
            ["2027-11-07T01:15:00-04:00", "2027-11-07T01:15:00-05:00", "2027-11-08T01:15:00-05:00"],
        ),
    ],
)  # fmt: skip
def test_a_time_that_comes_twice_counts_twice(
    zone: str, after: str, cron: str, expected: list[str]
) -> None:
    """In autumn an hour is repeated, and so are its times (mending 35)."""
    assert times(cron, zone, after, 3) == expected


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York"])
def test_a_daily_time_outside_of_changes_comes_once_a_day(zone: str) -> None:
    days = times("45 6 * * *", zone, "2027-01-01T00:00+00:00", 365)
    assert len({day[:10] for day in days}) == 365
    assert {day[11:16] for day in days} == {"06:45"}


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (Schedule("0 25 * * *"), "'0 25 * * *'"),
        (Schedule("0 0 31 2 *"), "'0 0 31 2 *'"),
        (Schedule("0 3 * * *", "Europe/Atlantis"), "a time zone that this machine knows"),
        (Schedule("0 3 * * *", "../etc/passwd"), "../etc/passwd"),
    ],
)
def test_a_schedule_that_never_comes_says_why(schedule: Schedule, words: str) -> None:
    assert words in schedule.mistake


def test_a_schedule_without_a_zone_goes_by_utc() -> None:
    assert Schedule("0 3 * * *").mistake == ""
    assert times("0 3 * * *", "UTC", "2027-07-01T02:59+00:00", 1) == ["2027-07-01T03:00:00+00:00"]
