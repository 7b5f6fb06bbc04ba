"""A tool that is an operation, called."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from msgspec import Raw, structs
from starlette.types import Receive, Scope, Send

from config.sources import SchemeSettings, SourceSettings
from gateway.context import Context, Identity, Principal
from gateway.interfaces import ToolCall
from gateway.upstreams.rest.upstream import REDIRECT_LIMIT, OpenAPIUpstream
from schemas.binding import Credential, OpenAPIBinding, Parameter
from schemas.errors import InvalidParams
from schemas.mcp.revisions import V2025_06_18
from schemas.tool import Annotations, TextContent, Tool
from tests.gateway.upstreams.callers import caller, tool
from tests.gateway.upstreams.conftest import limits, source
from tests.servers.rest import Recorder, Seen, read_seen, respond

pytestmark = pytest.mark.anyio

CONTEXT = Context(Identity(Principal("p", "t")), V2025_06_18, "r-1")
BINDING = OpenAPIBinding("GET", "/pets/{id}", (Parameter("id", "id", "path", "simple", False),))
GET_PET = Tool(
    "uuid", "getPet", None, "One pet", Raw(b"{}"), None, Annotations(), BINDING, "pets", "digest"
)


async def test_a_call_returns_the_answer_of_the_service(client, serve):
    pets = Recorder(200, b'{"id": 7}')
    upstream = OpenAPIUpstream(client)
    result = await upstream.call(GET_PET, source(await serve(pets)), {"id": 7}, CONTEXT)
    assert bytes(result.structured_content) == b'{"id": 7}'
    assert [seen.target for seen in pets.seen] == ["/pets/7"]


async def failure_text(upstream, of, arguments):
    """What a model is told about a call that gave no answer."""
    result = await upstream.call(GET_PET, of, arguments, CONTEXT)
    assert result.is_error
    [content] = result.content
    return content.text


async def test_call_failures_are_readable_for_models(client, serve):
    pets = Recorder()
    upstream, of = OpenAPIUpstream(client), source(await serve(pets))
    with pytest.raises(InvalidParams, match="a path must not hold"):
        await failure_text(upstream, of, {"id": ".."})
    assert await failure_text(upstream, None, {"id": 7}) == "The source of getPet is gone"
    assert "has no address" in await failure_text(upstream, source(None), {"id": 7})
    assert pets.seen == []


async def test_a_prepared_tool_is_called_with_the_settings_and_the_caller_of_each_call(
    client, serve
):
    before, after = Recorder(), Recorder()
    of, key = source(await serve(before)), Credential("key", "apiKey", "header", "X-Key")
    of_key = tool((key,))
    first_key = SourceSettings(credentials={"key": SchemeSettings(value="k-0")})
    await client.configure(limits(), {"pets": first_key})
    execute = OpenAPIUpstream(client).prepare(of_key)
    assert not (await execute(ToolCall(of_key, of, {}, CONTEXT))).is_error
    moved = SourceSettings(
        base_url=await serve(after),
        headers={"X-New": "1"},
        credentials={"key": SchemeSettings(value="k-1")},
    )
    await client.configure(limits(), {"pets": moved})
    assert not (await execute(ToolCall(of_key, of, {}, CONTEXT))).is_error
    await client.configure(
        limits(), {"pets": SourceSettings(forward_token=True, require_credentials=False)}
    )
    for token in ("ann", "bob"):
        await execute(ToolCall(of_key, of, {}, caller(token)))
    [first, *passed_on], [second] = before.seen, after.seen
    assert ("x-key", "k-0") in first.headers
    assert {("x-key", "k-1"), ("x-new", "1")} <= {*second.headers}
    tokens = [dict(seen.headers)["authorization"] for seen in passed_on]
    assert tokens == ["Bearer ann", "Bearer bob"]


@dataclass
class Mover:
    """Answers paths of `moves` with a redirect, and others with their target."""

    moves: Mapping[str, str]
    status: int = 302
    seen: list[Seen] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.seen.append(seen := await read_seen(scope, receive))
        location = self.moves.get(seen.target.partition("?")[0])
        if location is None:
            await respond(send, 200, b'{"at": "here"}', [("content-type", "application/json")])
        else:
            await respond(send, self.status, b"", [("location", location)])


def targets(service):
    return [seen.target for seen in service.seen]


async def call_moved(client, serve, service, **binding):
    moved = dataclasses.replace(GET_PET, binding=structs.replace(BINDING, **binding))
    upstream = OpenAPIUpstream(client)
    return await upstream.call(moved, source(await serve(service) + "/v1"), {"id": 7}, CONTEXT)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_inside_the_origin_are_followed(client, serve, status):
    """A GET follows redirects inside its origin, relative ones too (mending 27)."""
    service = Mover({"/v1/pets/7": "/v2/pets/7?full=1", "/v2/pets/7": "7/whole"}, status)
    result = await call_moved(client, serve, service)
    assert bytes(result.structured_content) == b'{"at": "here"}'
    assert targets(service) == ["/v1/pets/7", "/v2/pets/7?full=1", "/v2/pets/7/whole"]


async def test_credentials_go_along_inside_the_origin(client, serve):
    """A redirected request has the credentials of the first (mending 27)."""
    settings = SourceSettings(credentials={"key": SchemeSettings(value="k-0")})
    await client.configure(limits(), {"pets": settings})
    service = Mover({"/v1/pets/7": "/v1/cats/7"})
    key = Credential("key", "apiKey", "header", "X-Key")
    await call_moved(client, serve, service, security=((key,),))
    assert [seen.all("x-key") for seen in service.seen] == [["k-0"], ["k-0"]]


async def test_a_circle_of_redirects_ends(client, serve):
    """Redirects are followed a few times only (mending 27)."""
    service = Mover({"/v1/pets/7": "/v1/pets/7"})
    assert (await call_moved(client, serve, service)).is_error
    assert len(service.seen) == REDIRECT_LIMIT + 1


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_a_change_is_not_repeated_elsewhere(client, serve, method):
    """Other methods are not followed (mending 27)."""
    service = Mover({"/v1/pets/7": "/v1/cats/7"}, 307)
    assert (await call_moved(client, serve, service, method=method)).is_error
    assert targets(service) == ["/v1/pets/7"]


async def test_another_origin_is_not_followed(client, serve):
    """A redirect to another host or port is never requested (mending 27)."""
    inside = Recorder()
    service = Mover({"/v1/pets/7": await serve(inside) + "/secret"})
    assert (await call_moved(client, serve, service)).is_error
    assert inside.seen == []


async def test_a_described_redirect_is_an_answer(client, serve):
    """An operation described as a redirect, as a download is, gives the URL (mending 27)."""
    url = "https://files.example.com/7.pdf?sig=abc"
    result = await call_moved(client, serve, Mover({"/v1/pets/7": url}), redirects=True)
    assert not result.is_error
    assert result.content == (TextContent(f"302 Found\nLocation: {url}"),)


async def test_a_described_redirect_repeats_no_key(client, serve):
    """The query of a redirect is left out where a key was sent in one (mending 27)."""
    settings = SourceSettings(credentials={"key": SchemeSettings(value="k-0")})
    await client.configure(limits(), {"pets": settings})
    service = Mover({"/v1/pets/7": "https://files.example.com/7.pdf?key=k-0"})
    key = Credential("key", "apiKey", "query", "key")
    result = await call_moved(client, serve, service, redirects=True, security=((key,),))
    assert result.content == (TextContent("302 Found\nLocation: https://files.example.com/7.pdf"),)


async def test_a_described_redirect_inside_a_network_is_not_shown(client, serve):
    """Even a described redirect names no internal address (mending 27)."""
    service = Mover({"/v1/pets/7": "http://10.1.2.3/7.pdf"})
    result = await call_moved(client, serve, service, redirects=True)
    assert result.is_error
    assert "10.1.2.3" not in str(result)
