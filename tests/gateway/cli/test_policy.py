"""`toolgate policy` and `toolgate approvals`."""

import asyncio
import json
from pathlib import Path

import pytest

from config.settings import DatabaseSettings
from registry.access.approvals import ApprovalRequest, Approvals
from registry.database.postgres import Database
from tests.fixtures_database import HOST
from tests.gateway.cli.conftest import Toolgate

SETTINGS = """
policy:
  rules:
    no-deletes: {effect: deny, tools: ["delete*"], roles: [intern], reason: they learn}
    sums: {effect: approve, tools: [createPet], when: arguments.age > 20}
"""
DEVELOPMENT = {
    "TOOLGATE_AUTH__MODE": "jwt",
    "TOOLGATE_AUTH__DEVELOPMENT_SECRET": "0123456789abcdef0123456789abcdef",
}


@pytest.fixture
def with_rules(with_pets: Toolgate, folder: Path) -> Toolgate:
    """Runs commands with some rules in the settings."""
    (folder / "toolgate.yaml").write_text(SETTINGS)
    return with_pets


def test_why_somebody_may_or_may_not_is_explained(with_rules: Toolgate) -> None:
    asked = ("policy", "explain", "--principal", "ada", "--role", "intern", "--json")
    told = with_rules(*asked, "--tool", "deletePet").json
    assert (told["effect"], told["rule"], told["reason"]) == ("deny", "no-deletes", "they learn")
    assert told["visible"] is False
    said = {one["rule"]: (one["outcome"], one["why"]) for one in told["outcomes"]}
    assert said == {
        "no-deletes": ("speaks", "they learn"),
        "sums": ("silent", "tools: it is about others"),
    }
    told = with_rules(*asked, "--tool", "createPet").json
    assert (told["effect"], told["rule"], told["visible"]) == ("allow", "policy.default", True)
    assert told["outcomes"][1]["outcome"] == "waits"
    told = with_rules(*asked, "--tool", "createPet", "--arguments", '{"age": 30}').json
    assert (told["effect"], told["rule"]) == ("approve", "sums")
    told = with_rules(*asked, "--tool", "createPet", "--arguments", "{}").json
    assert (told["effect"], told["outcomes"][1]["outcome"]) == ("approve", "failed")
    assert told["outcomes"][1]["why"] == "when: there is no member 'age'"
    text = with_rules(*asked[:-1], "--tool", "deletePet").out
    assert text.splitlines()[:2] == [
        "deny (no-deletes): they learn",
        "It is not in the lists of the caller.",
    ]
    assert "no-deletes  deny     applies         they learn" in text


def test_only_so_many_rules_are_stored(with_rules: Toolgate) -> None:
    rule, few = '{"effect": "deny", "tools": ["x"]}', {"TOOLGATE_POLICY__STORED_RULES": "1"}
    with_rules("policy", "put", "one", rule, **few)
    ran = with_rules("policy", "put", "two", rule, **few)
    assert ran.code == 1
    assert "There are 1 stored rules, and at most 1 may be stored" in ran.err
    assert with_rules("policy", "put", "one", rule, "--if-match", "*", **few).code == 0


def test_a_token_supplies_the_principal_to_explain(with_rules: Toolgate) -> None:
    minted = with_rules(
        "token", "mint", "--sub", "ada", "--role", "intern", **DEVELOPMENT
    ).out.strip()
    asked = ("policy", "explain", "--tool", "deletePet", "--json", "--token")
    assert with_rules(*asked, minted, **DEVELOPMENT).json["effect"] == "deny"
    other = with_rules("token", "mint", "--sub", "ada", **DEVELOPMENT).out.strip()
    assert with_rules(*asked, other, **DEVELOPMENT).json["effect"] == "allow"
    bad = with_rules(*asked, minted[:-4], **DEVELOPMENT)
    assert bad.code == 1
    assert "the token is refused" in bad.err
    assert minted[:20] not in bad.err


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (("--tool", "deletePets"), 1, "There is no tool 'deletePets'. Did you mean deletePet"),
        (("--tool", "getPet", "--arguments", "{"), 2, "--arguments: Not JSON"),
        (("--tool", "getPet", "--arguments", "[]"), 2, "--arguments: expected a JSON object"),
        (("--tool", "getPet", "--toolset", "x"), 1, "There is no toolset 'x'"),
    ],
    ids=["tool", "json", "object", "toolset"],
)
def test_invalid_requests_to_explain_are_refused_with_reasons(
    with_rules: Toolgate, options: tuple[str, ...], code: int, told: str
) -> None:
    ran = with_rules("policy", "explain", *options)
    assert (ran.code, told in ran.err) == (code, True), ran.err


