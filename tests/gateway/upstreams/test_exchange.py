"""The caller's token exchanged for one of the service's (RFC 8693)."""

import asyncio
import time

import anyio
import pytest
from msgspec import Raw

from config.sources import SourceSettings
from gateway.context import Context, Identity, Principal
from gateway.upstreams.graphql.upstream import GraphQLUpstream
from schemas.binding import Credential, GraphQLBinding
from schemas.mcp.revisions import V2025_06_18
from schemas.tool import Annotations, Tool
from tests.gateway.upstreams.callers import Calling, caller, exchange
from tests.gateway.upstreams.conftest import open_client, source
from tests.gateway.upstreams.hybrid_calls import Caller as HybridCaller
from tests.gateway.upstreams.hybrid_calls import known_caller, open_adjusted
from tests.servers.exchange import ACCESS_TOKEN, CLIENT, GRANT, SECRET, ExchangeServer
from tests.servers.hybrid import Hybrid
from tests.servers.rest import Recorder
from tests.servers.tokens import Guarded

pytestmark = pytest.mark.anyio

OAUTH = Credential("oauth", "oauth2", scopes=("write", "read"))
KEY = Credential("key", "apiKey", "header", "X-Key")
ANN = {"grant_type": GRANT, "subject_token": "ann", "subject_token_type": ACCESS_TOKEN}


def sent_tokens(service: Recorder) -> list[list[str]]:
    return [seen.all("authorization") for seen in service.seen]


async def test_the_service_gets_a_token_of_its_own_instead_of_the_callers(serve):
    server, pets = ExchangeServer(), Recorder()
    settings = SourceSettings(exchange=exchange(await serve(server), audience="pets"))
    async with open_client(settings) as client:
        call = Calling(client, await serve(pets))
        for who in ("ann", "ann", "bob", "ann"):
            assert not (await call(caller(who))).is_error
    assert sent_tokens(pets) == [
        ["Bearer ann>1"],
        ["Bearer ann>1"],
        ["Bearer bob>2"],
        ["Bearer ann>1"],
    ]
    assert server.asked == [
        {**ANN, "audience": "pets"},
        {**ANN, "subject_token": "bob", "audience": "pets"},
    ]


async def test_scopes_of_an_operation_are_asked_for_and_kept_apart(serve):
    server, pets = ExchangeServer(), Recorder()
    settings = SourceSettings(
        exchange=exchange(await serve(server), resource="https://pets.example", scopes=("audit",))
    )
    async with open_client(settings) as client:
        url = await serve(pets)
        for security in ([(OAUTH,)], [], [(OAUTH,)]):
            assert not (await Calling(client, url, *security)(caller())).is_error
    asked = [(one["scope"], one["resource"]) for one in server.asked]
    assert asked == [
        ("audit read write", "https://pets.example"),
        ("audit", "https://pets.example"),
    ]
    assert sent_tokens(pets) == [["Bearer ann>1"], ["Bearer ann>2"], ["Bearer ann>1"]]


async def test_an_actor_says_that_the_gateway_asks(serve):
    server, pets = ExchangeServer(), Recorder()
    settings = SourceSettings(exchange=exchange(await serve(server), actor="client"))
    async with open_client(settings) as client:
        call = Calling(client, await serve(pets))
        await call(caller("ann"))
        await call(caller("bob"))
    assert [one.get("actor_token") for one in server.asked] == [None, "own>1", "own>1"]
    assert sent_tokens(pets) == [["Bearer ann>2"], ["Bearer bob>3"]]


async def test_an_actor_that_is_no_longer_good_is_fetched_anew(serve):
    server, pets = ExchangeServer(), Recorder()
    settings = SourceSettings(exchange=exchange(await serve(server), actor="client"))
    async with open_client(settings) as client:
        call = Calling(client, await serve(pets))
        await call(caller("ann"))
        server.revoked = {"own>1"}
        await call(caller("bob"))
    assert [one.get("actor_token") for one in server.asked] == [
        *(None, "own>1"),
        *("own>1", None, "own>4"),
    ]
    assert sent_tokens(pets) == [["Bearer ann>2"], ["Bearer bob>5"]]


async def test_the_client_proves_itself_in_the_body_where_that_is_wanted(serve):
    server, pets = ExchangeServer(), Recorder()
    settings = SourceSettings(exchange=exchange(await serve(server), client_auth="body"))
    async with open_client(settings) as client:
        assert not (await Calling(client, await serve(pets))(caller())).is_error
    assert server.seen[0].all("authorization") == []
    assert server.asked == [{**ANN, "client_id": CLIENT, "client_secret": SECRET}]


