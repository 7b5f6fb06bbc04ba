"""`toolgate import ... --report` and --fail-on."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures_gateway import pets
from tests.gateway.cli.conftest import Toolgate

DRY = ("import", "openapi", "--name", "pets", "--dry-run")
NOWHERE = {"TOOLGATE_DATABASE__URL": "postgresql://127.0.0.1:9/none"}


def broken_pets(**more: Any) -> dict[str, Any]:
    """A description of which one operation cannot be read."""
    document = pets()
    document["paths"]["/odd"] = {"get": {"operationId": "odd|one", "parameters": "none"}} | more
    document["paths"]["/none"] = {"get": 5}
    return document


@pytest.fixture
def odd(folder: Path) -> Path:
    path = folder / "odd.json"
    path.write_text(json.dumps(broken_pets()))
    return path


def test_a_table_has_every_operation_and_the_totals(bare: Toolgate, odd: Path) -> None:
    ran = bare(*DRY, "odd.json", "--report", "--fail-on", "never", **NOWHERE)
    assert ran.code == 0
    lines = ran.out.splitlines()
    rows = [line.split() for line in lines[: lines.index("")]]
    assert {row[3] if row[0] == "imported" else row[0] for row in rows} >= {"getPet", "skipped"}
    assert len(rows) == 7
    assert all(int(row[1]) > 20 for row in rows if row[0] == "imported")
    totals = lines[lines.index("") + 1]
    assert totals.startswith("Pets 1: 7 operations: ")
    assert "1 skipped (14.3%)" in totals
    assert lines[lines.index("") + 2].startswith("Definitions: ")
    assert "Dry run: nothing was written." in lines


@pytest.mark.parametrize("args", [("--report", "odd.json"), ("odd.json", "--report")])
def test_a_report_without_a_format_is_a_table_in_any_position(
    bare: Toolgate, odd: Path, args: tuple[str, ...]
) -> None:
    ran = bare(*DRY, *args, **NOWHERE)
    assert "7 operations" in ran.out, ran.err


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (("--report",), 4),
        (("--report", "--fail-on", "never"), 0),
        (("--fail-on", "skipped"), 4),
        (("--fail-on", "degraded"), 4),
        (("--json",), 0),
        (("--json", "--fail-on", "skipped"), 4),
        (("--report", "--exclude", "GET /none"), 4),  # a place without an operation has no name
        ((), 0),
    ],
)
def test_the_exit_code_tells_whether_operations_were_skipped(
    bare: Toolgate, odd: Path, args: tuple[str, ...], code: int
) -> None:
    ran = bare(*DRY, "odd.json", *args, **NOWHERE)
    assert ran.code == code
    assert ("--fail-on is" in ran.err) == (code == 4)


def test_a_clean_description_fails_nothing(bare: Toolgate, description: Path) -> None:
    ran = bare(*DRY, "pets.json", "--report", "--fail-on", "degraded", **NOWHERE)
    assert (ran.code, ran.err) == (0, "")


def test_json_is_the_same_report_for_machines(bare: Toolgate, odd: Path) -> None:
    ran = bare(*DRY, "odd.json", "--report", "json", "--fail-on", "never", **NOWHERE)
    assert ran.out == bare(*DRY, "odd.json", "--json", **NOWHERE).out
    report = ran.json
    assert report["totals"]["skipped"] == {"count": 1, "share": 0.1429}
    assert sum(one["count"] for one in report["totals"].values()) == 7
    assert report["totals"]["excluded"] == {"count": 0, "share": None}
    assert report["tokens"] == sum(one["tokens"] or 0 for one in report["operations"])
    assert bare(*DRY, "odd.json", "--report", "json", "--json", **NOWHERE).code == 2


def test_markdown_shows_problems_and_folds_the_rest(bare: Toolgate, odd: Path) -> None:
    ran = bare(*DRY, "odd.json", "--report", "md", "--fail-on", "never", **NOWHERE)
    above, _, below = ran.out.partition("<details>")
    assert above.startswith("## Pets 1\n")
    assert "| skipped |" in above
    assert "| imported |" in below
    assert "odd\\|one" in ran.out


def test_descriptions_cannot_inject_markdown(bare: Toolgate, folder: Path) -> None:
    document = pets()
    document["info"]["title"] = "<img src=x> [a](b) @team\n\n# Head"
    (folder / "pets.json").write_text(json.dumps(document))
    ran = bare(*DRY, "pets.json", "--report", "md", **NOWHERE)
    assert ran.out.startswith("## &lt;img src=x> \\[a\\](b) &#64;team # Head 1\n")


def test_a_toolset_that_the_settings_do_not_have_is_pointed_out(
    bare: Toolgate, folder: Path
) -> None:
    document = pets()
    document["paths"]["/pets"]["get"]["x-toolgate"] = {"toolsets": ["shop"]}
    (folder / "pets.json").write_text(json.dumps(document))
    said = "1 tool would be in the toolset shop, which the settings do not have"
    assert said in bare(*DRY, "pets.json", **NOWHERE).out
    (folder / "toolgate.yaml").write_text("toolsets: {shop: {include: [none]}}")
    assert said not in bare(*DRY, "pets.json", **NOWHERE).out
