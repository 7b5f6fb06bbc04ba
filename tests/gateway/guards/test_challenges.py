"""What OAuth clients are told: resource identifiers, challenges, and scopes that all need."""

from dataclasses import replace
from typing import Any

import pytest

from gateway.context import Identity, Principal
from gateway.guards.protected_resource import WELL_KNOWN, Challenges, ResourceIdentifiers, demanding
from gateway.protocol.challenges import challenge
from schemas.errors import Fault, Unavailable
from schemas.hybrid import AUTH_TOKEN_SCOPE_MISMATCH, MISSING_AUTH_TOKEN, ScopeMismatch, StatusFault
from tests.gateway.asgi import Wire, http

pytestmark = pytest.mark.anyio

ENDPOINTS = ("/mcp", "/mcp/reading", "/rpc")
HERE = http(headers=[("host", "gate.example:8765")]) | {"scheme": "https"}
REALM = 'Bearer realm="toolgate"'


def resources(public_url: str = "", **options: Any) -> ResourceIdentifiers:
    return ResourceIdentifiers(public_url, ENDPOINTS, **options)


@pytest.mark.parametrize(
    ("path", "endpoint"),
    [
        ("/mcp", "/mcp"),
        ("/mcp/", "/mcp"),
        ("/mcp/sse", "/mcp"),
        ("/mcp/message", "/mcp"),
        ("/mcp/reading", "/mcp/reading"),
        ("/mcp/reading/sse", "/mcp/reading"),
        ("/mcp/other", "/mcp"),
        ("/rpc", "/rpc"),
        ("/mcpx", None),
        ("/", None),
        ("", None),
    ],
)
def test_a_path_belongs_to_its_endpoint(path: str, endpoint: str | None) -> None:
    assert resources().endpoint(path) == endpoint


@pytest.mark.parametrize(
    ("public_url", "identifier", "metadata"),
    [
        ("", "https://gate.example:8765/mcp", f"https://gate.example:8765{WELL_KNOWN}/mcp"),
        ("http://a.b", "http://a.b/mcp", f"http://a.b{WELL_KNOWN}/mcp"),
        ("http://a.b/", "http://a.b/mcp", f"http://a.b{WELL_KNOWN}/mcp"),
        ("https://a.b/t/g", "https://a.b/t/g/mcp", f"https://a.b{WELL_KNOWN}/t/g/mcp"),
    ],
)
def test_an_endpoint_has_a_url_that_its_metadata_can_be_found_by(
    public_url: str, identifier: str, metadata: str
) -> None:
    assert resources(public_url).identifier(HERE, "/mcp") == identifier
    assert resources(public_url).metadata_url(HERE, "/mcp") == metadata


def test_the_server_address_replaces_a_missing_host_header() -> None:
    scope = http() | {"scheme": "http", "server": ("127.0.0.1", 8765)}
    assert resources().identifier(scope, "/rpc") == "http://127.0.0.1:8765/rpc"


def test_a_server_that_is_one_audience_is_one_resource() -> None:
    one = resources("https://a.b/t", whole=True)
    assert {one.identifier(HERE, endpoint) for endpoint in ENDPOINTS} == {"https://a.b/t"}
    assert one.metadata_url(HERE, "/rpc") == f"https://a.b{WELL_KNOWN}/t/rpc"


@pytest.mark.parametrize("prefix", ["", "/t/g"])
def test_metadata_is_found_with_and_without_the_path_of_the_public_url(prefix: str) -> None:
    found = resources("https://a.b/t/g")
    assert found.described_endpoint(f"{prefix}/mcp/reading") == "/mcp/reading"
    assert found.described_endpoint(prefix or "/") == ""
    assert found.described_endpoint(f"{prefix}/nothing") is None
    assert found.described_endpoint("/t/gnu/mcp") is None


def test_a_bound_audience_names_one_endpoint() -> None:
    assert resources(main="/mcp").described_endpoint("/") == "/mcp"


