"""Tokens that the gateway fetches for itself."""

import asyncio

import anyio
import pytest
from msgspec import Raw

from config.sources import SchemeSettings, SourceSettings
from gateway.context import Context, Identity, Principal
from gateway.http_client.token_requests import AccessToken
from gateway.interfaces import ToolCall
from gateway.upstreams.rest.upstream import OpenAPIUpstream
from schemas.binding import Credential, OpenAPIBinding
from schemas.mcp.revisions import V2025_06_18
from schemas.tool import Annotations, Tool
from tests.gateway.upstreams.conftest import open_client, source
from tests.servers.rest import Recorder, Silent
from tests.servers.tokens import Guarded, TokenServer

pytestmark = pytest.mark.anyio

CONTEXT = Context(Identity(Principal("p", "t")), V2025_06_18, "r-1")
OAUTH = Credential("oauth", "oauth2", scopes=("read",))
POST = OpenAPIBinding("POST", "/x", security=((OAUTH,),))
TOOL = Tool("uuid", "x", None, "X", Raw(b"{}"), None, Annotations(), POST, "pets", "digest")


def login(url, **changes):
    values = {"client_id": "me:1", "client_secret": "s&1", "token_url": f"{url}/token"}
    return {"oauth": SchemeSettings(**(values | changes))}


class Caller:
    """Calls the one tool, again and again as a catalog does."""

    def __init__(self, client, url):
        self.execute, self.of = OpenAPIUpstream(client).prepare(TOOL), source(url)

    async def __call__(self):
        return await self.execute(ToolCall(TOOL, self.of, {}, CONTEXT))

    async def refusal_text(self):
        """What the caller hears of a call that was not made."""
        result = await self()
        assert result.is_error
        [content] = result.content
        assert "127.0.0.1" not in content.text
        assert "s&1" not in content.text
        return content.text


async def test_a_token_is_fetched_once_and_reused_until_expiry(serve):
    tokens, pets = TokenServer({"token_type": "Bearer", "expires_in": 3600}), Recorder()
    credentials = login(await serve(tokens), scopes=("read", "write"))
    async with open_client(SourceSettings(credentials=credentials)) as client:
        call = Caller(client, await serve(pets))
        await call()
        await call()
    assert [seen.all("authorization") for seen in pets.seen] == [["Bearer token-1"]] * 2
    assert tokens.request_forms == [{"grant_type": "client_credentials", "scope": "read write"}]
    [seen] = tokens.seen
    assert (seen.method, seen.target) == ("POST", "/token")
    assert seen.all("authorization") == ["Basic bWUlM0ExOnMlMjYx"]  # me%3A1:s%261
    assert seen.all("content-type") == ["application/x-www-form-urlencoded"]
    assert seen.all("accept") == ["application/json"]  # GitHub answers a form without it


async def test_members_of_a_token_answer_may_be_null(serve):
    """Some servers write null for what they leave out."""
    absent = ("token_type", "expires_in", "refresh_token", "scope", "issued_token_type")
    tokens, pets = TokenServer(dict.fromkeys(absent)), Recorder()
    async with open_client(SourceSettings(credentials=login(await serve(tokens)))) as client:
        assert not (await Caller(client, await serve(pets))()).is_error
    assert [seen.all("authorization") for seen in pets.seen] == [["Bearer token-1"]]


async def test_the_secret_may_stand_in_the_body(serve):
    tokens, pets = TokenServer(), Recorder()
    credentials = login(await serve(tokens), client_auth="body")
    async with open_client(SourceSettings(credentials=credentials)) as client:
        await Caller(client, await serve(pets))()
    assert tokens.seen[0].all("authorization") == []
    assert tokens.request_forms == [
        {"grant_type": "client_credentials", "client_id": "me:1", "client_secret": "s&1"}
    ]


@pytest.mark.parametrize("lasts_s", [float("inf"), float("nan")])
def test_an_endless_lifetime_of_a_token_counts_as_unsaid(lasts_s: float) -> None:
    assert AccessToken.lasting("t", 100.0, lasts_s) == AccessToken.lasting("t", 100.0, None)


@pytest.mark.parametrize("expires_in", [0, -1, "0"])
async def test_an_expired_token_is_replaced_before_sending(serve, expires_in):
    tokens, pets = TokenServer({"expires_in": expires_in}), Recorder()
    async with open_client(SourceSettings(credentials=login(await serve(tokens)))) as client:
        call = Caller(client, await serve(pets))
        await call()
        await call()
    assert [seen.all("authorization") for seen in pets.seen] == [
        ["Bearer token-1"],
        ["Bearer token-2"],
    ]


async def test_many_calls_at_a_time_fetch_one_token(serve):
    tokens, pets = TokenServer(), Recorder()
    tokens.released.clear()
    async with open_client(SourceSettings(credentials=login(await serve(tokens)))) as client:
        call = Caller(client, await serve(pets))
        calls = [asyncio.create_task(call()) for _ in range(20)]
        with anyio.fail_after(30):
            while not tokens.seen:
                await anyio.lowlevel.checkpoint()
            tokens.released.set()
            results = await asyncio.gather(*calls)
    assert [result.is_error for result in results] == [False] * 20
    assert len(tokens.seen) == 1


