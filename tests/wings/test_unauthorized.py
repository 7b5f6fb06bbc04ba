"""Requests without credentials, at the paths that wings mount and at those of the gateway."""

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from tests.fixtures_database import Cluster, lend_database
from tests.fixtures_gateway import Client, running
from tests.gateway.admin.client import KEY
from tests.gateway.guards.signing import by_jwks
from tests.recycling import Recycling
from tests.wings.test_leaving import with_all

pytestmark = pytest.mark.anyio

REQUESTS = (
    "POST /mcp",
    "POST /rpc",
    "PUT /knowledge/files/notes/a.txt",
    "GET /knowledge/v1/documents",
    "GET /events/v1/invocations",
    "POST /events/cloudevents",
    "OPTIONS /events/cloudevents",
)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # with one event loop for the module


@pytest.fixture(scope="module")
async def client(
    cluster: Cluster, with_wings: Recycling, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Client]:
    auth = by_jwks(tmp_path_factory.mktemp("keys"), [KEY.jwk()])
    for database in lend_database(cluster, with_wings):
        async with running(replace(with_all(database), auth=auth)) as client:
            yield client


@pytest.mark.parametrize("line", REQUESTS)
async def test_a_401_names_the_scheme_of_credentials(client: Client, line: str) -> None:
    """Each front answers an anonymous request with a challenge (mending 33)."""
    method, path = line.split()
    body = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}'
    sent = {"Content-Type": "application/json", "MCP-Protocol-Version": "2025-11-25"}
    async with client.http.request(method, client.url + path, data=body, headers=sent) as answer:
        assert answer.status == 401
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
