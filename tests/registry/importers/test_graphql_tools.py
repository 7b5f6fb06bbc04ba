"""Arguments, selections and answers of fields of a GraphQL schema."""

from typing import Any

import jsonschema_rs
import pytest

from registry.importers.drafts import ImportedDescription
from registry.importers.graphql import GraphQLChoice, GraphQLOverlay, read, read_overlay
from registry.importers.graphql.schema import Ref, Schema, Type
from registry.importers.openapi.schema_budgets import OUTPUT_LEFT_OUT
from schemas.binding import Pagination, Variable
from schemas.errors import ImportRejected
from schemas.jsonrpc import encode
from schemas.tool import ToolDraft
from tests.servers.graphql import SDL


def import_sdl(sdl: str, **options: Any) -> ImportedDescription:
    return read(sdl.encode(), "x.graphql", GraphQLChoice(**options))


def only(sdl: str, **options: Any) -> ToolDraft:
    [draft] = import_sdl(sdl, **options).drafts
    return draft


def reason(sdl: str, **options: Any) -> str | None:
    return import_sdl(sdl, **options).outcomes[0].reason


def argument(type_: str, more: str = "") -> tuple[Any, ToolDraft]:
    draft = only(f"type Query {{ a(x: {type_}): Int }} {more}")
    return draft.input_schema["properties"]["x"], draft


def accepts(draft: ToolDraft, value: Any) -> bool:
    return jsonschema_rs.Draft202012Validator(draft.input_schema).is_valid({"x": value})


@pytest.mark.parametrize(
    ("type_", "good", "bad"),
    [
        ("Int!", [1, -5], [1.5, "1", None]),
        ("Int", [1, None], ["1"]),
        ("Float!", [1, 1.5], ["x", None]),
        ("Boolean!", [True], [0, None]),
        ("String!", ["x", ""], [1, None]),
        ("ID!", ["x", 7], [1.5, None]),
        ("[Int!]!", [[], [1]], [1, [None], None]),
        ("[Int]", [[1, None], None], [["x"]]),
        ("[[ID!]!]!", [[["a"], [1]]], [[None], ["a"]]),
        ("E!", ["A", "B"], ["C", None]),
        ("E", ["A", None], ["a"]),
        ("O!", [{"a": "x"}, {"b": 1}], [{}, {"a": "x", "b": 1}, {"a": None}, None]),
        ("I!", [{"n": "x"}, {"n": "x", "k": None, "i": {"n": "y"}}], [{}, {"n": "x", "z": 1}]),
        ("I", [{"n": "x"}, None], [{"n": None}]),
        ("JSON!", [1, {"a": [None]}, "x", [], True], [None]),
        ("JSON", [1, {"a": [None]}, None], []),
        ("Int!", [2**31 - 1, -(2**31)], [2**31, -(2**31) - 1, None]),
        ("BigInt!", [1, "123456789012345678901"], [1.5, None]),
        ("DateTime!", ["2020-01-01T00:00:00Z"], [1, None]),
        ("Odd", [1, {}, None], []),
    ],
)
def test_input_schemas_match_the_argument_types(type_: str, good: list[Any], bad: list[Any]):
    """Scalars have the bounds of their types, and null where it is legal (mending 29)."""
    more = """enum E { A B } input O @oneOf { a: String b: Int }
      input I { n: String! k: Int = 3 i: I m: Int! = 1 } scalar JSON scalar BigInt scalar DateTime
      scalar Odd @specifiedBy(url: "https://example.com/odd")"""
    _, draft = argument(type_, more)
    assert [value for value in good if not accepts(draft, value)] == []
    assert [value for value in bad if accepts(draft, value)] == []


def test_arguments_without_default_or_null_are_required():
    draft = only("type Query { a(w: Int!, x: Int! = 1, y: Int, z: Int = 2): Int }")
    assert draft.input_schema["required"] == ["w"]
    properties = draft.input_schema["properties"]
    assert (properties["x"]["default"], properties["z"]["default"]) == (1, 2)
    assert draft.binding.variables == tuple(
        Variable(name, name, type_)
        for name, type_ in (("w", "Int!"), ("x", "Int"), ("y", "Int"), ("z", "Int"))
    )


