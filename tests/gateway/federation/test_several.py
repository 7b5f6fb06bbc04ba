"""Several servers behind one endpoint, as the official client sees them."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import pytest
from mcp import MCPError, types
from mcp.client.client import Client as McpClient
from msgspec.structs import replace

from config.settings import Settings
from tests.fixtures_database import Cluster, lend_database
from tests.fixtures_gateway import with_mcp, wordless
from tests.gateway.federation.servers import Fleet, fleet
from tests.recycling import Recycling
from tests.servers.named import SHARED, TEMPLATE, named_app

pytestmark = pytest.mark.anyio

MODES = pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
WRAPPED = f"toolgate://two/{SHARED}"


@asynccontextmanager
async def two(settings: Settings, mode: str, **options: Any) -> AsyncIterator[tuple[Fleet, Any]]:
    """Servers "one" and "two" behind a gateway, and a client in front of it."""
    async with pair(settings, **options) as behind, connect(behind, mode) as mcp:
        yield behind, mcp


def pair(settings: Settings, **options: Any) -> AbstractAsyncContextManager[Fleet]:
    return fleet(settings, {name: named_app(name) for name in ("one", "two")}, **options)


@asynccontextmanager
async def connect(behind: Fleet, mode: str) -> AsyncIterator[Any]:
    with anyio.fail_after(30):
        async with McpClient(behind.client.url + "/mcp", mode=mode) as mcp:
            yield mcp


@pytest.fixture(scope="module")
async def shared_pair(cluster: Cluster, recycling: Recycling) -> AsyncIterator[Fleet]:
    """The gateway of all tests that leave it, and its servers, as they were."""
    for database in lend_database(cluster, recycling):
        async with pair(replace(wordless(), database=database)) as behind:
            yield behind


async def everything_of(mcp: Any, method: str, member: str, named_by: str) -> list[str]:
    """The names of all entries of a list, page by page."""
    names: list[str] = []
    cursor = None
    while True:
        page = await getattr(mcp, method)(cursor=cursor)
        names += [str(getattr(one, named_by)) for one in getattr(page, member)]
        cursor = page.next_cursor
        if cursor is None:
            return names


async def tools(mcp: Any) -> list[str]:
    return await everything_of(mcp, "list_tools", "tools", "name")


async def prompts(mcp: Any) -> list[str]:
    return await everything_of(mcp, "list_prompts", "prompts", "name")


async def resources(mcp: Any) -> list[str]:
    return await everything_of(mcp, "list_resources", "resources", "uri")


async def templates(mcp: Any) -> list[str]:
    return await everything_of(mcp, "list_resource_templates", "resource_templates", "uri_template")


async def call_for_text(mcp: Any, tool: str) -> str:
    result = await mcp.call_tool(tool, {})
    assert not result.is_error, result
    return str(result.content[0].text)


async def read(mcp: Any, uri: str) -> str:
    return str((await mcp.read_resource(uri)).contents[0].text)


@MODES
async def test_the_first_server_keeps_its_names_and_later_servers_are_prefixed(
    shared_pair: Fleet, mode: str
) -> None:
    async with connect(shared_pair, mode) as mcp:
        assert sorted(await tools(mcp)) == [
            "link", "only_one", "only_two", "two_link", "two_whoami", "whoami",
        ]  # fmt: skip
        for tool, name in (("whoami", "one"), ("two_whoami", "two"), ("only_two", "two")):
            assert await call_for_text(mcp, tool) == name
        assert sorted(await prompts(mcp)) == ["hello", "only_one", "only_two", "two_hello"]
        for prompt, name in (("hello", "one"), ("two_hello", "two")):
            given = await mcp.get_prompt(prompt, {"who": "Ada"})
            assert given.messages[0].content.text == f"{name} greets Ada"
        assert sorted(await resources(mcp)) == ["note://of-one", "note://of-two", SHARED, WRAPPED]
        for uri, name in ((SHARED, "one"), (WRAPPED, "two"), ("note://of-two", "two")):
            assert await read(mcp, uri) == name
        assert sorted(await templates(mcp)) == [TEMPLATE, f"toolgate://two/{TEMPLATE}"]
        assert await read(mcp, "note://5/text") == "one 5"
        assert await read(mcp, "toolgate://two/note://5/text") == "two 5"


@MODES
async def test_prefixes_mark_every_object_with_its_server(bare: Settings, mode: str) -> None:
    async with two(bare, mode, prefix="always") as (_, mcp):
        assert sorted(await tools(mcp)) == [
            "one_link", "one_only_one", "one_whoami", "two_link", "two_only_two", "two_whoami",
        ]  # fmt: skip
        assert await call_for_text(mcp, "one_whoami") == "one"
        assert await call_for_text(mcp, "two_only_two") == "two"
        assert sorted(await prompts(mcp)) == [
            "one_hello", "one_only_one", "two_hello", "two_only_two",
        ]  # fmt: skip
        uris = await resources(mcp)
        assert sorted(uris) == sorted(
            f"toolgate://{name}/{uri}"
            for name in ("one", "two")
            for uri in (SHARED, f"note://of-{name}")
        )
        assert [await read(mcp, uri) for uri in uris] == ["one", "one", "two", "two"]


@MODES
async def test_names_without_prefixes_belong_to_the_first_server(bare: Settings, mode: str) -> None:
    async with two(bare, mode, prefix="never") as (_, mcp):
        assert sorted(await tools(mcp)) == ["link", "only_one", "only_two", "whoami"]
        assert await call_for_text(mcp, "whoami") == "one"
        assert sorted(await prompts(mcp)) == ["hello", "only_one", "only_two"]
        assert sorted(await resources(mcp)) == ["note://of-one", "note://of-two", SHARED]
        assert await templates(mcp) == [TEMPLATE]
        assert await read(mcp, SHARED) == "one"


@MODES
async def test_pages_go_on_from_one_server_to_the_next(
    bare: Settings, shared_pair: Fleet, mode: str
) -> None:
    lists = (tools, prompts, resources, templates)
    async with connect(shared_pair, mode) as mcp:
        whole = [await listed(mcp) for listed in lists]
    async with two(with_mcp(bare, page_size=2), mode) as (behind, mcp):
        assert [await listed(mcp) for listed in lists] == whole
        assert all(len(set(names)) == len(names) for names in whole)
        assert behind.client.gateway.settings.mcp.page_size == 2
        first = await mcp.list_tools()
        assert len(first.tools) == 2
        with pytest.raises(MCPError) as refused:
            await mcp.list_tools(cursor="no cursor")
        assert refused.value.error.code == types.INVALID_PARAMS


@MODES
async def test_links_in_results_have_readable_addresses(shared_pair: Fleet, mode: str) -> None:
    async with connect(shared_pair, mode) as mcp:
        for tool, name, uri in (("link", "one", SHARED), ("two_link", "two", WRAPPED)):
            linked, embedded = (await mcp.call_tool(tool, {})).content
            assert (str(linked.uri), str(embedded.resource.uri)) == (uri, uri)
            assert await read(mcp, str(linked.uri)) == name


@MODES
async def test_arguments_are_completed_by_their_own_server(shared_pair: Fleet, mode: str) -> None:
    async with connect(shared_pair, mode) as mcp:
        argument = {"name": "who", "value": "A"}
        for prompt, values in (("hello", ["one hello"]), ("two_hello", ["two hello"])):
            ref = types.PromptReference(name=prompt)
            assert (await mcp.complete(ref, argument)).completion.values == values
        for uri, name in ((TEMPLATE, "one"), (f"toolgate://two/{TEMPLATE}", "two")):
            ref = types.ResourceTemplateReference(uri=uri)
            values = (await mcp.complete(ref, argument)).completion.values
            assert values == [f"{name} {TEMPLATE}"]


@MODES
async def test_an_unreachable_server_does_not_affect_other_servers(
    bare: Settings, mode: str
) -> None:
    async with two(bare, mode) as (behind, mcp):
        lists = (tools, prompts, resources, templates)
        before = [await listed(mcp) for listed in lists]
        await behind.kill("two")
        assert [await listed(mcp) for listed in lists] == before
        assert await call_for_text(mcp, "whoami") == "one"
        for attempt in (
            mcp.call_tool("two_whoami", {}),
            mcp.get_prompt("two_hello", {"who": "Ada"}),
            mcp.read_resource(WRAPPED),
        ):
            with pytest.raises(MCPError) as failed:
                await attempt
            assert "two" in failed.value.error.message
            assert "127.0.0.1" not in failed.value.error.message


@MODES
async def test_fail_closed_refuses_incomplete_lists(bare: Settings, mode: str) -> None:
    async with two(with_mcp(bare, when_down="fail_closed"), mode) as (behind, mcp):
        assert "two_whoami" in await tools(mcp)
        await behind.kill("two")
        with pytest.raises(MCPError) as failed:
            await mcp.list_tools(**({} if mode == "legacy" else {"cache_mode": "bypass"}))
        assert failed.value.error.message == "The list may be incomplete: two cannot be reached"
        assert await call_for_text(mcp, "whoami") == "one"
