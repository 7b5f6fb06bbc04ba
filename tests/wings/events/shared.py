"""Fixtures of a module whose tests leave their gateway as it was, and share it:

    from tests.wings.events.shared import anyio_backend, client, event_changes, service
    from tests.wings.events.shared import shared_events

    __all__ = ["anyio_backend", "client", "event_changes", "service", "shared_events"]

A module may have a fixture `event_changes` of its own: the settings of the wing that it needs.
"""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from config.settings import Settings
from tests.fixtures_gateway import Client, Recorder, SharedGateway, running
from tests.gateway.shared import anyio_backend
from tests.polling import until
from tests.wings.events.conftest import TABLES
from tests.wings.events.rig import with_events

__all__ = ["anyio_backend", "client", "event_changes", "service", "shared_events"]

DUE = """
SELECT 1 FROM invocation_t WHERE queue = '' AND (status = 'DISPATCHED'
    OR (status = 'PENDING' AND due_ts <= now() AND approval_id IS NULL))"""


@pytest.fixture(scope="module")
def event_changes() -> dict[str, Any]:
    return {}


@pytest.fixture(scope="module")
async def shared_events(
    shared_settings: Settings, shared_service: Recorder, event_changes: dict[str, Any]
) -> AsyncIterator[SharedGateway]:
    async with running(with_events(shared_settings, **event_changes)) as client:
        yield SharedGateway(client, shared_service)


@pytest.fixture
def service(shared_events: SharedGateway) -> Iterator[Recorder]:
    yield shared_events.renew_service()
    shared_events.service.release.set()


@pytest.fixture
async def client(shared_events: SharedGateway, service: Recorder) -> AsyncIterator[Client]:
    """The gateway, whose journal is empty, and that calls nothing."""
    client = shared_events.client
    yield client
    service.release.set()
    pool = client.gateway.feed.pool
    assert pool is not None

    async def is_idle() -> bool:
        async with pool.connection() as connection:
            return await (await connection.execute(DUE)).fetchone() is None

    await until(is_idle)
    async with pool.connection() as connection:
        await connection.execute(f"TRUNCATE {TABLES}".encode())