def test_defaults_are_json():
    sdl = """type Query { a(i: I = {e: B, l: [1, 2], s: "x", o: null}, f: Float = 1e999): Int }
      enum E { A B } input I { e: E l: [Int!] s: String o: I }"""
    properties = only(sdl).input_schema["properties"]
    assert properties["i"]["default"] == {"e": "B", "l": [1, 2], "s": "x", "o": None}
    assert "default" not in properties["f"]


def test_values_of_an_enum_are_described():
    schema, draft = argument(
        "Kind!", '"How." enum Kind { "It barks." DOG CAT @deprecated(reason: "no") }'
    )
    assert schema == {"$ref": "#/$defs/Kind"}
    assert draft.input_schema["$defs"]["Kind"] == {
        "type": "string",
        "enum": ["DOG", "CAT"],
        "description": "How.\nDOG: It barks.\nCAT: deprecated: no",
    }


def test_only_used_definitions_are_included():
    sdl = """type Query { a(x: A): Int b(x: B): Int } input A { b: B a: A } input B { n: Int }
      input C { n: Int }"""
    a, b = import_sdl(sdl).drafts
    assert (list(a.input_schema["$defs"]), list(b.input_schema["$defs"])) == (["A", "B"], ["B"])


def test_a_scalar_that_nobody_describes_is_noted():
    assert reason("type Query { a(x: Odd): Int } scalar Odd") == (
        "scalar Odd is not described: any value is let through"
    )
    assert reason('type Query { a(x: Odd): Int } "Even." scalar Odd') is None
    schema, _ = argument("Odd", 'scalar Odd @specifiedBy(url: "https://example.com/odd")')
    assert schema == {"description": "As in https://example.com/odd"}


def test_files_are_not_sent():
    sdl = """type Query { a(x: Upload!): Int b(x: Upload, y: Int): Int c(x: I!): Int d(x: J): Int }
      scalar Upload input I { f: [Upload!]! n: Int } input J { f: Upload n: Int }"""
    found = import_sdl(sdl)
    told = {one.operation: (one.status, one.reason) for one in found.outcomes}
    assert told == {
        "Query.a": ("skipped", "x takes a file, which is not sent"),
        "Query.b": ("degraded", "x takes a file, which is not sent"),
        "Query.c": ("skipped", "x takes a file, which is not sent"),
        "Query.d": ("degraded", "J.f takes a file, which is not sent"),
    }
    b, d = found.drafts
    assert list(b.input_schema["properties"]) == ["y"]
    assert list(d.input_schema["$defs"]["J"]["properties"]) == ["n"]


PEOPLE = """type Query { p: P } type P { bio: String name: String id: ID! tags: [String!]
  friend: P boss: B pets: [Pet!]! odd(x: Int!): Int old: Int @deprecated }
  type B { id: ID! name: String address: A worker: P } type A { street: String city: String }
  type Pet { id: ID! name: String toys: [Toy!] } type Toy { id: ID! }"""


WHOLE = "{ id name bio tags boss { id name address { street city } } pets { id name toys { id } } }"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, WHOLE),
        ({"depth": 2}, "{ id name bio tags boss { id name } pets { id name } }"),
        ({"depth": 1}, "{ id name bio tags }"),
        ({"cost": 2}, "{ id name }"),
        ({"cost": 10}, "{ id name bio tags boss { id name address { street city } } }"),
        ({"cost": 1, "depth": 1}, "{ id }"),
    ],
)  # fmt: skip
def test_a_selection_keeps_to_its_depth_and_cost(options: dict[str, Any], expected: str):
    assert only(PEOPLE, **options).binding.selection == expected


def test_objects_that_hold_nothing_to_select_are_left_out():
    sdl = "type Query { a: A } type A { id: ID b: B } type B { c(x: Int!): Int d: A }"
    assert only(sdl).binding.selection == "{ id }"
    assert (
        only("type Query { a: A } type A { b(x: Int!): Int }").binding.selection == "{ __typename }"
    )


def test_a_list_inside_is_bounded_where_the_service_lets_us():
    sdl = """type Query { a: A } type A { id: ID b(first: Int): [B!] c(limit: Int!): [B!]
      d(first: Int, x: Int!): [B!] } type B { id: ID }"""
    assert only(sdl).binding.selection == "{ id b(first: 10) { id } c(limit: 10) { id } }"