async def test_callers_with_one_token_share_one_exchange(serve):
    server, pets = ExchangeServer(), Recorder()
    server.released.clear()
    async with open_client(SourceSettings(exchange=exchange(await serve(server)))) as client:
        call = Calling(client, await serve(pets))
        calls = [asyncio.create_task(call(caller())) for _ in range(20)]
        with anyio.fail_after(30):
            while not server.asked:
                await anyio.lowlevel.checkpoint()
            calls[0].cancel()
            server.released.set()
            results = await asyncio.gather(*calls[1:])
    assert not any(result.is_error for result in results)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("also", "claims", "times"),
    [
        ({"expires_in": 3600}, {}, 1),
        ({}, {}, 1),
        ({"expires_in": 0}, {}, 2),
        ({"expires_in": 3600}, {"exp": 1}, 2),  # the caller's own has ended
    ],
)
async def test_an_exchanged_token_is_reused_until_either_token_expires(serve, also, claims, times):
    server, pets = ExchangeServer(also=also), Recorder()
    async with open_client(SourceSettings(exchange=exchange(await serve(server)))) as client:
        call = Calling(client, await serve(pets))
        for _ in range(2):
            assert not (await call(caller(**claims))).is_error
    assert len(server.asked) == times


async def test_a_token_never_outlives_the_callers(serve):
    server, pets = ExchangeServer(also={"expires_in": 10**6}), Recorder()
    async with open_client(SourceSettings(exchange=exchange(await serve(server)))) as client:
        call = Calling(client, await serve(pets))
        await call(caller(exp=time.time() + 600))
        pool = client.connections.of(call.of)
        [cached] = pool.exchange._tokens._cached.values()
    assert cached.until - time.monotonic() <= 600


async def test_memory_of_tokens_is_bounded_in_bytes(serve):
    server, pets = ExchangeServer(also={"access_token": "t" * 400}), Recorder()
    settings = SourceSettings(exchange=exchange(await serve(server), cached_bytes=2000))
    async with open_client(settings) as client:
        call = Calling(client, await serve(pets))
        server.subjects = {f"user-{n}" for n in range(9)}
        for n in (0, 1, 0, 2, 0, 1):
            assert not (await call(caller(f"user-{n}"))).is_error
    assert [one["subject_token"][-1] for one in server.asked] == ["0", "1", "2", "1"]


async def test_a_token_that_the_service_refuses_is_exchanged_once_more(serve):
    server, pets = ExchangeServer(), Guarded("ann>2")
    async with open_client(SourceSettings(exchange=exchange(await serve(server)))) as client:
        call = Calling(client, await serve(pets))
        assert not (await call(caller())).is_error
        pets.token = "none of them"
        result = await call(caller())
    assert result.is_error
    assert "401" in result.content[0].text
    assert [seen.all("authorization")[0][-1] for seen in pets.seen] == ["1", "2", "2"]
    assert len(server.asked) == 2  # not a new one for each call that is refused


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"error": "invalid_target"}, "answered HTTP 400 (invalid_target)"),
        ({"error": "ann is gone"}, "answered HTTP 400"),
        ({"status": 503}, "answered HTTP 503"),
        ({"status": 302}, "answered HTTP 302"),
        ({"body": b"[" * 100_000}, "answered something that is no token"),
        ({"also": {"issued_token_type": "urn:ietf:params:oauth:token-type:id_token"}},
         "issued a token of another type than requested"),
        ({"also": {"issued_token_type": ""}}, "issued a token of another type than requested"),
        ({"also": {"token_type": "N_A"}}, "answered a token that is not of the type Bearer"),
        ({"also": {"access_token": "a\r\nX: b"}}, "answered a token that cannot be sent"),
        ({"also": {"access_token": "t" * 40_000}}, "answered a token that cannot be sent"),
        ({"subjects": set()}, "answered HTTP 400 (invalid_request)"),
    ],
)  # fmt: skip
async def test_failed_exchanges_do_not_quote_the_server(serve, answer, told):
    server, pets = ExchangeServer(**answer), Recorder()
    async with open_client(SourceSettings(exchange=exchange(await serve(server)))) as client:
        text = await Calling(client, await serve(pets)).refusal_text(caller())
    assert text == f"pets has no token for this caller: its token_url {told}"
    assert pets.seen == []


