"""A tool that is an operation, called."""

import pytest
from msgspec import Raw

from config.sources import SchemeSettings, SourceSettings
from gateway.abc import ToolCall
from gateway.context import Context, Identity, Principal
from gateway.upstreams.rest.upstream import OpenAPIUpstream
from schemas.binding import Credential, OpenAPIBinding, Parameter
from schemas.errors import InvalidParams
from schemas.mcp.revisions import V2025_06_18
from schemas.tool import Annotations, Tool
from tests.gateway.upstreams.callers import caller, tool
from tests.gateway.upstreams.conftest import limits, source
from tests.servers.rest import Recorder

pytestmark = pytest.mark.anyio

CONTEXT = Context(Identity(Principal("p", "t")), V2025_06_18, "r-1")
BINDING = OpenAPIBinding("GET", "/pets/{id}", (Parameter("id", "id", "path", "simple", False),))
GET_PET = Tool(
    "uuid", "getPet", None, "One pet", Raw(b"{}"), None, Annotations(), BINDING, "pets", "digest"
)


async def test_a_call_gives_what_the_service_answered(client, serve):
    pets = Recorder(200, b'{"id": 7}')
    upstream = OpenAPIUpstream(client)
    result = await upstream.call(GET_PET, source(await serve(pets)), {"id": 7}, CONTEXT)
    assert bytes(result.structured_content) == b'{"id": 7}'
    assert [seen.target for seen in pets.seen] == ["/pets/7"]


async def told(upstream, of, arguments):
    """What a model is told about a call that gave no answer."""
    result = await upstream.call(GET_PET, of, arguments, CONTEXT)
    assert result.is_error
    [content] = result.content
    return content.text


async def test_what_goes_wrong_is_a_result_that_a_model_can_read(client, serve):
    pets = Recorder()
    upstream, of = OpenAPIUpstream(client), source(await serve(pets))
    with pytest.raises(InvalidParams, match="a path must not hold"):
        await told(upstream, of, {"id": ".."})
    assert await told(upstream, None, {"id": 7}) == "The source of getPet is gone"
    assert "has no address" in await told(upstream, source(None), {"id": 7})
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
