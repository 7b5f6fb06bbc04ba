"""Schemas that lead somewhere else: whatever reads them, nobody is asked."""

import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from msgspec.json import encode

from registry.catalog.catalog import Catalog
from registry.display.profiles import BUILT_IN
from registry.importers.hybrid.actions_to_tools import UnusableSchema, close_schema
from registry.importers.mcp import read_snapshot
from registry.importers.openapi import read as read_openapi
from registry.sources.compatibility.tool_changes import input_changes, output_changes
from registry.tools.editable_columns import check_schema
from registry.tools.tool_errors import ToolRefused
from schemas.json_schema.checker import Checker
from tests.registry.importers.describe import describe, json_body
from tests.registry.servers import snapshot, tool
from tests.registry.shown import describe_tool, list_tools

Json = dict[str, Any]
DRAFT_4 = "http://json-schema.org/draft-04/schema#"
DRAFT_2019 = "https://json-schema.org/draft/2019-09/schema"


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """Waits for connections, and answers none."""
    with socket.socket() as waiting:
        waiting.bind(("127.0.0.1", 0))
        waiting.listen(16)
        waiting.setblocking(False)
        yield waiting


def leading_to(url: str) -> dict[str, Json]:
    """Schemas that name `url` in all places where a library might fetch it."""
    inner = {
        "$schema": {"$schema": url},
        "$ref": {"$ref": url},
        "$dynamicRef": {"$dynamicRef": f"{url}#x"},
        "$recursiveRef": {"$schema": DRAFT_2019, "$recursiveRef": url},
        "$id": {"$id": url, "properties": {"a": {"$ref": "relative"}}},
        "id of draft 4": {"$schema": DRAFT_4, "id": url, "properties": {"a": {"$ref": "other"}}},
        "$vocabulary": {"$vocabulary": {url: True}},
        "$schema of an embedded resource": {
            "$defs": {"x": {"$id": f"{url}/x", "$schema": url, "type": "string"}},
            "properties": {"a": {"$ref": f"{url}/x"}},
        },
        "$anchor": {"$ref": f"{url}#anchor", "$defs": {"a": {"$anchor": "anchor"}}},
        "contentSchema": {"contentMediaType": "application/json", "contentSchema": {"$ref": url}},
    }
    nested = {f"nested {name}": {"properties": {"in": one}} for name, one in inner.items()}
    listed = {f"one of {name}": {"anyOf": [one, True]} for name, one in inner.items()}
    found: dict[str, Json] = {}
    for name, one in (inner | nested | listed).items():
        found[name] = {"type": "object", **one}
    return found


def by_server(schema: Json) -> None:
    """What an MCP server says that its tool takes and answers."""
    read_snapshot(snapshot(tool(inputSchema=schema, outputSchema=schema)).encode())


def by_hybrid_upload(schema: Json) -> None:
    with suppress(UnusableSchema):
        close_schema(schema)


def by_openapi(schema: Json) -> None:
    answer = {"200": {"description": "", "content": {"application/json": {"schema": schema}}}}
    for dialect in ("3.0.3", "3.1.0"):
        operation = {"operationId": "do", **json_body(schema), "responses": answer}
        described_ = describe(operation, version=dialect, components={"schemas": {"A": schema}})
        read_openapi(described_)


def by_hand(schema: Json) -> None:
    """A tool of the admin API and of the command line."""
    with suppress(ToolRefused):
        check_schema("t", schema)


def by_profile(schema: Json) -> None:
    """A list as each kind of client has it, short and whole."""
    large = {**schema, "description": "It is told at length. " * 2_000}
    for profile in BUILT_IN:
        list_tools(Catalog([describe_tool("t", schema), describe_tool("u", large)]), profile)


def by_answer(schema: Json) -> None:
    """Arguments of a call, and the answer of a service."""
    with suppress(ValueError):
        Checker(encode(schema)).explain({"a": {"in": 1}, "in": {"a": 1}})


def by_new_version(schema: Json) -> None:
    """What an import says of a tool that has changed."""
    input_changes({"type": "object"}, schema)
    output_changes(schema, {"type": "object", "properties": {"in": schema}})


WAYS = (by_server, by_hybrid_upload, by_openapi, by_hand, by_profile, by_answer, by_new_version)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_no_url_of_a_schema_is_asked(way: Callable[[Json], None], listener: socket.socket) -> None:
    host, port = listener.getsockname()
    for name, schema in leading_to(f"http://{host}:{port}/schema").items():
        way(schema)
        with pytest.raises(BlockingIOError):  # nobody has connected
            pytest.fail(f"{name} was fetched: {listener.accept()}")
