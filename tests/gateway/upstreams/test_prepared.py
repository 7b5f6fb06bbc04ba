"""Headers that are prepared for the calls of a tool: those that each call would get anew."""

import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from yarl import URL

from config.sources import SchemeSettings, SourceSettings
from gateway.context import Context, Identity, Principal
from gateway.http_client.http1 import FixedHeaders, Http1Request, Site
from gateway.http_client.token_requests import AccessToken
from gateway.interfaces import ToolCall
from gateway.upstreams.auth.credentials import Credentials
from gateway.upstreams.http.client import Client
from gateway.upstreams.http.source_pools import SourcePool, UpstreamFailed
from gateway.upstreams.rest.upstream import OpenAPIUpstream, RequestTemplate
from schemas.binding import Body, Credential, OpenAPIBinding
from schemas.mcp.revisions import V2025_06_18
from schemas.source import Source
from schemas.tool import Annotations, Tool
from tests.gateway.upstreams.conftest import limits, open_client, source
from tests.servers.rest import Recorder

pytestmark = pytest.mark.anyio

KEY = Credential("key", "apiKey", "header", "X-Key")
QUERY = Credential("query", "apiKey", "query", "key")
OAUTH = Credential("oauth", "oauth2")
CONTEXT = Context(Identity(Principal("p", "t")), V2025_06_18, "r-1")


def tool(*security: tuple[Credential, ...], name: str = "x", accept: str | None = None) -> Tool:
    binding = OpenAPIBinding("GET", "/x", (), security=security, accept=accept)
    hints = Annotations()
    return Tool("uuid", name, None, "X", Raw(b"{}"), None, hints, binding, "pets", "digest")


# Of the gateway's tenant, and of another one whose source has the same name.
SOURCES = (
    source("https://pets.example"),
    replace(source("https://pets.example"), foreign="other"),
    source("https://cats.example", name="cats"),
    source("https://dogs.example", trusted=False, name="dogs"),
)
TOOLS = (
    tool(),
    tool((KEY,)),
    tool((OAUTH,)),
    tool((KEY, OAUTH)),
    tool((QUERY,), (KEY,)),
    tool((OAUTH,), ()),
    tool((KEY,), accept="text/csv"),
)
PLACES = [one.place for one in SOURCES]
VALUES = st.sampled_from(["a", "b", "c"])
LOGIN = SchemeSettings(client_id="me", client_secret="s", token_url="https://login.example")
SETTINGS = st.builds(
    lambda headers, key, oauth, by_caller: SourceSettings(
        headers=headers,
        credentials={
            **({"key": SchemeSettings(value=f"settings-{key}")} if key else {}),
            **({"oauth": LOGIN} if oauth else {}),
        },
        forward_token=by_caller,
    ),
    st.dictionaries(st.sampled_from(["X-Tenant", "x-key", "Accept"]), VALUES, max_size=2),
    st.none() | VALUES,
    st.booleans(),
    st.booleans(),
)
STEPS = st.one_of(
    st.tuples(st.just("call"), st.sampled_from(range(len(SOURCES))), st.just(None)),
    st.tuples(st.just("store"), st.sampled_from(PLACES), VALUES),
    st.tuples(st.just("configure"), st.sampled_from(PLACES), SETTINGS),
    st.tuples(st.just("token"), st.sampled_from(range(len(SOURCES))), st.sampled_from([60, 0])),
    st.tuples(st.just("reject"), st.sampled_from(range(len(SOURCES))), st.just(None)),
)


async def anew(
    client: Client, of: Source, template: RequestTemplate
) -> tuple[SourcePool, dict[str, str]] | None:
    """The pool and the headers of a call without preparation; None where it has none to send."""
    pool = client.connections.of(of)
    if pool.by_caller:
        return None
    asks = any(one is OAUTH for alternative in template.binding.security for one in alternative)
    if asks and "oauth" in pool.credentials and not pool.tokens.fresh("oauth"):
        return None  # `apply` would fetch one
    request = template.request({})
    try:
        security = template.binding.security
        proved = await Credentials(client.connections).apply(of, security, request, CONTEXT)
        headers = dict(pool.with_configured(proved.headers))
    except UpstreamFailed:
        return None
    return (pool, headers) if proved.target == request.target else None


