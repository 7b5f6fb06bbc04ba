"""GraphQL schemas, read: what becomes of each field, and what is rejected as a whole."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from graphql import build_schema, introspection_from_schema, parse, validate
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.upstreams.graphql.upstream import document
from registry.importers.drafts import ImportedDescription
from registry.importers.graphql import GraphQLChoice, read
from schemas.errors import ImportRejected
from tests.properties import examples
from tests.servers.graphql import SDL


def import_sdl(sdl: str, **options: Any) -> ImportedDescription:
    return read(sdl.encode(), "x.graphql", GraphQLChoice(**options))


def introspect(sdl: str, **flags: bool) -> dict[str, Any]:
    asked = {"specified_by_url": True, "input_value_deprecation": True, "one_of": True} | flags
    return introspection_from_schema(build_schema(sdl), **asked)


def statuses(found: ImportedDescription) -> dict[str, str]:
    return {outcome.operation: outcome.status for outcome in found.outcomes}


def reasons(found: ImportedDescription) -> dict[str, str | None]:
    return {outcome.operation: outcome.reason for outcome in found.outcomes}


def names(found: ImportedDescription) -> list[str]:
    return [draft.name for draft in found.drafts]


def invalid(sdl: str, found: ImportedDescription) -> Iterable[str]:
    """What a service would say against the requests of the tools."""
    schema = build_schema(sdl)
    for draft in found.drafts:
        request = document(draft.binding, draft.binding.selection)
        yield from (str(error) for error in validate(schema, parse(request)))


def test_each_query_and_mutation_is_a_tool():
    found = import_sdl(SDL)
    assert statuses(found) == {
        **dict.fromkeys(
            ("Query.pets", "Query.pet", "Query.petBy", "Query.things", "Query.named",
             "Query.count", "Query.echo", "Query.older", "Mutation.addPet", "Mutation.count"),
            "imported",
        ),
        "Subscription.petAdded": "skipped",
    }  # fmt: skip
    assert "answers for as long as it is open" in str(reasons(found)["Subscription.petAdded"])
    assert found.drafts[0].key == "Query.pets@query"
    assert list(invalid(SDL, found)) == []


def test_an_introspection_gives_the_same_tools_as_sdl():
    document = introspect(SDL)
    for answer in (document, {"data": document}):
        found = read(json.dumps(answer).encode(), "x.json")
        assert found.drafts == import_sdl(SDL).drafts


def test_queries_only_read_and_mutations_may_do_anything():
    hints = {draft.name: draft.annotations.read_only_hint for draft in import_sdl(SDL).drafts}
    assert (hints["pet"], hints["addPet"]) == (True, False)


def test_a_mutation_with_the_name_of_a_query_is_told_apart():
    sdl = "type Query { a: Int b: Int } type Mutation { a: Int B: Int c: Int }"
    assert names(import_sdl(sdl)) == ["a", "b", "a_mutation", "B_mutation", "c"]
    sdl = "type Query { a: Int a_mutation: Int } type Mutation { a: Int }"
    [query, exact, hashed] = names(import_sdl(sdl))
    assert (query, exact) == ("a", "a_mutation")
    assert hashed.startswith("a_mutation_")


def test_descriptions_come_from_fields_or_types():
    found = import_sdl(SDL)
    told = {draft.name: draft.description for draft in found.drafts}
    assert told["pets"] == "All pets, a page at a time."
    assert told["things"] == "List things. Answers with [Thing!]!."
    assert told["older"] == "Deprecated: use count\n\nGet older. Answers with Int."
    assert "1 of 10 fields are deprecated, as their descriptions state" in found.notes


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"include": ("pet*",)}, ["pets", "pet", "petBy"]),
        ({"include": ("Mutation.*",)}, ["addPet", "count_mutation"]),
        ({"include": ("tag:mutation",), "exclude": ("add*",)}, ["count_mutation"]),
        ({"exclude": ("tag:query",)}, ["addPet", "count_mutation"]),
    ],
)
def test_patterns_choose(options: dict[str, Any], expected: list[str]):
    found = import_sdl(SDL, **options)
    assert names(found) == expected
    assert {"imported", "excluded"} <= set(statuses(found).values())
    assert len(found.outcomes) == len(import_sdl(SDL).outcomes)


def test_a_pattern_that_matches_nothing_is_noted():
    assert "the pattern 'dogs*' matches no field" in import_sdl(SDL, exclude=("dogs*",)).notes


@pytest.mark.parametrize("pattern", ["Subscription.*", "tag:subscription"])
def test_a_subscription_that_nobody_wants_is_none_that_was_skipped(pattern: str):
    found = import_sdl("type Query { a: Int } type Subscription { b: Int }", exclude=(pattern,))
    [outcome] = [one for one in found.outcomes if one.operation == "Subscription.b"]
    assert (outcome.status, outcome.reason) == ("excluded", f"excluded by {pattern!r}")
    assert not found.notes


def test_root_types_may_have_any_names():
    sdl = "schema { query: Root mutation: Doing } type Root { a: Int } type Doing { b: Int }"
    assert [draft.key for draft in import_sdl(sdl).drafts] == [
        "Query.a@query",
        "Mutation.b@mutation",
    ]


def test_extensions_count_also_of_types_that_stand_elsewhere():
    sdl = """extend type Query { a(x: E): T } type T { a: Int } extend type T { b: Int }
      enum E { A } extend enum E { B } extend schema @link(url: "x") directive @link(url: String)
      on SCHEMA"""
    [draft] = import_sdl(sdl).drafts
    assert draft.binding.selection == "{ a b }"
    assert draft.input_schema["properties"]["x"]["enum"] == ["A", "B", None]


def test_directives_that_nobody_knows_are_no_matter():
    sdl = 'type Query @key(fields: "id") { a(x: Int @wild): Int @cost(value: 3) @x(y: [{z: Q}]) }'
    assert statuses(import_sdl(sdl)) == {"Query.a": "imported"}


def test_undefined_types_cost_only_dependent_fields():
    sdl = "type Query { a(x: Gone): Int b: Lost c: T } type T { id: ID lost: Lost }"
    found = import_sdl(sdl)
    assert reasons(found) == {
        "Query.a": "type Gone is not defined: any value is let through",
        "Query.b": "its type Lost is not defined",
        "Query.c": None,
    }
    assert statuses(found)["Query.a"] == "degraded"
    assert statuses(found)["Query.b"] == "skipped"
    assert found.drafts[1].binding.selection == "{ id }"
    assert "2 types are not defined: Gone, Lost" in found.notes


def test_federation_fields_are_left_out():
    sdl = """type Query { _entities(representations: [_Any!]!): [E]! _service: S! a: Int }
      scalar _Any type S { sdl: String } type E { id: ID }"""
    assert statuses(import_sdl(sdl)) == {
        "Query._entities": "excluded", "Query._service": "excluded", "Query.a": "imported",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "x is empty; expected GraphQL SDL"),
        (b"<html>", "x is HTML or XML; expected GraphQL SDL"),
        (
            b"type Query {\n  a: \n}",
            "x, line 3, column 1: not a GraphQL schema (SDL): Expected Name",
        ),
        (b"type Query { a: \xff }", "x, line 1: not valid UTF-8"),
        (b'{"data": 1', "x, line 1, column 11: not valid JSON"),
        (b'{"openapi": "3.1.0"}', "this is an OpenAPI description; use `toolgate import openapi`"),
        (b"openapi: 3.1.0", "this is an OpenAPI description; use `toolgate import openapi`"),
        (b'{"data": {"__schema": {}}}', "holds no `__schema` with types"),
        (b"type Query", "the schema has no type Query or Mutation with fields"),
        (b"scalar A", "the schema has no type Query or Mutation with fields"),
        (b"a" + b"[" * 5000, "not a GraphQL schema (SDL)"),
    ],
)
def test_invalid_schemas_are_rejected(data: bytes, expected: str):
    with pytest.raises(ImportRejected) as caught:
        read(data, "x")
    assert expected in str(caught.value)


def test_an_introspection_without_its_newer_parts_is_read():
    document = introspect(SDL, specified_by_url=False, input_value_deprecation=False)
    for type_ in document["__schema"]["types"]:
        type_.pop("isOneOf", None)
        for field in type_.get("fields") or ():
            if not field["args"]:
                del field["args"]
    del document["__schema"]["directives"]
    found = read(json.dumps(document).encode(), "x.json")
    assert names(found) == names(import_sdl(SDL))


def test_names_that_are_none_never_become_part_of_a_request():
    document = introspect("type Query { good(x: Int): T } type T { id: ID }")
    query, t = (
        next(one for one in document["__schema"]["types"] if one["name"] == name)
        for name in ("Query", "T")
    )
    [good] = query["fields"]
    query["fields"].append({**good, "name": "bad } mutation { drop"})
    good["args"].append({**good["args"][0], "name": "y: 1) { z } a("})
    t["fields"].append({**t["fields"][0], "name": "x } other { y"})
    [draft] = read(json.dumps(document).encode(), "x.json").drafts
    assert document_of(draft) == "query good($x: Int) { good(x: $x) { id } }"


def document_of(draft: Any) -> str:
    return document(draft.binding, draft.binding.selection)


def large(count: int) -> str:
    """A schema of 4 * count types, all of which reach all others."""
    fields = " ".join(f"t{n}(first: Int, where: W{n}): [T{n}!]!" for n in range(count))
    types = " ".join(
        f"type T{n} {{ id: ID! name: String next: T{(n + 1) % count}!"
        f" many: [T{(n + 7) % count}!]! }}"
        f" input W{n} {{ id: O{n} and: [W{n}!] next: W{(n + 1) % count} }}"
        f" input O{n} {{ eq: ID in: [ID!] kind: K{n} }} enum K{n} {{ A B }}"
        for n in range(count)
    )
    return f"type Query {{ {fields} }} {types}"


def test_types_that_all_reach_each_other_do_not_explode():
    found = import_sdl(large(300))
    assert statuses(found) == {f"Query.t{n}": "degraded" for n in range(300)}
    assert "more than 100 types" in str(reasons(found)["Query.t0"])
    [first, *_] = found.drafts
    assert len(first.input_schema["$defs"]) == 101
    assert first.binding.selection == (
        "{ id name next { id name next { id name } many { id name } } many { id name "
        "next { id name } } }"
    )


_FRAGMENTS = st.sampled_from(
    ["type", "input", "Query", "{", "}", "(", ")", "!", "[", "]", ":", "=", "@", '"', '"""', "|",
     "&", "implements", "extend", "union", "enum", "1", "{}", "$", "...", "\n", "Pet", "PetFilter",
     "\\u0000", "#", ",", "interface", "schema", "null", "ID", "Upload"]
)  # fmt: skip


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(SDL)), st.integers(0, 12), _FRAGMENTS), max_size=4))
def test_damaged_sdl_is_read_or_rejected(changes: list[tuple[int, int, str]]):
    text = SDL
    for at, cut, fragment in changes:
        text = f"{text[:at]} {fragment} {text[at + cut :]}"
    judge(text.encode("utf-8", "replace"))


_JUNK = st.sampled_from(["null", "1", '""', '"x"', "[]", "{}", "true", "[null]", '{"name": "Pet"}'])


INTROSPECTION = json.dumps(introspect(SDL))


@settings(max_examples=examples(150), deadline=None)
@given(st.data())
def test_a_damaged_introspection_is_read_or_rejected(data: st.DataObject):
    answer: Any = json.loads(INTROSPECTION)
    for _ in range(data.draw(st.integers(1, 4))):
        at = answer
        for _depth in range(data.draw(st.integers(0, 8))):
            keys = list(at) if isinstance(at, dict) else range(len(at))
            inner = [key for key in keys if isinstance(at[key], dict | list) and at[key]]
            if not inner:
                break
            at = at[data.draw(st.sampled_from(inner))]
        keys = list(at) if isinstance(at, dict) else range(len(at))
        at[data.draw(st.sampled_from(list(keys)))] = json.loads(data.draw(_JUNK))
    judge(json.dumps(answer).encode())


def judge(data: bytes) -> None:
    """Whatever comes out is whole: each request can be parsed."""
    try:
        found = read(data, "x")
    except ImportRejected:
        return
    for draft in found.drafts:
        parse(document_of(draft))
