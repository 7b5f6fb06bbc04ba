"""`toolgate import openapi` and `toolgate sources`."""

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest

from config.settings import DatabaseSettings
from tests.fixtures_database import HOST
from tests.fixtures_gateway import pets
from tests.gateway.cli.conftest import Toolgate, answering

IMPORT = ("import", "openapi", "pets.json", "--name", "pets")


def identities(toolgate: Toolgate) -> dict[str, str]:
    """Digests by name: what an import that changes nothing leaves as it is."""
    names = [tool["name"] for tool in toolgate("tools", "list", "--json").json]
    return {name: toolgate("tools", "show", name, "--json").json["digest"] for name in names}


def test_an_import_reports_its_changes_and_the_address_of_calls(
    toolgate: Toolgate, description: Path
) -> None:
    ran = toolgate(*IMPORT, "--base-url", "https://pets.example.com")
    assert ran.code == 0
    assert ran.err == ""
    assert ran.out.splitlines() == [
        "Pets 1: 5 imported",
        "Tools of pets: 5 added, 0 updated, 0 unchanged, 0 removed.",
        "Calls go to https://pets.example.com",
    ]


def test_the_json_of_an_import_has_one_object_for_each_operation(
    toolgate: Toolgate, folder: Path
) -> None:
    document = pets()
    document["paths"]["/pets"]["get"]["parameters"] = [{"name": "limit", "in": "nowhere"}]
    document["paths"]["/odd"] = {"get": {"operationId": "odd", "parameters": "none"}}
    (folder / "pets.json").write_text(json.dumps(document))
    report = toolgate(*IMPORT, "--exclude", "DELETE *", "--json").json
    assert report["source"] == "pets"
    assert report["dry_run"] is False
    assert report["saved"]["added"] == len([o for o in report["operations"] if o["name"]])
    by_operation = {one["operation"]: one for one in report["operations"]}
    assert by_operation.keys() == {"listPets", "createPet", "getPet", "deletePet", "slow", "odd"}
    assert by_operation["getPet"].pop("tokens") > 20
    assert by_operation["getPet"] == {
        "key": "/pets/{id}@get",
        "operation": "getPet",
        "name": "getPet",
        "status": "imported",
        "reason": None,
    }
    assert by_operation["deletePet"]["status"] == "excluded"
    assert "DELETE *" in by_operation["deletePet"]["reason"]
    for operation in ("listPets", "odd"):
        assert by_operation[operation]["status"] in {"degraded", "skipped"}
        assert by_operation[operation]["reason"]


def test_a_dry_run_needs_no_database_and_writes_nothing(
    with_pets: Toolgate, bare: Toolgate, description: Path
) -> None:
    description.write_text(json.dumps(pets(count=1)))
    ran = with_pets(*IMPORT, "--dry-run")
    assert ran.code == 0
    assert "Dry run: nothing was written." in ran.out
    assert len(with_pets("tools", "list", "--json").json) == 5
    nowhere = "postgresql://127.0.0.1:9/none"
    report = bare(*IMPORT, "--dry-run", "--json", TOOLGATE_DATABASE__URL=nowhere).json
    assert (report["dry_run"], report["saved"], len(report["operations"])) == (True, None, 6)


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (["--include", "*Pet"], ["createPet", "deletePet", "getPet"]),
        (["--include", "*Pet", "--exclude", "DELETE *"], ["createPet", "getPet"]),
        (["--include", "getPet", "--include", "GET /slow"], ["getPet", "slow"]),
    ],
)
def test_patterns_select_operations(
    toolgate: Toolgate, description: Path, patterns: list[str], names: list[str]
) -> None:
    assert toolgate(*IMPORT, *patterns).code == 0
    assert [tool["name"] for tool in toolgate("tools", "list", "--json").json] == names


def test_a_pattern_that_matches_nothing_is_pointed_out(
    toolgate: Toolgate, description: Path
) -> None:
    ran = toolgate(*IMPORT, "--exclude", "tag:cats")
    assert ran.code == 0
    assert "'tag:cats' matches no operation" in ran.out


def test_importing_again_updates_removes_and_keeps_the_rest(
    with_pets: Toolgate, description: Path
) -> None:
    before = identities(with_pets)
    document = pets(count=1)
    document["paths"]["/pets"]["get"]["description"] = "All of them."
    del document["paths"]["/slow"]
    description.write_text(json.dumps(document))
    ran = with_pets("sources", "refresh", "pets")
    assert "1 added, 1 updated, 3 unchanged, 1 removed." in ran.out
    after = identities(with_pets)
    assert {name for name in before if before[name] == after.get(name)} == {
        "createPet",
        "deletePet",
        "getPet",
    }
    assert with_pets("sources", "refresh", "pets", "--json").json["saved"] == {
        "added": 0,
        "updated": 0,
        "unchanged": 5,
        "removed": 0,
    }


