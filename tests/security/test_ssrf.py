"""Addresses that somebody else chose: however a private one is written, and whatever a name
resolves to the next time, nobody there is asked."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import pytest
from msgspec.json import encode

from config.sources import SchemeSettings, SourceSettings
from gateway.context import Context, Identity, Principal
from gateway.upstreams.auth.credentials import Credentials
from gateway.upstreams.http.client import HttpRequest
from gateway.upstreams.http.file_arguments import CallFile, RemoteFile, StreamedBody
from gateway.upstreams.http.source_pools import SourcePools, UpstreamFailed
from gateway.upstreams.http.uploads import Uploads
from gateway.upstreams.mcp.list_reader import Lister
from gateway.upstreams.mcp.server_set import Servers
from gateway.upstreams.mcp.transport_choice import Transports
from registry.documents import ssrf_protection
from registry.documents.fetch import fetch
from registry.sources.graphql_documents import introspect
from registry.sources.import_specs import ImportSpec
from schemas.binding import Credential
from schemas.errors import ImportRejected
from schemas.mcp.revisions import V2025_06_18
from schemas.source import McpOptions
from tests.fixtures_servers import Serve
from tests.gateway.upstreams.conftest import GET, limits, open_client, source
from tests.gateway.upstreams.mcp.audience import Audience
from tests.registry.importers.describe import describe, only
from tests.servers.rest import Recorder
from tests.servers.tokens import TokenServer

pytestmark = pytest.mark.anyio

CONTEXT = Context(Identity(Principal("ann", "t")), V2025_06_18, "r-1")
REFUSED = (UpstreamFailed, ImportRejected)

# Ways to write an address of this machine, or of the metadata of a cloud.
HOSTS = (
    *("127.0.0.1", "127.1", "127.0.1", "0", "0.0.0.0", "2130706433", "017700000001"),
    *("0177.0.0.1", "0x7f.0.0.1", "0x7f000001", "0x7f.1", "127.0.0.1.", "00127.0.0.1"),
    *("localhost", "LOCALHOST", "localhost.", "%6cocalhost", "%31%32%37.0.0.1"),
    # digits and full stops that are others and mean the same (UTS 46)
    *("\uff11\uff12\uff17.0.0.1", "127\u30020\u30020\u30021", "\u2460\u2461\u2466.0.0.1"),
    *("[::1]", "[::]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]"),
    *("[::127.0.0.1]", "[64:ff9b::7f00:1]", "[64:ff9b:1::7f00:1]", "[2002:7f00:1::1]"),
    *("[::1%25lo]", "[fe80::1%25lo]", "[fd00:ec2::254]", "[::ffff:169.254.169.254]"),
    *("169.254.169.254", "2852039166", "0xa9fea9fe", "168.63.129.16", "100.100.100.200"),
    *("user:canary@127.0.0.1", "8.8.8.8@127.1", "8.8.8.8%40127.0.0.1"),
)


async def unread(_uri: str, _context: Context) -> None:
    return None


async def by_argument(url: str) -> None:
    """A file that a call sends."""
    file = RemoteFile(CallFile("f", uri=url), lambda _name, _media_type: b"")
    request = HttpRequest("POST", "/x", {}, upload=StreamedBody((file,), None))
    async with Uploads(limits, unread).open(request, CONTEXT):
        pass


async def by_description(url: str) -> None:
    """The server that a description names."""
    async with open_client(connect_timeout_s=60, retries=0) as client:
        await client.send(source(url, trusted=False), GET)


async def by_reference(url: str) -> None:
    """A `$ref`, and a description that a caller of the admin API names."""
    await fetch(url, by_operator=False, limit_bytes=10_000, timeout_s=60, private_networks=False)


async def by_endpoint(url: str) -> None:
    """A GraphQL endpoint that a caller of the admin API names."""
    await introspect(url, {}, limit_bytes=10_000, timeout_s=60, public=True)


Way = Callable[[str], Awaitable[None]]


async def by_token_url(url: str) -> None:
    """Where a secret that an admin of a tenant stored has its tokens fetched."""
    entry = SchemeSettings(client_id="me", client_secret="s", token_url=url)
    async with open_client(connect_timeout_s=60, retries=0) as client:
        client.connections.store({"pets": {"oauth": entry}})
        oauth = (Credential("oauth", "oauth2"),)
        of = source("https://pets.example.com")
        await Credentials(client.connections).apply(of, (oauth,), GET, CONTEXT)


async def by_mcp_server(url: str) -> None:
    """An MCP server that a caller of the admin API names."""
    settings = limits(connect_timeout_s=60, retries=0)
    connections = SourcePools(settings, {})
    servers = Servers(Transports(connections, settings, {}, {"name": "t"}), Audience(), settings)
    options = McpOptions(era="handshake", guarded=True)
    try:
        await Lister(servers, settings)(ImportSpec("theirs", url, kind="mcp", options=options))
    finally:
        await servers.close()
        await connections.close()


WAYS = (by_argument, by_description, by_reference, by_endpoint, by_token_url, by_mcp_server)
every_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)


@every_way
async def test_no_spelling_of_a_private_address_leads_there(way: Way, serve: Serve) -> None:
    inside = Recorder()
    port = urlsplit(await serve(inside)).port
    for host in HOSTS:
        with pytest.raises(REFUSED) as caught:
            await way(f"http://{host}:{port}/x")
        assert "canary" not in str(caught.value), host
        assert inside.seen == [], host


@pytest.mark.parametrize("way", [by_description, by_argument], ids=lambda way: way.__name__)
@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://127.0.0.1/"])
async def test_nothing_but_http_is_spoken(way: Way, url: str) -> None:
    with pytest.raises(UpstreamFailed):
        await way(url)


@pytest.mark.parametrize("host", [one for one in HOSTS if one.replace(".", "").isdigit()])
def test_numbers_are_judged_before_any_connection(host: str) -> None:
    with pytest.raises(ssrf_protection.PrivateAddress):
        ssrf_protection.check_url_host(f"http://{host}/")


PUBLIC, PRIVATE = "127.0.0.1", "127.0.0.2"  # for want of public ones, one of these stands for them


class Names:
    """A name server under somebody's control: another answer for each question."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked = 0
        self._real = socket.getaddrinfo

    def __call__(self, host: Any, port: Any, *more: Any, **named: Any) -> Any:
        if host != "rebinding.example.com":
            return self._real(host, port, *more, **named)
        found = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
        return [(*kind, (address, int(port))) for address in found]

    def stand_for_others(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(socket, "getaddrinfo", self)
        monkeypatch.setattr(
            ssrf_protection, "is_public", lambda one: str(ip_address(one)) == PUBLIC
        )


@asynccontextmanager
async def inside(port: int | None) -> AsyncIterator[list[bytes]]:
    """A server at the private address; what it was asked."""
    heard: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readline())
        writer.close()

    try:
        server = await asyncio.start_server(answer, PRIVATE, port)
    except OSError:
        pytest.skip("only Linux has all of 127.0.0.0/8")
    async with server:
        yield heard


