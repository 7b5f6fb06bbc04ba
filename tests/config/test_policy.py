"""Settings of `policy`: rules that could never decide are refused with their place."""

import pytest

from config.access import Rule
from config.load import load
from tests.config.test_auth import problem


def test_a_rule_is_read_as_written(tmp_path) -> None:
    file = tmp_path / "toolgate.yaml"
    file.write_text(
        "policy:\n  rules:\n    sums:\n      effect: approve\n      tools: [pay]\n"
        "      when: arguments.amount > 1000\n"
    )
    found = load(str(file), {}).policy.rules["sums"]
    assert found == Rule("approve", tools=("pay",), when="arguments.amount > 1000")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "policy: {rules: {one: {effect: deny, when: 'arguments.x >'}}}",
            "policy.rules.one.when: expected a CEL expression: line 1, character 14",
        ),
        (
            "policy: {rules: {one: {effect: deny, when: 'has(tool.readonly)'}}}",
            "tool has no member 'readonly'; there is name, source, kind, tags, tier, readOnly",
        ),
        (
            "policy: {rules: {one: {effect: deny, when: 'user.id == 1'}}}",
            "no variable 'user'; there are principal, tool, source, arguments",
        ),
        (
            "policy: {rules: {one: {effect: deny, tiers: [secret]}}}",
            "policy.rules.one.tiers: expected one of policy.tiers (public, internal,",
        ),
        (
            "policy: {rules: {one: {effect: deny, toolsets: [front]}}}",
            "policy.rules.one.toolsets: expected names of toolsets (none), found front",
        ),
        ("policy: {default_tier: secret}", "policy.default_tier: expected one of policy.tiers"),
        ("policy: {default_clearance: no}", "policy.default_clearance: expected"),
        ("policy: {clearances: {hr: top}}", "policy.clearances.hr: expected one of policy.tiers"),
        ("policy: {tiers: [public, internal, internal, restricted]}", "expected each tier once"),
    ],
    ids=[
        "syntax",
        "member",
        "variable",
        "tier",
        "toolset",
        "default",
        "clearance",
        "role",
        "twice",
    ],
)
def test_undecidable_rules_are_refused(tmp_path, text: str, told: str) -> None:
    assert told in problem(tmp_path, text)
