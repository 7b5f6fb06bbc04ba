"""Stubs: what they say of tools, and that no text of a tool gets out of its place in them.

Python is parsed by Python, TypeScript by the grammar of tree-sitter.
"""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
import tree_sitter_typescript
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema_rs import Draft202012Validator
from msgspec import Raw
from tree_sitter import Language, Node, Parser

from registry.display.stubs import StubLanguage, fit_stubs, write_alias, write_comment, write_stub
from registry.display.token_budgets import tokens
from registry.display.tool_shaper import ListedTool
from registry.importers.openapi import parse, read
from schemas.jsonrpc import encode
from tests.properties import examples
from tests.registry.anyschema import instances, schemas
from tests.registry.shown import describe_tool

PETSHOP = Path(__file__).parents[3] / "examples" / "petshop" / "openapi.yaml"
TYPESCRIPT = Parser(Language(tree_sitter_typescript.language_typescript()))
LANGUAGES = get_args(StubLanguage)

Json = dict[str, Any]


def stub(schema: Json | None = None, language: StubLanguage = "python", **fields: Any) -> str:
    limit = fields.pop("limit", 4000)
    return write_stub(describe_tool("t", schema, **fields), "t", language, limit)


def python(schema: Json | None = None, **fields: Any) -> str:
    return stub(schema, "python", **fields)


def typescript(schema: Json | None = None, **fields: Any) -> str:
    return stub(schema, "typescript", **fields)


def arguments(required: Sequence[str] = (), /, **properties: Any) -> Json:
    return {"type": "object", "properties": properties, "required": list(required)}


STRING, INTEGER, NULL = {"type": "string"}, {"type": "integer"}, {"type": "null"}
LISTING = describe_tool(
    "list_pets",
    arguments(
        ["owner"],
        species={"enum": ["cat", "dog"]},
        limit={**INTEGER, "default": 20},
        owner=STRING,
    ),
    description="Lists pets. And much more.",
    output={"type": "array", "items": arguments(["id"], id=INTEGER, name=STRING)},
)


def test_a_stub_is_a_signature_with_types_and_purpose() -> None:
    assert write_stub(LISTING, "list_pets", "python", 400) == (
        'def list_pets(*, owner: str, species: Literal["cat", "dog"] = ..., limit: int = 20)'
        ' -> list[{"id": int, "name?": str}]: """Lists pets."""'
    )
    assert write_stub(LISTING, "list_pets", "typescript", 400) == (
        'function list_pets(args: {owner: string, species?: "cat" | "dog", limit?: number})'
        ": Promise<{id: number, name?: string}[]> // Lists pets."
    )


def test_unknown_types_are_any() -> None:
    assert python() == "def t() -> Any: ..."
    assert typescript() == "function t(): Promise<unknown>"
    assert python(arguments(a={})) == "def t(*, a: Any = ...) -> Any: ..."


