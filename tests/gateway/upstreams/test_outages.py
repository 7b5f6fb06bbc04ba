"""Which failures say that a source is away, and which are about the call."""

import msgspec
import pytest
from msgspec import Raw

from gateway.context import Context, Identity, Principal
from gateway.upstreams.graphql.upstream import GraphQLUpstream
from gateway.upstreams.http.responses_as_results import failure_result, outage
from gateway.upstreams.http.source_pools import UpstreamFailed
from gateway.upstreams.mcp.http_requests_and_responses import HttpStatusError
from gateway.upstreams.rest.upstream import OpenAPIUpstream
from schemas.binding import GraphQLBinding, OpenAPIBinding
from schemas.mcp.revisions import V2025_06_18
from schemas.tool import Annotations, Outage, Tool
from tests.gateway.upstreams.conftest import limits, open_client, source
from tests.gateway.upstreams.hybrid_calls import Caller
from tests.servers.rest import Recorder, Silent

pytestmark = pytest.mark.anyio

CONTEXT = Context(Identity(Principal("p", "t")), V2025_06_18, "r-1")
NOWHERE = "http://127.0.0.1:1"
KINDS = ("openapi", "graphql", "jsonrpc", "legacy", "batch")


def tool(binding):
    return Tool("id", "get", None, "", Raw(b"{}"), None, Annotations(), binding, "pets", "d")


async def ask(client, kind, url):
    """The result of a call of a service of that kind."""
    if kind == "openapi":
        upstream, binding = OpenAPIUpstream(client), OpenAPIBinding("GET", "/pets")
        return await upstream.call(tool(binding), source(url), {}, CONTEXT)
    if kind == "graphql":
        upstream, binding = GraphQLUpstream(client), GraphQLBinding("query", "pets")
        return await upstream.call(tool(binding), source(url), {}, CONTEXT)
    options = {"dialect": "legacy"} if kind == "legacy" else {"batch": 5 if kind == "batch" else 1}
    return await Caller.of(client, url, **options)({})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("status", "away"), [(400, False), (404, False), (429, False), (500, False), (501, False),
                         (502, True), (503, True), (504, True)],
)  # fmt: skip
async def test_a_status_of_a_gateway_is_an_outage(client, serve, kind, status, away):
    url = await serve(Recorder(status, b"<p>no</p>", "text/html"))
    result = await ask(client, kind, url)
    assert result.is_error
    assert (type(result) is Outage) is away


@pytest.mark.parametrize("kind", KINDS)
async def test_a_service_that_cannot_be_reached_is_away(client, kind):
    assert type(await ask(client, kind, NOWHERE)) is Outage


@pytest.mark.parametrize("kind", ["openapi", "jsonrpc"])
async def test_a_timeout_is_an_outage(serve, kind):
    async with open_client(timeout_s=0.2) as client:
        assert type(await ask(client, kind, await serve(Silent()))) is Outage


@pytest.mark.parametrize("kind", ["openapi", "graphql", "jsonrpc"])
async def test_oversized_answers_and_missing_addresses_are_no_outage(client, serve, kind):
    too_much = Recorder(200, b'"' + b"x" * 2 * limits().response_limit_bytes + b'"')
    for url in (await serve(too_much), None):
        result = await ask(client, kind, url)
        assert result.is_error
        assert type(result) is not Outage


async def test_a_service_that_says_so_itself_is_there(client, serve):
    body = b'{"jsonrpc":"2.0","id":1,"error":{"code":503,"message":"not today"}}'
    result = await ask(client, "jsonrpc", await serve(Recorder(200, body)))
    assert result.is_error
    assert type(result) is not Outage


def test_an_outage_is_a_result_like_any_other_to_clients():
    result = failure_result("pets could not be reached")
    assert msgspec.json.encode(outage(result)) == msgspec.json.encode(result)


@pytest.mark.parametrize(("status", "down"), [(500, False), (503, True), (404, False)])
def test_the_status_of_an_mcp_server_says_the_same(status, down):
    assert HttpStatusError("x", status).down is down
    assert not UpstreamFailed("x", late=True).down
