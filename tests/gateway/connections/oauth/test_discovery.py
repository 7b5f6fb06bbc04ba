"""Discovery of authorization servers, also by metadata of an attacker."""

from collections.abc import AsyncIterator
from typing import Any

import anyio
import msgspec
import pytest
from starlette.responses import RedirectResponse, StreamingResponse

from gateway.connections.oauth.discovery import (
    Discovered,
    Discovery,
    DiscoveryFailed,
    McpServer,
    _choose_issuer,
)
from gateway.connections.oauth.guarded_requests import Reach
from gateway.connections.oauth.server_metadata import AuthorizationServer, named_server
from schemas.challenges import Challenge
from tests.fixtures_servers import Serve
from tests.gateway.connections.oauth.limits import limits
from tests.servers.documents import DocumentServer

pytestmark = pytest.mark.anyio

PRM = "/.well-known/oauth-protected-resource"
RFC8414 = "/.well-known/oauth-authorization-server"
OPENID = "/.well-known/openid-configuration"
INSIDE = "http://169.254.169.254/latest"
LIMITS = limits(private_networks=True)


def metadata(issuer: str, **changes: Any) -> dict[str, Any]:
    origin = "/".join(issuer.split("/")[:3])
    document = {
        "issuer": issuer,
        "authorization_endpoint": f"{origin}/authorize",
        "token_endpoint": f"{origin}/token",
        "code_challenge_methods_supported": ["plain", "S256"],
        **changes,
    }
    return {name: value for name, value in document.items() if value is not None}


def resource(url: str, issuer: str, **changes: Any) -> dict[str, Any]:
    return {"resource": f"{url}/mcp", "authorization_servers": [issuer], **changes}


async def discover(url: str, *, reach: Reach | None = None, **more: Any) -> Discovered:
    reach = reach or Reach(LIMITS)
    server = McpServer(**{"url": f"{url}/mcp", "challenge": Challenge(), **more})
    with anyio.fail_after(10):
        return await Discovery(reach.limits).of_mcp_server(server, reach)


async def refusal(url: str, **more: Any) -> DiscoveryFailed:
    with pytest.raises(DiscoveryFailed) as refused:
        await discover(url, **more)
    assert refused.value.steps[-1].failed
    assert not any(step.failed for step in refused.value.steps[:-1])
    return refused.value


@pytest.fixture
def server() -> DocumentServer:
    return DocumentServer()


@pytest.mark.parametrize("path", ["", "/tenant"])
@pytest.mark.parametrize("place", range(3))
async def test_metadata_are_found_at_the_usual_places(
    serve: Serve, server: DocumentServer, path: str, place: int
) -> None:
    """A1: of a resource at its path or the root, of an issuer at the two or three places."""
    url = await serve(server)
    issuer = url + path
    places = [f"{RFC8414}{path}", f"{OPENID}{path}", f"{path}{OPENID}"]
    server.documents = {PRM: resource(url, issuer), places[place]: metadata(issuer)}
    found = (await discover(url)).server
    assert found.issuer == issuer
    assert found.resource == f"{url}/mcp"
    assert server.asked[:2] == [f"{PRM}/mcp", PRM]


async def test_a_server_is_asked_for_its_challenge(serve: Serve, server: DocumentServer) -> None:
    url = await serve(server)
    server.challenge = f'Bearer resource_metadata="{url}/elsewhere", scope="read"'
    server.documents = {
        "/elsewhere": resource(url, url, scopes_supported=["all"]),
        RFC8414: metadata(url, scopes_supported=["offline_access"]),
    }
    discovered = await discover(url, challenge=None)
    assert discovered.server.scopes == ("read",)
    assert discovered.server.scopes_supported == ("offline_access",)
    assert server.asked == ["/mcp", "/elsewhere", RFC8414]
    assert [step.name for step in discovered.steps] == [
        *("challenge", "resource metadata", "authorization_servers", "server metadata", "PKCE")
    ]


async def test_a_stream_that_answers_the_probe_is_not_read(
    serve: Serve, server: DocumentServer
) -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield b": hello"
        await anyio.sleep_forever()

    url = await serve(server)
    server.documents = {
        "/mcp": StreamingResponse(endless(), media_type="text/event-stream"),
        PRM: resource(url, url),
        RFC8414: metadata(url),
    }
    discovered = await discover(url, challenge=None)
    assert discovered.steps[0].detail == "HTTP 200, without a Bearer challenge"


async def test_scopes_of_the_resource_count_without_a_challenge(
    serve: Serve, server: DocumentServer
) -> None:
    url = await serve(server)
    server.documents = {
        PRM: resource(url, url, scopes_supported=["a", 7, "b"]),
        RFC8414: metadata(url),
    }
    assert (await discover(url)).server.scopes == ("a", "b")