async def test_a_refused_exchange_is_not_repeated_at_once_but_a_failed_exchange_is(serve):
    server, pets = ExchangeServer(error="invalid_grant"), Recorder()
    async with open_client(SourceSettings(exchange=exchange(await serve(server)))) as client:
        call = Calling(client, await serve(pets))
        first, second = await call.refusal_text(caller()), await call.refusal_text(caller())
        assert first == second
        assert len(server.asked) == 1
        server.error, server.status = "", 500
        await call.refusal_text(caller("bob"))
        server.status = 200
        assert not (await call(caller("bob"))).is_error
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("context", "why"),
    [
        (caller(key=True), "the caller has an API key"),
        (Context(Identity(Principal("p", "t")), V2025_06_18, "r"), "the caller is not known"),
        (
            Context(Identity(Principal("p", "t"), verified=True), V2025_06_18, "r"),
            "the caller has an API key",
        ),
    ],
    ids=["key", "anonymous", "no token"],
)
@pytest.mark.parametrize("setting", ["exchange", "forward_token"])
async def test_callers_without_a_token_are_refused(serve, context, why, setting):
    server, pets = ExchangeServer(), Recorder()
    value = exchange(await serve(server)) if setting == "exchange" else True
    async with open_client(SourceSettings(**{setting: value})) as client:
        result = await Calling(client, await serve(pets))(context)
    assert result.content[0].text == (
        "pets was not called: it requires the caller's own token "
        f"(sources.pets.{setting}), and {why}"
    )
    assert (pets.seen, server.asked) == ([], [])


async def test_credentials_beside_the_token_are_still_required(serve):
    server, pets = ExchangeServer(), Recorder()
    settings = SourceSettings(exchange=exchange(await serve(server)))
    async with open_client(settings) as client:
        url = await serve(pets)
        text = await Calling(client, url, (KEY,)).refusal_text(caller())
        assert "it requires the credentials key" in text
        assert not (await Calling(client, url, (KEY,), ())(caller())).is_error
    keyed = SourceSettings(exchange=settings.exchange, headers={"X-Key": "k"})
    async with open_client(keyed) as client:
        assert not (await Calling(client, url, (KEY, OAUTH))(caller())).is_error
    assert pets.seen[-1].all("x-key") == ["k"]
    assert [bool(seen.all("authorization")) for seen in pets.seen] == [True, True]


async def test_credentials_do_not_go_where_only_a_description_leads(serve):
    server, pets = ExchangeServer(), Recorder()
    async with open_client(SourceSettings(exchange=exchange(await serve(server)))) as client:
        call = Calling(client, await serve(pets))
        call.of = source("http://pets.example", trusted=False)
        text = (await call(caller())).content[0].text
    assert text.startswith("pets has exchange, but only its description says where it is")
    assert (pets.seen, server.asked) == ([], [])


async def test_graphql_services_get_one_too(serve):
    server, pets = ExchangeServer(), Guarded("ann>2")
    binding = GraphQLBinding("query", "pets", selection="{ name }")
    graphql = Tool(
        "uuid", "x", None, "X", Raw(b"{}"), None, Annotations(), binding, "pets", "digest"
    )
    async with open_client(SourceSettings(exchange=exchange(await serve(server)))) as client:
        of = source(await serve(pets))
        await GraphQLUpstream(client).call(graphql, of, {}, caller())
    assert [seen.all("authorization") for seen in pets.seen] == [["Bearer ann>1"], ["Bearer ann>2"]]


@pytest.mark.parametrize("options", [{}, {"batch": 5}, {"dialect": "legacy"}])
async def test_hybrid_services_get_one_too_and_batches_are_of_one_caller(serve, options):
    server, rules = ExchangeServer(), Hybrid()
    async with open_adjusted(
        base_url=await serve(rules), exchange=exchange(await serve(server))
    ) as client:
        call = HybridCaller.of(client, None, **options)
        whose = [
            known_caller(authorization=f"Bearer {who}", scope_token="s") for who in ("ann", "bob")
        ]
        await asyncio.gather(*(call({}, one) for one in whose))
    told = [seen.all("authorization") + seen.all("x-scope-token") for seen in rules.seen]
    assert sorted(one[0][:10] for one in told) == ["Bearer ann", "Bearer bob"]
    assert all(len(one) == 1 for one in told)