@pytest.mark.parametrize("allowed", [False, True])
async def test_the_settings_say_whether_a_stored_token_url_may_be_private(
    allowed: bool, serve: Serve
) -> None:
    tokens = TokenServer()
    entry = SchemeSettings(client_id="me", client_secret="s", token_url=await serve(tokens))
    oauth, of = (Credential("oauth", "oauth2"),), source("https://pets.example.com")
    async with open_client(token_private_networks=allowed) as client:
        client.connections.store({"pets": {"oauth": entry}})
        asking = Credentials(client.connections).apply(of, (oauth,), GET, CONTEXT)
        if allowed:
            assert (await asking).headers["Authorization"] == "Bearer token-1"
        else:
            with pytest.raises(UpstreamFailed, match=r"upstream\.token_private_networks"):
                await asking
    assert len(tokens.seen) == allowed


async def test_the_operator_s_own_token_url_may_be_private(serve: Serve) -> None:
    tokens = TokenServer()
    entry = SchemeSettings(client_id="me", client_secret="s", token_url=await serve(tokens))
    oauth, of = (Credential("oauth", "oauth2"),), source("https://pets.example.com")
    async with open_client(SourceSettings(credentials={"oauth": entry})) as client:
        client.connections.store({"pets": {"oauth": entry}})
        request = await Credentials(client.connections).apply(of, (oauth,), GET, CONTEXT)
    assert request.headers["Authorization"] == "Bearer token-1"


# an MCP server is asked several times: with each transport that it might speak
@pytest.mark.parametrize("way", WAYS[:-1], ids=lambda way: way.__name__)
async def test_connections_go_to_the_judged_address(
    way: Way, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = Names([PUBLIC], [PRIVATE])
    names.stand_for_others(monkeypatch)
    outside = Recorder()
    port = urlsplit(await serve(outside)).port
    async with inside(port) as heard:
        with suppress(*REFUSED):  # `{}` is no schema of GraphQL
            await way(f"http://rebinding.example.com:{port}/x")
        assert names.asked == 1
        assert outside.seen
        with pytest.raises(REFUSED):
            await way(f"http://rebinding.example.com:{port}/x")
        assert (names.asked, heard) == (2, [])


@every_way
async def test_a_name_with_any_private_address_is_refused(
    way: Way, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    Names([PUBLIC, PRIVATE]).stand_for_others(monkeypatch)
    outside = Recorder()
    port = urlsplit(await serve(outside)).port
    with pytest.raises(REFUSED):
        await way(f"http://rebinding.example.com:{port}/x")
    assert outside.seen == []


@pytest.mark.parametrize("way", [by_argument, by_reference], ids=lambda way: way.__name__)
async def test_a_redirect_may_not_lead_to_a_name_that_has_become_private(
    way: Way, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    Names([PUBLIC], [PRIVATE]).stand_for_others(monkeypatch)
    headers = [("location", "/again"), ("connection", "close")]
    outside = Recorder(302, headers=headers)
    port = urlsplit(await serve(outside)).port
    async with inside(port) as heard:
        with pytest.raises(REFUSED):
            await way(f"http://rebinding.example.com:{port}/x")
        assert heard == []


def test_where_a_description_has_tokens_fetched_is_not_even_read() -> None:
    url = "https://evil.example.com/token"
    flow = {"clientCredentials": {"tokenUrl": url, "scopes": {"read": ""}}}
    schemes = {
        "grant": {"type": "oauth2", "flows": flow},
        "login": {"type": "openIdConnect", "openIdConnectUrl": url},
        "keys": {"type": "http", "scheme": "bearer", "x-jwks-uri": url},
    }
    operation = {"operationId": "x", "security": [{name: []} for name in schemes]}
    found = only(describe(operation, components={"securitySchemes": schemes}))
    assert b"evil" not in encode(found.draft.binding)
