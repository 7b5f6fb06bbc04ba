"""Fixtures of a module whose tests leave their gateway as it was, and share it:

    from tests.gateway.shared import anyio_backend, client, service

    __all__ = ["anyio_backend", "client", "service"]

A test that changes it takes `settings`, and runs a gateway of its own. `open_portal`, which
takes `shared_portal`, is one with the hybrid service, and with no answers of the test before.
"""

from collections.abc import AsyncIterator

import psycopg
import pytest

from config.settings import Settings
from tests.fixtures_gateway import Client, Recorder, SharedGateway
from tests.gateway.portal import Portal, portal
from tests.servers import rules


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # with one event loop for the module


@pytest.fixture
def service(shared_gateway: SharedGateway) -> Recorder:
    return shared_gateway.renew_service()


@pytest.fixture
def client(shared_gateway: SharedGateway, service: Recorder) -> Client:
    return shared_gateway.client


@pytest.fixture(scope="module")
async def shared_portal(shared_settings: Settings) -> AsyncIterator[Portal]:
    async with portal(shared_settings) as to:
        yield to


@pytest.fixture
def open_portal(shared_portal: Portal, shared_settings: Settings) -> Portal:
    rules.state = rules.State()
    with psycopg.connect(shared_settings.database.url, autocommit=True) as connection:
        connection.execute("DELETE FROM command_idempotency_t")
    return shared_portal
