"""Records of what programs do."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from config.settings import Settings
from gateway.audit.queries import AuditQuery, search
from registry.database.postgres import Database
from tests.fixtures_database import HOST
from tests.wings.code.shop import code_shop

pytestmark = pytest.mark.anyio


async def test_each_call_of_a_program_is_audited_below_its_run(
    settings: Settings, tmp_path: Path, database: Database
) -> None:
    audit = replace(settings.audit, mode="always")
    async with code_shop(settings, tmp_path, audit=audit) as shop:
        await shop.run("for i in (1, 2, 99):\n    tools.get_item(id=i)")
    page = await search(database.pool, HOST, AuditQuery())
    records = {record.entry.request_id: record.entry for record in page.records}
    [run] = [entry for entry in records.values() if entry.subject == "run_code"]
    calls = [records[f"{run.request_id}.{seq}"] for seq in (1, 2, 3)]
    assert [(call.subject, call.outcome) for call in calls] == [
        ("get-item", "ok"),
        ("get-item", "ok"),
        ("get-item", "tool_error"),
    ]
    assert {call.principal for call in calls} == {run.principal}