def test_a_description_without_an_address_asks_for_a_base_url(
    toolgate: Toolgate, description: Path
) -> None:
    ran = toolgate(*IMPORT)
    assert ran.code == 0
    assert "The description has no server URL: add --base-url URL." in ran.out


@pytest.mark.parametrize("url", ["http://127.0.0.1:8766/v1", "http://localhost:8766"])
def test_a_private_address_that_only_the_description_names_is_pointed_out_at_once(
    toolgate: Toolgate, folder: Path, url: str
) -> None:
    (folder / "pets.json").write_text(json.dumps(pets() | {"servers": [{"url": url}]}))
    ran = toolgate(*IMPORT)
    assert f"Calls are refused: {url} is a private address" in ran.out
    assert f"To allow it, add --base-url {url}" in ran.out
    assert f"Calls go to {url}\n" in toolgate(*IMPORT, "--base-url", url).out
    other = "http://127.0.0.1:8767"
    (folder / "toolgate.yaml").write_text(f"sources: {{pets: {{base_url: '{other}'}}}}")
    assert f"Calls go to {other}\n" in toolgate(*IMPORT, "--dry-run").out


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("name: pets", "pets.json: This is no OpenAPI description: `openapi` is missing"),
        ('{"openapi": "3.0.0", ', "pets.json, line 1, column 22: not valid JSON"),
        ("", "pets.json is empty; expected an OpenAPI description"),
        ("<html>", "pets.json is HTML or XML"),
        ('{"swagger": "1.2"}', "pets.json: This is Swagger '1.2'. Supported: Swagger 2.0"),
        ('{"openapi": "3.0.0", "paths": {}}', "Nothing to import"),
    ],
)
def test_a_broken_description_is_refused_with_the_reason(
    toolgate: Toolgate, folder: Path, content: str, expected: str
) -> None:
    (folder / "pets.json").write_text(content)
    ran = toolgate(*IMPORT)
    assert ran.code == 1
    assert ran.out == ""
    assert ran.err.startswith("toolgate: ")
    assert expected in ran.err
    assert toolgate("sources", "list", "--json").json == []


def test_a_description_that_cannot_be_had_is_refused_with_the_reason(toolgate: Toolgate) -> None:
    ran = toolgate(*IMPORT)
    assert (ran.code, ran.err.endswith("/pets.json does not exist.\n")) == (1, True)
    ran = toolgate("import", "openapi", "http://127.0.0.1:9/pets.json", "--name", "pets")
    assert ran.code == 1
    assert ran.err == ("toolgate: Cannot fetch http://127.0.0.1:9/pets.json: connection refused.\n")


def test_a_url_answering_404_is_refused_and_a_good_url_is_imported(
    toolgate: Toolgate, folder: Path
) -> None:
    found = pets() | {"servers": [{"url": "/v1"}]}
    with answering({"/pets.json": json.dumps(found).encode()}) as port:
        url = f"http://127.0.0.1:{port}"
        ran = toolgate("import", "openapi", f"{url}/nothing.json", "--name", "pets")
        reason = f"{url}/nothing.json answered 404 Not Found. Addresses of descriptions end in"
        assert (ran.code, reason in ran.err) == (1, True)
        bare = f"{url.removeprefix('http://')}/pets.json"
        ran = toolgate("import", "openapi", bare, "--name", "x")
        assert ran.err.endswith(
            "pets.json does not exist. A URL begins with http:// or https://.\n"
        )
        ran = toolgate("import", "openapi", f"{url}/pets.json", "--name", "pets")
        assert ran.code == 0
        assert ran.out.endswith(f"Calls go to {url}/v1\n")


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("--name", "My Pets", "expected a name of at most 63 characters out of a-z"),
        ("--base-url", "localhost:80", "expected an http:// or https:// URL"),
        ("--base-url", "http://me:hidden@x", "found 'http://***@x'"),
    ],
)
def test_an_option_that_the_settings_would_refuse_is_refused(
    bare: Toolgate, description: Path, option: str, value: str, expected: str
) -> None:
    ran = bare(*IMPORT, option, value)
    assert ran.code == 2
    assert expected in ran.err
    assert "hidden" not in ran.err


def test_a_failed_import_leaves_the_tools_unchanged(with_pets: Toolgate, description: Path) -> None:
    before = identities(with_pets)
    description.write_text("{}")
    assert with_pets("sources", "refresh", "pets").code == 1
    assert identities(with_pets) == before


def test_sources_are_listed_one_a_line(with_pets: Toolgate, folder: Path) -> None:
    line = f"pets  5  http://127.0.0.1:9  {folder / 'pets.json'}  openapi  cli\n"
    assert with_pets("sources", "list").out == line
    [source] = with_pets("sources", "list", "--json").json
    assert (source["name"], source["tools"]) == ("pets", 5)