def test_rules_are_written_listed_checked_and_removed(with_rules: Toolgate) -> None:
    rule = {"effect": "deny", "sources": ["pets"], "when": "principal.id == 'eve'"}
    ran = with_rules("policy", "put", "no-eve", json.dumps(rule))
    assert ran.out == "no-eve: deny (version 1).\n"
    again = with_rules("policy", "put", "no-eve", json.dumps(rule))
    assert (again.code, "The resource exists" in again.err) == (1, True)
    assert with_rules("policy", "put", "no-eve", json.dumps(rule), "--if-match", "*").code == 0
    assert (
        "effect: deny; sources: pets; when: principal.id == 'eve'"
        in with_rules("policy", "list").out
    )
    listed = with_rules("policy", "list", "--json").json
    assert [(rule["name"], rule["origin"]) for rule in listed] == [
        ("no-deletes", "settings"),
        ("no-eve", "stored"),
        ("sums", "settings"),
    ]
    assert with_rules("policy", "check").out == "3 rules, all valid.\n"
    told = with_rules("policy", "explain", "--principal", "eve", "--tool", "getPet", "--json").json
    assert (told["effect"], told["rule"]) == ("deny", "no-eve")
    assert with_rules("policy", "remove", "no-eve", "--yes").out == "Removed no-eve.\n"
    assert with_rules("policy", "remove", "no-eve", "--yes").code == 1
    assert "remove it there" in with_rules("policy", "remove", "sums", "--yes").err


def test_a_stored_rule_above_the_bound_is_told_by_check_and_doctor(with_rules: Toolgate) -> None:
    rule = {"effect": "deny", "when": "arguments.l.map(x, x) == []"}
    with_rules("policy", "put", "costly", json.dumps(rule))
    try:
        lower = {"TOOLGATE_POLICY__EXPRESSION_STEPS": "2000"}
        checked = with_rules("policy", "check", **lower)
        assert checked.code == 1
        assert "costly.when: expected a CEL expression: it may take too long" in checked.out
        told = with_rules("doctor", "--json", **lower).json
        [said] = [one["detail"] for one in told if one["name"] == "rules"]
        assert said.startswith("policy.rules.costly.when cannot be evaluated, so the rule denies")
    finally:
        with_rules("policy", "remove", "costly", "--yes")


@pytest.mark.parametrize(
    ("name", "rule", "told"),
    [
        ("x", "{", "expected JSON, YAML, a file or -"),
        ("x", "tools: [a]", "effect"),
        ("x", '{"effect": "refuse"}', "effect: expected one of"),
        (
            "x",
            '{"effect": "deny", "tool": ["a"]}',
            "tool",
        ),
        ("x", '{"effect": "deny", "when": "1 +"}', "when: expected a CEL expression: line 1"),
        (
            "x",
            '{"effect": "deny", "when": "arguments.l.all(a, arguments.l.map(b, arguments)==a)"}',
            "when: expected a CEL expression: it may take too long",
        ),
        ("x", '{"effect": "deny", "tiers": ["top"]}', "tiers: expected one of policy.tiers"),
        ("No Name", '{"effect": "deny"}', "No rule can have this name. rule: "),
        ("sums", '{"effect": "deny"}', "The resource exists"),
    ],
    ids=["json", "none", "effect", "member", "when", "long", "tier", "name", "settings"],
)
def test_a_rule_that_is_wrong_is_not_written(
    with_rules: Toolgate, name: str, rule: str, told: str
) -> None:
    ran = with_rules("policy", "put", name, rule)
    assert ran.code in {1, 2}
    assert told in ran.err
    assert len(with_rules("policy", "list", "--json").json) == 2


def test_calls_that_wait_are_shown_and_decided(
    with_rules: Toolgate, database_settings: DatabaseSettings
) -> None:
    async def ask(digest: str, makers: frozenset[str] = frozenset()) -> str:
        async with Database.open(database_settings) as database:
            tool = "00000000-0000-0000-0000-00000000000a"
            call = ApprovalRequest("ada", tool, "pay", "bank", digest * 64, "sums", "large", makers)
            id_, _ = await Approvals(database.pool, HOST).request(call, '{"age":30}', 900, 5)
            return id_

    first, second = asyncio.run(ask("1")), asyncio.run(ask("2"))
    listed = with_rules("approvals", "list", "--json").json
    assert [(one["id"], one["principal"], one["arguments"]) for one in listed] == [
        (first, "ada", '{"age":30}'),
        (second, "ada", '{"age":30}'),
    ]
    assert first in with_rules("approvals", "list").out
    assert 'arguments  {"age":30}' in with_rules("approvals", "show", first).out
    approved = with_rules("approvals", "approve", first)
    assert approved.out == "Approved: ada may make this call of pay.\n"
    assert with_rules("approvals", "deny", second).code == 0
    assert with_rules("approvals", "list", "--json").json == []
    assert with_rules("approvals", "show", first, "--json").json["state"] == "approved"
    again = with_rules("approvals", "approve", first)
    assert (again.code, "It does not wait any longer: it is approved" in again.err) == (1, True)
    key = with_rules("keys", "create", "ci", "--json").json
    made = asyncio.run(ask("3", frozenset(key["key"]["makers"])))
    refused = with_rules("approvals", "approve", made)
    assert (refused.code, "a key that it made" in refused.err) == (1, True)
    assert with_rules("approvals", "deny", made).code == 0


