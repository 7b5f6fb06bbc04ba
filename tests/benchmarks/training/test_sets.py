import json

import pytest

from benchmarks.training.sets import (
    REQUESTS,
    BadTrainingSet,
    ToolSet,
    TrainingQuery,
    load,
    rows,
    tool_text,
    write_requests,
)


@pytest.fixture
def folder(tmp_path):
    tool = {
        "id": "a/createIssue",
        "name": "createIssue",
        "description": "Open an\n  issue.",
        "parameters": {"properties": {"repoName": {"description": "Where."}, "title": True}},
        "server": "GitHub_MCP",
        "category": "Dev Tools",
    }
    bare = {"id": "b", "name": "b", "description": None, "parameters": {"args": ["x"]}}
    queries = [
        {"id": 1, "query": "Open one", "gold": ["a/createIssue", "a/createIssue"]},
        {"id": 2, "query": "Nothing does this", "gold": []},
    ]
    for name, written in (("tools.jsonl", [tool, bare]), ("queries.jsonl", queries)):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in written))
    return tmp_path


def test_a_set_has_its_tools_and_the_queries_that_have_an_answer(folder):
    tools = load(folder)
    assert [tool.id for tool in tools.tools] == ["a/createIssue", "b"]
    assert tools.queries == (TrainingQuery("1", "Open one", ("a/createIssue",)),)


def test_requests_are_a_set_with_the_tools_of_their_sets(folder, tmp_path, monkeypatch):
    requests = tmp_path / "requests.jsonl"
    requests.write_text(json.dumps({"query": "a bug!", "gold": [f"{folder.name}/a/createIssue"]}))
    monkeypatch.setattr("benchmarks.training.sets.REQUESTS", requests)
    assert write_requests(folder.parent, tmp_path / "made") == (2, 1)
    made = load(tmp_path / "made")
    assert [tool.id for tool in made.tools] == [
        f"{folder.name}/{id_}" for id_ in ("a/createIssue", "b")
    ]
    assert made.queries[0].text == "a bug!"
    requests.write_text(json.dumps({"query": "x", "gold": [f"{folder.name}/c"]}))
    with pytest.raises(BadTrainingSet, match="has no tool"):
        write_requests(folder.parent, tmp_path / "made")


def test_written_requests_have_a_language_and_tools():
    written = list(rows(REQUESTS))
    assert len({row["query"] for row in written}) == len(written)
    assert all(row["language"] and row["gold"] and row["query"].strip() for row in written)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (None, "is no tool set"),
        ('{"id": "a", "name": "a"}\n{"id"', "tools.jsonl, line 2: expected a JSON object"),
        ('{"id": "a"}', "lacks a key or has a wrong type: 'name'"),
        ("[1]", "lacks a key or has a wrong type"),
    ],
    ids=["no-file", "cut", "no-name", "no-object"],
)
def test_a_broken_set_is_named(folder, lines, message):
    if lines is None:
        (folder / "tools.jsonl").unlink()
    else:
        (folder / "tools.jsonl").write_text(lines)
    with pytest.raises(BadTrainingSet, match=message):
        load(folder)


def test_the_embedded_text_is_source_tags_name_description_parameters(folder):
    full, bare = load(folder).tools
    assert tool_text(full) == (
        "git hub mcp dev tools: create issue. Open an issue. repo name, title"
    )
    assert tool_text(bare) == "b."


def test_queries_of_held_out_tools_are_held_out():
    queries = [TrainingQuery(str(n), "?", (str(n % 100),)) for n in range(1000)]
    tools = ToolSet("set", (), tuple(queries))
    held = [query for query in queries if tools.held_out(query)]
    assert all(tools.held_out(query) for query in queries if tools.held_out_tool(query.gold[0]))
    assert 300 < len(held) < 550  # 30 % of the queries and all those of 15 % of the tools
