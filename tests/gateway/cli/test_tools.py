"""`toolgate tools`."""

import base64
import json
import re
from pathlib import Path

import pytest

from tests.fixtures_gateway import pets
from tests.gateway.cli.conftest import Toolgate, answering


def test_tools_are_listed_by_name_one_a_line(with_pets: Toolgate) -> None:
    assert with_pets("tools", "list").out.splitlines() == [
        "createPet  pets  Add a pet",
        "deletePet  pets  Remove a pet",
        "getPet     pets  One pet",
        "listPets   pets  List pets",
        "slow       pets  Answers when told to",
    ]


def test_the_tools_of_one_source_can_be_listed(with_pets: Toolgate) -> None:
    with_pets("import", "openapi", "pets.json", "--name", "other", "--include", "getPet")
    listed = with_pets("tools", "list", "--source", "other", "--json").json
    assert [(tool["source"], tool["name"]) for tool in listed] == [("other", "other_getPet")]
    ran = with_pets("tools", "list", "--source", "pest")
    assert (ran.code, ran.err) == (
        1,
        "toolgate: There is no source 'pest'. Did you mean pets?\n",
    )
    assert with_pets("tools", "search", "--source", "pest", "x").code == 1


def test_at_a_terminal_a_list_has_titles_a_count_and_no_line_too_long(
    toolgate: Toolgate, folder: Path
) -> None:
    document = pets()
    document["paths"]["/pets"]["get"]["summary"] = "Long " * 100 + "\x1b[2J"
    (folder / "pets.json").write_text(json.dumps(document))
    toolgate("import", "openapi", "pets.json", "--name", "pets")
    lines = toolgate("tools", "list", FORCE_COLOR="1").out.splitlines()
    assert "what it does" in lines[0]
    assert any(re.fullmatch(r"listPets +pets +(Long )+.*…", line) for line in lines)
    assert "5 tools." in lines[-1]
    assert all(len(line) <= 80 for line in lines[1:-1])


def test_a_person_without_tools_learns_how_to_get_some(toolgate: Toolgate, folder: Path) -> None:
    assert "Try: toolgate import openapi" in toolgate("tools", "list", FORCE_COLOR="1").out
    (folder / "toolgate.yaml").write_text("sources: {pets: {openapi: pets.json}}")
    assert "`toolgate serve` imports" in toolgate("tools", "list", FORCE_COLOR="1").out
    assert toolgate("tools", "list").out == ""


def test_search_finds_by_words_best_first(with_pets: Toolgate) -> None:
    search = ("tools", "search", "--words")
    assert with_pets(*search, "remove", "pet").out.startswith("deletePet  pets")
    assert with_pets(*search, "dele").out.startswith("deletePet  pets")
    hits = with_pets(*search, "pets", "--limit", "2", "--json").json
    assert len(hits) == 2
    assert hits[0]["score"] >= hits[1]["score"]
    assert with_pets(*search, "zebra", "--json").json == []
    ran = with_pets(*search, "zebra")
    assert (ran.code, ran.err) == (0, "")


def test_search_by_meaning_finds_tools_without_shared_words(with_pets: Toolgate) -> None:
    query = ("get", "rid", "of", "an", "animal")
    assert not with_pets("tools", "search", "--words", *query[1:]).out.startswith("deletePet")
    assert with_pets("embed", "backfill").code == 0
    ran = with_pets("tools", "search", *query)
    assert ran.out.startswith("deletePet  pets")
    assert ran.err == ""
    tried = with_pets("search", "try", *query, "--limit", "5", "--json").json["hits"]
    assert with_pets("tools", "search", *query, "--json").json == tried


