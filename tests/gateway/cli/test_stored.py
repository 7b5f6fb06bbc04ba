"""`toolgate export` and `apply`: everything that is stored, as one file."""

import json
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
import yaml
from msgspec.structs import replace

from config.settings import DatabaseSettings, Settings
from tests.fixtures_database import HOST
from tests.fixtures_gateway import running
from tests.gateway.admin.client import KEY, key_file
from tests.gateway.cli.conftest import Ran, Toolgate
from tests.gateway.cli.processes import command
from tests.gateway.guards.signing import by_jwks

SKILL = "---\nname: pet-care\ndescription: How to care for pets.\n---\n\nFeed them.\n"
SECOND = "---\nname: first-aid\ndescription: What to do first.\n---\n\nCall a vet.\n"
TOOLSET = {"include": ["get*"], "roles": ["staff"], "description": "Reads"}
RULE = {"effect": "deny", "tools": ["delete*"], "reason": "never"}

TOOLS = [
    {"name": "weather", "rest": "GET http://127.0.0.1:9/weather/{city}?unit={unit}&lang=en",
     "description": "Tells the weather.", "tags": ["outside"], "keywords": ["rain"],
     "tier": "internal", "examples": [{"city": "Bern", "unit": "K"}]},
    {"name": "owners", "rest": "POST /owners", "source": "pets", "description": "Adds an owner.",
     "input_schema": {"type": "object", "required": ["name"],
                      "properties": {"name": {"type": "string"}}}},
    {"name": "ships", "graphql": "query ($id: ID!) { ship(id: $id) { name } }",
     "url": "http://127.0.0.1:9/graphql", "source": "fleet", "description": "Finds a ship.",
     "annotations": {"readOnlyHint": False}},
    {"name": "act", "hybrid": "lightapi.net/user/getUser/0.1.0", "side": "query",
     "dialect": "legacy", "url": "http://127.0.0.1:9", "source": "hybrids", "description": "Asks.",
     "scope": "user.r"},
    {"name": "twice", "code": "def main(arguments):\n    return arguments\n",
     "language": "python", "description": "Runs here.", "weight": 2.5},
]  # fmt: skip


@pytest.fixture
def full_gateway(with_pets: Toolgate, folder: Path) -> Toolgate:
    """Runs commands on a database with something of everything."""

    def execute(*args: str) -> None:
        ran = with_pets(*args)
        assert ran.code == 0, ran.err

    for name, text in (("pet-care", SKILL), ("first-aid", SECOND)):
        (folder / "skills" / name).mkdir(parents=True)
        (folder / "skills" / name / "SKILL.md").write_text(text)
    (folder / "skills" / "pet-care" / "food.txt").write_text("Fish\n")
    (folder / "tools.yaml").write_text(json.dumps({"tools": TOOLS}))
    execute("tools", "add", "--from", "tools.yaml")
    execute("skills", "import", "skills")
    execute("skills", "link", "pet-care", "getPet", "weather")
    execute("skills", "depend", "pet-care", "first-aid")
    execute("agents", "add", "vet", "--description", "Cares.", "--temperature", "0.5")
    execute("agents", "grant", "vet", "pet-care", "--priority", "3")
    execute("toolsets", "put", "reading", json.dumps(TOOLSET))
    execute("policy", "put", "no-deletes", json.dumps(RULE))
    execute("keys", "create", "deploy", "--scope", "admin:read", "--role", "staff")
    return with_pets


@pytest.fixture
def second(bare: Toolgate, empty_settings: DatabaseSettings) -> Toolgate:
    """Runs commands on an empty database of another gateway."""

    def run(*args: str, stdin: str | None = None, **env: str) -> Ran:
        return bare(*args, stdin=stdin, TOOLGATE_DATABASE__URL=empty_settings.url, **env)

    return run


def apply_file(toolgate: Toolgate, *args: str) -> Ran:
    ran = toolgate("apply", *args)
    assert ran.code == 0, ran.err
    return ran


