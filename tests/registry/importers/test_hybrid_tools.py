"""Actions as tools: their names, what they take, what is known of them."""

import re
from typing import Any

import pytest

from registry.importers.drafts import DESCRIPTION_LIMIT
from registry.importers.hybrid import describe_actions, drafts, read_spec, select
from schemas.binding import HybridBinding, PythonBinding
from schemas.errors import ImportRejected
from schemas.hybrid import Action, Side
from schemas.json_schema.checker import Checker
from schemas.jsonrpc import encode
from tests.fixtures_hybrid import RULE, action, rules
from tests.fixtures_hybrid import describe_actions as spec_of

NUMBERS = {"type": "array", "items": {"type": "integer"}}


def names(*ids: str) -> list[str]:
    return [draft.name for draft in drafts([Action(id_) for id_ in ids], "hybrid")]


def test_the_actions_of_a_real_spec_become_tools() -> None:
    made = drafts(read_spec(rules()).actions, "hybrid", "command")
    assert [draft.name for draft in made] == [
        "rule_createRule",
        "rule_updateRule",
        "rule_deleteRule",
    ]
    delete = made[2]
    assert delete.key == f"{RULE}/deleteRule/0.1.0@call"
    assert delete.binding == HybridBinding(
        service=f"{RULE}/deleteRule/0.1.0", scope="portal.w", side="command"
    )
    assert delete.input_schema["required"] == ["hostId", "ruleId"]
    assert (delete.tags, delete.output_schema) == (("rule",), None)


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (["h/s/a/1"], ["s_a"]),
        (["h/s/a/0.1.0", "h/s/a/0.2.0", "h/s/b/1"], ["s_a_0_1_0", "s_a_0_2_0", "s_b"]),
        (["h/S/a/1", "h/s/A/2"], ["S_a_1", "s_A_2"]),
        (["h.x/s/a/1", "g/s/a/1", "g/s/a/2"], ["h_x_s_a_1", "g_s_a_1", "s_a_2"]),
        (["subtract", "notify.hello", "a/b"], ["subtract", "notify_hello", "a_b"]),
        (["s_a", "h/s/a/1"], ["s_a", "s_a_1"]),
        (["h/my service/a b/1"], ["my_service_a_b"]),
    ],
)
def test_names_are_as_short_as_possible(ids: list[str], expected: list[str]) -> None:
    assert names(*ids) == expected
    assert names(*reversed(ids)) == expected[::-1]


@pytest.mark.parametrize(
    "id_", ["規則/規則/規則/1", "規則", f"h/s/{'x' * 100}/1", "h/s/a%b/1", "?"]
)
def test_a_name_is_legal_whatever_the_id(id_: str) -> None:
    (name,) = names(id_)
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name)


def test_names_differing_only_in_illegal_characters_stay_apart() -> None:
    assert len({name.casefold() for name in names("h/s/a.b/1", "h/s/a:b/1", "h/s/A_b/1")}) == 3
    assert len(set(names("a.b", "a:b", "a_b"))) == 3


@pytest.mark.parametrize(
    ("own", "of_the_source", "expected"),
    [
        (None, None, None),
        (None, "query", "query"),
        ("command", "query", "command"),
        ("query", None, "query"),
    ],
)
def test_a_side_is_the_actions_own_else_the_sources(
    own: Side | None, of_the_source: Side | None, expected: Side | None
) -> None:
    (draft,) = drafts([Action("h/s/a/1", side=own)], "hybrid", of_the_source)
    assert isinstance(draft.binding, HybridBinding)
    assert draft.binding.side == expected
    said = {"readOnlyHint": True} if expected == "query" else {}
    assert encode(draft.annotations) == encode(said)


