"""A tool that is an operation, called."""

import pytest
from msgspec import Raw

from gateway.context import Context, Identity, Principal
from gateway.upstreams.rest.upstream import OpenAPIUpstream
from schemas.binding import OpenAPIBinding, Parameter
from schemas.errors import InvalidParams
from schemas.mcp.revisions import V2025_06_18
from schemas.tool import Annotations, Tool
from tests.gateway.upstreams.conftest import source
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