async def test_names_that_no_row_takes_are_left_out(serve: Serve, server: DocumentServer) -> None:
    url = await serve(server)
    names = ["a\0", "a" * 1000, "b"]
    lists = ("scopes_supported", "token_endpoint_auth_methods_supported")
    pkce = {"code_challenge_methods_supported": ["S256\0", "S256"]}
    server.documents = {
        PRM: resource(url, url, scopes_supported=names),
        RFC8414: metadata(url, **dict.fromkeys(lists, names), **pkce),
    }
    found = (await discover(url)).server
    assert found.scopes == found.scopes_supported == ("b",)
    assert found.token_endpoint_auth_methods_supported == ("b",)
    assert found.code_challenge_methods_supported == ("S256",)


async def test_a_server_survives_its_row(serve: Serve, server: DocumentServer) -> None:
    url = await serve(server)
    server.documents = {
        PRM: resource(url, url),
        RFC8414: metadata(
            url,
            registration_endpoint=f"{url}/register",
            revocation_endpoint=f"{url}/revoke",
            token_endpoint_auth_methods_supported=["none"],
            authorization_response_iss_parameter_supported=True,
            client_id_metadata_document_supported=True,
        ),
    }
    found = (await discover(url)).server
    assert msgspec.json.decode(msgspec.json.encode(found), type=AuthorizationServer) == found
    assert found.announces_iss
    assert found.accepts_documents
    assert found.pin == (
        *(url, f"{url}/authorize", f"{url}/token", f"{url}/register", f"{url}/revoke"),
        f"{url}/mcp",
    )


@pytest.mark.parametrize(
    ("stated", "covers"),
    [
        ("/mcp", True),
        ("/mcp/", True),
        ("/", True),
        ("", True),
        ("/other", False),
        ("/mc", False),
        ("/mcp/deeper", False),
        ("/mcp?tenant=2", False),
        ("/mcp#x", False),
    ],
)
async def test_metadata_of_another_resource_are_refused(
    serve: Serve, server: DocumentServer, stated: str, covers: bool
) -> None:
    """A2: the resource is the server called, or a whole that it is a part of."""
    url = await serve(server)
    server.documents = {
        f"{PRM}/mcp": resource(url, url, resource=url + stated),
        RFC8414: metadata(url),
    }
    if covers:
        assert (await discover(url)).server.resource == url + stated
    else:
        assert (await refusal(url)).steps[-1].name == "resource metadata"
        assert RFC8414 not in server.asked


@pytest.mark.parametrize(
    "changes",
    [
        {"resource": "https://evil.example/mcp"},
        {"resource": 7},
        {"resource": "https://[x"},
        {"authorization_servers": []},
        {"authorization_servers": "https://auth.example"},
        {"authorization_servers": ["javascript:alert(1)"]},
        {"authorization_servers": ["file:///etc/passwd"]},
    ],
)
async def test_hostile_resource_metadata_lead_nowhere(
    serve: Serve, server: DocumentServer, changes: dict[str, Any]
) -> None:
    url = await serve(server)
    server.documents = {PRM: resource(url, url, **changes), RFC8414: metadata(url)}
    await refusal(url)
    assert RFC8414 not in server.asked


@pytest.mark.parametrize(
    "issuer", [INSIDE, "http://127.0.0.1:1", "http://10.0.0.1/", "https://10.1"]
)
async def test_metadata_lead_into_no_private_network(
    serve: Serve, server: DocumentServer, issuer: str
) -> None:
    """CT2: the source may be inside, since an operator named it; what it names may not."""
    url = await serve(server)
    server.documents = {PRM: resource(url, issuer)}
    failure = await refusal(url, reach=Reach(limits(), [url]))
    assert failure.steps[-1].name == "server metadata"
    assert "https://" in str(failure) or "connections.private_networks" in str(failure)


async def test_an_issuer_that_an_operator_named_may_be_inside(
    serve: Serve, server: DocumentServer
) -> None:
    url, inside = await serve(server), DocumentServer()
    issuer = await serve(inside)
    server.documents = {PRM: resource(url, issuer)}
    inside.documents = {RFC8414: metadata(issuer)}
    reach = Reach(limits(), [url, issuer])
    assert (await discover(url, reach=reach, issuer=issuer)).server.issuer == issuer


@pytest.mark.parametrize("name", ["authorization_endpoint", "token_endpoint",
                                  "registration_endpoint", "revocation_endpoint"])  # fmt: skip