def test_an_export_makes_the_same_gateway_again(
    full_gateway: Toolgate, second: Toolgate, folder: Path
) -> None:
    """Issue 42, 7: export, apply and export give the same bytes; apply is idempotent."""
    assert full_gateway("export", "one.yaml").err == ""
    text = (folder / "one.yaml").read_text()
    file = yaml.safe_load(text)
    assert {name: sorted(rows) for name, rows in file.items() if isinstance(rows, dict)} == {
        "sources": ["pets"],
        "tools": ["act", "owners", "ships", "twice", "weather"],
        "skills": ["first-aid", "pet-care"],
        "agents": ["vet"],
        "toolsets": ["reading"],
        "rules": ["no-deletes"],
        "keys": ["deploy"],
    }
    assert file["rules"]["no-deletes"] == RULE
    assert file["toolsets"]["reading"] == TOOLSET
    assert yaml.safe_load(full_gateway("toolsets", "export").out)["toolsets"]["reading"] == TOOLSET
    plan = apply_file(second, "one.yaml", "--dry-run")
    assert plan.out.splitlines()[0] == "+ sources pets"
    assert second("export").out == "toolgate_export: 1\n"
    ran = apply_file(second, "one.yaml", "--keys-to", "new-keys")
    assert "+ agents vet" in ran.out
    assert (folder / "new-keys" / "deploy.key").stat().st_mode & 0o777 == 0o600
    assert second("export").out == text
    assert apply_file(second, "one.yaml").out == "Nothing to change.\n"
    secret = (folder / "new-keys" / "deploy.key").read_text().strip()
    assert secret not in text


def test_sources_of_wings_are_not_exported(
    toolgate: Toolgate, database_settings: DatabaseSettings
) -> None:
    """A gateway imports them when the wing is switched on, and refuses them in a request."""
    with psycopg.connect(database_settings.url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO host_t (host_id, name) VALUES (%s, 'own') ON CONFLICT DO NOTHING", [HOST]
        )
        connection.execute(
            "INSERT INTO api_t (host_id, name, kind, location) VALUES"
            " (%s, 'events', 'wing', 'wing:events')",
            [HOST],
        )
    assert toolgate("export").out == "toolgate_export: 1\n"


def test_changes_and_removals_are_planned_and_made(
    full_gateway: Toolgate, folder: Path, change: Callable[[str, str], None]
) -> None:
    full_gateway("export", "one.yaml")
    change("Feed them.", "Feed them daily.")
    change("never", "not at night")
    change("priority: 3", "priority: 4")
    change("Tells the weather.", "Tells of the weather.")
    plan = apply_file(full_gateway, "one.yaml", "--dry-run").out.splitlines()
    assert plan == [
        "~ tools weather: description (removed and made again)",
        "~ skills pet-care: document",
        "~ agents vet: skills",
        "~ rules no-deletes: reason",
    ]
    refused = full_gateway("apply", "one.yaml")
    assert (refused.code, "no terminal to confirm: add --yes" in refused.err) == (2, True)
    apply_file(full_gateway, "one.yaml", "--yes")
    assert full_gateway("export").out == (folder / "one.yaml").read_text()

    (folder / "few.yaml").write_text("toolgate_export: 1\nrules:\nagents: {}\n")
    assert apply_file(full_gateway, "few.yaml").out == "Nothing to change.\n"
    pruned = apply_file(full_gateway, "few.yaml", "--prune", "--yes")
    assert pruned.out.splitlines() == ["- rules no-deletes", "- agents vet"]
    left = yaml.safe_load(full_gateway("export").out)
    assert "rules" not in left
    assert sorted(left["skills"]) == ["first-aid", "pet-care"]  # the file has no such section


