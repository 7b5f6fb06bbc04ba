import pytest

from gateway.guards.host_and_origin import OriginGuard
from tests.gateway.asgi import Wire, http

pytestmark = pytest.mark.anyio

ORIGINS = ["https://app.example.com", "https://Other.example.com:8443/"]


async def reaches_application(scope):
    """Whether a request reaches the application; checks the refusal if it does not."""
    reached = []

    async def app(scope, receive, send):
        reached.append(scope)

    guard = OriginGuard(app, ["gateway.example.com", "10.1.2.3"], ORIGINS)
    wire = Wire()
    await guard(scope, wire.receive, wire.send)
    if not reached:
        assert wire.status == 403
        assert wire.headers["content-type"] == "application/json"
        assert (wire.json["id"], wire.json["error"]["code"]) == (None, -32600)
        assert wire.json["error"]["data"]["requestId"] == wire.headers["x-request-id"]
    return bool(reached)


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:8765",
        "127.0.0.1",
        "127.0.0.1:1",
        "[::1]",
        "[::1]:8765",
        "gateway.example.com",
        "Gateway.Example.com:443",
        "10.1.2.3:80",
    ],
)
async def test_hosts_that_are_served(host):
    assert await reaches_application(http(headers=[("Host", host)]))


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example.com",
        "localhost.evil.com",
        "evil-localhost",
        "127.0.0.1.evil.com",
        "127.0.0.2",
        "0.0.0.0",
        "[::2]",
        "::1",
        "localhost:8765:1",
        "localhost:x",
        "localhost@evil.com",
        "gateway.example.com.",
        "sub.gateway.example.com",
        "localhost\xe9",
    ],
)
async def test_hosts_that_are_not(host):
    assert not await reaches_application(http(headers=[("Host", host)]))


@pytest.mark.parametrize(
    "origin",
    [
        "http://localhost",
        "http://localhost:3000",
        "https://127.0.0.1:8443",
        "http://[::1]:5173",
        "HTTP://LOCALHOST:1",
        "https://app.example.com",
        "https://other.example.com:8443",
    ],
)
async def test_origins_that_may_call(origin):
    assert await reaches_application(http(headers=[("Host", "localhost"), ("Origin", origin)]))


@pytest.mark.parametrize(
    "origin",
    [
        "",
        "null",
        "https://evil.example.com",
        "http://app.example.com",  # another scheme is another origin
        "https://app.example.com:444",
        "https://app.example.com.evil.com",
        "http://localhost.evil.com",
        "http://localhost:3000.evil.com",
        "http://localhost:3000\n",
        "http://evil.com?http://localhost",
        "http://localhost@evil.com",
        "file://",
        "chrome-extension://localhost",
        "http://127x0x0x1",
    ],
)
async def test_origins_that_may_not(origin):
    assert not await reaches_application(http(headers=[("Host", "localhost"), ("Origin", origin)]))


@pytest.mark.parametrize("origin", ["http://localhost:3000", "https://app.example.com"])
async def test_a_page_that_sends_its_cookies_may_read_the_answer(origin):
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body"})

    guard = OriginGuard(app, [], ORIGINS)
    asked = [("Host", "localhost"), ("Origin", origin)]
    wanted = [*asked, ("Access-Control-Request-Method", "POST"),
              ("Access-Control-Request-Headers", "authorization,idempotency-key")]  # fmt: skip
    for scope in (http(headers=asked), http("OPTIONS", headers=wanted)):
        wire = Wire()
        await guard(scope, wire.receive, wire.send)
        assert wire.status == 200
        assert wire.headers["access-control-allow-origin"] == origin
        assert wire.headers["access-control-allow-credentials"] == "true"
    assert "idempotency-key" in wire.headers["access-control-allow-headers"].lower()


async def test_every_repeated_header_is_checked():
    local = [("Host", "localhost"), ("Origin", "http://localhost")]
    assert await reaches_application(http(headers=local))
    assert not await reaches_application(http(headers=[*local, ("Origin", "https://evil.com")]))


async def test_requests_without_origin_and_host_pass():
    assert await reaches_application(http())


@pytest.mark.parametrize("path", ["/health", "/ready"])
async def test_probes_come_by_address(path):
    foreign = [("Host", "10.9.9.9"), ("Origin", "https://evil.com")]
    assert await reaches_application(http("GET", path, foreign))
    assert not await reaches_application(http("GET", path + "/", foreign))
    assert not await reaches_application(http("GET", "/metrics", foreign))


async def test_the_life_of_the_server_is_no_request():
    assert await reaches_application({"type": "lifespan"})


async def refusal_of(*hosts, path="/mcp", version="1.1"):
    """The status and text of a refusal of a request with these Host headers; None for none."""

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})

    guard, wire = OriginGuard(app, [], []), Wire()
    scope = {**http("GET", path, [("Host", host) for host in hosts]), "http_version": version}
    await guard(scope, wire.receive, wire.send)
    return (wire.status, wire.json["error"]["message"]) if wire.status != 200 else None


@pytest.mark.parametrize("path", ["/mcp", "/rpc", "/health", "/ready", "/metrics", "/"])
async def test_a_request_of_http_1_1_has_one_host(path):
    assert await refusal_of(path=path) == (400, "A request of HTTP/1.1 needs a Host header")
    several = (400, "A request has one Host header, not several")
    assert await refusal_of("localhost", "localhost", path=path) == several
    assert await refusal_of("localhost", path=path) is None


async def test_a_client_of_http_1_0_may_have_no_host():
    assert await refusal_of(version="1.0") is None
    assert (await refusal_of("evil.example.com", version="1.0"))[0] == 403


async def test_probes_come_by_any_host():
    assert await refusal_of("10.0.0.7:8765", path="/ready") is None