def test_a_connection_is_asked_for_its_entries_and_whether_more_follow():
    pets = import_sdl(SDL).drafts[0]
    assert pets.binding.selection == (
        "{ totalCount nodes { id name kind born owner { id name email } } "
        "pageInfo { hasNextPage endCursor } }"
    )
    assert pets.binding.pagination == Pagination(
        "cursor", "after", ("pageInfo", "endCursor"), ("pageInfo", "hasNextPage"), limit="first"
    )
    edges = SDL.replace("nodes: [Pet!]!", "")
    assert "{ totalCount edges { node { id name " in import_sdl(edges).drafts[0].binding.selection


def test_lookalikes_of_connections_are_objects():
    sdl = """type Query { a(after: String): A } type A { nodes: Int pageInfo: P edges: [Int] }
      type P { hasNextPage: Boolean }"""
    draft = only(sdl)
    assert draft.binding.selection == "{ nodes edges pageInfo { hasNextPage } }"
    assert draft.binding.pagination is None


def test_unions_and_interfaces_select_typename():
    sdl = """type Query { u: U i: I } union U = A | B interface I { id: ID! }
      type A implements I { id: ID! v: Int w: Int }
      type B implements I { id: ID! v: String x: Int }"""
    u, i = import_sdl(sdl).drafts
    assert u.binding.selection == "{ __typename ... on A { id v w } ... on B { id x } }"
    assert i.binding.selection == "{ __typename id ... on A { v w } ... on B { x } }"
    assert u.output_schema["properties"]["v"] == {"type": ["integer", "null"]}


def test_the_output_schema_describes_the_selection():
    assert only(PEOPLE, depth=2).output_schema == {
        "type": ["object", "null"],
        "properties": {
            "id": {"type": ["string", "integer"]},
            "name": {"type": ["string", "null"]},
            "bio": {"type": ["string", "null"]},
            "tags": {"type": ["array", "null"], "items": {"type": "string"}},
            "boss": {
                "type": ["object", "null"],
                "properties": {
                    "id": {"type": ["string", "integer"]},
                    "name": {"type": ["string", "null"]},
                },
                "description": "Not selected: address, worker",
            },
            "pets": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "id": {"type": ["string", "integer"]},
                        "name": {"type": ["string", "null"]},
                    },
                    "description": "Not selected: toys",
                },
            },
        },
        "description": "Not selected: friend, old",
    }
    assert only("type Query { n: Int! }").output_schema == {"type": "integer"}


def overlay(**operations: Any) -> GraphQLOverlay:
    return read_overlay({"operations": operations}, "tools.yaml")


@pytest.mark.parametrize("key", ["p", "Query.p"])
def test_a_person_can_write_the_selection(key: str):
    text = "{ name friend { ...  on P { bio } } cats: pets { toys { id } } }"
    draft = only(PEOPLE, overlay=overlay(**{key: {"selection": text}}))
    assert draft.binding.selection == (
        "{ name friend { ... on P { bio } } cats: pets { toys { id } } }"
    )
    assert list(draft.output_schema["properties"]) == ["name", "friend", "cats"]


def test_a_written_selection_may_have_arguments():
    text = "{ odd(x: 3) }"
    assert only(PEOPLE, overlay=overlay(p={"selection": text})).binding.selection == "{ odd(x: 3) }"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{ nose }", "P has no field nose"),
        ("{ name", "line 1, column 7: Expected Name, found <EOF>"),
        ("name", "expected"),
        ("{ boss }", "P.boss needs a selection"),
        ("{ name { x } }", "P.name has no fields to select"),
        ("{ odd }", "P.odd needs the argument x"),
        ("{ odd(x: $y) }", "P.odd: variables are not taken"),
        ("{ odd(x: 1, y: 2) }", "P.odd has no argument y"),
        ("{ ...F }", "named fragments are not taken"),
        ("{ ... on Nobody { id } }", "there is no object type Nobody"),
        ("{ name @include(if: true) }", "directives are not taken"),
        ("mutation { name }", "expected one selection set"),
        ("{ boss { } }", "nothing of B is selected"),
        ("{ friend " * 25 + "{ id }" + "}" * 25, "more than 20 levels deep"),
    ],
)
def test_a_selection_that_does_not_fit_is_told_and_replaced(text: str, expected: str):
    found = import_sdl(PEOPLE, overlay=overlay(p={"selection": text}))
    [outcome], [draft] = found.outcomes, found.drafts
    assert outcome.status == "degraded"
    assert str(outcome.reason).startswith("its selection is replaced by a chosen one: ")
    assert expected in str(outcome.reason)
    assert draft.binding.selection.startswith("{ id name ")


