"""Catalogs of several tenants: each is reloaded by itself."""

import anyio
import pytest

from registry.catalog.catalog_events import CatalogEvents
from registry.catalog.catalogs import Catalogs
from registry.database.postgres import Database
from registry.sources.tool_store import ToolStore
from schemas.tool import Tool
from tests.fixtures_database import HOST

pytestmark = pytest.mark.anyio

SLOW = "00000000-0000-0000-0000-00000000510e"


class SlowStore(ToolStore):
    """The registry, where reading the tools of one tenant takes until `go`."""

    def __init__(self, database: Database) -> None:
        super().__init__(database.pool)
        self.asked, self.go = anyio.Event(), anyio.Event()

    async def tools(self, host_id: str, *, held: bool = False) -> list[Tool]:
        if host_id == SLOW:
            self.asked.set()
            await self.go.wait()
        return await super().tools(host_id, held=held)


async def test_no_tenant_waits_for_the_reload_of_another(database: Database) -> None:
    events = CatalogEvents()
    store, catalogs, loaded = SlowStore(database), Catalogs(events=events), list[str]()
    events.catalog_loaded.subscribe(loaded.append)
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(catalogs.reload, store, SLOW)
            await store.asked.wait()
            await catalogs.reload(store, HOST)
            assert loaded == [HOST]
            store.go.set()
    assert loaded == [HOST, SLOW]


async def test_when_all_are_reloaded_a_slow_one_holds_up_no_other(database: Database) -> None:
    events = CatalogEvents()
    store, catalogs, loaded = SlowStore(database), Catalogs(events=events), list[str]()
    await catalogs.reload(ToolStore(database.pool), SLOW)
    await catalogs.reload(ToolStore(database.pool), "00000000-0000-0000-0000-0000000000aa")
    events.catalog_loaded.subscribe(loaded.append)
    others_done = anyio.Event()
    events.catalog_loaded.subscribe(
        lambda tenant: others_done.set() if tenant.endswith("aa") else None
    )
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(catalogs.reload_all, store, HOST)
            await others_done.wait()
            assert SLOW not in loaded
            store.go.set()
    assert {HOST, SLOW} <= set(loaded)
