"""Limits that do not fit together."""

from pathlib import Path

import pytest

from config.load import SettingsError, load


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("limits: {tools: {get_*: {}}}", "limits.tools.get_*: expected calls or concurr"),
        ("limits: {sources: {crm: {per_s: 5}}}", "limits.sources.crm: expected calls or con"),
        ("breaker: {open_s: 90}", "expected at least breaker.open_s, 90, found 60"),
        ("{auth: {mode: keys}, server: {trusted_proxies: [10.0.0.1/8]}}", "expected an address"),
        ("limits: {memory_bytes: 1000}", "limits.memory_bytes: expected 0, or at least"),
    ],
)  # fmt: skip
def test_limits_of_nothing_or_everything_are_refused(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "toolgate.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load(str(file), {})
    [problem] = caught.value.problems
    assert told in str(problem)


def test_useful_limits_are_accepted(tmp_path: Path) -> None:
    file = tmp_path / "toolgate.yaml"
    file.write_text(
        "limits: {tools: {a: {calls: 1}, b: {concurrent: 1}}, memory_bytes: 1000000000}\n"
        "breaker: {open_s: 60}\n"
    )
    settings = load(str(file), {})
    assert settings.limits.tools["a"].per_s == 60