@pytest.mark.parametrize(
    ("schema", "in_python", "in_typescript"),
    [
        ({"type": ["string", "null"]}, "str | None", "string | null"),
        ({"anyOf": [INTEGER, NULL]}, "int | None", "number | null"),
        ({"type": "number"}, "float", "number"),
        ({"type": "boolean"}, "bool", "boolean"),
        ({"const": "cat"}, 'Literal["cat"]', '"cat"'),
        ({"enum": ["x", 1, True, None]}, 'Literal["x", 1, True] | None', '"x" | 1 | true | null'),
        ({"oneOf": [{"const": "a"}, {"const": "b"}]}, 'Literal["a", "b"]', '"a" | "b"'),
        ({"type": "array"}, "list", "unknown[]"),
        ({"type": "array", "items": {"enum": ["a"]}}, 'list[Literal["a"]]', '"a"[]'),
        (
            {"type": "array", "items": {"type": ["string", "null"]}},
            "list[str | None]",
            "(string | null)[]",
        ),
        ({"type": "object"}, "dict", "object"),
        (
            {"type": "object", "additionalProperties": INTEGER},
            "dict[str, int]",
            "Record<string, number>",
        ),
        ({"anyOf": [STRING, {}]}, "Any", "unknown"),
        (True, "Any", "unknown"),
        (
            {"allOf": [arguments(["a"], a=STRING), arguments(b=INTEGER)]},
            '{"a": str, "b?": int}',
            "{a: string, b?: number}",
        ),
        (
            {**arguments(["k"], k=STRING), "oneOf": [arguments(a=STRING), arguments(a=INTEGER)]},
            '{"k": str, "a?": str | int}',
            "{k: string, a?: string | number}",
        ),
        ({"$ref": "#/$defs/Missing"}, "Any", "unknown"),
        ({"type": "nonsense", "items": 5, "enum": 3}, "Any", "unknown"),
    ],
    ids=str,
)
def test_schemas_have_types(schema: Any, in_python: str, in_typescript: str) -> None:
    assert python(arguments(["a"], a=schema)) == f"def t(*, a: {in_python}) -> Any: ..."
    assert typescript(output=schema) == f"function t(): Promise<{in_typescript}>"


def test_references_are_followed_and_circles_end() -> None:
    pet = arguments(name=STRING, friends={"type": "array", "items": {"$ref": "#/$defs/Pet"}})
    endless = {"$ref": "#/$defs/Endless"}
    output = {"$ref": "#/$defs/Pet", "$defs": {"Pet": pet, "Endless": endless}}
    assert '-> {"name?": str, "friends?": list[dict]}:' in python(output=output)
    assert "-> Any:" in python(output={**output, "$ref": "#/$defs/Endless"})
    assert "-> Any:" in python(output={"$ref": "#"})


def test_objects_are_told_to_a_depth_of_three() -> None:
    schema: Json = STRING
    for name in "edcba":
        schema = arguments([name], **{name: schema})
    assert '-> {"a": {"b": {"c": dict}}}:' in python(output=schema)
    assert "Promise<{a: {b: {c: object}}}>" in typescript(output=schema)


def test_of_many_values_some_are_examples_of_arguments_and_none_of_results() -> None:
    many = {"enum": [f"value-{n}" for n in range(10_000)]}
    assert (
        python(arguments(["a"], a=many), output=many)
        == 'def t(*, a: Literal["value-0", "value-1", "value-2", "value-3", "value-4"] | str)'
        " -> str: ..."
    )


@pytest.mark.parametrize("name", ["odd-name", "class", "ﬁ", "naïve", "", "_", "__debug__", "a b"])
def test_arguments_that_python_cannot_name_are_given_by_keys(name: str) -> None:
    schema: Json = arguments([name])
    schema["properties"] = {name: STRING, "plain": INTEGER}
    assert python(schema) == f'def t(*, plain: int = ..., **_: {{"{name}": str}}) -> Any: ...'


def test_arguments_that_typescript_cannot_name_are_strings() -> None:
    schema: Json = arguments(["a-b"])
    schema["properties"] = {"a-b": STRING, "class": INTEGER, "$x": INTEGER}
    expected = 'args: {"a-b": string, class?: number, $x?: number}'
    assert expected in typescript(schema)


@pytest.mark.parametrize("default", [[1], {"a": 1}, "x" * 500, 10**18, None])
def test_defaults_that_are_no_short_literals_are_left_out(default: Any) -> None:
    assert python(arguments(a={"default": default})) == "def t(*, a: Any = ...) -> Any: ..."


def big_object(count: int) -> Json:
    inner = arguments(**{f"member_{n}": arguments(x=STRING, y=STRING) for n in range(count)})
    return arguments(["must"], **{f"part_{n}": inner for n in range(count)}, must=STRING)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("limit", [4000, 1600, 800, 400, 200, 120])
def test_a_large_tool_is_told_in_its_room_required_arguments_first(
    language: StubLanguage, limit: int
) -> None:
    written = stub(big_object(40), language, output=big_object(40), limit=limit)
    assert len(written) <= limit
    assert len(written) > limit / 4 or limit > 400
    assert "must" in written
    check(written, "t", language)