def taking(schema: Any) -> tuple[dict[str, Any], HybridBinding]:
    (draft,) = drafts([Action("h/s/a/1", request_schema=schema)], "hybrid")
    assert isinstance(draft.binding, HybridBinding)
    return draft.input_schema, draft.binding


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "additionalProperties": False},
        {"properties": {"a": {}}},
        {"required": ["a"]},
        {"$ref": "#/$defs/A", "$defs": {"A": {"type": "object", "required": ["a"]}}},
    ],
)
def test_an_object_is_the_arguments(schema: dict[str, Any]) -> None:
    given, binding = taking(schema)
    assert given["type"] == "object"
    assert (binding.validated, binding.argument) == (True, None)
    refused: Any = {"b": 1} if "additionalProperties" in schema else None
    assert not Checker(encode(given)).accepts(refused)
    assert Checker(encode(given)).accepts({} if "additionalProperties" in schema else {"a": 1})


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (NUMBERS, [1], ["a"]),
        ({"type": "string"}, "a", 1),
        ({"type": ["object", "null"]}, None, 1),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "type": "number", "maximum": 3,
          "exclusiveMaximum": True}, 2, 3),
        ({"items": {"$ref": "#"}, "type": "array"}, [[[]]], [1]),
    ],
)  # fmt: skip
def test_anything_else_is_one_argument(schema: Any, good: Any, bad: Any) -> None:
    given, binding = taking(schema)
    assert (binding.validated, binding.argument) == (True, "data")
    checker = Checker(encode(given))
    assert checker.accepts({"data": good})
    assert not checker.accepts({"data": bad})
    assert not checker.accepts({})


def test_an_action_that_says_nothing_takes_anything() -> None:
    given, binding = taking(None)
    assert (given, binding.validated, binding.argument) == ({"type": "object"}, False, None)


def test_a_python_action_keeps_its_positions() -> None:
    sums = Action("sum", "Adds.", {"properties": {"numbers": NUMBERS}}, rest="numbers")
    ids = Action("subtract", positional=("minuend", "subtrahend"), skip_auth=True)
    first, second = drafts([sums, ids], "python")
    assert first.binding == PythonBinding("sum", rest="numbers")
    assert second.binding == PythonBinding(
        "subtract", skip_auth=True, validated=False, positional=("minuend", "subtrahend")
    )
    assert (first.description, second.description) == ("Adds.", "Subtract. Service subtract")
    assert first.tags == ()


def test_a_long_description_is_cut() -> None:
    (draft,) = drafts([Action("a", "word " * 2_000)], "hybrid")
    assert len(draft.description) <= DESCRIPTION_LIMIT


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (Action("h/s/a/1", request_schema={"type": "nonsense"}), "the schema of h/s/a/1: .* valid"),
        (Action("h/s/a/1", request_schema={"default": object()}), "the schema of h/s/a/1"),
        (Action(""), "1 to 512 bytes"),
        (Action("規" * 200), "1 to 512 bytes"),
    ],
)
def test_an_action_that_no_description_would_give_is_rejected(
    action: Action, expected: str
) -> None:
    with pytest.raises(ImportRejected, match=expected):
        drafts([action], "python")


@pytest.mark.parametrize(
    ("include", "exclude", "expected"),
    [
        ((), (), ["createRule", "updateRule", "deleteRule"]),
        (("*/deleteRule/*",), (), ["deleteRule"]),
        (("rule_*Rule",), ("*_update*",), ["createRule", "deleteRule"]),
        (("lightapi.net/rule/[cu]*",), (), ["createRule", "updateRule"]),
    ],
)
def test_patterns_select_by_id_or_name(
    include: tuple[str, ...], exclude: tuple[str, ...], expected: list[str]
) -> None:
    imported = select(read_spec(rules()), "hybrid", None, include, exclude=exclude)
    assert [draft.name for draft in imported.drafts] == [f"rule_{name}" for name in expected]
    assert [one.status == "imported" for one in imported.outcomes] == [
        one.operation.split("/")[2] in expected for one in imported.outcomes
    ]
    assert all(one.name or one.reason for one in imported.outcomes)
    assert imported.notes == ()


def test_a_selection_renames_nothing_and_idle_patterns_are_told() -> None:
    document = spec_of(action(version="1"), action(version="2"), {"name": "broken"})
    imported = select(read_spec(document), "hybrid", None, ("*/1", "*broken*"))
    assert [draft.name for draft in imported.drafts] == ["s_do_1"]
    assert [one.status for one in imported.outcomes] == ["imported", "excluded", "skipped"]
    assert imported.notes == ("the pattern '*broken*' matches no action",)


def test_actions_that_are_there_already_need_no_description() -> None:
    imported = select(describe_actions([Action("h/s/a/1"), Action("plain")]), "python", None)
    assert (imported.title, [draft.name for draft in imported.drafts]) == ("h/s", ["s_a", "plain"])
    assert {one.status for one in imported.outcomes} == {"imported"}