def test_a_tool_that_is_made_again_keeps_its_links(
    full_gateway: Toolgate, folder: Path, change: Callable[[str, str], None]
) -> None:
    """Its removal takes it from skills that the plan does not name."""
    full_gateway("export", "one.yaml")
    change("Tells the weather.", "Tells of the weather.")
    apply_file(full_gateway, "one.yaml", "--yes", "--only", "tools")
    assert full_gateway("export").out == (folder / "one.yaml").read_text()

    change("POST /owners", "POST owners")
    refused = full_gateway("apply", "one.yaml", "--yes")
    assert refused.code == 1
    assert "tools owners: owners: expected a URL, or a path that begins with /" in refused.err
    change("POST owners", "POST /owners")
    assert apply_file(full_gateway, "one.yaml").out == "Nothing to change.\n"


def test_a_refused_link_is_named_by_its_entry(full_gateway: Toolgate, folder: Path) -> None:
    file = yaml.safe_load(full_gateway("export").out)
    file["skills"]["pet-care"]["tools"] = {"no-such": {}}
    file["agents"]["vet"]["description"] = "Heals."
    (folder / "one.yaml").write_text(json.dumps(file))
    ran = full_gateway("apply", "one.yaml", "--yes")
    assert ran.err.startswith("toolgate: skills pet-care: There is no tool 'no-such'. Done: 1 of 2")


def test_everything_is_removed_in_the_order_of_its_references(
    full_gateway: Toolgate, folder: Path
) -> None:
    names = ("sources", "tools", "skills", "agents", "toolsets", "rules", "keys")
    (folder / "none.yaml").write_text(json.dumps({"toolgate_export": 1, **dict.fromkeys(names)}))
    plan = apply_file(full_gateway, "none.yaml", "--prune", "--yes").out.splitlines()
    assert list(dict.fromkeys(line.split()[1] for line in plan)) == [
        "rules", "toolsets", "agents", "skills", "tools", "sources", "keys",
    ]  # fmt: skip
    assert full_gateway("export").out == "toolgate_export: 1\n"


