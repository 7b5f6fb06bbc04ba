"""`toolgate import hybrid`, and what the other commands say about hybrid services."""

import asyncio
import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from config.load import load
from config.settings import DatabaseSettings
from gateway.cli.common.database import open_registry
from gateway.hybrid.python_services import load as load_service
from registry.sources.import_specs import ImportSpec
from registry.sources.imports import Sources
from tests.fixtures_hybrid import RULE, SPEC, action, describe_actions, wanting
from tests.gateway.cli.conftest import Toolgate, answering

AT = "http://localhost:8439"
IMPORT = ("import", "hybrid", "spec.yaml", "--name", "rules", "--base-url", AT)


@pytest.fixture
def spec(folder: Path) -> Path:
    """`spec.yaml`, in the working directory."""
    path = folder / "spec.yaml"
    path.write_text(SPEC)
    return path


@pytest.fixture
def with_rules(toolgate: Toolgate, spec: Path) -> Toolgate:
    ran = toolgate(*IMPORT, "--side", "command", "--batch", "10")
    assert ran.code == 0, ran.err
    return toolgate


def test_an_import_reports_its_changes_and_the_address_of_calls(
    toolgate: Toolgate, spec: Path
) -> None:
    ran = toolgate(*IMPORT)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        f"{RULE}: 3 imported",
        "Tools of rules: 3 added, 0 updated, 0 unchanged, 0 removed.",
        f"Calls go to {AT}",
    ]
    listed = toolgate("tools", "list").out.splitlines()
    assert listed[0].split() == ["rule_createRule", "rules", "Service", "to", "create", "a", "rule"]


def test_degraded_and_skipped_actions_are_reported_with_reasons(
    toolgate: Toolgate, folder: Path
) -> None:
    document = describe_actions(
        wanting({"type": "object"}), wanting("No", "other"), {"name": "odd"}
    )
    (folder / "spec.yaml").write_text(json.dumps(document))
    ran = toolgate(*IMPORT)
    assert ran.code == 0
    skipped, inline, unknown, counts, *_ = ran.out.splitlines()
    assert skipped == "skipped   action 3 odd: it has no version"
    assert inline.startswith("degraded  h.net/s/do/1: its schema stands inline, where light-hybrid")
    assert unknown.startswith("degraded  h.net/s/other/1: its data is not checked, because of")
    assert unknown.endswith("no schema is called 'No'")
    assert counts == "h.net/s: 2 degraded, 1 skipped"


def test_the_older_form_is_imported_from_a_url(toolgate: Toolgate, folder: Path) -> None:
    document = {
        "h.net/world/hello/0.1.0": {"schema": {"type": "object"}, "scope": "world.r"},
        "h.net/moon/hello/0.1.0": {},
    }
    with answering({"/schema.json": json.dumps(document).encode()}) as port:
        url = f"http://127.0.0.1:{port}/schema.json"
        ran = toolgate("import", "hybrid", url, "--name", "world", "--base-url", AT)
    assert ran.out.splitlines()[0] == "world: 2 imported"
    names = [tool["name"] for tool in toolgate("tools", "list", "--json").json]
    assert names == ["moon_hello", "world_hello"]