@pytest.mark.parametrize(
    "endpoint",
    [
        *("javascript:alert(1)", "data:text/html,x", INSIDE, "https://127.0.0.1/x", "/relative"),
        *("https://user:word@auth.example/x", "https://auth.example/x#y", "https://[::1]/", ""),
        *("https://auth.example\\@10.0.0.1/", "https://auth.example/ x", "https://2130706433/"),
        *("https://auth.example/\n", "https://ünsicher.example/", "https://" + "a" * 3000),
    ],
)
async def test_hostile_endpoints_are_refused(
    serve: Serve, server: DocumentServer, name: str, endpoint: str
) -> None:
    """CT2: a browser and the gateway go to public https addresses only."""
    url = await serve(server)
    server.documents = {PRM: resource(url, url), RFC8414: metadata(url, **{name: endpoint})}
    failure = await refusal(url, reach=Reach(limits(), [url]))
    assert name in str(failure)


@pytest.mark.parametrize(
    "issuer", ["https://evil.example", "{url}/", "{url}/other", "{url}?x=1", 7, None]
)
async def test_metadata_of_a_foreign_issuer_are_refused(
    serve: Serve, server: DocumentServer, issuer: Any
) -> None:
    """A2, CON-5: nothing later is asked; an empty path and a slash are one."""
    url = await serve(server)
    stated = issuer.format(url=url) if isinstance(issuer, str) else issuer
    server.documents = {
        PRM: resource(url, url),
        RFC8414: {**metadata(url), "issuer": stated},
        OPENID: metadata(url),
    }
    if stated == f"{url}/":
        assert (await discover(url)).server.issuer == stated
    else:
        assert (await refusal(url)).steps[-1].name == "issuer"
        assert OPENID not in server.asked


async def test_a_known_deviation_of_the_issuer_is_named_in_settings(
    serve: Serve, server: DocumentServer
) -> None:
    """CON-5: Atlassian's issuer is the origin of an address with a path."""
    url = await serve(server)
    server.documents = {PRM: resource(url, f"{url}/v1"), f"{RFC8414}/v1": metadata(url)}
    assert "connect.issuer" in str(await refusal(url))
    assert (await discover(url, issuer=url)).server.issuer == url


async def test_a_setting_chooses_among_several_issuers(
    serve: Serve, server: DocumentServer
) -> None:
    url = await serve(server)
    both = resource(url, "", authorization_servers=[f"{url}/a", f"{url}/b"])
    server.documents = {
        PRM: both,
        f"{RFC8414}/a": metadata(f"{url}/a"),
        f"{RFC8414}/b": metadata(f"{url}/b"),
    }
    assert (await discover(url)).server.issuer == f"{url}/a"
    assert (await discover(url, issuer=f"{url}/b")).server.issuer == f"{url}/b"


@pytest.mark.parametrize("methods", [None, [], ["plain"], ["s256"]])
async def test_a_server_without_s256_is_left(
    serve: Serve, server: DocumentServer, methods: list[str] | None
) -> None:
    """A3; an operator who names the issuer answers for one that lists nothing."""
    url = await serve(server)
    document = metadata(url, code_challenge_methods_supported=methods)
    server.documents = {PRM: resource(url, url), RFC8414: document}
    assert (await refusal(url)).steps[-1].name == "PKCE"
    if methods:
        assert (await refusal(url, issuer=url)).steps[-1].name == "PKCE"
    else:
        assert (await discover(url, issuer=url)).server.issuer == url


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"\xff", b"[" * 100_000, b'"' + b"x" * 300_000])
async def test_pages_at_well_known_places_are_no_metadata(
    serve: Serve, server: DocumentServer, body: bytes
) -> None:
    """Web applications answer any path with a page; the next place is asked."""
    url = await serve(server)
    server.documents = {
        f"{PRM}/mcp": body,
        PRM: resource(url, url),
        RFC8414: body,
        OPENID: metadata(url),
    }
    assert (await discover(url)).server.issuer == url


async def test_redirects_of_metadata_are_not_followed(serve: Serve, server: DocumentServer) -> None:
    url = await serve(server)
    server.documents = {
        PRM: resource(url, url),
        RFC8414: RedirectResponse(f"{url}/moved"),
        "/moved": metadata(url),
    }
    await refusal(url)
    assert "/moved" not in server.asked


async def test_servers_of_2025_03_26_are_their_own_issuer(
    serve: Serve, server: DocumentServer
) -> None:
    url = await serve(server)
    bare = (await discover(url)).server
    assert (bare.authorization_endpoint, bare.registration_endpoint) == (
        *(f"{url}/authorize", f"{url}/register"),
    )
    assert bare.resource == ""
    server.documents = {RFC8414: metadata(url, token_endpoint=f"{url}/oauth/token")}
    assert (await discover(url)).server.token_endpoint == f"{url}/oauth/token"