def test_an_overlay_sets_names_and_arguments_of_tools():
    sdl = 'type Query { a("X." x: Int!, y: Int, z: Int! = 5): Int }'
    marks = {
        "name": "find", "title": "Find", "description": "Finds.", "toolsets": ["shop"],
        "examples": [{"limit": 1}],
        "arguments": {
            "x": {"name": "limit", "description": "How many."},
            "y": {"hide": True, "value": None},
            "z": {"hide": True},
        },
    }  # fmt: skip
    draft = only(sdl, overlay=overlay(a=marks))
    assert (draft.name, draft.title, draft.description) == ("find", "Find", "Finds.")
    assert draft.toolsets == ("shop",)
    assert draft.input_schema == {
        "type": "object",
        "properties": {
            "limit": {
                "type": "integer",
                "format": "int32",
                "minimum": -(2**31),
                "maximum": 2**31 - 1,
                "description": "How many.",
            }
        },
        "required": ["limit"],
        "additionalProperties": False,
        "examples": [{"limit": 1}],
    }
    shown, null, default = draft.binding.variables
    assert shown == Variable("limit", "x", "Int!")
    assert (bytes(null.fixed), bytes(default.fixed)) == (b"null", b"5")


def test_a_hidden_argument_needs_a_value():
    sdl = "type Query { a(x: Int!): Int b: Int }"
    marks = overlay(a={"arguments": {"x": {"hide": True}}})
    assert reason(sdl, overlay=marks) == "x is hidden, required, and has no value"


def test_an_overlay_enables_and_disables_fields():
    sdl = "type Query { a: Int b: Int c: Int } type Mutation { a: Int }"
    marks = overlay(a={"enabled": True}, b={"enabled": False})
    assert [draft.name for draft in import_sdl(sdl, overlay=marks).drafts] == [
        "a",
        "c",
        "a_mutation",
    ]
    found = import_sdl(sdl, overlay=marks, only_marked=True)
    assert [draft.name for draft in found.drafts] == ["a", "a_mutation"]
    assert found.outcomes[2].reason == "it is not marked as enabled"


def test_an_entry_of_an_overlay_that_matches_nothing_is_noted():
    assert import_sdl("type Query { a: Int }", overlay=overlay(z={})).notes == (
        "the overlay's 'z' matches no field",
    )


@pytest.mark.parametrize(
    "document",
    [
        {"operation": {}},
        {"operations": []},
        {"operations": {"a": {"select": "{ id }"}}},
        {"operations": {"a": {"selection": 3}}},
        {"defaults": {"enabled": "yes"}},
    ],
)
def test_an_overlay_that_cannot_be_meant_is_rejected(document: dict[str, Any]):
    with pytest.raises(ImportRejected, match=r"tools\.yaml: .*expected `operations`"):
        read_overlay(document, "tools.yaml")


def test_fields_of_union_members_are_named_by_single_type_paths():
    """The answer's schema lists paths through single types, which `_fields` takes (mending 29)."""
    sdl = """
        type Query { found: [Hit!]! named: Named }
        union Hit = Room | Door
        interface Named { name: String }
        type Room implements Named {
          id: ID! name: String area: Int rent(in: String!): Int old: Int @deprecated
        }
        type Door { id: ID! open: Boolean }
    """
    drafts = {draft.name: draft for draft in import_sdl(sdl).drafts}
    assert drafts["found"].output_schema["items"]["description"] == "Not selected: on Room.old"
    small = {draft.name: draft for draft in import_sdl(sdl, cost=3).drafts}
    told = small["found"].output_schema["items"]["description"].removeprefix("Not selected: ")
    assert set(told.split(", ")) >= {"on Room.area", "on Room.old"}
    assert "on Room.id" not in told
    assert "on Room.name" not in str(drafts["named"].output_schema)  # it is the interface's own


