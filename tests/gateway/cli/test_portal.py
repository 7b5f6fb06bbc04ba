"""`toolgate portal`: who still sends legacy payloads."""

import asyncio
from datetime import UTC, datetime

from config.settings import DatabaseSettings
from gateway.audit.database_writer import store
from gateway.audit.records import AuditEntry, Chain
from registry.database.postgres import Database
from tests.fixtures_database import HOST
from tests.gateway.cli.conftest import Toolgate

ACTION = "lightapi.net/rule/getRule/0.1.0"


async def store_records(settings: DatabaseSettings) -> None:
    chain = Chain(HOST, node="node", started=datetime.now(UTC), key=b"")
    entries = [
        AuditEntry(
            *(HOST, datetime.now(UTC)), principal="ada", front="hybrid", method=ACTION, client="::1"
        )
        for _ in range(2)
    ]
    async with Database.open(settings) as database:
        await store(database.pool, b"", chain.header, chain.link(entries))


def test_the_report_names_callers_and_actions(
    database_settings: DatabaseSettings, toolgate: Toolgate
) -> None:
    assert toolgate("portal", "legacy-report", "--json").json["clients"] == []
    asyncio.run(store_records(database_settings))
    line = toolgate("portal", "legacy-report").out.split()
    assert (line[:3], line[-1]) == (["ada", "::1", "2"], ACTION)
    [client] = toolgate("portal", "legacy-report", "--since", "1h", "--json").json["clients"]
    assert (client["principal"], client["requests"], client["actions"]) == ("ada", 2, [ACTION])
