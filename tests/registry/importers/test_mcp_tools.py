"""Definitions of another server's tools: what is kept, what costs the tool."""

import re
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from registry.display.tool_shaper import for_objects
from registry.importers.drafts import ImportedDescription
from registry.importers.mcp import read_snapshot
from registry.importers.mcp.tools_and_items import DEPTH_LIMIT
from schemas.binding import McpBinding, MirroredArgument
from schemas.errors import ImportRejected
from schemas.mcp.snapshot import ServerFacts
from schemas.source import Outcome
from schemas.tool import Annotations, ToolDraft
from tests.registry.servers import OBJECT, entry, snapshot, tool


def read(*tools: Any, **options: Any) -> ImportedDescription:
    return read_snapshot(snapshot(*tools).encode(), **options)


def only(definition: dict[str, Any]) -> tuple[ToolDraft, Outcome]:
    imported = read(definition)
    [draft], [outcome] = imported.drafts, imported.outcomes
    return draft, outcome


def reason(definition: Any) -> str:
    """Why it became no tool, while the one behind it did."""
    imported = read(definition, tool("good"))
    assert [draft.name for draft in imported.drafts] == ["good"]
    skipped, good = imported.outcomes
    assert (skipped.status, skipped.name, good.status) == ("skipped", None, "imported")
    assert skipped.reason is not None
    return skipped.reason


def test_a_definition_is_carried_whole() -> None:
    schema = {"type": "object", "properties": {"z": {}, "a": {"default": 1.5}}, "$comment": "x"}
    draft, outcome = only(
        {
            "name": "echo",
            "title": "Echo",
            "description": "Says it again.\n" * 500,
            "inputSchema": schema,
            "outputSchema": {"type": "array"},
            "annotations": {"readOnlyHint": True, "title": "E"},
            "icons": [{"src": "https://x"}],
            "_meta": {"a/b": [1]},
            "execution": {"taskSupport": "optional"},
            "later": None,
        }
    )
    assert outcome == Outcome("echo@call", "echo", "echo", "imported")
    assert (draft.key, draft.name, draft.title) == ("echo@call", "echo", "Echo")
    assert draft.description == "Says it again.\n" * 500
    assert list(draft.input_schema["properties"]) == ["z", "a"]
    assert draft.input_schema == schema
    assert draft.output_schema == {"type": "array"}
    assert draft.annotations == Annotations(title="E", read_only_hint=True)
    assert draft.binding == McpBinding("echo")
    assert draft.definition == {
        "icons": [{"src": "https://x"}],
        "_meta": {"a/b": [1]},
        "execution": {"taskSupport": "optional"},
        "later": None,
    }


def test_members_stored_in_columns_are_not_stored_twice() -> None:
    draft, _ = only(tool(annotations={"idempotentHint": False}))
    assert draft.definition is None
    assert (draft.description, draft.title, draft.output_schema) == ("", None, None)


def test_unknown_hints_are_kept_with_known_hints() -> None:
    draft, _ = only(tool(annotations={"readOnlyHint": True, "later": 1}))
    assert draft.definition == {"annotations": {"readOnlyHint": True, "later": 1}}
    assert draft.annotations == Annotations(read_only_hint=True)


def test_arguments_that_are_repeated_in_headers_are_known() -> None:
    inner = {"type": "object", "properties": {"b": {"type": "string", "x-mcp-header": "B"}}}
    draft, _ = only(tool(inputSchema={"type": "object", "properties": {"a": inner}}))
    assert draft.binding == McpBinding("echo", mirrored=(MirroredArgument(("a", "b"), "B"),))


def test_the_eras_that_list_a_tool_are_known() -> None:
    [draft] = read(entry(tool(), "stateless")).drafts
    assert draft.binding == McpBinding("echo", "stateless")


@pytest.mark.parametrize(
    ("definition", "expected"),
    [
        (b"[]", "is an array, expected an object"),
        (b'"echo"', "is a string, expected an object"),
        (b'{"name":"x","inputSchema":{"type":"object"},"a":1e400}', "out of range"),
        (b'{"name":"x","a":' + b"[" * 128 + b"]" * 128 + b"}", "more than 128 levels deep"),
        ({"inputSchema": OBJECT}, "its name is missing, expected text"),
        (tool(name=7), "its name is a number, expected text"),  # type: ignore[arg-type]
        (tool(""), "its name is empty"),
        (tool("n" * 2049), "has more than 2048 bytes"),
        (tool("a\0b"), "NUL"),
        ({"name": "x"}, "has no inputSchema"),
        (tool(inputSchema=None), "its inputSchema is null, expected an object"),
        (tool(inputSchema=True), "its inputSchema is a boolean, expected an object"),
        (tool(inputSchema={}), 'has not "type": "object" at its root'),
        (tool(inputSchema={"type": ["object"]}), 'has not "type": "object" at its root'),
        (
            tool(inputSchema={"type": "object", "properties": {"a": {"type": "text"}}}),
            "is no JSON Schema: .* at properties/a/type",
        ),
        (
            tool(inputSchema={**OBJECT, "properties": {"a": {"x-mcp-header": "a b"}}}),
            "x-mcp-header",
        ),
    ],
)
def test_a_definition_that_breaks_the_protocol_costs_that_tool(
    definition: Any, expected: str
) -> None:
    assert re.search(expected, reason(definition))


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"description": 1}, "its description is a number, expected text: left out"),
        ({"title": []}, "its title is an array, expected text: left out"),
        ({"outputSchema": False}, "its outputSchema is a boolean, expected an object: left out"),
        ({"outputSchema": {"type": "text"}}, "its outputSchema is no JSON Schema: left out"),
        ({"annotations": 1}, "its annotations are a number, expected an object: left out"),
        ({"annotations": {"readOnlyHint": "yes"}}, "its annotations.readOnlyHint is a string"),
        ({"icons": {}}, "its icons is an object: left out"),
        ({"_meta": []}, "its _meta is an array: left out"),
        ({"execution": 1}, "its execution is a number: left out"),
    ],
)
def test_a_member_that_makes_no_sense_is_left_out_and_told(
    members: dict[str, Any], expected: str
) -> None:
    draft, outcome = only(tool(**members))
    assert outcome.status == "degraded"
    assert expected in (outcome.reason or "")
    plain, _ = only(tool())
    assert draft == plain