def test_a_dry_run_needs_no_database(bare: Toolgate, spec: Path) -> None:
    nowhere = "postgresql://127.0.0.1:9/none"
    patterns = ("--include", "*/deleteRule/*", "--exclude", "nothing*")
    ran = bare(*IMPORT, *patterns, "--dry-run", "--json", TOOLGATE_DATABASE__URL=nowhere)
    assert ran.code == 0
    assert (ran.json["saved"], ran.json["base_url"]) == (None, AT)
    assert [one["status"] for one in ran.json["operations"]] == ["excluded", "excluded", "imported"]
    imported = ran.json["operations"][2]
    assert imported.pop("tokens") > 20
    assert imported == {
        "key": f"{RULE}/deleteRule/0.1.0@call",
        "operation": f"{RULE}/deleteRule/0.1.0",
        "name": "rule_deleteRule",
        "status": "imported",
        "reason": None,
    }
    assert ran.json["notes"] == ["the pattern 'nothing*' matches no action"]


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (IMPORT[:-2], "Missing option '--base-url'"),
        ((*IMPORT, "--side", "both"), "'both' is not one of 'query', 'command'"),
        ((*IMPORT, "--dialect", "soap"), "'soap' is not one of 'jsonrpc', 'legacy'"),
        ((*IMPORT, "--batch", "0"), "0 is not in the range"),
        ((*IMPORT, "--batch", "2", "--dialect", "legacy"), "--dialect legacy has no batches"),
        ((*IMPORT, "--base-url", "localhost:8439"), "expected an http:// or https:// URL"),
        ((*IMPORT, "--name", "My Rules"), "expected a name of at most 63 characters"),
    ],
)
def test_invalid_options_are_usage_errors(
    bare: Toolgate, spec: Path, args: tuple[str, ...], expected: str
) -> None:
    ran = bare(*args)
    assert ran.code == 2
    assert expected in " ".join(ran.err.split())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("openapi: 3.1.0", "this is an OpenAPI description"),
        ("[]", "holds a list; expected the spec.yaml or schema.json"),
        ("host: h", "expected a hybrid spec.yaml"),
    ],
)
def test_files_of_other_formats_are_refused(
    toolgate: Toolgate, spec: Path, text: str, expected: str
) -> None:
    spec.write_text(text)
    ran = toolgate(*IMPORT)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("toolgate: ")
    assert expected in ran.err
    assert toolgate("sources", "list", "--json").json == []


def test_the_help_says_where_calls_go(bare: Toolgate) -> None:
    said = " ".join(bare("import", "hybrid", "--help").out.split())
    for fact in ("/portal/query or /portal/command below the base URL", "schema.json", "--dialect"):
        assert fact in said


def test_show_gives_the_id_the_side_and_the_scope(with_rules: Toolgate) -> None:
    assert with_rules("tools", "show", "rule_deleteRule").out.splitlines() == [
        "rule_deleteRule  of rules",
        f"Service {RULE}/deleteRule/0.1.0",
        "",
        f"service {RULE}/deleteRule/0.1.0  {AT}",
        "side command, scope portal.w",
        "71 tokens (characters / 4) in a list",
        "tags rule",
        "embedding disabled",
        "",
        "hostId  string  required",
        "ruleId  string  required",
        "",
        "Try: toolgate tools call rule_deleteRule hostId=TEXT ruleId=TEXT",
    ]
    binding = with_rules("tools", "show", "rule_deleteRule", "--json").json["binding"]
    assert binding == {
        "type": "hybrid",
        "service": f"{RULE}/deleteRule/0.1.0",
        "scope": "portal.w",
        "side": "command",
    }


def test_show_marks_public_actions(toolgate: Toolgate, spec: Path) -> None:
    spec.write_text(json.dumps(describe_actions(action(skipAuth=True))))
    assert toolgate(*IMPORT).code == 0
    said = toolgate("tools", "show", "s_do").out
    assert "side query and command, scope any, needs no token, its data is not checked" in said


def test_sources_are_listed_with_their_kind_and_refreshed_with_their_options(
    with_rules: Toolgate, spec: Path
) -> None:
    assert with_rules("sources", "list").out == f"rules  3  {AT}  {spec}  hybrid  cli\n"
    assert "rules  hybrid, 3 tools" in with_rules("sources", "list", FORCE_COLOR="1").out
    spec.write_text(SPEC.replace("portal.w", "portal.x"))
    assert "0 added, 3 updated" in with_rules("sources", "refresh", "rules").out
    (source,) = with_rules("sources", "list", "--json").json
    assert (source["kind"], source["options"]) == ("hybrid", {"side": "command", "batch": 10})


