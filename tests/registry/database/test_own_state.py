"""Marks of gateways that share no state."""

import psycopg
import pytest

from registry.database.own_state import mark_own_state
from registry.database.postgres import Database

pytestmark = pytest.mark.anyio


async def test_gateway_that_has_connected_again_counts_once(database: Database) -> None:
    """The server may not know yet that the first connection is lost."""
    async with database.connect() as lost, database.connect() as connection:
        assert await mark_own_state(lost, 7) == 1
        assert await mark_own_state(connection, 7) == 1
        async with database.connect() as other:
            assert await mark_own_state(other, 8) == 2


async def test_no_mark_is_left_at_a_pooler(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PgBouncer gives a client a random number in place of the process of the server, whose
    connection, and locks, another client gets next."""
    monkeypatch.setattr(psycopg.ConnectionInfo, "backend_pid", 1)
    async with database.connect() as connection:
        assert await mark_own_state(connection, 7) == 0