async def challenge_for(path: str, status: int, header: str | None, *required: str) -> str | None:
    """The WWW-Authenticate that a front's own becomes."""

    async def front(_scope: Any, _receive: Any, send: Any) -> None:
        headers = [(b"www-authenticate", header.encode())] if header else []
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    wire = Wire()
    app = Challenges(front, resources("https://a.b"), required)
    await app(http(path=path), wire.receive, wire.send)
    return wire.headers.get("www-authenticate")


AT_MCP = f'resource_metadata="https://a.b{WELL_KNOWN}/mcp"'


@pytest.mark.parametrize(
    ("status", "header", "required", "expected"),
    [
        (401, REALM, (), f"{REALM}, {AT_MCP}"),
        (401, REALM, ("a", "b"), f'{REALM}, scope="a b", {AT_MCP}'),
        (
            401,
            f'{REALM}, error="invalid_token", error_description="x"',
            ("a",),
            f'{REALM}, error="invalid_token", error_description="x", scope="a", {AT_MCP}',
        ),
        (
            403,
            f'{REALM}, error="insufficient_scope", scope="b c"',
            ("a", "c"),
            f'{REALM}, error="insufficient_scope", scope="a c b", {AT_MCP}',
        ),
        (403, None, ("a",), None),
        (401, 'Basic realm="x"', ("a",), 'Basic realm="x"'),
        (200, REALM, ("a",), REALM),
    ],
)
async def test_a_challenge_leads_to_the_metadata_and_names_all_scopes(
    status: int, header: str | None, required: tuple[str, ...], expected: str | None
) -> None:
    assert await challenge_for("/mcp", status, header, *required) == expected


async def test_paths_outside_endpoints_keep_their_challenge() -> None:
    assert await challenge_for("/metrics", 401, REALM, "a") == REALM


@pytest.mark.parametrize(
    ("scopes", "told"),
    [
        (["b", "a"], ', scope="a b"'),
        (["a", "offline_access"], ', scope="a"'),
        (["a", 'b"c', "d\\e", "f\ng"], ', scope="a"'),
        (["offline_access"], ""),
        ([], ""),
    ],
)
def test_only_scopes_of_the_resource_are_asked_for(scopes: list[str], told: str) -> None:
    fault = ScopeMismatch(AUTH_TOKEN_SCOPE_MISMATCH, ["x"], scopes)
    assert challenge(fault) == f'{REALM}, error="insufficient_scope"{told}'


ADA = Identity(Principal("ada", "t", frozenset({"a", "b"})), verified=True)


async def demand_identity(identity: Identity, *required: str) -> Identity:
    async def identify(_scope: Any) -> Identity:
        return identity

    return await demanding(identify, required)(HERE)


@pytest.mark.parametrize("required", [(), ("a",), ("a", "b")])
async def test_a_caller_with_all_scopes_is_admitted(required: tuple[str, ...]) -> None:
    assert await demand_identity(ADA, *required) is ADA


async def test_a_caller_without_a_scope_is_told_the_required_scopes() -> None:
    found = await demand_identity(ADA, "a", "c")
    assert found.principal is ADA.principal
    assert isinstance(found.refusal, ScopeMismatch)
    assert found.refusal.as_status.code == "ERR10005"
    assert (found.refusal.status, found.refusal.scopes) == (403, ("a", "c"))


@pytest.mark.parametrize("fault", [StatusFault(MISSING_AUTH_TOKEN), Unavailable("x")])
async def test_an_earlier_refusal_comes_before_missing_scopes(fault: Fault) -> None:
    refused = replace(ADA, refusal=fault)
    assert (await demand_identity(refused, "c")).refusal is fault


async def test_scopes_are_not_required_without_authentication() -> None:
    anonymous = Identity(Principal("anonymous", "t"))
    assert await demand_identity(anonymous, "a") is anonymous
