"""Times in the output of commands."""

import re

import pytest

from gateway.cli.common.text import time_text
from tests.gateway.cli.conftest import Toolgate

ANY_TIME = re.compile(r"20\d\d-\d\d-\d\d[T ]\d\d:\d\d\S*")
PRINTED = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ")


@pytest.mark.parametrize(
    ("time", "text"),
    [
        ("2026-01-31T09:30:00.123456Z", "2026-01-31T09:30:00Z"),
        ("2026-01-31T09:30:00+02:00", "2026-01-31T07:30:00Z"),
        ("2026-01-31T09:30", "2026-01-31T09:30"),
        ("v2026-01-31T09:30:00Z", "v2026-01-31T09:30:00Z"),
        ("2026-13-45T09:30:00Z", "2026-13-45T09:30:00Z"),
        ("2016-12-31T23:59:60Z", "2016-12-31T23:59:60Z"),  # a leap second
        ("0001-01-01T00:00:00+05:00", "0001-01-01T00:00:00+05:00"),  # in UTC before the year 1
    ],
)
def test_time_is_printed_in_utc_to_the_second(time: str, text: str) -> None:
    assert time_text(time) == text


def test_commands_print_times_as_options_take_times(with_pets: Toolgate) -> None:
    with_pets("keys", "create", "ops", "--scope", "admin", "--expires", "30d")
    commands = [
        ("keys", "list"),
        ("keys", "show", "ops"),
        ("sources", "versions", "pets"),
        ("migrate", "--status"),
    ]
    for words in commands:
        times = ANY_TIME.findall(with_pets(*words).out)
        assert times, words
        assert [time for time in times if not PRINTED.fullmatch(time)] == [], words
        assert with_pets("audit", "search", "--since", times[0]).code == 0
