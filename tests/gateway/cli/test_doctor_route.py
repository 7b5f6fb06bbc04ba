"""`toolgate doctor --route`: the way of a message as the settings compose it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.cli.conftest import Toolgate

ROOT = Path(__file__).parents[3]


def steps(toolgate: Toolgate, *arguments: str, **settings: Any) -> list[dict[str, str]]:
    done = toolgate("doctor", "--json", "--route", *arguments, **settings)
    assert done.code == 0, done.err
    read: list[dict[str, str]] = json.loads(done.out)
    return read


def test_each_step_of_a_call_leads_to_its_code(toolgate: Toolgate) -> None:
    way = steps(toolgate, "tools/call")
    for step in way:
        file, line = step["file"].split(":")
        code = (ROOT / file).read_text().splitlines()[int(line) - 1 :]
        name = step["name"].rsplit(".", 1)[-1]
        assert any(name in text for text in code[:4]), step
    stages = list(dict.fromkeys(step["stage"] for step in way))
    assert stages == ["http", "front /mcp", "dispatch", "message", "guard of calls", "upstream"]
    assert [step["name"].rsplit(".", 1)[-1] for step in way if step["stage"] == "message"][
        -1
    ] == "call"


def test_steps_follow_the_settings_and_the_method(toolgate: Toolgate) -> None:
    audited = {"TOOLGATE_AUDIT__MODE": "always"}
    names = [step["name"] for step in steps(toolgate, "tools/call", **audited)]
    assert "gateway.middleware.audit_trail.AuditTrail.guard" in names
    plain = [step["name"] for step in steps(toolgate, "tools/call")]
    assert not [name for name in plain if "audit" in name]
    assert not [s for s in steps(toolgate, "tools/list") if s["stage"] == "guard of calls"]
    [front] = [
        step["stage"]
        for step in steps(toolgate, "tools/list", "--revision", "2024-11-05")
        if step["stage"].startswith("front")
    ]
    assert front == "front /mcp/sse"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [(("tools/cal",), "tools/call"), (("tools/call", "--revision", "2025-11-26"), "2025-11-25")],
)
def test_an_unknown_route_is_refused_with_the_existing_routes(
    toolgate: Toolgate, arguments: tuple[str, ...], text: str
) -> None:
    done = toolgate("doctor", "--route", *arguments)
    assert (done.code, text in done.err) == (2, True)


def test_a_revision_without_a_route_is_refused(toolgate: Toolgate) -> None:
    """An option that has no effect is a mistake (mending 45)."""
    done = toolgate("doctor", "--revision", "2025-11-25")
    assert (done.code, "with --route" in done.err) == (2, True)