def test_a_giant_tool_is_told_in_a_bounded_number_of_steps() -> None:
    wide = arguments(**{f"a{n}": {"$ref": "#/$defs/A"} for n in range(3000)})
    schema = {**wide, "$defs": {"A": wide}}
    for language in LANGUAGES:
        written = stub(schema, language, output=schema, description="x" * 10**6, limit=800)
        assert len(written) <= 800
        check(written, "t", language)
    values = {"enum": [f"value-{n}" for n in range(2000)]}
    written = python(arguments(**{f"a{n}": values for n in range(300)}), limit=800)
    assert "a0: str" in written
    deep: Json = {}
    for _ in range(150):
        deep = {"type": "array", "items": {"anyOf": [{"allOf": [deep]}, NULL]}}
    check(python(output=deep), "t", "python")


def test_stubs_of_the_petshop_cost_about_45_tokens() -> None:
    drafts = read(parse(PETSHOP.read_bytes(), PETSHOP.name)).drafts
    tools = [
        describe_tool(
            draft.name,
            draft.input_schema,
            description=draft.description,
            output=draft.output_schema,
        )
        for draft in drafts
    ]
    for language in LANGUAGES:
        stubs = {tool.name: write_stub(tool, tool.name, language, 800) for tool in tools}
        assert sum(map(tokens, stubs.values())) / len(stubs) < 48
        assert tokens(stubs["deletePet"]) < 20
        for name, written in stubs.items():
            check(written, name, language)


def test_stubs_share_the_room_of_an_answer() -> None:
    large = describe_tool("large", big_object(40))
    given = {f"tool_{n}": ListedTool((large, LISTING)[n % 2], {"score": 0.5}) for n in range(6)}
    fitted = fit_stubs(given, 4000, language="python", most=500)
    assert len(encode(fitted.entries)) <= 4000
    assert fitted.left_out == 0
    assert [entry["name"] for entry in fitted.entries] == ["large", "list_pets"] * 3
    assert fitted.entries[1] == {
        "name": "list_pets",
        "score": 0.5,
        "stub": write_stub(LISTING, "tool_1", "python", 400),
    }
    assert len(fitted.entries[0]["stub"]) > 400
    assert fit_stubs(given, 500, language="python", most=500).left_out > 0
    assert fit_stubs(given, 10, language="python", most=500).entries == []
    [first, *_] = fit_stubs(given, 4000, language="python", most=40).entries
    assert len(first["stub"]) <= 160


def test_a_part_of_the_arguments_is_a_type_of_its_own() -> None:
    part = arguments(["a"], a=STRING, b={"$ref": "#/$defs/B"}) | {"$defs": {"B": INTEGER}}
    assert write_alias("spec.items", part, "python", 400) == 'spec_items = {"a": str, "b?": int}'
    assert (
        write_alias("spec.items", part, "typescript", 400)
        == "type spec_items = {a: string, b?: number}"
    )
    for language in LANGUAGES:
        assert len(write_alias("a", big_object(40), language, 400)) <= 400


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_comment_has_one_line(language: StubLanguage) -> None:
    written = write_comment("a\nb\r\u2028c\u202ed", language)
    assert written in ("# a b c d", "// a b c d")


# Nothing breaks out