IDLE = """
policy:
  rules:
    none: {effect: deny, tools: ["*refund*"]}
    some: {effect: deny, tools: ["DELETE*", "tag:gone"]}
    both: {effect: deny, tools: ["deletePet"], destructive: false}
limits:
  tools: {"LIST*": {calls: 9}, "send*": {calls: 9}}
  sources: {crm: {calls: 9}}
guardrails:
  rules: {mail: {looks_at: result, effect: redact, tools: ["mail*"], pattern: "@"}}
toolsets:
  few: {include: ["get*", "domain:sales"]}
"""
IDLE_RULES = [
    "policy.rules.none.tools: '*refund*' matches no tool, prompt or resource",
    "policy.rules.some.tools: 'tag:gone' matches no tool, prompt or resource",
    "policy.rules.both: matches nothing: no tool, prompt or resource is all that it names",
]
IDLE_PATTERNS = [
    *IDLE_RULES,
    "guardrails.rules.mail.tools: 'mail*' matches no tool, prompt or resource",
    "limits.tools: 'send*' matches no tool, prompt or resource",
    "limits.sources: there is no source crm",
    "toolsets.few.include: 'domain:sales' matches no tool, prompt or resource",
]


def warnings_of(text: str) -> list[str]:
    start = "toolgate: warning: "
    return [one.removeprefix(start) for one in text.splitlines() if one.startswith(start)]


def test_rules_and_patterns_without_matches_are_warnings(with_pets: Toolgate, folder: Path) -> None:
    (folder / "toolgate.yaml").write_text(IDLE)
    checked = with_pets("policy", "check")
    assert (checked.code, warnings_of(checked.err)) == (0, IDLE_RULES)
    told = with_pets("policy", "check", "--json").json
    assert told[0] == {
        "rule": "none",
        "member": "tools",
        "problem": "'*refund*' matches no tool, prompt or resource",
        "warning": True,
    }
    checked = with_pets("config", "check")
    assert (checked.code, warnings_of(checked.err)) == (0, IDLE_PATTERNS)
    found = [one for one in with_pets("doctor", "--json").json if one["name"] == "patterns"]
    assert [(one["status"], one["detail"]) for one in found] == [
        ("warning", one) for one in IDLE_PATTERNS
    ]


def test_stored_rules_that_match_nothing_are_warned_of(with_pets: Toolgate) -> None:
    with_pets("policy", "put", "none", '{"effect": "deny", "tools": ["refund*"]}')
    assert warnings_of(with_pets("policy", "check").err) == [
        "policy.rules.none.tools: 'refund*' matches no tool, prompt or resource"
    ]


def test_nothing_is_idle_before_there_are_tools(toolgate: Toolgate, folder: Path) -> None:
    (folder / "toolgate.yaml").write_text(IDLE)
    toolgate("tools", "list")
    checked = toolgate("config", "check")
    assert (checked.code, checked.err) == (0, "")


def test_a_registry_that_cannot_be_read_leaves_the_settings_valid(
    bare: Toolgate, folder: Path
) -> None:
    (folder / "toolgate.yaml").write_text(IDLE)
    away = bare("config", "check", TOOLGATE_DATABASE__URL="postgresql://127.0.0.1:1/none")
    assert (away.code, warnings_of(away.err)) == (0, [])
    assert "the database cannot be read" in away.err
    unused = bare("config", "check", TOOLGATE_DATABASE__DATA_DIR=str(folder / "data"))
    assert (unused.code, unused.err) == (0, "")
    assert not (folder / "data").exists()


def test_a_source_of_a_toolset_that_is_nowhere_is_told_before_any_import(
    bare: Toolgate, folder: Path
) -> None:
    """A misspelled source makes an empty endpoint, which `config check` and `doctor` tell, also
    where no gateway has run (mending 43)."""
    (folder / "toolgate.yaml").write_text(
        "sources: {pets: {base_url: 'http://127.0.0.1:9'}}\n"
        "toolsets: {few: {sources: [pets, pest]}}\n"
        "memory: {enabled: true}\n"
    )
    told = "toolsets.few.sources: there is no source pest"
    place = {"TOOLGATE_DATABASE__DATA_DIR": str(folder / "data")}
    assert warnings_of(bare("config", "check", **place).err) == [told]
