"""Clients of other memories, over the rows of ours (M33, M38): at tools of their names."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from config.settings import Settings
from gateway.operations.problems import ProblemDetails
from gateway.wings.memory.wing import operations_of
from registry.database.postgres import Database
from tests.fixtures_gateway import Client, running
from tests.wings.memory.rig import Rig, memory_settings, open_rig
from tests.wings.memory.test_graph import RECORDED

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client(settings: Settings) -> AsyncIterator[Client]:
    memory = replace(settings.memory, enabled=True, compat=("graph", "files"))
    async with running(replace(settings, memory=memory)) as client:
        yield client


async def call_tool(client: Client, name: str, arguments: Any) -> dict[str, Any]:
    """The result of a tool, as its text, its structured content, and whether it is an error."""
    _, reply = await client.modern("tools/call", {"name": name, "arguments": arguments})
    result = reply["result"]
    [content] = result["content"]
    found = {"text": content["text"]}
    if result.get("isError"):
        return {**found, "is_error": True}
    structured = result.get("structuredContent")
    return found | ({} if structured is None else {"structured": structured})


async def test_answers_match_the_reference_server(client: Client) -> None:
    """Answers match the reference server (M38)."""
    for call in RECORDED[1:]:
        answer = await call_tool(client, call["name"], call["arguments"])
        assert {**call, **answer} == call, call["name"]


async def test_tools_match_the_reference_server(client: Client) -> None:
    """Tools match the reference server (M38)."""
    _, reply = await client.modern("tools/list")
    tools = {one["name"]: one for one in reply["result"]["tools"]}
    for name, facts in RECORDED[0]["tools"].items():
        assert tools[name]["inputSchema"].get("required", []) == facts["required"]
        assert sorted(tools[name]["outputSchema"]["properties"]) == facts["output"]
        hints = tools[name]["annotations"]
        assert hints["readOnlyHint"] == facts["read_only"]
        assert hints["destructiveHint"] == facts["destructive"]
        # as that release has it, also where the recording says nothing of it (mending 39)
        assert hints["idempotentHint"] == (facts["read_only"] or facts["destructive"])
        assert hints["openWorldHint"] is False


async def test_tools_of_dialects_have_no_rest_routes(
    client: Client,
) -> None:
    async with client.http.get(f"{client.url}/memory/v1/openapi.json") as response:
        paths = (await response.json())["paths"]
    assert {"/memories", "/memories/{memory}", "/search", "/context", "/forget"} <= paths.keys()
    assert not [path for path in paths if "graph" in path or "files" in path]
    status, _, _ = await client.post("/memory/v1/graph/read_graph", {})
    assert status == 404


async def test_files_are_written_and_read(client: Client) -> None:
    """Files are written and read (M38)."""
    path = "/memories/notes.md"

    async def run(command: str, **members: Any) -> dict[str, Any]:
        return await call_tool(client, "memory", {"command": command, **members})

    made = await run("create", path=path, file_text="one\ntwo\n")
    assert made == {"text": f"File created successfully at: {path}"}
    again = await run("create", path=path, file_text="three")
    assert again == {"text": f"Error: File {path} already exists", "is_error": True}
    await run("str_replace", path=path, old_str="two", new_str="2")
    await run("create", path="/memories/empty", file_text="")
    await run("rename", old_path=path, new_path="/memories/a/b.md")
    assert (await run("view", path="/memories"))["text"].splitlines()[1:] == [
        "6B\t/memories", "6B\t/memories/a/", "6B\t/memories/a/b.md", "0B\t/memories/empty"
    ]  # fmt: skip
    shown = await run("view", path="/memories/a/b.md")
    assert shown["text"].endswith("     1\tone\n     2\t2\n     3\t")
    assert (await run("delete", path="/memories/a"))["text"] == "Successfully deleted /memories/a"
    assert "does not exist" in (await run("view", path="/memories/a/b.md"))["text"]
    outside = await run("view", path="/memories/../etc")
    assert outside == {"text": "Path /memories/../etc would escape /memories directory",
                       "is_error": True}  # fmt: skip


async def test_dialects_are_off_by_default(rig: Rig) -> None:
    """Dialects are off by default (M38)."""
    assert not [one.id for one in operations_of(rig.parts) if one.tool]


@pytest.fixture
async def both(database: Database) -> AsyncIterator[Rig]:
    async with open_rig(database, memory_settings(compat=("graph", "files"))) as rig:
        yield rig


async def test_graph_entities_are_searchable_memories(both: Rig) -> None:
    """Graph entities are searchable memories (M33)."""
    ann, bob = both.caller(), both.caller("bob")
    entity = {"name": "Rex", "entityType": "dog", "observations": ["chases trains"]}
    await ann("graph_create_entities", entities=[entity])
    assert "chases trains" in await ann.find_contents("trains")
    assert await bob.find_contents("trains") == []
    assert (await bob("graph_read_graph")).entities == ()
    found = await ann("graph_search_nodes", query="chasing train")
    assert [one.name for one in found.entities] == ["Rex"]


async def test_every_write_of_a_file_is_a_version(both: Rig) -> None:
    """Every write of a file is a version (M38)."""
    ann = both.caller()
    await ann("files", command="create", path="/memories/a", file_text="first")
    await ann("files", command="insert", path="/memories/a", insert_line=1, insert_text="second")
    [memory] = (await ann("list", kind="file")).items
    history = (await ann("history", memory=memory.id)).items
    assert [one.content for one in history] == ["first", "first\nsecond\n"]


async def test_a_call_with_a_missing_entity_stores_nothing(both: Rig) -> None:
    """A call with a missing entity stores nothing (case 25)."""
    ann = both.caller()
    entity = {"name": "Ann", "entityType": "person", "observations": []}
    await ann("graph_create_entities", entities=[entity])
    some = [{"entityName": name, "contents": ["new"]} for name in ("Ann", "Nobody", "Ann")]
    with pytest.raises(Exception, match="Entity with name Nobody not found"):
        await ann("graph_add_observations", observations=some)
    assert (await ann("graph_read_graph")).entities[0].observations == ()


async def test_an_observation_in_another_spelling_is_not_added(both: Rig) -> None:
    ann = both.caller()
    entity = {"name": "Ann", "entityType": "person", "observations": ["likes tea"]}
    await ann("graph_create_entities", entities=[entity])
    some = [{"entityName": "Ann", "contents": ["Likes  TEA", "likes coffee"]}]
    [added] = (await ann("graph_add_observations", observations=some)).results
    assert added.added_observations == ("likes coffee",)


async def test_entities_are_deleted_for_good(both: Rig) -> None:
    ann = both.caller()
    entity = {"name": "Ann", "entityType": "person", "observations": ["canary"]}
    await ann("graph_create_entities", entities=[entity])
    await ann("graph_create_relations",
              relations=[{"from": "Ann", "to": "Oslo", "relationType": "lives in"}])  # fmt: skip
    await ann("graph_delete_entities", entityNames=["Ann"])
    for table in ("memory_t", "memory_word_t", "memory_relation_t"):
        assert await both.rows(f"SELECT 1 FROM {table}") == []


async def test_an_anonymous_caller_without_session_is_told_so(both: Rig) -> None:
    with pytest.raises(ProblemDetails, match="scope session") as problem:
        await both.caller(None)("graph_read_graph")
    assert problem.value.status == 422


async def test_graphs_and_files_show_only_memories_of_the_calling_agent(database: Database) -> None:
    settings = memory_settings(compat=("graph", "files"))
    async with open_rig(database, settings) as rig:
        ann, tutor = rig.caller("ann"), rig.caller("ann", agent="tutor")
        entity = {"name": "Ann", "entityType": "person", "observations": []}
        await ann("graph_create_entities", entities=[entity])
        await ann.add("Failed", audience=["tutor"], source={"entity": "Ann"})
        await ann("files", command="create", path="/memories/a", file_text="Failed")
        await rig.run("UPDATE memory_t SET audience = '{tutor}' WHERE kind = 'file'")
        for who, observed in ((ann, ()), (tutor, ("Failed",))):
            [shown] = (await who("graph_open_nodes", names=["Ann"])).entities
            assert shown.observations == observed
        with pytest.raises(Exception, match="not exist"):
            await ann("files", command="view", path="/memories/a")
        await tutor("files", command="view", path="/memories/a")


async def test_a_graph_that_is_too_large_is_read_in_parts(database: Database) -> None:
    settings = memory_settings(compat=("graph",), graph_bytes=20)
    async with open_rig(database, settings) as rig:
        ann = rig.caller("ann")
        entities = [
            {"name": name, "entityType": "a", "observations": ["x" * 12]} for name in ("A", "B")
        ]
        await ann("graph_create_entities", entities=entities)
        with pytest.raises(ProblemDetails, match="26 bytes, at most 20 "):
            await ann("graph_open_nodes", names=["A", "B"])
        assert len((await ann("graph_open_nodes", names=["B"])).entities) == 1
