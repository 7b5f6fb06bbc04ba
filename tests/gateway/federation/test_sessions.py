"""Sessions at the servers behind the gateway: who shares one, and when they end."""

from contextlib import suppress
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from config.settings import Settings
from config.sources import SourceSettings
from gateway.upstreams.mcp.list_reader import LISTING_KEY
from gateway.upstreams.mcp.session_pool import SessionPool
from tests.fixtures_gateway import MODERN, Client, running
from tests.fixtures_servers import serving
from tests.gateway.federation.conftest import caller, gateway_to
from tests.servers.everything import everything

pytestmark = pytest.mark.anyio

ASKING = {"name": "test_elicitation", "arguments": {"message": "Who are you?"}}
SAY = {"name": "test_simple_text"}


def pool(client: Client) -> SessionPool:
    [server] = client.gateway.federation.servers
    return server.pool


def sessions_of_calls(client: Client) -> list[Any]:
    """Sessions but the one that lists are read in."""
    return [session for session in pool(client)._sessions if session.key != LISTING_KEY]


async def test_clients_without_answering_capabilities_share_a_session(bare: Settings) -> None:
    async with gateway_to(bare, every="handshake") as client:
        for revision in ("2025-03-26", "2025-11-25", MODERN):
            who = await caller(client, revision, {})
            answer = await who.result("tools/call", SAY)
            assert "error" not in answer
        assert len(sessions_of_calls(client)) == 1


async def test_a_client_able_to_answer_has_an_exclusive_session_during_a_call(
    bare: Settings,
) -> None:
    async with gateway_to(bare, every="handshake") as client:
        who = [await caller(client, "2025-11-25") for _ in range(3)]
        async with (
            who[0].send_request("tools/call", ASKING) as first,
            who[1].send_request("tools/call", ASKING) as second,
        ):
            asked = [await first.next(), await second.next()]
            assert len(sessions_of_calls(client)) == 3  # and the one that all share
            for one, question in zip(who, asked, strict=False):
                await one.answer(question["id"], {"action": "decline"})
            for stream in (first, second):
                assert "action=decline" in str(await stream.next())
        await who[2].result("tools/call", SAY)
        assert len(sessions_of_calls(client)) == 3  # it took one that was free


async def test_other_capabilities_are_another_session(bare: Settings) -> None:
    async with gateway_to(bare, every="handshake") as client:
        for capabilities in ({"sampling": {}}, {"elicitation": {}}, {"sampling": {}}):
            who = await caller(client, "2025-11-25", capabilities)
            await who.result("tools/call", SAY)
        assert len(sessions_of_calls(client)) == 3


async def test_own_sessions_last_as_long_as_the_session_of_the_client(bare: Settings) -> None:
    app, lifespan = everything("handshake")
    async with lifespan, serving(app) as url:
        source = SourceSettings(mcp=f"{url}/mcp", own_sessions=True)
        async with running(replace(bare, sources={"every": source})) as client:
            who = [await caller(client, "2025-11-25", {}) for _ in range(2)]
            for one in (*who, *who):
                await one.result("tools/call", SAY)
            before = len(sessions_of_calls(client))
            assert before >= 2
            session = who[0].session
            assert session is not None
            url = client.url + "/mcp"
            async with client.http.delete(url, headers=session.headers) as gone:
                assert gone.status == 204
            with anyio.fail_after(20):
                while len(sessions_of_calls(client)) == before:  # noqa: ASYNC110 - it tells nobody
                    await anyio.sleep(0.01)
            assert not pool(client).owned_by(session.id)


async def test_a_session_that_the_server_forgot_is_begun_anew(bare: Settings) -> None:
    async with gateway_to(bare, every="handshake") as client:
        who = await caller(client, "2025-11-25", {})
        assert "error" not in await who.result("tools/call", SAY)
        [kept] = sessions_of_calls(client)
        with suppress(Exception):
            endpoint = kept.link._endpoint
            await endpoint.end(await endpoint.headers(kept.link._headers, {}))
        again = await who.result("tools/call", SAY)
        assert again["result"]["content"][0]["text"].startswith("This is a simple text")


async def test_a_running_call_ends_unchanged_when_the_settings_change(
    bare: Settings,
) -> None:
    async with gateway_to(bare, every="handshake") as client:
        who = await caller(client, "2025-11-25")
        async with who.send_request("tools/call", ASKING) as stream:
            asked = await stream.next()
            settings = client.gateway.settings
            changed = replace(settings, upstream=replace(settings.upstream, timeout_s=20))
            await client.gateway.reconfigure(changed)
            await who.answer(asked["id"], {"action": "decline"})
            assert "action=decline" in str(await stream.next())
        assert "error" not in await who.result("tools/call", SAY)


async def test_a_session_whose_call_was_cut_off_is_not_used_again(bare: Settings) -> None:
    async with gateway_to(bare, every="handshake") as client:
        who = await caller(client, "2025-11-25")
        await who.result("tools/call", SAY)
        [alone] = [kept.link for kept in pool(client)._sessions if kept.key.exclusive_to]
        async with who.send_request("tools/call", ASKING) as stream:
            asked = await stream.next()
            assert who.session is not None
            params = {"requestId": 101, "reason": "enough"}
            note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
            await who.session.post(note)
            assert asked["method"] == "elicitation/create"
            await stream.all()
        await who.result("tools/call", SAY)
        links = [kept.link for kept in pool(client)._sessions if kept.key.exclusive_to]
        assert links
        assert alone not in links


async def test_no_caller_takes_all_sessions(bare: Settings) -> None:
    # The refusal comes when this time is over: enough for a busy machine to open three sessions.
    few = replace(bare, upstream=replace(bare.upstream, mcp_sessions=5, timeout_s=5))
    async with gateway_to(few, every="handshake") as client:
        who = await caller(client, MODERN)
        taken = 0
        while (answer := await who.result("tools/call", ASKING)).get("result"):
            assert answer["result"]["resultType"] == "input_required"
            taken += 1
        assert taken == 3
        assert "sessions at the server are in use" in answer["error"]["message"]


async def test_subscriptions_outlive_a_change_of_settings(bare: Settings) -> None:
    async with gateway_to(bare, every="both") as client:
        session = await client.session("2025-11-25")
        await session.call("resources/subscribe", {"uri": "test://watched-resource"})
        settings = client.gateway.settings
        changed = replace(settings, upstream=replace(settings.upstream, timeout_s=20))
        await client.gateway.reconfigure(changed)
        [server] = client.gateway.federation.servers
        assert [*server.watcher._uris] == ["test://watched-resource"]
