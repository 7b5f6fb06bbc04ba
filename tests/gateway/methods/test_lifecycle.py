import pytest

from config.settings import Toolset
from gateway.methods.lifecycle import INSTRUCTIONS_LIMIT, Lifecycle
from gateway.methods.lists import Lists
from registry.catalog.catalog import Catalog
from registry.catalog.catalogs import Catalogs
from schemas.mcp.messages import META_SERVER, TASKS_EXTENSION
from schemas.mcp.revisions import (
    SUPPORTED,
    V2024_11_05,
    V2025_03_26,
    V2025_06_18,
    V2025_11_25,
    V2026_07_28,
)
from schemas.mcp.snapshot import ServerFacts
from tests.gateway.methods.federation import context, decode_result, lists, request, source
from tests.revisions import by_revision

pytestmark = pytest.mark.anyio

TASKS = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
CHANGES = {"listChanged": True}


def handshake(**capabilities):
    return ServerFacts("2025-11-25", capabilities)


def stateless(**capabilities):
    return ServerFacts(None, {}, "2026-07-28", capabilities)


async def first_answer(revision, *facts, own="", **more):
    """The answer to the first request of a client, with servers s0, s1, ... behind us."""
    sources = [source(f"s{number}", one) for number, one in enumerate(facts)]
    served = more.pop("lists", None) or lists(Catalog(sources=sources))
    lifecycle = Lifecycle(served, own)
    verb = lifecycle.initialize if revision.handshake else lifecycle.discover
    return decode_result(await verb(context(revision, **more), request("x")))


async def capabilities(revision, *facts):
    return (await first_answer(revision, *facts))["capabilities"]


@by_revision
async def test_without_other_servers_there_are_tools(revision):
    assert await capabilities(revision) == {"tools": CHANGES}
    assert await capabilities(revision, None) == {"tools": CHANGES}


@by_revision
@pytest.mark.parametrize("server", [handshake, stateless])
async def test_capabilities_are_the_union_over_servers_of_either_era(revision, server):
    one = server(prompts={}, resources={}, logging={}, completions={})
    can = await capabilities(revision, server(tools={}), one)
    expected = {"tools": CHANGES, "prompts": CHANGES, "resources": CHANGES, "logging": {}}
    if revision is not V2024_11_05:
        expected["completions"] = {}
    assert can == expected


@by_revision
async def test_changes_of_resources_are_announced_if_any_server_does(revision):
    can = await capabilities(
        revision, handshake(resources={}), stateless(resources={"subscribe": True})
    )
    assert can["resources"] == {"listChanged": True, "subscribe": True}
    mute = await capabilities(revision, handshake(resources={"subscribe": False}))
    assert mute["resources"] == CHANGES


@by_revision
async def test_tasks_are_for_clients_of_the_servers_own_era(revision):
    extension = {TASKS_EXTENSION: {"x": 1}, "com.example/other": {}}
    can = await capabilities(revision, handshake(tasks=TASKS), stateless(extensions=extension))
    only = {"cancel": {}, "requests": {"tools": {"call": {}}}}
    assert can.get("tasks") == (only if revision is V2025_11_25 else None)
    expected = {TASKS_EXTENSION: {"x": 1}} if revision is V2026_07_28 else None
    assert can.get("extensions") == expected


@by_revision
@pytest.mark.parametrize(
    "odd",
    [
        {"tasks": {"requests": {"sampling": {}}}},
        {"tasks": True},
        {"resources": None},
        {"extensions": [TASKS_EXTENSION]},
        {"extensions": {"com.example/other": {}}},
        {"experimental": {"x": {}}, "com.example": {}},
    ],
)
async def test_unrelayed_capabilities_are_not_announced(revision, odd):
    can = await capabilities(revision, handshake(**odd), stateless(**odd))
    assert not can.keys() - {"tools", "resources"}
    assert can.get("resources", CHANGES) == CHANGES


@by_revision
async def test_instructions_are_ours_followed_by_instructions_of_servers(revision):
    first = ServerFacts("2025-11-25", {}, instructions="  Say please.\n")
    answer = await first_answer(revision, first, handshake(), first, own="Be kind.")
    assert answer["instructions"] == ("Be kind.\n\n## s0\n\nSay please.\n\n## s2\n\nSay please.")
    assert "instructions" not in await first_answer(revision, handshake())
    assert (await first_answer(revision, first))["instructions"].startswith("## s0")


@by_revision
async def test_a_toolset_may_have_instructions_of_its_own(revision):
    toolsets = {"mine": Toolset(instructions="Mine."), "other": Toolset()}
    served = Lists(
        Catalogs(toolsets),
        page_size=10,
        ttl_ms=0,
        down=lambda _tenant, _catalog: (),
        fail_closed=False,
    )
    for toolset, expected in (("mine", "Mine."), ("other", "Ours."), (None, "Ours.")):
        answer = await first_answer(revision, own="Ours.", lists=served, toolset=toolset)
        assert answer["instructions"] == expected


@by_revision
async def test_servers_cannot_fill_the_mind_of_the_model(revision):
    chatty = ServerFacts("2025-11-25", {}, instructions="x" * 100_000)
    text = (await first_answer(revision, chatty, own="Ours."))["instructions"]
    assert len(text) == INSTRUCTIONS_LIMIT
    assert text.startswith("Ours.\n\n## s0")
    assert text.endswith("x…")


@pytest.mark.parametrize("revision", [V2024_11_05, V2025_03_26, V2025_06_18, V2025_11_25])
async def test_initialize_answers_with_the_revision_of_the_session(revision):
    answer = await first_answer(revision)
    assert answer["protocolVersion"] == revision.name
    assert answer["serverInfo"]["name"] == "toolgate"
    assert not answer.keys() & {"resultType", "_meta", "ttlMs"}


async def test_discover_has_all_required_members():
    answer = await first_answer(V2026_07_28)
    assert answer["supportedVersions"] == list(SUPPORTED)
    assert (answer["resultType"], answer["ttlMs"]) == ("complete", 1000)
    assert answer["cacheScope"] == "private"
    assert answer["_meta"][META_SERVER]["name"] == "toolgate"


async def test_discover_answers_while_servers_are_down_but_not_for_long():
    for fail_closed in (False, True):
        served = lists(Catalog(sources=[source("s0")]), ["s0"], fail_closed)
        answer = await first_answer(V2026_07_28, lists=served)
        assert answer["ttlMs"] == 0
        assert "prompts" in answer["capabilities"]
