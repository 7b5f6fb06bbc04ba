"""spec.yaml and schema.json to actions: what counts, what is skipped, what is said about it."""

from typing import Any

import pytest

from registry.importers.hybrid import ServiceDescription, read_file, read_spec
from schemas.errors import ImportRejected
from schemas.source import Outcome
from tests.fixtures_hybrid import RULE, action, describe_actions, rules, wanting

OBJECT = {"type": "object", "required": ["a"]}


def only(found: ServiceDescription) -> Outcome:
    (outcome,) = found.outcomes
    return outcome


def test_a_real_spec_gives_its_actions_in_order() -> None:
    found = read_spec(rules())
    assert found.title == RULE
    create, update, delete = found.actions
    assert [create.id, update.id, delete.id] == [
        f"{RULE}/{name}/0.1.0" for name in ("createRule", "updateRule", "deleteRule")
    ]
    assert {one.scope for one in found.actions} == {"portal.w"}
    assert not any(one.skip_auth for one in found.actions)
    assert delete.request_schema == rules()["schemas"]["deleteRuleRequest"]
    assert create.request_schema is not None
    assert "hostId" in create.request_schema["required"]
    assert create.response_schema == {"type": "object"}
    assert [(one.operation, one.status, one.reason) for one in found.outcomes] == [
        (one.id, "imported", None) for one in found.actions
    ]


def test_an_action_is_described_by_itself_its_schema_or_its_id() -> None:
    create, update, delete = read_spec(rules()).actions
    assert create.description == "Service to create a rule"
    assert update.description == "Service to update a rule"
    assert delete.description == f"Service {RULE}/deleteRule/0.1.0"
    (one,) = read_spec(describe_actions(wanting("S", description=" Does it "), S=OBJECT)).actions
    assert one.description == "Does it"


def test_the_older_schema_json_is_read_too() -> None:
    document = {
        "h.net/world/hello/0.1.0": {"schema": OBJECT, "scope": "world.r"},
        "h.net/world/ping/0.1.0": {"skipAuth": True},
        "h.net/world/odd": {"schema": OBJECT},
        "h.net/world/none/0.1.0": None,
    }
    found = read_spec(document)
    hello, ping = found.actions
    assert (hello.request_schema, hello.scope, hello.skip_auth) == (OBJECT, "world.r", False)
    assert (ping.request_schema, ping.scope, ping.skip_auth) == (None, None, True)
    assert [one.status for one in found.outcomes] == ["imported", "imported", "skipped", "skipped"]
    assert "not host/service/action/version" in str(found.outcomes[2].reason)
    assert "found nothing" in str(found.outcomes[3].reason)


def test_an_inline_schema_is_used_and_pointed_out() -> None:
    found = read_spec(describe_actions(wanting({"type": "object", "title": "In line"})))
    assert found.actions[0].request_schema == {"type": "object", "title": "In line"}
    assert only(found).status == "degraded"
    assert "light-hybrid-4j does not look" in str(only(found).reason)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("Missing", "no schema is called 'Missing'"),
        ("Broken", "no valid JSON Schema"),
        ("Text", "a schema is a mapping, not str"),
        ("Away", "'https://x.example/y' leads out of the document"),
        ("Nested", "no schema is called 'Missing'"),
        ("Nowhere", "#/$defs/no leads nowhere"),
        ("Itself", "leads to itself"),
        ("Anchor", "#here is no path"),
        ("Dynamic", "$dynamicRef is not understood"),
        ({"type": "nonsense"}, "no valid JSON Schema"),
        (["a"], "a schema is a mapping, not list"),
    ],
)
def test_data_is_not_checked_where_the_schema_cannot_be_used(schema: Any, reason: str) -> None:
    schemas = {
        "Broken": {"type": "object", "required": "a"},
        "Text": "object",
        "Away": {"properties": {"a": {"$ref": "https://x.example/y"}}},
        "Nested": {"properties": {"a": {"$ref": "#/schemas/Missing"}}},
        "Nowhere": {"items": {"$ref": "#/$defs/no"}},
        "Itself": {"$ref": "#/schemas/Itself"},
        "Anchor": {"items": {"$ref": "#here"}},
        "Dynamic": {"items": {"$dynamicRef": "#"}},
    }
    found = read_spec(describe_actions(wanting(schema), **schemas))
    assert found.actions[0].request_schema is None
    assert only(found).status == "degraded"
    assert "its data is not checked" in str(only(found).reason)
    assert reason in str(only(found).reason)


