"""Skills through a whole gateway: in a session, without one, by toolset and by agent."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from config.settings import Settings, Toolset
from gateway.state.open_sessions import record_of, restore_session
from registry.skills.agents import AgentDraft, AgentStore
from registry.skills.folders import FolderFile, SkillFolder
from registry.skills.skill_md import compose, read_document
from registry.skills.snapshot import SkillSnapshot
from registry.skills.store import SkillStore
from tests.fixtures_database import HOST
from tests.fixtures_gateway import DEADLINE_S, Client, Recorder, running
from tests.gateway.events import listening
from tests.gateway.portal import portal, token, with_tokens

pytestmark = pytest.mark.anyio

FIVE = ["call_tool", "describe_tools", "list_skills", "search_tools", "use_skill"]
NOTE = FolderFile("references/ages.md", "text/markdown", b"Ages are in years.\n")


def folder(name: str, tools: str, *files: FolderFile, **metadata: str) -> SkillFolder:
    front = {"name": name, "description": f"About {name}.", "allowed-tools": tools}
    text = compose({**front, "metadata": metadata} if metadata else front, f"How to {name}.\n")
    return SkillFolder(name, read_document(text.encode(), name), files)


SKILLS = [
    folder("find-pets", "listPets getPet", NOTE),
    folder("sell-pets", "createPet deletePet", **{"toolgate-requires": "find-pets"}),
]


@pytest.fixture
def settings(settings: Settings) -> Settings:
    disclosure = replace(settings.disclosure, mode="search")
    toolsets = {"adding": Toolset(include=("createPet",)), "slow": Toolset(include=("slow",))}
    return replace(settings, disclosure=disclosure, toolsets=toolsets)


async def until(client: Client, ready: Callable[[SkillSnapshot], object]) -> None:
    """Wait until the skills of the catalog are as they have to be."""
    loaded = asyncio.Event()
    client.gateway.events.catalog_loaded.subscribe(lambda _tenant: loaded.set())
    async with asyncio.timeout(DEADLINE_S):
        while not ready(client.gateway.catalogs.of(HOST).skills):
            await loaded.wait()
            loaded.clear()


@pytest.fixture
async def skill_client(client: Client, settings: Settings) -> Client:
    """A gateway whose pets have skills; the agent `finder` has one of them."""
    pool = client.gateway.feed.pool
    assert pool is not None
    agents, skills = AgentStore(pool), SkillStore(pool, settings.skills)
    await agents.add(HOST, AgentDraft("finder"))
    await skills.save(HOST, SKILLS)
    await agents.grant(HOST, "finder", skills=["find-pets"], priority=0, sequence=None)
    await until(client, lambda there: (one := there.agent("finder")) and there.of(one))
    return client


def call(name: str, /, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


async def test_in_a_session_a_skill_brings_its_tools(
    skill_client: Client, service: Recorder
) -> None:
    session, other = await skill_client.session(), await skill_client.session()

    async def list_names(of: Any) -> list[str]:
        return [one["name"] for one in (await of.call("tools/list"))["result"]["tools"]]

    assert await list_names(session) == FIVE
    used = (await session.call("tools/call", call("use_skill", name="sell-pets")))["result"]
    assert used["structuredContent"]["loaded"] == ["find-pets", "sell-pets"]
    assert "How to sell-pets." in used["content"][0]["text"]
    assert await list_names(session) == sorted(
        [*FIVE, "createPet", "deletePet", "getPet", "listPets"]
    )
    assert await list_names(other) == FIVE
    await session.call("tools/call", call("getPet", id=7))
    arguments = {"name": "getPet", "arguments": {"id": 8}, "skill": "sell-pets"}
    await session.call("tools/call", call("call_tool", **arguments))
    assert [one["path"] for one in service.requests] == ["/pets/7", "/pets/8"]


async def test_a_session_hears_that_its_list_has_changed(skill_client: Client) -> None:
    session = await skill_client.session()
    async with listening(skill_client, "/mcp", session.headers) as events:
        await session.call("tools/call", call("use_skill", name="find-pets"))
        assert (await events.message())["method"] == "notifications/tools/list_changed"


async def test_without_a_session_a_handle_carries_the_skill(
    skill_client: Client, service: Recorder
) -> None:
    _, answer = await skill_client.modern("tools/call", call("use_skill", name="find-pets"))
    used = answer["result"]["structuredContent"]
    assert [one["name"] for one in used["tools"]] == ["listPets", "getPet"]
    within = {"skill": used["skill"]}
    _, answer = await skill_client.modern(
        "tools/call", call("search_tools", query="remove", **within)
    )
    found = [one["name"] for one in answer["result"]["structuredContent"]["tools"]]
    assert set(found) <= {"getPet", "listPets"}
    passed = call("call_tool", name="getPet", arguments={"id": 3}, **within)
    _, answer = await skill_client.modern("tools/call", passed)
    assert not answer["result"].get("isError")
    passed = call("call_tool", name="deletePet", arguments={"id": 3}, **within)
    _, answer = await skill_client.modern("tools/call", passed)
    assert answer["result"]["isError"]
    assert (
        "deletePet is not a tool of the skill find-pets" in answer["result"]["content"][0]["text"]
    )
    assert [one["path"] for one in service.requests] == ["/pets/3"]


async def test_skills_are_found_by_their_words(skill_client: Client) -> None:
    _, answer = await skill_client.modern(
        "tools/call", call("list_skills", query="selling something")
    )
    found = answer["result"]["structuredContent"]["skills"]
    assert found[0] == {"name": "sell-pets", "description": "About sell-pets."}


async def test_an_agent_of_the_address_has_its_own(skill_client: Client) -> None:
    async def ask(path: str, method: str, params: dict[str, Any]) -> Any:
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        _, answer, _ = await skill_client.post(path, request, session.headers)
        return answer

    session = await skill_client.session()
    listed = await ask("/mcp?agent=finder", "tools/call", call("list_skills"))
    names = [one["name"] for one in listed["result"]["structuredContent"]["skills"]]
    assert names == ["find-pets"]
    prompts = await ask("/mcp?agent=finder", "prompts/list", {})
    assert [one["name"] for one in prompts["result"]["prompts"]] == ["find-pets"]
    prompts = await ask("/mcp", "prompts/list", {})
    assert [one["name"] for one in prompts["result"]["prompts"]] == ["find-pets", "sell-pets"]
    nobody = await ask("/mcp?agent=nobody", "prompts/list", {})
    assert nobody["error"]["message"] == "There is no agent 'nobody'; there is finder"
    tools = await ask("/mcp?agent=nobody", "tools/list", {})
    assert "use_skill" in [one["name"] for one in tools["result"]["tools"]]
    used = await ask("/mcp?agent=nobody", "tools/call", call("use_skill", name="find-pets"))
    assert "There is no agent 'nobody'; there is finder" in json.dumps(used)


async def test_files_are_resources_and_the_extension_is_served(skill_client: Client) -> None:
    _, answer = await skill_client.modern("server/discover")
    assert "io.modelcontextprotocol/skills" in answer["result"]["capabilities"]["extensions"]
    _, answer = await skill_client.modern("skills/list")
    (entry, _) = answer["result"]["skills"]
    uris = [one["uri"] for one in entry["resources"]]
    assert uris == ["skill://find-pets/SKILL.md", "skill://find-pets/references/ages.md"]
    session = await skill_client.session()
    for uri in uris:
        answer = await session.call("resources/read", {"uri": uri})
        (content,) = answer["result"]["contents"]
        size = next(one["size"] for one in entry["resources"] if one["uri"] == uri)
        assert len(content["text"].encode()) == size
    answer = await session.call("resources/read", {"uri": "skill://find-pets/../x"})
    assert answer["error"]["code"] == -32002


@pytest.mark.parametrize(
    ("toolset", "names"), [("adding", ["sell-pets"]), ("slow", [])], ids=["part", "none"]
)
async def test_a_toolset_has_skills_for_its_tools(
    skill_client: Client, toolset: str, names: list[str]
) -> None:
    catalog = skill_client.gateway.catalogs.of(HOST, toolset)
    assert [*catalog.skills.of(None)] == names
    assert ("use_skill" in catalog.own) == bool(names)


@pytest.mark.parametrize(("scope", "sees"), [("portal.w", True), ("other", False)])
async def test_a_skill_without_callable_tools_is_hidden(
    settings: Settings, tmp_path: Path, scope: str, sees: bool
) -> None:
    async with portal(with_tokens(settings, tmp_path)) as to:
        pool = to.client.gateway.feed.pool
        assert pool is not None
        folders = [folder("rules", "rule_deleteRule"), *SKILLS]
        await SkillStore(pool, settings.skills).save(HOST, folders)
        await until(to.client, lambda there: len(there) == 3)
        bearer = {"Authorization": f"Bearer {token(scope=scope)}"}

        async def ask(method: str, uri: str | None = None) -> Any:
            params, named = ({}, {}) if uri is None else ({"uri": uri}, {"Mcp-Name": uri})
            return (await to.client.modern(method, params, **bearer, **named))[1]

        for method in ("prompts/list", "resources/list", "skills/list"):
            said = json.dumps(await ask(method))
            assert "find-pets" in said
            assert ("rules" in said) == sees, method
        for method in ("resources/read", "skills/get"):
            assert ("result" in await ask(method, "skill://rules/SKILL.md")) == sees, method
        assert ("result" in await ask("resources/directory/read", "skill://rules")) == sees
        _, said = await to.client.modern("prompts/get", {"name": "rules"}, **bearer)
        assert ("result" in said) == sees


async def test_an_import_reaches_connected_clients(client: Client, settings: Settings) -> None:
    before = client.gateway.catalogs.of(HOST)
    assert "use_skill" not in before.own
    pool = client.gateway.feed.pool
    assert pool is not None
    await SkillStore(pool, settings.skills).save(HOST, SKILLS)
    await until(client, lambda there: len(there) == 2)
    after = client.gateway.catalogs.of(HOST)
    assert after.changed_lists(before) == {"tools", "prompts", "resources"}


async def test_other_nodes_know_the_skills_of_a_session(skill_client: Client) -> None:
    session = await skill_client.session()
    await session.call("tools/call", call("use_skill", name="find-pets"))
    here = skill_client.gateway.shared.sessions.find(session.id, skill_client.gateway.principal)
    assert here is not None
    assert restore_session(record_of(here), 10, frozenset()).skills == {"find-pets"}


async def test_settings_may_keep_skills_out_of_the_lists(settings: Settings) -> None:
    hidden = replace(settings, skills=replace(settings.skills, listed=False))
    async with running(hidden) as client:
        pool = client.gateway.feed.pool
        assert pool is not None
        await SkillStore(pool, hidden.skills).save(HOST, SKILLS)
        await until(client, lambda there: len(there) == 2)
        session = await client.session()
        assert "prompts" not in session.initialized["capabilities"]
        assert "error" in await session.call("prompts/list")
        used = await session.call("tools/call", call("use_skill", name="find-pets"))
        assert "structuredContent" in used["result"]