@pytest.fixture
def change(folder: Path) -> Callable[[str, str], None]:
    def replace(old: str, new: str) -> None:
        file = folder / "one.yaml"
        text = file.read_text()
        assert text.count(old) == 1
        file.write_text(text.replace(old, new))

    return replace


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("rules: {}", "bad.yaml:1: expected toolgate_export: 1"),
        ("toolgate_export: 1\nrule: {}", "bad.yaml:2: rule: there is no such section. Did you"),
        ("toolgate_export: 1\nrules:\n  a:\n    effect: deny\n    tool: [x]",
         "bad.yaml:5: rules.a.tool: is not known; did you mean 'tools'?"),
        ("toolgate_export: 1\nrules:\n  a: {effect: deny, limit: {}}",
         "bad.yaml:3: rules.a.limit: is not known; expected: effect, tools, "),
        ("toolgate_export: 1\nskills:\n  a: {files: [{path: a.md, contents: x}]}",
         "bad.yaml:3: skills.a.files.0.contents: is not known; did you mean 'content'?"),
        ("toolgate_export: 1\nsources:\n  a: {kind: openapi, depth: 3}",
         "bad.yaml:3: sources.a.depth: is not known; expected: kind, "),
        ("toolgate_export: 1\nrules:\n  a:\n    effect: never",
         'bad.yaml:4: rules.a.effect: expected one of "allow", "approve", "deny", got "never"'),
        ("toolgate_export: 1\nrules:\n  a:\n    effect: deny\n    when: caller.id = 3",
         "bad.yaml:5: rules.a.when: expected a CEL expression: line 1, character 11"),
        ("toolgate_export: 1\nsources: {a: {url: /a}}", "bad.yaml:2: sources.a.kind: is required"),
        ("toolgate_export: 1\nrules:\n\ta: {}",
         "bad.yaml:3: found a tab, and YAML indents with spaces"),
        ("toolgate_export: 1\nkeys:\n  a:\n    scopes:\n      - 3",
         "bad.yaml:5: keys.a.scopes.0: expected string, got 3"),
        ("toolgate_export: 1\nkeys:\n  a: {expires: 2030-01-01}",
         "bad.yaml:3: keys.a.expires: expected a time with its zone, as RFC 3339 has it"),
        ("toolgate_export: 1\nrules:\n  a: {effect: deny}\n  a: {effect: allow}",
         "bad.yaml:4: a is there twice"),
        ("toolgate_export: 1\nrules: [a]", "bad.yaml:2: rules: expected a mapping of names"),
        ("toolgate_export: 1\nrules:\n  a: 3", "bad.yaml:3: rules.a: expected a mapping of"),
        ("a: [", "bad.yaml:2: did not find expected node content"),
        ("toolgate_export: 1\nrules:\n  a: &a {effect: deny}\n  b: *a",
         "bad.yaml:4: aliases are not read"),
        ("toolgate_export: 1\nrules: {a: {effect: 2030-13-01}}",
         "bad.yaml: month must be in 1..12"),
        ("toolgate_export: 1\n1: {}", "bad.yaml:2: 1: there is no such section"),
        ("toolgate_export: 1\nsources: {a: {kind: machine, importer: no, location: /a}}",
         "bad.yaml:2: sources.a.importer: expected string, got false"),
        ("toolgate_export: 1\nsources: {a: {kind: machine, importer: soap, location: /a}}",
         "bad.yaml:2: sources.a: there is no importer soap"),
        ("\udce9", "bad.yaml is not text in UTF-8"),
        ('toolgate_export: 1\nrules:\n  a:\n    when: "\\ud800"',
         "bad.yaml:4: found invalid Unicode character escape code"),
        ("- a", "bad.yaml:1: expected a mapping of sections"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_line(
    bare: Toolgate, folder: Path, text: str, reason: str
) -> None:
    (folder / "bad.yaml").write_text(text, errors="surrogateescape")
    ran = bare("apply", "bad.yaml")
    assert ran.code == 2
    assert reason in ran.err


def test_all_mistakes_of_a_file_are_named_at_once(bare: Toolgate, folder: Path) -> None:
    (folder / "bad.yaml").write_text(
        "toolgate_export: 1\nrules:\n  a: {effect: never,\n    tool: [x]}\n  b: {}\n  c: 3\n"
        f"  d: {{effect: deny, when: a b,\n    tools: ['{'*' * 9999}']}}\nkey: {{}}\nkeys:\n"
        "  a: {expires: 2030-01-01T00:00:00Z,\n    scope: [x]}\n  b: {expires: 2030-01-01}\n"
    )
    ran = bare("apply", "bad.yaml")
    assert [line.partition("bad.yaml:")[2][:17] for line in ran.err.splitlines()] == [
        "3: rules.a.effect", "4: rules.a.tool: ", "5: rules.b.effect", "6: rules.c: expec",
        "8: rules.d.tools:", "7: rules.d.when: ", "9: key: there is ", "12: keys.a.scope:",
        "13: keys.b.expire",
    ]  # fmt: skip


def test_the_steps_of_a_rule_are_limited_by_the_gateway(bare: Toolgate, folder: Path) -> None:
    (folder / "one.yaml").write_text(
        "toolgate_export: 1\nrules:\n  a:\n    effect: deny\n    when: principal.id == 'a'\n"
    )
    ran = bare("apply", "one.yaml", TOOLGATE_POLICY__EXPRESSION_STEPS="1")
    assert ran.err
    assert "rules.a.when" not in ran.err


def test_a_file_beyond_the_limit_is_refused(bare: Toolgate, folder: Path) -> None:
    (folder / "large.yaml").write_text("toolgate_export: 1\n" + "#" * 2000)
    limit = {"TOOLGATE_IMPORTS__DOCUMENT_LIMIT_BYTES": "2000"}
    for name, given in (("large.yaml", None), ("-", "#" * 2001)):
        ran = bare("apply", name, stdin=given, **limit)
        assert ran.code == 2
        assert "more than 2000 bytes, which is imports.document_limit_bytes" in ran.err


def test_missing_secrets_are_named(toolgate: Toolgate, folder: Path) -> None:
    (folder / "s.yaml").write_text("toolgate_export: 1\nsecrets:\n  pets:\n    token: bearer\n")
    ran = apply_file(toolgate, "s.yaml")
    assert "missing: toolgate secrets set pets token" in ran.err


def test_new_keys_need_a_folder(toolgate: Toolgate, folder: Path) -> None:
    (folder / "k.yaml").write_text("toolgate_export: 1\nkeys:\n  ci: {scopes: [admin:read]}\n")
    ran = toolgate("apply", "k.yaml")
    assert (ran.code, "new API keys are given once (ci)" in ran.err) == (2, True)
    ran = toolgate("apply", "k.yaml", "--keys-to", "k.yaml/keys")
    assert (ran.code, "--keys-to k.yaml/keys: Not a directory" in ran.err) == (2, True)
    assert toolgate("keys", "list").out == ""


def test_each_new_key_has_a_file_for_its_owner_only(toolgate: Toolgate, folder: Path) -> None:
    (folder / "k.yaml").write_text("toolgate_export: 1\nkeys: {a/b: {}, a_b: {}}")
    (folder / "keys").mkdir()
    (folder / "keys" / "a_b.key").write_text("old")
    (folder / "keys" / "a_b.key").chmod(0o644)
    apply_file(toolgate, "k.yaml", "--keys-to", "keys")
    files = {file.name: file for file in (folder / "keys").iterdir()}
    assert files.keys() == {"a%2Fb.key", "a_b.key"}
    assert {file.stat().st_mode & 0o777 for file in files.values()} == {0o600}
    assert len({file.read_text() for file in files.values()}) == 2


def test_an_export_to_a_missing_folder_is_refused(toolgate: Toolgate) -> None:
    ran = toolgate("export", "missing/all.yaml")
    assert (ran.code, ran.err) == (1, "toolgate: missing/all.yaml: No such file or directory\n")


def test_members_of_a_link_name_no_further_entry(toolgate: Toolgate, folder: Path) -> None:
    """Members of a link cannot name another entry than the plan does."""
    skills = {name: {"document": SKILL.replace("pet-care", name)} for name in ("a", "b")}
    skills["b"]["dependencies"] = {"a": {"skill": "a", "dependency": "b"}}  # type: ignore[assignment]
    (folder / "s.yaml").write_text(json.dumps({"toolgate_export": 1, "skills": skills}))
    apply_file(toolgate, "s.yaml")
    skills = yaml.safe_load(toolgate("export").out)["skills"]
    assert "dependencies" not in skills["a"]
    assert skills["b"]["dependencies"] == {"a": {"required": True}}


REMOTE = """\
toolgate_export: 1
tools:
  city:
    description: Tells of a city.
    rest: GET https://api.example.com/cities/{name}
agents:
  vet:
    description: Cares.
rules:
  no-deletes:
    effect: deny
    tools:
    - delete_*
"""


@pytest.mark.anyio
async def test_a_running_gateway_is_changed_and_exported(settings: Settings, folder: Path) -> None:
    async with running(replace(settings, auth=by_jwks(folder, [KEY.jwk()]))) as client:
        at = ("--url", client.url, "--key-file", str(key_file(folder)))
        (folder / "all.yaml").write_text(REMOTE)
        for plan in ("+ tools city\n+ agents vet\n+ rules no-deletes\n", "Nothing to change.\n"):
            code, out, error = await command("apply", "all.yaml", *at)
            assert (code, out) == (0, plan), error
        reason = "tools city: its binding is shown to operators alone: use a key with their role"
        assert f"not compared: {reason}" in error
        code, out, error = await command("export", *at)
        assert (code, error) == (0, f"toolgate: left out: {reason}\n")
        file = yaml.safe_load(REMOTE)
        del file["tools"]
        assert yaml.safe_load(out) == file
        (folder / "all.yaml").write_text(REMOTE.replace("Cares.", "Heals."))
        code, out, error = await command("apply", "all.yaml", *at)
        assert (code, out) == (0, "~ agents vet: description\n"), error
        code, out, error = await command("apply", "all.yaml", "--dry-run", *at)
        assert out == "Nothing to change.\n"
