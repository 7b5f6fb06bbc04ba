"""Cron schedules in a settings file."""

from pathlib import Path

import pytest

from config.conflicts import DEFAULT_SCHEDULES
from config.load import SettingsError, load

ENTRY = "events: {schedules: {weekly: {skill: shop.report, principal: clock, %s}}}"


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("cron: '0 30 4 * * MON'", "five fields (minute, hour, day of the month"),
        ("cron: 'each morning'", "five fields"),
        ("cron: '@weekly'", "five fields"),
        ("cron: '61 4 * * *'", "expected a schedule that comes, found '61 4 * * *'"),
        ("cron: '0 4 30 2 *'", "expected a schedule that comes"),
        ("cron: '0 4 * * *', timezone: Berlin/Europe", "a time zone that this machine knows"),
    ],
)
def test_a_schedule_that_cannot_be_meant_is_a_mistake(
    tmp_path: Path, entry: str, told: str
) -> None:
    """Six fields, of which croniter reads the last as seconds, words and impossible dates never
    reach a gateway (mending 35)."""
    file = tmp_path / "toolgate.yaml"
    file.write_text(ENTRY % entry)
    with pytest.raises(SettingsError) as caught:
        load(str(file), {})
    [problem] = caught.value.problems
    assert told in str(problem)
    assert "events.schedules.weekly" in str(problem)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("jobs.removal_schedule", "jobs: {removal_schedule: '61 4 * * *'}"),
        ("memory.purge_schedule", "memory: {purge_schedule: '0 24 * * *'}"),
        ("librarian.refresh_schedule", "librarian: {refresh_schedule: '0 4 30 2 *'}"),
        ("knowledge.extraction.schedule", "knowledge: {extraction: {schedule: '* * 0 * *'}}"),
    ],
)
def test_each_schedule_is_checked(tmp_path: Path, key: str, text: str) -> None:
    file = tmp_path / "toolgate.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load(str(file), {})
    [problem] = caught.value.problems
    assert "expected a schedule that comes" in str(problem)
    assert key in str(problem)


def test_the_default_schedules_come() -> None:
    """They are not checked at each start."""
    assert [each.mistake for each in DEFAULT_SCHEDULES] == ["", "", ""]


def test_a_schedule_has_a_time_zone(tmp_path: Path) -> None:
    file = tmp_path / "toolgate.yaml"
    file.write_text(ENTRY % "cron: '0 4 * * MON-FRI', timezone: America/New_York")
    assert load(str(file), {}).events.schedules["weekly"].timezone == "America/New_York"
