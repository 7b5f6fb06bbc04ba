"""Rules tried on recorded calls."""

from datetime import UTC, datetime

from msgspec.structs import replace

from config.access import Rule
from config.load import load
from gateway.admin.resources.policy import try_on_records
from gateway.audit.records import AuditEntry
from gateway.policy.engine import Engine
from tests.fixtures_database import HOST
from tests.gateway.policy.oracle import tool


def test_a_rule_is_tried_on_recorded_calls() -> None:
    """Records have a caller and a tool; what else a rule looks at is told."""
    engine = Engine(load(None, {}).policy, {})
    when = datetime(2026, 1, 1, tzinfo=UTC)
    tools = [tool("a"), tool("b")]
    entries = [
        AuditEntry(HOST, when, principal, subject=name, source="s", decision=decision)
        for principal, name, decision in (
            *(("ada", "a", "allow"), ("ada", "a", "deny"), ("bob", "a", "allow")),
            *(("ada", "b", "allow"), ("ada", "gone", "allow"), ("ada", "prompts/list", "")),
        )
    ]
    entries[-1] = replace(entries[-1], source="")
    told = try_on_records(
        Rule(effect="deny", tools=("a",), principals=("ada",)), entries, tools, engine
    )
    assert (told.calls, told.matches, told.changed, told.gone) == (4, 2, 1, 1)
    assert {(one.tool, one.decision, one.calls) for one in told.tools} == {
        ("a", "allow", 1),
        ("a", "deny", 1),
    }
    asked = Rule(effect="deny", roles=("clerk",), when="arguments.x == 1")
    assert try_on_records(asked, entries, tools, engine).undecided == ("roles", "when")
    assert try_on_records(asked, [], tools, engine).since is None