@pytest.mark.parametrize(
    ("setting", "sent"), [("auto", "{url}/mcp"), ("off", ""), ("https://own/", "https://own/")]
)
async def test_the_resource_is_a_setting(
    serve: Serve, server: DocumentServer, setting: str, sent: str
) -> None:
    url = await serve(server)
    server.documents = {PRM: resource(url, url), RFC8414: metadata(url)}
    assert (await discover(url, resource=setting)).server.resource == sent.format(url=url)


async def test_discoveries_are_cached_and_refusals_too(
    serve: Serve, server: DocumentServer
) -> None:
    """CON-22: 300 s and 30 s; a 401 with a token asks anew."""
    url, now = await serve(server), [0.0]
    discovery, reach = Discovery(LIMITS, lambda: now[0]), Reach(LIMITS)
    mcp = McpServer(url=f"{url}/mcp", challenge=Challenge())
    server.documents = {PRM: resource(url, "https://evil.example\\")}
    for seconds, requests in ((0.0, 2), (29.0, 2), (31.0, 4)):
        now[0] = seconds
        with pytest.raises(DiscoveryFailed):
            await discovery.of_mcp_server(mcp, reach)
        assert len(server.asked) == requests
    server.documents = {PRM: resource(url, url), RFC8414: metadata(url)}
    for seconds, requests in ((62.0, 7), (361.0, 7), (363.0, 10)):
        now[0] = seconds
        await discovery.of_mcp_server(mcp, reach)
        assert len(server.asked) == requests
    now[0] = 364.0
    await discovery.of_mcp_server(mcp, reach, fresh=True)
    assert len(server.asked) == 13


async def test_however_many_discover_one_request_is_made(
    serve: Serve, server: DocumentServer
) -> None:
    url = await serve(server)
    server.documents = {PRM: resource(url, url), RFC8414: metadata(url)}
    discovery, reach = Discovery(LIMITS), Reach(LIMITS)
    mcp = McpServer(url=f"{url}/mcp", challenge=Challenge())
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(discovery.of_mcp_server, mcp, reach)
    assert len(server.asked) == 3


async def test_a_silent_server_ends_a_discovery(serve: Serve, server: DocumentServer) -> None:
    url = await serve(server)
    server.silent = True
    hurry = limits(private_networks=True, discovery_s=0.2)
    assert "0.2 s in all" in str(await refusal(url, reach=Reach(hurry)))


async def test_an_openid_document_is_read_without_a_list_of_pkce(
    serve: Serve, server: DocumentServer
) -> None:
    """CON-3: `openIdConnectUrl`; only MCP demands that S256 is listed."""
    url = await serve(server)
    server.documents = {OPENID: metadata(url, code_challenge_methods_supported=None)}
    discovery, reach = Discovery(LIMITS), Reach(LIMITS)
    assert (await discovery.of_issuer(f"{url}{OPENID}", reach)).server.issuer == url
    server.documents = {OPENID: metadata(url, code_challenge_methods_supported=["plain"])}
    with pytest.raises(DiscoveryFailed, match="PKCE"):
        await discovery.of_issuer(f"{url}{OPENID}", reach, fresh=True)


def test_urls_of_a_description_are_checked() -> None:
    reach = Reach(limits(), ["http://10.0.0.1:8080/api"])
    server = named_server("https://auth.example/a", "http://10.0.0.1:8080/token", reach)
    assert server.issuer == ""
    with pytest.raises(ValueError, match="tokenUrl: expected an https:// URL"):
        named_server("https://auth.example/a", "http://10.0.0.1:81/token", reach)
    with pytest.raises(ValueError, match="authorizationUrl"):
        named_server("javascript:alert(1)", "https://auth.example/token", reach)


@pytest.mark.parametrize(
    ("named", "chosen"),
    [
        (["https://login.example"], "https://login.example"),
        (["https://evil.example", "https://login.example"], "https://login.example"),
        (["https://login.example/team"], "https://login.example/team"),
        (["https://evil.example"], None),
        (["https://login.example.evil.example"], None),
    ],
)
def test_a_service_leads_to_the_issuer_of_the_settings_alone(
    named: list[str], chosen: str | None
) -> None:
    """A service that was taken over cannot lead people, or a client's secret, elsewhere."""
    document = {"authorization_servers": named}
    if chosen is not None:
        assert _choose_issuer(document, "https://login.example", []) == chosen
        return
    with pytest.raises(DiscoveryFailed, match=r"none of which is at connect\.issuer"):
        _choose_issuer(document, "https://login.example", [])