def test_search_explains_a_fallback_to_words_in_one_line(with_pets: Toolgate) -> None:
    def search_warning(**env: str) -> str:
        ran = with_pets("tools", "search", "remove", "pet", **env)
        assert (ran.code, ran.out.split()[0]) == (0, "deletePet")
        return ran.err

    assert search_warning() == (
        "toolgate: searched by words only: There are no vectors yet. `toolgate embed backfill` "
        "makes them, and so does `toolgate serve`.\n"
    )
    off = search_warning(TOOLGATE_EMBEDDING__PROVIDER="disabled")
    assert "by words only: Embeddings are disabled (embedding.provider)." in off
    assert with_pets("embed", "backfill").code == 0
    feed = ("tools", "add", "feed", "--rest", "GET /feed", "--source", "pets")
    assert with_pets(*feed, "--description", "Feeds a pet").code == 0
    assert search_warning() == "toolgate: 1 tool has no vector yet and is found by its words only\n"
    away = {
        "TOOLGATE_DISCLOSURE__WHEN_DOWN": "fail_closed",
        "TOOLGATE_EMBEDDING__PROVIDER": "sentence-transformers",
        "TOOLGATE_EMBEDDING__MODEL": "./nowhere",
    }
    refused = with_pets("tools", "search", "x", **away)
    assert refused.code == 1
    assert "nothing can be found by meaning" in refused.err


def test_an_answer_comes_whole_as_nobody_can_ask_this_process_for_the_rest(
    with_pets: Toolgate,
) -> None:
    pet = json.dumps({"name": "x" * 100_000})
    with answering({"/pets/1": pet.encode(), "/pets/2": b"\xff" * 2_000_000}) as port:
        url = f"http://127.0.0.1:{port}"
        with_pets("import", "openapi", "pets.json", "--name", "pets", "--base-url", url)
        assert with_pets("tools", "call", "getPet", "id=1").out == pet + "\n"
        binary = with_pets("tools", "call", "getPet", "id=2", "--json").json
    [item] = binary["content"]
    assert base64.b64decode(item["resource"]["blob"]) == b"\xff" * 2_000_000


def test_show_explains_the_arguments_and_gives_a_call_to_try(with_pets: Toolgate) -> None:
    assert with_pets("tools", "show", "createPet").out.splitlines() == [
        "createPet  of pets",
        "Add a pet",
        "",
        "POST http://127.0.0.1:9/pets",
        "72 tokens (characters / 4) in a list",
        "embedding disabled",
        "",
        "name  string   required",
        "age   integer",
        "",
        "Try: toolgate tools call createPet name=TEXT",
    ]
    shown = with_pets("tools", "show", "createPet", "--json").json
    assert shown["input_schema"]["required"] == ["name"]
    assert shown["binding"]["method"] == "POST"


def test_a_tool_without_arguments_says_so(with_pets: Toolgate) -> None:
    assert "It takes no arguments." in with_pets("tools", "show", "slow").out


@pytest.mark.parametrize("command", [["show"], ["call"]])
@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("list_pets", "Did you mean listPets?"),
        ("getPett", "Did you mean getPet?"),
        ("zebra", "`toolgate tools list` lists the tools."),
    ],
)
def test_an_unknown_tool_is_refused_with_suggestions(
    with_pets: Toolgate, command: list[str], name: str, hint: str
) -> None:
    ran = with_pets("tools", *command, name)
    assert ran.code == 1
    assert ran.err == f"toolgate: There is no tool {name!r}. {hint}\n"


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["id"], "'id': expected NAME=VALUE"),
        (["=3"], "'=3': expected NAME=VALUE"),
        (["id=1", "id=2"], "id is given twice"),
        (["--args", "[1]"], "--args: expected a JSON object"),
        (["--args", '{"id":'], "--args: Not JSON"),
    ],
)
def test_arguments_that_cannot_be_read_are_a_usage_error(
    bare: Toolgate, folder: Path, args: list[str], expected: str
) -> None:
    ran = bare("tools", "call", "getPet", *args)
    assert ran.code == 2
    assert expected in ran.err


def test_arguments_that_the_tool_refuses_are_named(with_pets: Toolgate) -> None:
    ran = with_pets("tools", "call", "getPet", "ident=1")
    assert ran.code == 1
    assert "id: is required" in ran.out
    assert ran.err == (
        "toolgate: getPet reported an error. Its arguments: toolgate tools show getPet\n"
    )


def test_a_service_that_is_not_there_is_an_error_of_the_tool(with_pets: Toolgate) -> None:
    ran = with_pets("tools", "call", "getPet", "id=1", "--json")
    assert ran.code == 1
    assert ran.json["isError"] is True
    assert "could not be reached" in ran.json["content"][0]["text"]
