"""Servers that list more than anybody wants to keep."""

import json
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.upstreams.http.source_pools import SourcePools
from gateway.upstreams.mcp.list_reader import DEFINITION_BYTES, Lister, source_of
from gateway.upstreams.mcp.server_set import Servers
from gateway.upstreams.mcp.session_pool import SHARED_KEY
from gateway.upstreams.mcp.transport_choice import Transports
from registry.sources.import_specs import ImportSpec
from schemas.errors import ImportRejected
from schemas.mcp.snapshot import Snapshot, decode_snapshot
from schemas.source import McpOptions
from tests.gateway.upstreams.conftest import limits
from tests.gateway.upstreams.mcp.audience import Audience
from tests.servers.mcp_wire import Scripted, Turn

pytestmark = pytest.mark.anyio

Play = Callable[[Turn], Awaitable[None]]


@asynccontextmanager
async def listing(url: str, **changes: Any) -> AsyncIterator[tuple[Lister, ImportSpec]]:
    settings = limits(response_limit_bytes=2**22, **changes)
    connections = SourcePools(settings, {})
    servers = Servers(Transports(connections, settings, {}, {"name": "t"}), Audience(), settings)
    spec = ImportSpec("things", f"{url}/mcp", kind="mcp", options=McpOptions(era="handshake"))
    try:
        yield Lister(servers, settings), spec
    finally:
        await servers.close()
        await connections.close()


def lists(play: Play, **plays: Play) -> Scripted:
    return Scripted({"tools/list": play, **plays}, capabilities={"tools": {}, "prompts": {}})


async def list_snapshot(serve: Any, server: Scripted, **changes: Any) -> Snapshot:
    async with listing(await serve(server), **changes) as (lister, spec):
        return decode_snapshot(await lister(spec))


def tools(count: int, size: int = 0, after: int = 0) -> list[dict[str, Any]]:
    numbers = range(after, after + count)
    return [{"name": f"t{number}", "description": "x" * size} for number in numbers]


def names(snapshot: Snapshot) -> list[str]:
    return [json.loads(bytes(entry.definition))["name"] for entry in snapshot.tools]


async def test_tools_for_clients_that_may_be_asked_are_listed(serve):
    """The official server-everything has its tools of elicitation for such clients alone."""

    async def play(turn: Turn) -> None:
        declared = server.all("initialize")[-1].params["capabilities"]
        await turn.result(tools=[{"name": name} for name in declared])

    server = lists(play)
    assert names(await list_snapshot(serve, server)) == ["elicitation", "roots", "sampling"]


async def test_lists_are_read_in_the_only_session_of_a_pool(serve):
    server = lists(lambda turn: turn.result(tools=tools(1)))
    async with listing(await serve(server), mcp_sessions=1, timeout_s=1) as (lister, spec):
        watched = lister._servers.of(source_of(spec))
        async with watched.pool.lease(SHARED_KEY, None):
            assert names(decode_snapshot(await lister(spec))) == ["t0"]


async def test_lists_that_are_too_much_together_are_refused_whole(serve):
    async def prompts(turn: Turn) -> None:
        await turn.result(prompts=tools(10, 10_000))

    async def play(turn: Turn) -> None:
        await turn.result(tools=tools(10, 10_000))

    server = lists(play, **{"prompts/list": prompts})
    assert len((await list_snapshot(serve, server, mcp_list_bytes=210_000)).prompts) == 10
    expected = r"things lists more than 190000 bytes \(upstream.mcp_list_bytes\)"
    with pytest.raises(ImportRejected, match=expected):
        await list_snapshot(serve, server, mcp_list_bytes=190_000)


async def test_the_pages_of_a_list_share_one_size_limit(serve):
    async def play(turn: Turn) -> None:
        page = int(turn.params.get("cursor", 0))
        await turn.result(tools=tools(1, 100_000, page), nextCursor=str(page + 1))

    server = lists(play)
    with pytest.raises(ImportRejected, match="more than 250000 bytes"):
        await list_snapshot(serve, server, mcp_list_bytes=250_000)
    assert len(server.all("tools/list")) == 3


async def test_cursors_count_too(serve):
    async def play(turn: Turn) -> None:
        before = turn.params.get("cursor", "")
        await turn.result(tools=[], nextCursor=before + "x" * 100_000)

    with pytest.raises(ImportRejected, match="more than 250000 bytes"):
        await list_snapshot(serve, lists(play), mcp_list_bytes=250_000)


async def test_members_beside_the_definitions_do_not_count(serve):
    async def play(turn: Turn) -> None:
        await turn.result(tools=tools(1), other="x" * 100_000)

    assert names(await list_snapshot(serve, lists(play), mcp_list_bytes=1000)) == ["t0"]


async def test_of_an_answer_nothing_is_kept_but_its_definitions(serve):
    async def play(turn: Turn) -> None:
        await turn.result(tools=tools(1), other="x" * 3_000_000)

    async with listing(await serve(lists(play))) as (lister, spec):
        server = lister._servers.of(source_of(spec))
        await lister.snapshot(server)  # what is made once is there
        tracemalloc.start()
        try:
            kept = await lister.snapshot(server)
            held, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert names(kept) == ["t0"]
    assert held < 1_000_000 < peak


async def test_one_definition_that_is_too_large_is_left_out(serve):
    async def play(turn: Turn) -> None:
        await turn.result(tools=[*tools(1), *tools(1, DEFINITION_BYTES, 1), *tools(1, 0, 2)])

    snapshot = await list_snapshot(serve, lists(play))
    assert names(snapshot) == ["t0", "t2"]
    assert snapshot.problems == (
        f"tools/list: an entry of over {DEFINITION_BYTES} bytes was left out",
    )


async def test_entries_that_are_none_count_as_entries(serve):
    async def play(turn: Turn) -> None:
        await turn.result(tools=[*[{}] * 7, *tools(7)])

    snapshot = await list_snapshot(serve, lists(play), mcp_list_items=10)
    assert names(snapshot) == ["t0", "t1", "t2"]
    assert snapshot.problems == (
        "tools/list: an entry has no name",
        "tools/list has over 10 entries: cut off",
    )


async def test_as_many_entries_as_there_may_be_are_whole(serve):
    async def play(turn: Turn) -> None:
        page = int(turn.params.get("cursor", 0))
        more = {"nextCursor": "1"} if page == 0 else {}
        await turn.result(tools=tools(5, 0, 5 * page), **more)

    snapshot = await list_snapshot(serve, lists(play), mcp_list_items=10)
    assert names(snapshot) == [f"t{number}" for number in range(10)]
    assert snapshot.problems == ()