def test_sources_are_listed_with_the_address_that_the_settings_give(
    with_pets: Toolgate, folder: Path
) -> None:
    (folder / "toolgate.yaml").write_text("sources: {pets: {base_url: https://pets.example.com}}")
    assert "https://pets.example.com" in with_pets("sources", "list").out
    assert "GET https://pets.example.com/slow" in with_pets("tools", "show", "slow").out


def test_sources_list_shows_sources_still_to_be_imported(
    toolgate: Toolgate, description: Path, folder: Path
) -> None:
    (folder / "toolgate.yaml").write_text(
        "sources: {pets: {openapi: pets.json, include: [getPet], base_url: 'http://x'}}"
    )
    said = toolgate("sources", "list", FORCE_COLOR="1").out
    hint = "pets is in the settings, but not imported yet. Now: toolgate sources refresh pets"
    assert hint in said
    row = f"pets  0  http://x  {folder / 'pets.json'}  openapi  settings, not imported\n"
    assert toolgate("sources", "list").out == row
    [source] = toolgate("sources", "list", "--json").json
    assert (source["name"], source["updated"], source["failure"]) == ("pets", None, None)
    assert hint in toolgate("sources", "show", "pets").err
    assert "1 added" in toolgate("sources", "refresh", "pets").out
    assert [tool["name"] for tool in toolgate("tools", "list", "--json").json] == ["getPet"]


def test_sources_list_hides_passwords_of_sources_still_to_be_imported(
    toolgate: Toolgate, folder: Path
) -> None:
    (folder / "toolgate.yaml").write_text(
        "sources: {pets: {openapi: 'https://ann:s3cret@pets.example.com/a.json'}}"
    )
    row = toolgate("sources", "list").out
    assert "https://***@pets.example.com/a.json" in row
    assert "s3cret" not in row + toolgate("sources", "list", "--json").out


def test_sources_list_has_the_reason_of_a_failed_import_until_one_succeeds(
    with_pets: Toolgate, folder: Path, database_settings: DatabaseSettings
) -> None:
    (folder / "toolgate.yaml").write_text(
        "sources: {gone: {openapi: gone.json}, pets: {openapi: pets.json}}"
    )
    with psycopg.connect(database_settings.url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO import_failure_t (host_id, source, reason) VALUES"
            " (%(host)s, 'gone', 'gone.json does not exist'), (%(host)s, 'pets', 'no JSON')",
            {"host": HOST},
        )
    pets, gone = with_pets("sources", "list").out.splitlines()
    assert pets.endswith("cli, failed: no JSON")
    assert gone.endswith("settings, not imported, failed: gone.json does not exist")
    reasons = {
        source["name"]: source["failure"] for source in with_pets("sources", "list", "--json").json
    }
    assert reasons == {"pets": "no JSON", "gone": "gone.json does not exist"}
    assert "failed: gone.json does not exist. Now:" in with_pets("sources", "show", "gone").err
    assert with_pets("sources", "refresh", "pets").code == 0
    assert "failed" not in with_pets("sources", "list").out.splitlines()[0]


def test_removing_takes_the_tools_too_and_asks_first(with_pets: Toolgate, folder: Path) -> None:
    ran = with_pets("sources", "remove", "pets")
    assert ran.code == 2
    assert ran.err == "toolgate: no terminal to confirm: add --yes to remove pets\n"
    settings = folder / "toolgate.yaml"
    settings.write_text("sources: {pets: {openapi: pets.json}}")
    ran = with_pets("sources", "remove", "pets", "--yes")
    assert (ran.code, ran.err) == (
        1,
        "toolgate: The source pets is one of the settings: change it there (sources.pets).\n",
    )
    settings.unlink()
    ran = with_pets("sources", "remove", "pets", "--yes")
    assert (ran.code, ran.out) == (0, "Removed pets and its tools.\n")
    assert with_pets("tools", "list", "--json").json == []


@pytest.mark.parametrize("command", [["refresh"], ["remove", "--yes"]])
def test_an_unknown_source_is_refused_with_a_suggestion(
    with_pets: Toolgate, command: list[str]
) -> None:
    ran = with_pets("sources", *command, "pest")
    assert ran.code == 1
    assert ran.err == "toolgate: There is no source 'pest'. Did you mean pets?\n"


def test_a_report_cannot_rewrite_the_terminal(toolgate: Toolgate, folder: Path) -> None:
    document: dict[str, Any] = pets()
    document["info"]["title"] = "Pets \x1b[2J[bold]!\u202e"
    (folder / "pets.json").write_text(json.dumps(document))
    ran = toolgate(*IMPORT, FORCE_COLOR="1")
    assert "\x1b[2J" not in ran.out
    assert "\u202e" not in ran.out
    assert "Pets \\u{1b}[2J[bold]!\\u{202e} 1: 5 imported" in ran.out
