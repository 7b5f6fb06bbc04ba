"""One company for the tests of a module that leave it as it was."""

from collections.abc import AsyncIterator
from dataclasses import fields

import pytest

from config.settings import DatabaseSettings
from tests.gateway.login.company import Company, company
from tests.servers.identity import Identity

ENDLESS = {"requests": 100_000, "registrations": 10_000, "registrations_per_hour": 100_000}
TABLES = (
    "login_person_t, login_client_t, login_consent_t, login_attempt_t, login_t, login_grant_t,"
    " login_refresh_t, login_replay_t, login_user_t, login_failure_t"
)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # with one event loop for the module


@pytest.fixture(scope="module")
async def shared_company(shared_database: DatabaseSettings) -> AsyncIterator[Company]:
    async with company(shared_database, **ENDLESS) as made:
        yield made


@pytest.fixture(name="made")
async def lend_company(shared_company: Company) -> AsyncIterator[Company]:
    """The company, at which nobody has logged in."""
    yield shared_company
    initial = Identity(shared_company.identity.url)
    for field in fields(Identity):
        setattr(shared_company.identity, field.name, getattr(initial, field.name))
    pool = shared_company.gateway.feed.pool
    assert pool is not None
    async with pool.connection() as connection:
        await connection.execute(f"TRUNCATE {TABLES}".encode())
