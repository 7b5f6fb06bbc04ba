"""Who is told that the legacy payload is deprecated, and how often."""

import logging

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from gateway.context import CallHeaders, Context, Identity, Principal
from gateway.interfaces import Route
from gateway.middleware.message_metrics import CLIENTS_REMEMBERED, LegacyUse
from schemas.jsonrpc import Request
from schemas.mcp.revisions import HYBRID, JSON_RPC, PORTAL

pytestmark = pytest.mark.anyio

NOBODY = Identity(Principal("anonymous", "t"))
REQUEST = Request("2.0", "a/b/c/1")


@pytest.fixture
def warned_clients(caplog):
    """The clients that were told, in order."""
    caplog.set_level(logging.WARNING, "toolgate.legacy")
    return lambda: [record.client for record in caplog.records]


async def send(use, revision=HYBRID, identity=NOBODY, request=REQUEST, **call_headers):
    async def handler(_context, _request):
        return "served"

    context = Context(identity, revision, "r-1", headers=CallHeaders(**call_headers))
    assert (
        await use.middleware(handler, Route(revision, request.method))(context, request) == "served"
    )


def ada(verified=True):
    return Identity(Principal("ada", "t"), verified=verified)


async def test_json_rpc_is_not_deprecated(warned_clients):
    use = LegacyUse()
    for revision in (JSON_RPC, PORTAL):
        await send(use, revision, client="10.0.0.1")
    assert warned_clients() == []


async def test_a_client_is_logged_once_for_all_endpoints(warned_clients):
    use = LegacyUse()
    for side in ("query", "command", None, "query"):
        await send(use, side=side, client="10.0.0.1")
    await send(use, client="10.0.0.2")
    assert warned_clients() == ["10.0.0.1", "10.0.0.2"]


async def test_a_client_is_logged_by_principal_or_address(warned_clients):
    use = LegacyUse()
    await send(use, identity=ada(), client="10.0.0.1")
    await send(use, identity=ada(), client="10.0.0.1")
    await send(use, identity=ada(verified=False), client="10.0.0.1")
    assert warned_clients() == ["ada", "10.0.0.1"]


async def test_a_long_name_of_an_action_is_cut(caplog):
    caplog.set_level(logging.WARNING, "toolgate.legacy")
    await send(LegacyUse(), request=Request("2.0", "x" * 5000))
    assert len(caplog.records[0].method) == 100


async def test_calls_are_counted_by_path():
    use, registry = LegacyUse(), CollectorRegistry()
    registry.register(use)
    for side in ("query", "query", "command", None):
        await send(use, side=side)
    lines = generate_latest(registry).decode().splitlines()
    assert [line for line in lines if line.startswith("toolgate_legacy_requests_total")] == [
        'toolgate_legacy_requests_total{path="query"} 2.0',
        'toolgate_legacy_requests_total{path="command"} 1.0',
        'toolgate_legacy_requests_total{path="rpc"} 1.0',
    ]


async def test_only_so_many_clients_are_remembered(warned_clients):
    use = LegacyUse()
    for number in range(CLIENTS_REMEMBERED + 1):
        await send(use, client=str(number))
    await send(use, client="1")  # remembered
    await send(use, client="0")  # forgotten for the last one that came
    assert warned_clients()[-2:] == [str(CLIENTS_REMEMBERED), "0"]
