"""Guardrails that look for nothing, or that cannot be read."""

from pathlib import Path

import pytest

from config.load import SettingsError, load


def problem(tmp_path, rule):
    file = tmp_path / "toolgate.yaml"
    file.write_text(f"guardrails: {{rules: {{r: {rule}}}}}\n", encoding="utf-8")
    with pytest.raises(SettingsError) as caught:
        load(str(file), {})
    (one,) = caught.value.problems
    return str(one).removeprefix(f"{file}:1: ").replace(str(file), Path(file).name)


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("{looks_at: result, effect: deny}", "effect: expected fields, pattern or when beside it"),
        ("{looks_at: result, effect: redact, when: 'true'}", "effect: expected fields or pattern"),
        (
            "{looks_at: result, effect: deny, pattern: '(?=a)b'}",
            "pattern: expected a regular expression (RE2): invalid perl operator",
        ),
        ("{looks_at: result, effect: deny, pattern: '(a'}", "pattern: expected a regular expr"),
        (
            "{looks_at: result, effect: deny, pattern: '((a{100}){100}){100}'}",
            "pattern: expected a regular expression (RE2): ",
        ),
        ("{looks_at: result, effect: deny, when: 'value =='}", "when: expected a CEL expression"),
        (
            "{looks_at: result, effect: deny, when: 'value.map(a, value.map(b, value)) == []'}",
            "when: expected a CEL expression: it may take too long",
        ),
        (
            "{looks_at: result, effect: deny, when: arguments.a}",
            "when: expected a CEL expression: there is no variable 'arguments'; there are princ",
        ),
        (
            "{looks_at: result, effect: deny, fields: [a..b]}",
            "fields: expected dotted paths such as customer.email, found 'a..b'",
        ),
    ],
    ids=[
        "nothing",
        "masks nothing",
        "lookahead",
        "open",
        "large",
        "syntax",
        "long",
        "variable",
        "path",
    ],
)
def test_invalid_guardrails_are_refused_at_load(tmp_path, rule, text):
    assert f"guardrails.rules.r.{text}" in problem(tmp_path, rule)