def test_a_schema_nested_too_deeply_degrades_its_action_alone() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(2_000):
        deep = {"not": deep}
    found = read_spec(
        describe_actions(wanting("Deep"), wanting("S", name="other"), Deep=deep, S=OBJECT)
    )
    assert [one.status for one in found.outcomes] == ["degraded", "imported"]
    assert "nested too deeply" in str(found.outcomes[0].reason)


@pytest.mark.parametrize(
    ("node", "label", "reason"),
    [
        ({"version": "1"}, "action 1 1", "it has no name"),
        ({"name": "do"}, "action 1 do", "it has no version"),
        ({"name": ["do"], "version": "1"}, "action 1 1", "it has no name"),
        ("do", "action 1", "expected a mapping with name and version, found text"),
        (None, "action 1", "found nothing"),
        (action("x" * 600), f"h.net/s/{'x' * 52}…", "bytes, more than 512"),
        (action(scope={"a": 1}), "h.net/s/do/1", "scope: expected text, found a mapping"),
        (action(scope=["a", {"b": 1}]), "h.net/s/do/1", "scope: expected text, found a mapping"),
        (action(scope=[True]), "h.net/s/do/1", "scope: expected text, found true or false"),
        (action(scpoe="a"), "h.net/s/do/1", "unknown key 'scpoe' (did you mean scope?)"),
        (action(scopes=["a"]), "h.net/s/do/1", "unknown key 'scopes' (did you mean scope?)"),
        (action(Scope="a"), "h.net/s/do/1", "unknown key 'Scope' (did you mean scope?)"),
        (action(skip_auth=False), "h.net/s/do/1", "unknown key 'skip_auth' (did you mean skipAuth"),
        (action(skipAuht=False), "h.net/s/do/1", "unknown key 'skipAuht' (did you mean skipAuth"),
        (action(request={"scope": "a"}), "h.net/s/do/1", "unknown key 'request.scope' (did you"),
    ],
)
def test_invalid_actions_are_skipped(node: Any, label: str, reason: str) -> None:
    found = read_spec(describe_actions(node, action("good")))
    assert [one.id for one in found.actions] == ["h.net/s/good/1"]
    bad, good = found.outcomes
    assert (bad.operation, bad.status, good.status) == (label, "skipped", "imported")
    assert reason in str(bad.reason)


def test_of_two_actions_with_one_id_the_first_counts() -> None:
    found = read_spec(describe_actions(action(scope="first"), action(scope="second")))
    assert [one.scope for one in found.actions] == ["first"]
    assert [one.status for one in found.outcomes] == ["imported", "skipped"]
    assert found.outcomes[1].reason == "an action before it has the same id"


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({}, (None, False)),
        ({"scope": "a b", "skipAuth": True}, ("a b", True)),
        ({"scope": ["a", "b"]}, ("a b", False)),
        ({"scope": " "}, (None, False)),
        ({"skipAuth": "true"}, (None, False)),
    ],
)
def test_scopes_and_skip_auth(members: dict[str, Any], expected: tuple[Any, ...]) -> None:
    found = read_spec(describe_actions(action(**members)))
    assert (found.actions[0].scope, found.actions[0].skip_auth) == expected
    assert only(found).status == ("degraded" if members.get("skipAuth") == "true" else "imported")


@pytest.mark.parametrize(
    ("version", "taken", "reason"),
    [
        (1.1, "1.1", "version is a number: taken as '1.1'; quote it"),  # 1.10 was written, perhaps
        (2, "2", None),
        ("1.10", "1.10", None),
    ],
)
def test_a_version_may_be_written_as_a_number(version: Any, taken: str, reason: Any) -> None:
    found = read_spec(describe_actions({"name": "do", "version": version}))
    assert found.actions[0].id == f"h.net/s/do/{taken}"
    assert only(found).reason == reason


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"reqeust": {}}, "unknown key 'reqeust' (did you mean request?)"),
        ({"schema": {}}, "unknown key 'schema'"),
        ({"request": {"shcema": {}}}, "unknown key 'request.shcema' (did you mean schema?)"),
        ({"request": {"$ref": "#/schemas/S"}}, "unknown key 'request.$ref'"),
        ({"response": {"schemas": {}}}, "unknown key 'response.schemas' (did you mean schema?)"),
        ({"k" * 100: 1}, f"unknown key '{'k' * 60}'"),
        ({f"odd{n}": 1 for n in range(7)}, "; unknown key 'odd4'; and 2 more"),
    ],
)
def test_a_key_that_nobody_reads_is_told(members: dict[str, Any], reason: str) -> None:
    found = read_spec(describe_actions(action(**members)))
    assert len(found.actions) == 1
    assert only(found).status == "degraded"
    assert str(only(found).reason).endswith(reason)


