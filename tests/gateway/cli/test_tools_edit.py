"""`toolgate tools edit | reset-description | disable | enable | remove`."""

import json
from pathlib import Path

import pytest

from tests.fixtures_gateway import pets
from tests.gateway.cli.conftest import Toolgate


def imported_again(toolgate: Toolgate, folder: Path) -> None:
    document = pets()
    document["paths"]["/pets"]["get"]["summary"] = "List the pets of now"
    (folder / "pets.json").write_text(json.dumps(document))
    assert toolgate("sources", "refresh", "pets").code == 0


def test_an_edited_description_survives_imports_until_reset(
    with_pets: Toolgate, folder: Path
) -> None:
    ran = with_pets("tools", "edit", "listPets", "--description", "Mine", "--domain", "sales")
    assert (ran.code, ran.out) == (0, "Changed listPets.\n")
    imported_again(with_pets, folder)
    shown = with_pets("tools", "show", "listPets").out
    assert "\nMine\n" in shown
    assert "description edited since" in shown
    assert "domain sales" in shown
    ran = with_pets("tools", "reset-description", "listPets")
    assert ran.out == "listPets has the description of its source.\n"
    assert "description edited" not in with_pets("tools", "show", "listPets").out


def test_a_tier_can_be_taken_away(with_pets: Toolgate) -> None:
    assert with_pets("tools", "edit", "listPets", "--tier", "confidential").code == 0
    assert "tier confidential" in with_pets("tools", "show", "listPets").out
    assert with_pets("tools", "edit", "listPets", "--tier", "").code == 0
    assert "tier confidential" not in with_pets("tools", "show", "listPets").out
    told = " ".join(with_pets("tools", "edit", "--help").out.split())
    assert 'An empty value "" removes a text, except the description' in told


def test_disabled_tools_are_listed_apart_and_stay_disabled_after_imports(
    with_pets: Toolgate, folder: Path
) -> None:
    assert with_pets("tools", "disable", "listPets", "slow").out.splitlines() == [
        "Disabled listPets.",
        "Disabled slow.",
    ]
    imported_again(with_pets, folder)
    assert "listPets" not in with_pets("tools", "list").out
    listed = with_pets("tools", "list", "--disabled").out.splitlines()
    assert [line.split()[:2] for line in listed] == [["listPets", "pets"], ["slow", "pets"]]
    assert with_pets("tools", "list", "--disabled", "--json").json[1]["name"] == "slow"
    ran = with_pets("tools", "show", "slow")
    assert (ran.code, "tools enable slow" in ran.err) == (1, True)
    assert with_pets("tools", "disable", "slow").out == "Disabled slow.\n"
    assert with_pets("tools", "enable", "listPets").out == "Enabled listPets.\n"
    assert "listPets" in with_pets("tools", "list").out


def test_only_manual_tools_are_removed(with_pets: Toolgate) -> None:
    ran = with_pets("tools", "remove", "listPets", "--yes")
    assert ran.code == 1
    assert "the next import would restore it. Instead: toolgate tools disable listPets" in ran.err
    with_pets("tools", "add", "x", "--description", "X", "--rest", "GET http://x.example/")
    assert with_pets("tools", "remove", "x").code == 2  # nobody can be asked
    assert with_pets("tools", "remove", "x", "--yes").out == "Removed x.\n"
    assert "x-example" not in with_pets("sources", "list").out


def test_a_source_made_for_tools_cannot_be_imported_again(toolgate: Toolgate, folder: Path) -> None:
    toolgate("tools", "add", "x", "--description", "X", "--rest", "GET http://x.example/")
    ran = toolgate("sources", "refresh", "x-example")
    assert ran.code == 1
    assert "was made for tools by hand" in ran.err


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        (["edit", "listPets"], 2, "expected an option that changes it"),
        (["edit", "listPets", "--title", "T"], 1, "overwritten by the next import of pets"),
        (
            ["edit", "listPets", "--description", " "],
            2,
            "description: expected a text that is not blank",
        ),
        (
            ["edit", "listPets", "--domain", "x" * 129],
            2,
            "domain: expected at most 128 characters",
        ),
        (["edit", "listPets", "--tier", "Confidental"], 2, "Did you mean confidential?"),
        (["edit", "listPets", "--tier", "top"], 2, "tier: expected one of public, internal, conf"),
        (["edit", "listPets", "--weight", "0"], 2, "0"),
        (["edit", "listPets", "--weight", "nan"], 2, "weight: expected number"),
        (["edit", "list_pets", "--domain", "x"], 1, "Did you mean listPets?"),
        (["edit", "listPets", "--example", "{"], 2, "--example"),
        (["reset-description", "nobody"], 1, "There is no tool 'nobody'"),
        (["disable", "lstPets"], 1, "Did you mean listPets?"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_mistakes_are_explained(with_pets: Toolgate, args: list[str], code: int, told: str) -> None:
    ran = with_pets("tools", *args)
    assert ran.code == code, ran.err
    assert told in ran.err
    assert len(with_pets("tools", "list").out.splitlines()) == 5


def test_a_search_is_filtered_by_properties_of_tools(with_pets: Toolgate) -> None:
    edited = with_pets("tools", "edit", "getPet", "--namespace", "reading", "--tier", "internal")
    assert edited.code == 0
    for options, found in [
        (("--namespace", "reading"), ["getPet"]),
        (("--tier", "internal", "--domain", "none"), []),
    ]:
        told = with_pets("tools", "search", "--words", *options, "pet", "--json").json
        assert [one["name"] for one in told] == found


def test_long_names_and_pairs_are_edited_by_their_exact_names(with_pets: Toolgate) -> None:
    """One in another case is no name of a tool, which the error tells (mending 22)."""
    long = "x" * 100
    for name in (long, "tidesAt", "tidesat"):
        ran = with_pets(
            "tools", "add", name, "--rest", "GET https://a.test/t", "--description", "T"
        )
        assert ran.code == 0, ran.err
    assert (
        with_pets("tools", "edit", "tidesat", "--description", "Mine").out == "Changed tidesat.\n"
    )
    assert "\nMine\n" not in with_pets("tools", "show", "tidesAt").out
    assert with_pets("tools", "disable", "tidesat").out == "Disabled tidesat.\n"
    for act in ("disable", "enable"):
        ran = with_pets("tools", act, "LISTPETS")
        assert (ran.code, "Did you mean listPets?" in ran.err) == (1, True)
    listed = [tool["name"] for tool in with_pets("tools", "list", "--json").json]
    assert {long, "tidesAt", "listPets"} < set(listed)
    assert "tidesat" not in listed
    assert with_pets("tools", "remove", long, "--yes").out == f"Removed {long}.\n"
