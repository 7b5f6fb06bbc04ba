"""Mistakes of a first use: each is told with what was wrong and what to do."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from config.settings import DatabaseSettings
from gateway.admin.resource_views import VIEWS
from gateway.cli.operations import command_of
from tests.documentation.test_names import mistake
from tests.fixtures_database import Cluster
from tests.fixtures_gateway import pets
from tests.gateway.cli.conftest import Toolgate

SDL = '"""Pets."""\ntype Query { pet(id: ID!): String }\n'
SPEC = "host: lightapi.net\nservice: rule\naction:\n- name: getRule\n  version: 0.1.0\n"
FILES = {"schema.graphql": SDL, "spec.yaml": SPEC, "pets.json": json.dumps(pets())}


@pytest.fixture
def mistaken(bare: Toolgate, folder: Path) -> Toolgate:
    """Runs commands beside one description of each kind."""
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return bare


@pytest.mark.parametrize(
    ("importer", "file", "right"),
    [
        ("openapi", "schema.graphql", "graphql"),
        ("openapi", "spec.yaml", "hybrid"),
        ("graphql", "pets.json", "openapi"),
        ("graphql", "spec.yaml", "hybrid"),
        ("hybrid", "schema.graphql", "graphql"),
        ("hybrid", "pets.json", "openapi"),
        ("mcp", "schema.graphql", "graphql"),
        ("mcp", "pets.json", "openapi"),
        ("mcp", "spec.yaml", "hybrid"),
    ],
)
def test_a_file_for_another_importer_names_the_right_importer(
    mistaken: Toolgate, importer: str, file: str, right: str
) -> None:
    base = () if importer == "mcp" else ("--base-url", "http://127.0.0.1:9")
    ran = mistaken("import", importer, file, "--name", "a", "--dry-run", *base)
    assert ran.code in (1, 2)
    assert f"toolgate import {right}" in ran.err


def test_a_tab_is_called_a_tab(bare: Toolgate, folder: Path) -> None:
    (folder / "toolgate.yaml").write_text("sources:\n\tpets: {}\n")
    told = bare("config", "check").err
    assert "line 2, column 1: found a tab, and YAML indents with spaces" in told
    (folder / "api.yaml").write_text("openapi: 3.1.0\ninfo:\n\ttitle: x\n")
    (folder / "toolgate.yaml").unlink()
    told = bare("import", "openapi", "api.yaml", "--name", "a", "--dry-run").err
    assert "line 3, column 1: not valid YAML: found a tab, and YAML indents with spaces" in told
    told = bare("policy", "put", "a", "effect: deny\n\ttools: [x]").err
    assert "a file or - (line 2: found a tab, and YAML indents with spaces)" in told


@pytest.mark.parametrize(
    "args",
    [
        ("tools", "show", "{}"),
        ("import", "openapi", "{}", "--name", "a"),
        ("keys", "create", "{}"),
        ("token", "show", "{}"),
        ("audit", "tail", "--principal", "{}"),
    ],
)
def test_an_argument_that_is_not_utf_8_is_refused(bare: Toolgate, args: tuple[str, ...]) -> None:
    ran = bare(*(text.replace("{}", "caf\udce9") for text in args))
    assert ran.code == 2
    assert "\\udce9 in a text is no character: expected arguments, variables" in ran.err
    assert "caf" not in ran.err  # it may be a secret


def test_a_problem_that_its_detail_quotes_is_told_once(bare: Toolgate) -> None:
    told = bare("policy", "put", "a", '{"effect": "deny", "when": "caller.id = 3"}').err
    assert "The rule cannot be used. when: expected a CEL expression" in told
    assert told.count("equality is written ==") == 1


def test_a_relative_server_names_the_base_of_the_relation(bare: Toolgate, folder: Path) -> None:
    (folder / "pets.json").write_text(json.dumps({**pets(), "servers": [{"url": "/api"}]}))
    run = ("import", "openapi", "pets.json", "--name", "pets", "--dry-run")
    said = bare(*run).out
    assert "its server '/api' is relative to the URL that the description is served at" in said
    assert f"it was read from {folder / 'pets.json'}" in said
    assert "--base-url https://api.example.com/api" in said
    assert "relative" not in bare(*run, "--base-url", "http://127.0.0.1:9").out


@pytest.mark.parametrize("word", ["run", "start", "Serve"])
def test_commands_of_similar_programs_are_suggested(bare: Toolgate, word: str) -> None:
    ran = bare(word)
    assert ran.code == 2
    assert f"There is no command {word!r}. Did you mean 'serve'?" in ran.err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("tools", "show"), "\nExample: toolgate tools show listPets\n"),
        (("keys", "create", "--scpe", "x"), "\nExample: toolgate keys create deploy --scope"),
        (("import", "openapi", "pets.json"), "petshop.yaml --name pets --base-url"),
        (("keys", "show"), "\n`toolgate keys list` lists what there is.\n"),
        (("webhooks", "add", "crm"), "\nExample: toolgate webhooks add crm https://"),
        (("import", "soap"), "Commands: a2a, graphql, hybrid, mcp, openapi."),
        (("config", "chek"), "Did you mean 'check'?"),
    ],
)
def test_a_usage_mistake_shows_an_example_of_the_command(
    bare: Toolgate, words: tuple[str, ...], hint: str
) -> None:
    mistaken = bare(*words)
    assert mistaken.code == 2
    assert hint in mistaken.err


def test_mistake_in_a_second_argument_names_no_list_of_the_first(bare: Toolgate) -> None:
    assert bare("agents", "grant", "support").err.endswith("Missing argument 'SKILL...'.\n")


def test_each_list_that_a_mistake_names_is_a_command() -> None:
    lists = {view.path: command_of(view) for view in VIEWS.values() if view.key}
    assert lists["rules"] == "toolgate policy list"
    assert [path for path, line in lists.items() if mistake(line.removeprefix("toolgate "))] == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("keys", "create", "x", "--expires", "tomorrow"), "In a command: a span from now such"),
        (("keys", "create", "x", "--scope", "wirte"), "--any-scope permits it. --scope: nothing"),
        (("audit", "search", "--since", "monday"), "Z. In a command: a span until now such as"),
        (("policy", "show", "r1"), "no rule 'r1'. `toolgate policy list` lists the rules."),
        (("agents", "grant", "a", "b"), "no agent 'a'. `toolgate agents list` lists the agents."),
    ],
)
def test_a_mistake_of_an_operation_is_named_by_its_option(
    toolgate: Toolgate, words: tuple[str, ...], expected: str
) -> None:
    refused = toolgate(*words)
    assert refused.code in (1, 2)
    assert expected in refused.err


def test_help_helps(bare: Toolgate) -> None:
    assert bare("help").out == bare("--help").out
    assert bare("help", "sources", "prune").out == bare("sources", "prune", "--help").out
    assert "no command 'srve'. Did you mean 'serve'?" in bare("help", "srve").err


def test_a_tool_without_a_binding_lists_the_possible_bindings(toolgate: Toolgate) -> None:
    ran = toolgate("tools", "add", "weather", "--description", "The weather")
    assert ran.code == 1
    assert "weather: its call is missing: expected one of rest, graphql" in ran.err
    assert "as in rest: GET https://api.example.com/pets/{id}" in ran.err


def test_a_missing_module_names_the_searched_folders(toolgate: Toolgate, folder: Path) -> None:
    (folder / "toolgate.yaml").write_text("functions: {count: 'company.tools:count'}")
    (folder / "own.py").write_text("import company.tools\n")
    told = " ".join(one["detail"] for one in toolgate("doctor", "--json").json)
    assert "company.tools: there is no module company; looked for in " in told
    assert "Set PYTHONPATH to the folder that has it" in told


def test_a_command_that_is_not_there_is_told_once(bare: Toolgate) -> None:
    ran = bare("import", "mcp", "--name", "gone", "--dry-run", "--stdio", "no-such-command")
    assert ran.code == 1
    [line] = [one for one in ran.err.splitlines() if "could not be started" in one]
    assert line.endswith("its command was not found or cannot be run")
    assert "Use the whole path of the command" in ran.err
    assert "whole URL of an MCP endpoint" not in ran.err


def test_an_empty_registry_is_not_searched_in_other_words(toolgate: Toolgate) -> None:
    for command in (("tools", "search"), ("search", "try")):
        said = toolgate(*command, "refund", FORCE_COLOR="1").out
        assert "Nothing is imported yet. Try: toolgate import openapi" in said
        assert "other words" not in said


@pytest.fixture
def outsider(cluster: Cluster, database_settings: DatabaseSettings) -> Iterator[str]:
    """The URL of the database, for a user who may do nothing in it."""
    cluster.execute("CREATE ROLE outsider LOGIN PASSWORD 'very-secret'")
    yield database_settings.url.replace("//toolgate@", "//outsider:very-secret@")
    cluster.execute("DROP ROLE outsider")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("//toolgate@", "//nobody_here:very-secret@"), "The server has no user nobody_here"),
        (("?host", "_gone?host"), "The server has no database"),
    ],
)
def test_a_wrong_user_or_database_is_told_by_name(
    bare: Toolgate, database_settings: DatabaseSettings, change: tuple[str, str], expected: str
) -> None:
    ran = bare("tools", "list", TOOLGATE_DATABASE__URL=database_settings.url.replace(*change))
    assert ran.code == 3
    assert expected in ran.err
    assert "very-secret" not in ran.err
    assert "Traceback" not in ran.err


def test_missing_database_rights_are_named(bare: Toolgate, outsider: str) -> None:
    ran = bare("sources", "list", TOOLGATE_DATABASE__URL=outsider)
    assert ran.code == 3
    assert "permission denied for table schema_version_t" in ran.err
    assert "GRANT" in ran.err
    assert "very-secret" not in ran.err
