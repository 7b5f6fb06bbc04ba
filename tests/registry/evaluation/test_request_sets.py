"""Requests and catalogs: what is read, and what is said of what cannot be."""

import json
from pathlib import Path
from typing import Any

import pytest

from registry.evaluation.request_sets import (
    CatalogTool,
    Index,
    UnreadableSet,
    read_catalog,
    read_requests,
)

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}}


def lines(path: Path, *rows: Any) -> Path:
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "file.jsonl"


def test_a_request_has_a_query_and_its_tools(file: Path) -> None:
    [first, second] = read_requests(
        lines(file, {"query": "Rain?", "gold": ["forecast"]}, "",
              {"id": 7, "query": "Sum up", "gold": "add"})
    )  # fmt: skip
    assert (first.id, first.query, first.gold) == ("line 1", "Rain?", ("forecast",))
    assert first.slots == (("forecast",),)
    assert (second.id, second.gold) == ("7", ("add",))


def test_alternatives_stand_in_slots(file: Path) -> None:
    slots = [["open", "start"], ["close"]]
    gold = ["open", "start", "close"]
    [given] = read_requests(lines(file, {"query": "q", "gold": gold, "gold_slots": slots}))
    [derived] = read_requests(lines(file, {"query": "q", "gold_slots": slots}))
    assert given.gold == derived.gold == ("open", "start", "close")
    assert given.slots == derived.slots == (("open", "start"), ("close",))


@pytest.mark.parametrize(
    "row",
    [
        {"name": "weather", "description": "Forecast", "parameters": PARAMETERS},
        {"name": "weather", "description": "Forecast", "inputSchema": PARAMETERS},
        {"type": "function", "function": {"name": "weather", "description": "Forecast",
                                          "parameters": PARAMETERS}},
    ],
    ids=["parameters", "inputSchema", "function"],
)  # fmt: skip
@pytest.mark.parametrize("wrap", ["lines", "list", "tools", "result"])
def test_a_tool_is_read_in_the_usual_forms(file: Path, row: dict[str, Any], wrap: str) -> None:
    wrapped = {"lines": row, "list": [row], "tools": {"tools": [row]},
               "result": {"jsonrpc": "2.0", "id": 1, "result": {"tools": [row]}}}[wrap]  # fmt: skip
    assert read_catalog(lines(file, wrapped)) == [
        CatalogTool("weather", "weather", "Forecast", PARAMETERS)
    ]


def test_a_tool_of_a_server_has_its_categories_as_tags(file: Path) -> None:
    row = {"name": "go", "server": "Trips", "category": "Travel", "tags": ["Travel", "cars"]}
    [tool] = read_catalog(lines(file, row))
    assert (tool.id, tool.server, tool.tags) == ("Trips/go", "Trips", ("Travel", "cars"))
    assert tool.input_schema == {"type": "object"}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"gold": ["a"]}, "query is missing, expected text"),
        ({"query": " ", "gold": ["a"]}, "query is empty, expected text"),
        ({"query": ["q"], "gold": ["a"]}, "query is a list, expected text"),
        ({"query": "q"}, "gold names no tool; expected the tools that the request needs"),
        ({"query": "q", "gold": []}, "gold names no tool; expected the tools"),
        ({"query": "q", "gold": [1]}, "gold is a list, expected a list of texts"),
        ({"query": "q", "gold": {"a": 1}}, "gold is an object, expected a list of texts"),
        ({"query": "q", "gold": ["a"], "gold_slots": [[]]}, "gold names no tool"),
        ({"query": "q", "gold": ["a"], "gold_slots": "a"}, "expected a list of lists of tools"),
        ({"id": [], "query": "q", "gold": ["a"]}, "id is a list, expected text"),
        ("[1, 2", "is no JSON: "),
        ("3", "is a number, expected a JSON object"),
        ('{"query": "\\ud800", "gold": ["a"]', "is no JSON: "),
    ],
)
def test_a_bad_request_is_named_with_its_line(file: Path, row: Any, said: str) -> None:
    lines(file, {"query": "good", "gold": ["a"]}, row)
    with pytest.raises(UnreadableSet) as refused:
        read_requests(file)
    assert str(refused.value).startswith(f"{file}:2: ")
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"description": "d"}, "name is missing, expected text"),
        ({"name": "n", "description": 3}, "description is a number, expected text"),
        ({"name": "n", "parameters": []}, "parameters is a list, expected a JSON Schema"),
        ({"name": "n", "tags": [True]}, "tags is a list, expected a list of texts"),
        ({"name": "first"}, "the id 'first' stands in line 1 too"),
    ],
)
def test_a_bad_tool_is_named_with_its_line(file: Path, row: Any, said: str) -> None:
    lines(file, {"name": "first"}, row)
    with pytest.raises(UnreadableSet) as refused:
        read_catalog(file)
    assert str(refused.value).startswith(f"{file}:2: ")
    assert said in str(refused.value)


@pytest.mark.parametrize("content", [b"", b"\n \n", b"[]", b'{"tools": []}'])
def test_an_empty_file_names_the_expected_lines(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    for read in (read_requests, read_catalog):
        with pytest.raises(UnreadableSet, match="is empty; expected lines such as"):
            read(file)


def test_bytes_that_are_no_text_are_refused(file: Path) -> None:
    file.write_bytes(b'{"query": "\xff\xfe", "gold": ["a"]}\n')
    with pytest.raises(UnreadableSet, match=":1: is no JSON"):
        read_requests(file)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableSet, match=r"nowhere\.jsonl: no such file or directory"):
        read_requests(tmp_path / "nowhere.jsonl")


def test_a_long_query_is_read_whole(file: Path) -> None:
    [request] = read_requests(lines(file, {"query": "é" * 100_000, "gold": ["a"]}))
    assert len(request.query) == 100_000


def test_tools_are_meant_by_id_by_name_and_by_server(file: Path) -> None:
    index = Index([("1", "search", "web"), ("2", "search", "mail"), ("3", "send", "")])
    wants = [["1"], ["search"], ["mail/search"], ["send"], ["gone"]]
    requests = read_requests(lines(file, *({"query": "q", "gold": want} for want in wants)))
    assert [index.resolve(one).gold for one in requests] == [
        {"1"}, {"1", "2"}, {"2"}, {"3"}, {"gone"},
    ]  # fmt: skip
    assert [len(index.resolve(one).slots) for one in requests] == [1] * 5
    assert index.unknown(requests) == {"gone": ["line 5"]}