def test_a_schema_in_a_dialect_that_is_not_known_here_is_let_through_and_told() -> None:
    """A report says that arguments of an unknown dialect are not checked (mending 22)."""
    schema = {"$schema": "urn:of:tomorrow", "type": "object", "shape": "new"}
    draft, outcome = only(tool(inputSchema=schema))
    assert draft.input_schema == schema
    assert outcome.reason == (
        "its inputSchema names the dialect 'urn:of:tomorrow', which is not known: arguments are "
        "not checked before its server gets them"
    )
    draft4 = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "type": "object",
        "properties": {"a": {"type": "integer", "minimum": 0, "exclusiveMinimum": True}},
    }
    draft, outcome = only(tool(inputSchema=draft4))
    assert (draft.input_schema, outcome.reason) == (draft4, None)


def test_a_schema_that_refers_to_something_outside_itself_is_told() -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "https://other.example/a"}}}
    draft, outcome = only(tool(inputSchema=schema))
    assert draft.input_schema == schema
    assert outcome.status == "degraded"
    assert (outcome.reason or "").startswith(
        "arguments are not checked before its server gets them: Resource 'https://other.example/a'"
    )


def test_a_definition_as_deep_as_can_be_is_shown_to_all_clients() -> None:
    schema: dict[str, Any] = {"type": "array"}
    for _ in range(DEPTH_LIMIT - 4):
        schema = {"type": "array", "items": schema}
    draft, outcome = only(tool(outputSchema=schema))
    assert outcome.status == "imported"
    assert for_objects(Raw(msgspec.json.encode(draft.output_schema))) is not None


def test_of_two_tools_with_one_name_the_first_counts() -> None:
    imported = read(tool(description="1"), tool("other"), tool(description="2"))
    assert [draft.description for draft in imported.drafts] == ["1", ""]
    last = imported.outcomes[-1]
    assert (last.status, last.reason) == ("skipped", "is listed twice; the first one counts")


def test_illegal_names_become_distinct_legal_names() -> None:
    names = ["a.b", "a b", "a_b", "Tool/Ünïcode", "日本", "x" * 100, "é" * 60 + "日日"]
    imported = read(*map(tool, names))
    assert [draft.binding.name for draft in imported.drafts] == names  # type: ignore[union-attr]
    by_original = dict(zip(names, (draft.name for draft in imported.drafts), strict=True))
    assert by_original["a_b"] == "a_b"
    assert by_original["a.b"].startswith("a_b_")
    assert by_original["Tool/Ünïcode"] == "Tool_Unicode"
    assert by_original["日本"].startswith("tool_")
    assert len(set(by_original.values())) == len(names)
    assert by_original["x" * 100] == "x" * 100
    assert all(len(name) <= 64 for plain, name in by_original.items() if len(plain) <= 64)
    alone = read(tool("a b")).drafts[0]
    assert alone.name == "a_b"


def test_patterns_pick_tools_by_either_of_their_names() -> None:
    imported = read(
        tool("get.a"), tool("get.b"), tool("set.a"), include=("get.*", "none"), exclude=("*_b",)
    )
    assert [outcome.reason for outcome in imported.outcomes] == [
        None,
        "excluded by '*_b'",
        "not included",
    ]
    assert imported.notes == ("the pattern 'none' matches no tool",)


def test_server_information_is_kept() -> None:
    facts = ServerFacts(info={"name": "crm", "title": "CRM", "version": "2.0"})
    made = snapshot(tool(), facts=facts, problems=("tools/list gave a cursor twice",))
    imported = read_snapshot(made.encode())
    assert (imported.title, imported.version, imported.server) == ("CRM", "2.0", facts)
    assert imported.notes == ("tools/list gave a cursor twice",)


@pytest.mark.parametrize("info", [{}, {"name": 7, "version": []}, {"name": " "}])
def test_a_server_that_does_not_introduce_itself_is_nameless(info: dict[str, Any]) -> None:
    imported = read_snapshot(snapshot(tool(), facts=ServerFacts(info=info)).encode())
    assert (imported.title, imported.version) == (None, None)


@pytest.mark.parametrize("data", [b"", b"{}", b"[" * 100_000, b'{"facts":{"info":7}}'])
def test_invalid_snapshots_are_rejected(data: bytes) -> None:
    with pytest.raises(ImportRejected, match="the server's lists cannot be read"):
        read_snapshot(data)