async def test_a_cancelled_caller_does_not_cancel_the_shared_fetch(serve):
    tokens, pets = TokenServer(), Recorder()
    tokens.released.clear()
    async with open_client(SourceSettings(credentials=login(await serve(tokens)))) as client:
        call = Caller(client, await serve(pets))
        first, second = asyncio.create_task(call()), asyncio.create_task(call())
        with anyio.fail_after(30):
            while not tokens.seen:
                await anyio.lowlevel.checkpoint()
            first.cancel()
            tokens.released.set()
            assert not (await second).is_error
    assert first.cancelled()
    assert len(tokens.seen) == 1


async def test_a_token_that_the_service_refuses_is_replaced_once(serve):
    tokens, pets = TokenServer(), Guarded("token-2")
    async with open_client(SourceSettings(credentials=login(await serve(tokens)))) as client:
        call = Caller(client, await serve(pets))
        assert not (await call()).is_error
        assert not (await call()).is_error
        pets.token = "none of them"
        result = await call()
    assert result.is_error
    assert "401" in result.content[0].text
    assert [seen.all("authorization")[0][-1] for seen in pets.seen] == ["1", "2", "2", "2"]
    assert len(tokens.seen) == 2  # not a new one for each call that is refused


async def test_a_token_of_the_settings_is_not_tried_twice(serve):
    pets = Guarded("another")
    credentials = {"oauth": SchemeSettings(token="t")}
    async with open_client(SourceSettings(credentials=credentials)) as client:
        assert (await Caller(client, await serve(pets))()).is_error
    assert len(pets.seen) == 1


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"status": 401, "body": b'{"error": "invalid_client"}'}, "HTTP 401 (invalid_client)"),
        ({"status": 400, "body": b'{"error": "me:1 is not s&1"}'}, "answered HTTP 400"),
        ({"status": 500, "body": b"<html>"}, "answered HTTP 500"),
        ({"status": 302, "location": "/other"}, "answered HTTP 302"),
        ({"body": b'{"error": "invalid_client"}'}, "answered HTTP 200 (invalid_client)"),
        ({"body": b'{"error": "bad_refresh_token"}'}, "answered HTTP 200 (invalid_grant)"),
        ({"body": b'{"access_token": ""}'}, "answered something that is no token"),
        ({"body": b"token"}, "answered something that is no token"),
        ({"body": b'{"access_token": 7}'}, "answered something that is no token"),
        ({"body": b'{"access_token": "t", "expires_in": "soon"}'}, "something that is no token"),
        ({"also": {"token_type": "mac"}}, "not of the type Bearer"),
        ({"body": b'{"access_token": "a\\r\\nb"}'}, "answered a token that cannot be sent"),
        ({"body": b'{"access_token": "%s"}' % (b"t" * 300_000)}, "something that is no token"),
    ],
)
async def test_why_there_is_no_token_is_told_and_nothing_is_sent(serve, answer, told):
    tokens, pets = TokenServer(**answer), Recorder()
    async with open_client(SourceSettings(credentials=login(await serve(tokens)))) as client:
        text = await Caller(client, await serve(pets)).refusal_text()
    assert text.startswith("pets has no token for oauth: its token_url ")
    assert text.endswith(told)
    assert pets.seen == []
    assert len(tokens.seen) == 1  # no redirect is followed


async def test_the_next_call_tries_again_after_a_failure(serve):
    tokens, pets = TokenServer(status=500), Recorder()
    async with open_client(SourceSettings(credentials=login(await serve(tokens)))) as client:
        call = Caller(client, await serve(pets))
        await call.refusal_text()
        tokens.status = 200
        assert not (await call()).is_error


async def test_a_token_server_that_is_silent_or_away_ends_the_call(serve):
    silent, pets = Silent(), Recorder()
    url = await serve(pets)
    settings = SourceSettings(credentials=login(await serve(silent)), timeout_s=0.05)
    async with open_client(settings) as client:
        assert "did not answer within 0.05 s" in await Caller(client, url).refusal_text()
    settings = SourceSettings(credentials=login("http://127.0.0.1:1"))
    async with open_client(settings) as client:
        assert "could not be reached" in await Caller(client, url).refusal_text()
    assert pets.seen == []


async def test_new_settings_discard_old_tokens(serve):
    tokens, pets = TokenServer(), Recorder()
    settings = SourceSettings(credentials=login(await serve(tokens)))
    async with open_client(settings) as client:
        call = Caller(client, await serve(pets))
        await call()
        await client.configure(client.connections.limits, {"pets": settings})
        await call()
    assert [seen.all("authorization") for seen in pets.seen] == [
        ["Bearer token-1"],
        ["Bearer token-2"],
    ]