def test_sources_of_the_settings_are_shown_and_imported(
    toolgate: Toolgate, spec: Path, folder: Path
) -> None:
    (folder / "toolgate.yaml").write_text(
        "sources:\n"
        f"  rules: {{hybrid: spec.yaml, base_url: '{AT}', side: query}}\n"
        "  own: {python: company.rules}\n"
    )
    said = toolgate("sources", "list", FORCE_COLOR="1").out
    assert (
        "rules is in the settings, but not imported yet. Now: toolgate sources refresh rules"
        in said
    )
    assert "own is in the settings, but not imported yet. `toolgate serve` does it." in said
    assert "`toolgate serve` imports" in toolgate("tools", "list", FORCE_COLOR="1").out
    assert "3 added" in toolgate("sources", "refresh", "rules").out
    assert "side query" in toolgate("tools", "show", "rule_deleteRule").out
    ran = toolgate("sources", "refresh", "own")
    assert ran.code == 1
    assert ran.err.startswith("toolgate: The source own is written in Python")


def test_a_hybrid_source_of_the_settings_needs_an_address(
    toolgate: Toolgate, spec: Path, folder: Path
) -> None:
    (folder / "toolgate.yaml").write_text("sources: {rules: {hybrid: spec.yaml}}")
    ran = toolgate("sources", "refresh", "rules")
    assert ran.code == 2
    assert "toolgate.yaml:1: sources.rules.hybrid: expected base_url beside it" in ran.err


def test_a_typo_in_security_of_an_action_skips_the_action(toolgate: Toolgate, spec: Path) -> None:
    spec.write_text(SPEC.replace("scope: portal.w", "scpoe: portal.w", 1) + "shcemas: {}\n")
    ran = toolgate(*IMPORT)
    assert ran.code == 0
    assert ran.out.splitlines()[:3] == [
        f"skipped   {RULE}/createRule/0.1.0: unknown key 'scpoe' (did you mean scope?)",
        "note      unknown key 'shcemas' (did you mean schemas?)",
        f"{RULE}: 2 imported, 1 skipped",
    ]


def test_a_hybrid_service_given_to_the_other_command_is_recognised(
    bare: Toolgate, spec: Path
) -> None:
    ran = bare("import", "openapi", "spec.yaml", "--name", "rules", "--dry-run")
    assert ran.code == 1
    assert "`toolgate import hybrid` reads it" in ran.err


def test_an_action_is_shown_and_called_by_its_id(with_rules: Toolgate) -> None:
    id_ = f"{RULE}/deleteRule/0.1.0"
    shown = with_rules("tools", "show", id_)
    assert (shown.code, shown.out) == (0, with_rules("tools", "show", "rule_deleteRule").out)
    refused = with_rules("tools", "call", id_, "hostId=1")
    assert "ruleId: is required" in refused.out
    assert refused.err.endswith(f"Its arguments: toolgate tools show {id_}\n")
    for command in ("show", "call"):
        ran = with_rules("tools", command, f"{RULE}/delRule/0.1.0")
        assert ran.code == 1
        assert f"Did you mean {id_}" in ran.err


def test_errors_of_a_service_do_not_blame_the_arguments(with_rules: Toolgate) -> None:
    ran = with_rules("tools", "call", "rule_deleteRule", "hostId='1'", "ruleId=a")
    assert (ran.code, ran.err) == (1, "toolgate: rule_deleteRule reported an error.\n")


def test_a_python_service_is_called_with_its_settings_file(
    toolgate: Toolgate, folder: Path, database_settings: DatabaseSettings
) -> None:
    own = folder / "own.py"
    own.write_text("from gateway import hybrid\n@hybrid.action('a/b/c/1')\ndef c(_): return 'OK'\n")
    (folder / "own.yaml").write_text("sources: {own: {python: own.py}}")
    asyncio.run(import_python(database_settings, "own", str(own)))
    for name in ("b_c", "a/b/c/1"):
        ran = toolgate("tools", "call", name)
        assert ran.code == 1
        assert "b_c is a Python tool, and these settings do not have its source own" in ran.err
        assert "toolgate -c FILE tools call b_c" in ran.err
        assert toolgate("-c", "own.yaml", "tools", "call", name).out == "OK\n"


async def import_python(database: DatabaseSettings, name: str, file: str) -> None:
    """What `toolgate serve` does with such a source."""
    settings = replace(load(None, {}), database=database)
    services = {name: load_service(file).actions}
    async with open_registry(settings) as registry:
        sources = Sources(registry.store, registry.host_id, settings.imports, services=services)
        await sources.import_(ImportSpec(name, file, kind="python"))