@given(st.lists(STEPS, max_size=30))
async def test_prepared_headers_equal_freshly_built_headers(steps: Any) -> None:
    client = Client(limits(), {})
    templates = {(s, t): RequestTemplate(TOOLS[t].binding) for s in range(4) for t in range(7)}  # type: ignore[arg-type]
    stored, settings, tokens = {}, {}, 0
    for step, where, what in [*steps, *(("call", one, None) for one in range(4))]:
        if step == "store":
            stored = {**stored, where: {"key": SchemeSettings(value=f"{where}-{what}")}}
            client.connections.store(stored)
        elif step == "configure":
            settings[where] = what
            client.connections.configure(limits(), settings)
        elif step == "token":
            tokens += 1
            token = AccessToken(f"token-{where}-{tokens}", time.monotonic() + what)
            await client.connections.of(SOURCES[where]).tokens.get("oauth", fetching(token))
        elif step == "reject":
            own = client.connections.of(SOURCES[where]).tokens
            if fresh := own.fresh("oauth"):
                own.invalidate("oauth", fresh.text)
        else:
            for number in range(len(TOOLS)):
                template = templates[where, number]
                prepared = template.prepare(SOURCES[where], client)
                expected = await anew(client, SOURCES[where], template)
                assert prepared.pool is client.connections.of(SOURCES[where])
                if prepared.headers is not None:
                    assert expected is not None
                    assert fold_names(prepared.headers) == fold_names(expected[1])
    await client.close()


def fetching(token: AccessToken) -> Any:
    async def fetch() -> AccessToken:
        return token

    return fetch


def fold_names(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


@given(
    st.dictionaries(st.sampled_from(["Accept", "accept", "X-A", "User-Agent"]), st.text("ab\r")),
    st.sampled_from(["GET", "POST"]),
    st.sampled_from(["/a?b=c", "", "/ö", "/a b"]),
    st.lists(st.sampled_from([None, b"", b"{}"]), min_size=2),
)
def test_fixed_headers_are_encoded_like_dynamic_headers(
    headers: dict[str, str], method: str, target: str, bodies: list[bytes | None]
) -> None:
    fixed = FixedHeaders(headers)
    for url in ("http://one.example", "http://two.example/base", "http://one.example"):
        site = Site(URL(url))
        for body in bodies:
            told = []
            for each in (headers, fixed, fixed):
                try:
                    head = site.head(Http1Request(method, target, each, body))
                except Exception as error:
                    head = str(error).encode()
                told.append(sorted(head.split(b"\r\n")))
            assert told[0] == told[1] == told[2]


async def test_a_secret_that_is_replaced_is_not_sent_again(serve: Any) -> None:
    pets = Recorder()
    of = source(await serve(pets))
    async with open_client() as client:
        upstream = OpenAPIUpstream(client)
        execute = upstream.prepare(TOOLS[1])
        for value in ("one", "one", "two", "two"):
            client.connections.store({"pets": {"key": SchemeSettings(value=value)}})
            await execute(ToolCall(TOOLS[1], of, {}, CONTEXT))
        client.connections.store({})
        assert (await execute(ToolCall(TOOLS[1], of, {}, CONTEXT))).is_error
    assert [one.all("x-key") for one in pets.seen] == [["one"], ["one"], ["two"], ["two"]]


async def test_bodies_have_their_lengths_and_types(serve: Any) -> None:
    pets = Recorder()
    of = source(await serve(pets))
    posts = [
        replace(
            TOOLS[1],
            binding=OpenAPIBinding("POST", "/x", (), body=body, security=((KEY,),)),
        )
        for body in (Body("application/json", argument="a"), Body("text/plain", argument="a"))
    ]
    async with open_client() as client:
        client.connections.store({"pets": {"key": SchemeSettings(value="one")}})
        executes = [OpenAPIUpstream(client).prepare(one) for one in posts]
        for text in ("short", "a longer text"):
            for execute, post in zip(executes, posts, strict=True):
                await execute(ToolCall(post, of, {"a": text}, CONTEXT))
    kinds = ["application/json", "text/plain"]
    told = [(one.all("content-type")[0].partition(";")[0], one.all("x-key")) for one in pets.seen]
    assert told == [(kind, ["one"]) for kind in kinds * 2]
    assert [one.body for one in pets.seen] == [
        *(b'"short"', b"short"),
        *(b'"a longer text"', b"a longer text"),
    ]


async def test_calls_of_callers_are_not_prepared() -> None:
    settings = SourceSettings(forward_token=True, headers={"X-A": "1"})
    async with open_client(settings) as client:
        of = source("https://pets.example")
        template = RequestTemplate(TOOLS[0].binding)  # type: ignore[arg-type]
        assert template.prepare(of, client).headers is None