def test_mutually_referring_types_are_inspected_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Work for a schema whose types refer to each other grows with the schema alone, and not with
    the number of fields that lead to each type: 33 kB took 8 s (mending 10)."""
    looked, of = [0], Schema.of

    def count_inspection(schema: Schema, ref: Ref) -> Type:
        looked[0] += 1
        return of(schema, ref)

    monkeypatch.setattr(Schema, "of", count_inspection)
    types = range(40)
    fields = " ".join(f"f{to}: T{to}" for to in types)
    roots = " ".join(f"q{number}: T0" for number in range(100))
    sdl = f"type Query {{ {roots} }} " + " ".join(
        f"type T{one} {{ {fields} id: ID }}" for one in types
    )
    drafts = import_sdl(sdl).drafts
    assert len({draft.binding.selection for draft in drafts}) == 1  # type: ignore[union-attr]
    assert looked[0] < 100_000


def test_selections_of_huge_types_inspect_few_fields(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Work for each of many types that refer to all others is bounded by what a selection takes:
    300 types of 300 fields took more than a minute (mending 10)."""
    looked, of = [0], Schema.of

    def count_types(schema: Schema, ref: Ref) -> Type:
        looked[0] += 1
        return of(schema, ref)

    monkeypatch.setattr(Schema, "of", count_types)
    types = range(60)
    fields = " ".join(f"f{to}: T{to}" for to in types)
    roots = " ".join(f"q{number}: T{number}" for number in types)
    sdl = f"type Query {{ {roots} }} " + " ".join(f"type T{one} {{ {fields} }}" for one in types)
    drafts = import_sdl(sdl).drafts
    assert len(drafts) == len(types)
    assert looked[0] < 50 * len(types) ** 2


def _repeating(fields: int, member: str, definitions: str) -> str:
    """A schema whose fields of Query all take the input `In` with 200 members of the same type."""
    members = " ".join(f"m{number}: {member}" for number in range(200))
    roots = " ".join(f"f{number}(a: In): Int" for number in range(fields))
    return f"{definitions} input In {{ {members} }} type Query {{ {roots} }}"


@pytest.mark.parametrize(
    "sdl",
    [
        _repeating(1500, "E", f"enum E {{ {' '.join(f'VALUE{n}' for n in range(1000))} }}"),
        _repeating(1500, "S", f'"{"long " * 500}" scalar S'),
        _repeating(1500, "E", f"enum E {{ {'LONG' * 500} }}"),
        _repeating(1500, "L", f"input L {{ {' '.join(f'l{n}: In' for n in range(200))} }}"),
    ],
    ids=["many values", "long scalar", "long value", "linked"],
)
def test_repeated_definitions_are_bounded_by_the_schema_limit(sdl: str) -> None:
    """Input types count for each field that leads to them: 158 kB became 378 MB of schemas
    (mending 10)."""
    most = 2_000_000
    result = import_sdl(sdl, schemas_limit_bytes=most)
    kept = sum(len(encode(draft.input_schema)) for draft in result.drafts)
    assert most / 2 < kept <= most * 1.3  # braces and names of keywords do not count
    [reason] = {outcome.reason for outcome in result.outcomes if outcome.status == "skipped"}
    assert reason == (
        "the input schemas of this description are larger than 2,000,000 bytes together "
        "(setting imports.schemas_limit_bytes)"
    )
    assert len(result.outcomes) == 1500


def test_output_schemas_are_bounded_by_the_schema_limit() -> None:
    """Values of an enum count for each field that returns it; tools beyond the limit have no
    output schema (mending 35)."""
    most, value = 1_000_000, "LONG" * 500
    fields = " ".join(f"f{n}: E" for n in range(1500))
    result = import_sdl(f"enum E {{ {value} }} type Query {{ {fields} }}", schemas_limit_bytes=most)
    assert len(result.drafts) == 1500
    schemas = [draft.output_schema for draft in result.drafts if draft.output_schema is not None]
    assert most / 2 < sum(len(encode(schema)) for schema in schemas) <= most
    assert OUTPUT_LEFT_OUT in {outcome.reason for outcome in result.outcomes}


def test_files_that_inputs_leave_out_count_as_schemas() -> None:
    """Notes are made for each member that is left out, of each field (mending 10)."""
    result = import_sdl(_repeating(1500, "Upload", "scalar Upload"), schemas_limit_bytes=1_000_000)
    assert {outcome.status for outcome in result.outcomes} == {"degraded", "skipped"}
