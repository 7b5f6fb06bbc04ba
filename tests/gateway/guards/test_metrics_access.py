"""Who may read /metrics, and the details of /ready."""

import pytest
from msgspec.structs import replace

from config.load import load
from gateway.app.routes import proxies
from gateway.guards.metrics_access import MetricsAccess, is_local
from tests.gateway.asgi import Wire, http

pytestmark = pytest.mark.anyio

TOKEN = "numbers-are-for-operators"
CLOSED = load(None, {}).metrics


def make_scope(client, *headers):
    return {**http("GET", "/metrics", headers), "client": (client, 1) if client else None}


@pytest.mark.parametrize("client", ["127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"])
def test_a_client_on_this_machine_may_look(client):
    assert MetricsAccess(CLOSED).allows(make_scope(client))


@pytest.mark.parametrize("client", ["10.0.0.7", "192.0.2.1", "2001:db8::1", "::ffff:10.0.0.7", ""])
def test_remote_clients_read_metrics_only_with_the_token(client):
    metrics_access = MetricsAccess(replace(CLOSED, token=TOKEN))
    assert not metrics_access.allows(make_scope(client))
    assert not MetricsAccess(CLOSED).allows(make_scope(client, ("Authorization", "Bearer ")))
    for wrong in ("Bearer ", f"Basic {TOKEN}", f"Bearer {TOKEN}x", TOKEN, "Bearer \xe9"):
        assert not metrics_access.allows(make_scope(client, ("Authorization", wrong)))
    assert metrics_access.allows(make_scope(client, ("Authorization", f"bearer  {TOKEN} ")))
    twice = [("Authorization", f"Bearer {TOKEN}")] * 2
    assert not metrics_access.allows(make_scope(client, *twice))
    assert MetricsAccess(replace(CLOSED, public=True)).allows(make_scope(client))


@pytest.mark.parametrize(
    "name",
    ["X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "Forwarded", "X-Real-IP", "Via",
     "X-Client-IP", "True-Client-IP"],
)  # fmt: skip
def test_requests_forwarded_by_a_local_proxy_are_remote(name):
    assert not is_local(make_scope("127.0.0.1", (name, "127.0.0.1")))


def test_http_1_0_requests_of_a_headerless_proxy_are_remote():
    """`proxy_pass` of nginx alone adds no header, but speaks HTTP/1.0, as no browser does."""
    assert not is_local({**make_scope("127.0.0.1"), "http_version": "1.0"})
    assert is_local({**make_scope("127.0.0.1"), "http_version": "1.1"})


@pytest.mark.parametrize(
    ("peer", "sent", "client"),
    [
        ("10.1.1.1", "203.0.113.9", "203.0.113.9"),
        ("10.1.1.1", "127.0.0.1, 203.0.113.9", "203.0.113.9"),  # the last that no proxy of ours is
        ("10.1.1.1", "203.0.113.9, 10.2.2.2", "203.0.113.9"),
        ("192.0.2.1", "203.0.113.9", "192.0.2.1"),  # anybody may send the header
    ],
)
async def test_trusted_proxies_name_their_client(peer, sent, client):
    seen = []

    async def app(scope, _receive, _send):
        seen.append(scope["client"][0])

    [middleware] = proxies(["10.0.0.0/8"])
    wire = Wire()
    guarded = middleware.cls(app, **middleware.kwargs)
    await guarded(make_scope(peer, ("X-Forwarded-For", sent)), wire.receive, wire.send)
    assert seen == [client]
    assert proxies([]) == []
