"""`toolgate sources versions`, `diff` and `rollback`; names of before."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures_gateway import pets
from tests.gateway.cli.conftest import Toolgate

IMPORT = ("import", "openapi", "pets.json", "--name", "pets", "--base-url", "http://127.0.0.1:9")


def second() -> dict[str, Any]:
    """Version 2 of the pets: one operation renamed, one gone, one new, one that wants more."""
    document = pets(1)
    document["info"]["version"] = "2"
    document["paths"]["/pets"]["get"]["operationId"] = "findPets"
    document["paths"]["/pets"]["get"]["parameters"] = [
        {"name": "kind", "in": "query", "required": True, "schema": {"type": "string"}}
    ]
    del document["paths"]["/slow"]
    return document


@pytest.fixture
def new(folder: Path) -> Path:
    path = folder / "new.json"
    path.write_text(json.dumps(second()))
    return path


@pytest.fixture
def twice(with_pets: Toolgate, description: Path) -> Toolgate:
    """Runs commands where `pets` is at its second version."""
    description.write_text(json.dumps(second()))
    assert with_pets(*IMPORT).code == 0
    return with_pets


def names(toolgate: Toolgate) -> list[str]:
    return [tool["name"] for tool in toolgate("tools", "list", "--json").json]


def test_a_diff_lists_breaking_changes_first(with_pets: Toolgate, new: Path) -> None:
    ran = with_pets("sources", "diff", "pets", "new.json")
    assert (ran.code, ran.err) == (0, "")
    rows = [line.split(maxsplit=4) for line in ran.out.splitlines()[:-1]]
    assert rows[0] == ["removed", "breaking", "slow", "-", "removed"]
    assert ["changed", "breaking", "findPets", "kind", "required now"] in rows
    assert ["changed", "-", "findPets", "-", "was listPets, which still calls it"] in rows
    assert ["added", "-", "more_0000", "-", "/more/0000@get"] in rows
    totals = "pets: 1 added, 1 changed, 1 removed, 3 unchanged; 2 breaking."
    assert ran.out.splitlines()[-1] == totals
    assert "findPets" not in names(with_pets)


def test_a_diff_has_formats_for_machines_and_reviews(with_pets: Toolgate, new: Path) -> None:
    found = with_pets("sources", "diff", "pets", "new.json", "--json").json
    assert found["breaking"] is True
    assert {one["name"]: one["status"] for one in found["tools"]} == {
        "slow": "removed",
        "findPets": "changed",
        "more_0000": "added",
    }
    assert found == with_pets("sources", "diff", "pets", "new.json", "--report", "json").json
    review = with_pets("sources", "diff", "pets", "--report", "md", "new.json").out
    assert "| slow | **breaking** | - | removed |" in review


@pytest.mark.parametrize(("fail_on", "code"), [("breaking", 4), ("changes", 4), ("never", 0)])
def test_a_diff_fails_on_the_chosen_severity(
    with_pets: Toolgate, new: Path, fail_on: str, code: int
) -> None:
    assert with_pets("sources", "diff", "pets", "new.json", "--fail-on", fail_on).code == code
    same = with_pets("sources", "diff", "pets", "--fail-on", fail_on)
    assert (same.code, same.out) == (0, "Nothing changes: 5 tools of pets.\n")


def test_a_difference_to_nothing_says_so(with_pets: Toolgate) -> None:
    assert "There is no source 'pet'" in with_pets("sources", "diff", "pet").err
    assert "none.json" in with_pets("sources", "diff", "pets", "none.json").err


def test_a_former_name_of_a_tool_still_finds_the_tool(twice: Toolgate) -> None:
    assert "listPets" not in names(twice)
    shown = twice("tools", "show", "listPets")
    assert shown.out.splitlines()[:2] == [
        "findPets  of pets",
        "Former names that still call it: listPets",
    ]
    assert twice("tools", "show", "findPets", "--json").json["aliases"] == ["listPets"]
    assert "  alias listPets calls findPets" in twice("sources", "show", "pets").out
    assert twice("sources", "show", "pets", "--json").json["aliases"] == {"listPets": "findPets"}


def test_versions_are_listed_with_their_results(twice: Toolgate) -> None:
    rows = [line.split() for line in twice("sources", "versions", "pets").out.splitlines()]
    assert [(row[0], row[1], row[4]) for row in rows] == [("2", "yes", "2"), ("1", "no", "1")]
    assert all("imported: 5" in " ".join(row) for row in rows)
    found = twice("sources", "versions", "pets", "--json").json
    assert [(one["number"], one["current"], one["kept"]) for one in found] == [
        (2, True, True),
        (1, False, True),
    ]
    assert "There is no source 'pet'" in twice("sources", "versions", "pet").err


def test_a_rollback_lasts_until_the_source_is_refreshed(twice: Toolgate) -> None:
    ran = twice("sources", "rollback", "pets")
    assert ran.code == 0, ran.err
    assert ran.out.splitlines()[-1] == "pets is version 1 again."
    assert "pets: 1 added, 1 changed, 1 removed, 3 unchanged" in ran.out
    assert set(names(twice)) == {"listPets", "createPet", "getPet", "deletePet", "slow"}
    again = twice(*IMPORT)
    assert again.code == 0
    assert "Nothing was written: pets is rolled back to version 1" in again.out
    assert twice(*IMPORT, "--json").json["rolled_back"] == 1
    assert "is rolled back to version 1, from 2" in twice("sources", "show", "pets").out
    assert "findPets" not in names(twice)
    assert twice("sources", "refresh", "pets").code == 0
    assert "findPets" in names(twice)
    assert "rolled back" not in twice("sources", "show", "pets").out


def test_a_rolled_back_version_is_imported_after_all_if_forced(twice: Toolgate, new: Path) -> None:
    elsewhere = ("import", "openapi", "new.json", *IMPORT[3:])
    new.write_text(json.dumps({**second(), "info": {"title": "Pets", "version": "3"}}))
    assert twice(*elsewhere).code == 0  # so that a refresh would read another file
    assert twice("sources", "rollback", "pets", "--to", "1").code == 0
    advice = twice(*elsewhere).out.partition("serve it again: toolgate ")[2].splitlines()[0]
    assert twice(*advice.split()).code == 0
    assert "findPets" in names(twice)
    assert "rolled back" not in twice("sources", "show", "pets").out


def test_a_rollback_to_an_unknown_version_is_refused(twice: Toolgate) -> None:
    assert twice("sources", "rollback", "pets", "--to", "7").code == 1
    assert "it has 1, 2" in twice("sources", "rollback", "pets", "--to", "7").err
    assert "There is no source 'pet'" in twice("sources", "rollback", "pet").err
    found = twice("sources", "rollback", "pets", "--to", "1", "--json").json
    assert (found["version"]["number"], found["source"]) == (1, "pets")