def test_known_keys_and_extensions_are_nothing_to_tell() -> None:
    message = {"schema": {"$ref": "#/schemas/S"}, "example": 1, "examples": [], "x-more": 1}
    members = {"title": "T", "summary": "S", "handler": "Do", "x-scope": "a", "X-Any": 1}
    node = action(request=message, response=message, scope="a", skipAuth=False, **members)
    document = describe_actions(node, S=OBJECT) | {"description": "D", "x-origin": 1}
    found = read_spec(document)
    assert (only(found).status, found.notes) == ("imported", ())


def test_keys_of_a_schema_json_are_looked_at_too() -> None:
    nodes = {"a": {"scop": "x"}, "b": {"request": {}}, "c": {"scope": "x", "description": "D"}}
    found = read_spec({f"h.net/s/{name}/1": node for name, node in nodes.items()})
    assert [(one.status, one.reason) for one in found.outcomes] == [
        ("skipped", "unknown key 'scop' (did you mean scope?)"),
        ("degraded", "unknown key 'request'"),
        ("imported", None),
    ]


def test_a_key_of_the_whole_description_is_noted() -> None:
    document = describe_actions(action()) | {"shcemas": {}, "version": "1"}
    assert read_spec(document).notes == (
        "unknown key 'shcemas' (did you mean schemas?)",
        "unknown key 'version'",
    )


def test_a_file_with_a_key_twice_is_refused_with_its_line() -> None:
    text = "host: h.net\nservice: s\naction:\n- name: do\n  version: '1'\n  scope: a\n  scope: b\n"
    with pytest.raises(ImportRejected, match=r"s\.yaml, line 7, .*: the key 'scope' stands twice"):
        read_file(text.encode(), "s.yaml")
    assert read_file(text.replace("  scope: b\n", "").encode(), "s.yaml").actions[0].scope == "a"


def test_a_file_is_read_as_yaml_1_2() -> None:
    text = "host: h.net\nservice: s\naction: [{name: 'on', version: 2024-01-01, scope: no}]"
    (one,) = read_file(text.encode(), "s.yaml").actions
    assert (one.id, one.scope) == ("h.net/s/on/2024-01-01", "no")


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (None, "expected a hybrid spec.yaml .* found nothing"),
        ([], "found a list"),
        ({}, "expected a hybrid spec.yaml"),
        ({"openapi": "3.1.0", "paths": {}}, "this is an OpenAPI description"),
        ({"host": "h", "service": "s"}, "action: expected a list of actions, found nothing"),
        ({"host": "h", "service": "s", "action": {"do": 1}}, "action: .* found a mapping"),
        ({"host": "h", "service": "s", "action": []}, "no actions in it"),
        ({"service": "s", "action": []}, "host: expected text, found nothing"),
        ({"host": "h", "service": ["s"], "action": []}, "service: expected text, found a list"),
        (describe_actions() | {"schemas": []} | {"action": [action()]}, None),
        (describe_actions(action()) | {"schemas": ["S"]}, "schemas: expected a mapping"),
    ],
)
def test_invalid_descriptions_are_rejected(document: Any, expected: str | None) -> None:
    if expected is None:  # an empty list is what people write for nothing
        assert len(read_spec(document).actions) == 1
        return
    with pytest.raises(ImportRejected, match=expected):
        read_spec(document)


def test_five_hundred_actions_are_read() -> None:
    nodes = [wanting("S", name=f"do{number}") for number in range(500)]
    found = read_spec(
        describe_actions(*nodes, S={"properties": {"t": {"$ref": "#/schemas/T"}}}, T={})
    )
    assert len(found.actions) == 500
    assert {one.status for one in found.outcomes} == {"imported"}