ATTACKS = (
    '"""', '"', "'", "\\", '\\"', "*/", "/*", "//", "#", "\n", "\r\n", "\u2028", "\u2029", "\x85",
    "\x00", "\x1b[2J", "\u202e", "\ufeff", "\U000e0041", "\ud800", "${x}", "`", "}", "]", ")",
    '""" or __import__("os")', "None: pass\ndef other", "]\nimport os\nx: Any[", "{{}}", "{0}",
    "%s", "\\u000a", "\\N{BULLET}", "\\", "a: string}) {} //", "class", "self", "__proto__", "a?",
    "naïve", "日本", "ﬁ", "\u3000", "None", "*", "**", "...", "-1",
)  # fmt: skip
HOSTILE = st.one_of(
    st.sampled_from(ATTACKS),
    st.text(max_size=8),
    st.lists(st.sampled_from(ATTACKS), min_size=2, max_size=4).map("".join),
).filter(lambda text: text.isascii() or "\ud800" not in text)
VALUES = st.one_of(
    HOSTILE, st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, width=32),
    st.lists(HOSTILE, max_size=2), st.dictionaries(HOSTILE, HOSTILE, max_size=2),
)  # fmt: skip


def _hostile(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    members = st.dictionaries(HOSTILE, inner, max_size=4)
    return st.one_of(
        st.builds(
            lambda properties, required, more: {
                "type": "object",
                "properties": properties,
                "required": required,
                **more,
            },
            members,
            st.one_of(st.lists(HOSTILE, max_size=3), HOSTILE),
            st.sampled_from([{}, {"additionalProperties": True}]),
        ),
        st.fixed_dictionaries({"additionalProperties": inner, "type": st.just("object")}),
        st.fixed_dictionaries({"items": inner}),
        st.fixed_dictionaries({"anyOf": st.lists(inner, max_size=3)}),
        st.fixed_dictionaries({"allOf": st.lists(inner, max_size=2), "type": HOSTILE}),
        st.fixed_dictionaries({"properties": members, "oneOf": st.lists(inner, max_size=2)}),
    )


SCHEMAS = st.recursive(
    st.one_of(
        st.fixed_dictionaries({"enum": st.lists(VALUES, max_size=4)}),
        st.fixed_dictionaries({"const": VALUES, "description": HOSTILE}),
        st.fixed_dictionaries({"type": st.sampled_from(["string", "integer"]), "default": VALUES}),
        st.fixed_dictionaries({"$ref": st.one_of(HOSTILE, st.sampled_from(["#", "#/properties"]))}),
        VALUES,
    ),
    _hostile,
    max_leaves=12,
)


@settings(deadline=None, max_examples=examples(400), suppress_health_check=list(HealthCheck))
@given(
    schema=SCHEMAS,
    output=SCHEMAS,
    text=st.lists(HOSTILE, max_size=4).map(" ".join),
    limit=st.sampled_from((60, 200, 800, 4000)),
)
@pytest.mark.parametrize("language", LANGUAGES)
def test_no_text_of_a_tool_leaves_its_place(
    language: StubLanguage, schema: Any, output: Any, text: str, limit: int
) -> None:
    tool = replace(
        describe_tool("t", description=text),
        input_schema=Raw(encode(schema)),
        output_schema=Raw(encode(output)),
    )
    check(write_stub(tool, "t", language, limit), "t", language)
    for line in (write_alias(text, output, language, limit), write_comment(text, language)):
        check_line(line, language)


def check(line: str, name: str, language: StubLanguage) -> None:
    """Whether a stub is the signature of one function of this name, and nothing else."""
    check_line(line, language)
    if language == "python":
        [function] = ast.parse(line).body
        assert isinstance(function, ast.FunctionDef)
        assert (function.name, function.decorator_list) == (name, [])
        [body] = function.body
        assert isinstance(body, ast.Expr)
        assert isinstance(body.value, ast.Constant)
        assert isinstance(body.value.value, str) or body.value.value is ...
        compile(line, "stub", "exec")
        return
    function_, *comments = TYPESCRIPT.parse(line.encode()).root_node.children
    assert function_.type == "function_signature"
    identifier = function_.child_by_field_name("name")
    assert identifier is not None
    assert identifier.text == name.encode()
    assert [node.type for node in comments] in ([], ["comment"])


TYPES = frozenset(("Any", "Literal", "str", "int", "float", "bool", "dict", "list", "_"))
PYTHON_NODES = (
    ast.Module, ast.FunctionDef, ast.arguments, ast.arg, ast.Expr, ast.Constant, ast.Name, ast.Load,
    ast.Store, ast.Assign, ast.Dict, ast.Subscript, ast.Tuple, ast.BinOp, ast.BitOr, ast.UnaryOp,
    ast.USub,
)  # fmt: skip
TYPESCRIPT_NODES = frozenset(
    ("program", "comment", "function_signature", "type_alias_declaration", "identifier",
     "type_identifier", "formal_parameters", "required_parameter", "optional_parameter",
     "type_annotation", "object_type", "property_signature", "property_identifier", "string",
     "string_fragment", "escape_sequence", "number", "true", "false", "null", "literal_type",
     "predefined_type", "union_type", "array_type", "parenthesized_type", "generic_type",
     "type_arguments", "index_signature", "unary_expression")
)  # fmt: skip


def check_line(line: str, language: StubLanguage) -> None:
    assert line.isprintable()
    if language == "python":
        tree = ast.parse(line)
        for node in ast.walk(tree):
            assert isinstance(node, PYTHON_NODES), ast.dump(node)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                assert node.id in TYPES
        return
    root = TYPESCRIPT.parse(line.encode()).root_node
    assert not root.has_error, line
    left: list[Node] = [root]
    while left:
        parsed = left.pop()
        assert not parsed.is_named or parsed.type in TYPESCRIPT_NODES, parsed.type
        left += parsed.children


# Types tell the truth


@settings(deadline=None, max_examples=examples(400), suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_type_has_the_values_that_its_schema_accepts(data: st.DataObject) -> None:
    schema = data.draw(schemas().map(lambda schema: _without(schema, ("allOf", "not"))))
    for keyword in ("anyOf", "oneOf"):
        schema.pop(keyword, None)  # beside properties they are hints
    value = data.draw(instances(schema))
    if not Draft202012Validator(schema).is_valid(value):
        return
    limit = data.draw(st.sampled_from((100, 300, 4000)))
    [function] = ast.parse(python(output=schema, limit=limit)).body
    assert isinstance(function, ast.FunctionDef)
    assert fits(function.returns, value), (ast.unparse(function), value)


def _without(schema: Any, keywords: tuple[str, ...]) -> Any:
    if isinstance(schema, list):
        return [_without(member, keywords) for member in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _without(member, keywords) for key, member in schema.items() if key not in keywords
    }


KINDS: Mapping[str, Any] = {
    "str": str,
    "int": int,
    "float": (int, float),
    "bool": bool,
    "dict": dict,
    "list": list,
}


def fits(node: Any, value: Any) -> bool:
    """Whether a type, as parsed, has a value."""
    match node:
        case ast.Name("Any"):
            return True
        case ast.Name(kind):
            is_bool = isinstance(value, bool)
            return is_bool if kind == "bool" else isinstance(value, KINDS[kind]) and not is_bool
        case ast.Constant(None):
            return value is None
        case ast.BinOp(left, ast.BitOr(), right):
            return fits(left, value) or fits(right, value)
        case ast.Subscript(ast.Name("Literal"), literals):
            each = literals.elts if isinstance(literals, ast.Tuple) else [literals]
            return value in [ast.literal_eval(literal) for literal in each]
        case ast.Subscript(ast.Name("list"), inner):
            return isinstance(value, list) and all(fits(inner, member) for member in value)
        case ast.Subscript(ast.Name("dict"), ast.Tuple([_, inner])):
            return isinstance(value, dict) and all(fits(inner, each) for each in value.values())
        case ast.Dict(keys, values):
            return isinstance(value, dict) and all(
                _fits_member(key.value, inner, value)
                for key, inner in zip(keys, values, strict=True)
                if isinstance(key, ast.Constant)
            )
    raise AssertionError(ast.dump(node))


def _fits_member(key: Any, inner: Any, value: Json) -> bool:
    name = key.removesuffix("?")
    return fits(inner, value[name]) if name in value else key.endswith("?")
