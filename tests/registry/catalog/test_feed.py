"""The feed: the catalog as the database has it, the sources as the settings want them."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest
from msgspec.structs import replace
from psycopg.conninfo import make_conninfo
from psycopg_pool import PoolTimeout

from config.load import load
from config.settings import DatabaseSettings, Imports
from config.sources import SourceSettings
from registry.catalog import feed as feed_module
from registry.catalog.catalog_events import CatalogEvents
from registry.catalog.catalogs import Catalogs
from registry.catalog.feed import Feed
from registry.database.tenants import lock_tenant
from registry.sources.import_specs import ImportSpec
from registry.sources.imports import Sources
from registry.sources.source_reader import NO_SERVICES, Lister, Services
from registry.sources.tool_store import ImportFailure, ToolStore
from schemas.hybrid import Action
from schemas.tool import Tool
from tests.fixtures_database import HOST
from tests.fixtures_gateway import pets
from tests.polling import until
from tests.registry.servers import URL, Listed, snapshot, spec, tool

pytestmark = pytest.mark.anyio

LIMITS = load(None, {}).imports
DEADLINE_S = 30


@pytest.fixture
def description(tmp_path: Path) -> Path:
    path = tmp_path / "pets.json"
    path.write_text(json.dumps(pets()))
    return path


@asynccontextmanager
async def feeding(
    database: DatabaseSettings,
    sources: dict[str, SourceSettings],
    services: Services = NO_SERVICES,
    lister: Lister | None = None,
    limits: Imports = LIMITS,
    *,
    own_state: bool = False,
) -> AsyncIterator[Feed]:
    """A feed that has settled."""
    events = CatalogEvents()
    feed = Feed(
        database,
        limits,
        sources,
        HOST,
        catalogs=Catalogs(events=events),
        services=services,
        lister=lister,
        events=events,
        own_state=own_state,
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(feed.run)
        with anyio.fail_after(DEADLINE_S):
            await feed.settled.wait()
        yield feed
        tasks.cancel_scope.cancel()


def names(feed: Feed) -> list[str]:
    return [tool.name for tool in feed._catalogs.of(HOST).tools]


async def test_settled_means_that_the_tools_are_there(
    database_settings: DatabaseSettings, description: Path
) -> None:
    wanted = SourceSettings(openapi=str(description), include=("*Pet",))
    async with feeding(database_settings, {"pets": wanted}) as feed:
        assert feed.state.loaded
        assert not feed.state.is_degraded
        assert names(feed) == ["createPet", "deletePet", "getPet"]


async def test_a_source_that_fails_keeps_no_other_back(
    database_settings: DatabaseSettings, description: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def crash(self: Sources, spec: ImportSpec) -> None:
        if spec.name == "crashing":
            raise RuntimeError("no description of ours should get so far")
        return await real(self, spec)

    real = Sources.import_changed
    monkeypatch.setattr(Sources, "import_changed", crash)
    sources = {
        "missing": SourceSettings(openapi=str(description.with_name("nowhere.json"))),
        "crashing": SourceSettings(openapi=str(description)),
        "pets": SourceSettings(openapi=str(description)),
    }
    async with feeding(database_settings, sources) as feed:
        expected = {"missing": "failed", "crashing": "failed", "pets": "ok"}
        assert feed.state.sources == expected
        assert feed.state.loaded
        assert feed.state.is_degraded
        assert len(names(feed)) == 5
        crashing, missing = await failures_of(feed)
        assert (crashing.source, crashing.reason[:14]) == ("crashing", "internal error")
        assert (missing.source, "nowhere.json" in missing.reason) == ("missing", True)
    async with feeding(database_settings, {"pets": sources["pets"]}) as feed:
        assert await failures_of(feed) == []


async def test_tools_of_a_read_only_database_are_served(
    database_settings: DatabaseSettings, description: Path
) -> None:
    """As a standby: failures of imports cannot be stored there, nor ended."""
    sources = {"pets": SourceSettings(openapi=str(description))}
    async with feeding(database_settings, sources):
        pass
    url = make_conninfo(database_settings.url, options="-c default_transaction_read_only=on")
    sources["missing"] = SourceSettings(openapi=str(description.with_name("nowhere.json")))
    async with feeding(replace(database_settings, url=url), sources) as feed:
        await until(lambda: feed.state.sources == {"pets": "ok", "missing": "failed"})
        assert feed.state.failure is None
        assert len(names(feed)) == 5


async def failures_of(feed: Feed) -> list[ImportFailure]:
    assert feed.database is not None
    return await ToolStore(feed.database.pool).failures(HOST)


async def test_failed_imports_are_retried(
    database_settings: DatabaseSettings, description: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "RETRY_FIRST_S", 0.01)
    late = description.with_name("late.json")
    async with feeding(database_settings, {"pets": SourceSettings(openapi=str(late))}) as feed:
        assert feed.state.sources == {"pets": "failed"}
        assert names(feed) == []
        changed = anyio.Event()
        feed._events.lists_changed.subscribe(lambda tenant, lists: changed.set())
        description.rename(late)
        with anyio.fail_after(DEADLINE_S):
            await changed.wait()
        assert len(names(feed)) == 5
        assert await failures_of(feed) == []


async def test_failed_imports_of_sources_outside_the_settings_are_retried(
    database_settings: DatabaseSettings, description: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "RETRY_FIRST_S", 0.01)
    wanted = {"pets": SourceSettings(openapi=str(description))}
    async with feeding(database_settings, wanted):
        pass
    async with feeding(database_settings, {}) as feed:
        gone = description.rename(description.with_name("gone.json"))
        await feed.refresh("pets")
        assert feed.state.sources == {"pets": "failed"}
        gone.rename(description)
        await until(lambda: feed.state.sources == {"pets": "ok"})


async def test_other_settings_are_taken_and_descriptions_read_again(
    database_settings: DatabaseSettings, description: Path
) -> None:
    wanted = SourceSettings(openapi=str(description), include=("getPet",))
    async with feeding(database_settings, {"pets": wanted, "gone": wanted}) as feed:
        description.write_text(json.dumps(pets(count=1)))
        await feed.reconfigure({"pets": SourceSettings(openapi=str(description))})
        assert "more_0000" in names(feed)
        assert feed.state.sources == {"pets": "ok"}


OWN = {"own": SourceSettings(python="company.rules")}


async def test_services_of_this_process_are_imported_and_taken_anew(
    database_settings: DatabaseSettings,
) -> None:
    async with feeding(database_settings, OWN, {"own": [Action("h/s/add/1")]}) as feed:
        assert names(feed) == ["s_add"]
        await feed.reconfigure(OWN, {"own": [Action("h/s/add/1"), Action("h/s/less/1")]})
        assert names(feed) == ["s_add", "s_less"]
        await feed.reconfigure({}, {})
        assert feed.state.sources == {}


async def test_settled_waits_for_current_schemas_of_python_services(
    database_settings: DatabaseSettings,
) -> None:
    async with feeding(database_settings, OWN, {"own": [Action("h/s/old/1")]}):
        pass
    async with feeding(database_settings, OWN, {"own": [Action("h/s/new/1")]}) as feed:
        assert names(feed) == ["s_new"]


async def test_a_service_that_is_not_in_this_process_fails_alone(
    database_settings: DatabaseSettings, description: Path
) -> None:
    sources = OWN | {"pets": SourceSettings(openapi=str(description))}
    async with feeding(database_settings, sources) as feed:
        assert feed.state.sources == {"own": "failed", "pets": "ok"}


async def test_the_pool_is_there_once_the_database_has_answered(
    database_settings: DatabaseSettings,
) -> None:
    assert Feed(database_settings, LIMITS, {}, HOST, catalogs=Catalogs()).pool is None
    async with feeding(database_settings, {}) as feed:
        assert feed.pool is not None
        async with feed.pool.connection() as connection:
            await connection.execute("SELECT FROM command_idempotency_t")


async def test_all_tenants_are_there_after_a_restart(
    database_settings: DatabaseSettings, store: ToolStore, description: Path
) -> None:
    other = "00000000-0000-0000-0000-000000000002"
    await Sources(store, other, LIMITS).import_(
        ImportSpec("theirs", str(description), base_url=None)
    )
    async with feeding(database_settings, {}) as feed:
        assert len(feed._catalogs.of(other).tools) == 5
        assert not feed._catalogs.of(HOST).tools


async def test_a_connection_lost_before_the_first_load_is_only_a_delay(
    database_settings: DatabaseSettings, description: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lose_the_first(self: Catalogs, store: ToolStore, tenant: str) -> None:
        monkeypatch.setattr(Catalogs, "reload_all", real)
        async with store._pool.connection() as connection:
            await connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    real = Catalogs.reload_all
    monkeypatch.setattr(Catalogs, "reload_all", lose_the_first)
    wanted = {"pets": SourceSettings(openapi=str(description))}
    async with feeding(database_settings, wanted) as feed:
        assert feed.state.loaded
        assert feed.state.database == "ok"
        assert len(names(feed)) == 5


async def test_changes_of_an_outage_are_loaded_before_the_state_is_well_again(
    database_settings: DatabaseSettings,
    description: Path,
    store: ToolStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connected, read = anyio.Event(), anyio.Event()
    real = Catalogs.reload

    async def slow(self: Catalogs, store: ToolStore, tenant: str) -> None:
        connected.set()
        await read.wait()
        await real(self, store, tenant)

    async with feeding(database_settings, {}) as feed:
        monkeypatch.setattr(Catalogs, "reload", slow)
        async with store._pool.connection() as connection:
            await connection.execute(
                "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        with anyio.fail_after(DEADLINE_S):
            await connected.wait()
        await Sources(store, HOST, LIMITS).import_(
            ImportSpec("pets", str(description), base_url=None)
        )
        await until(lambda: feed.state.database == "ok")
        assert (feed.state.catalog, feed.state.is_degraded, names(feed)) == ("stale", True, [])
        read.set()
        await until(lambda: not feed.state.is_degraded)
        assert (feed.state.catalog, len(names(feed))) == ("ok", 5)


async def test_rows_that_cannot_be_read_are_a_failure_and_no_crash(
    database_settings: DatabaseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def newer(self: ToolStore, host_id: str) -> None:
        raise ValueError("a binding of a later release")

    monkeypatch.setattr(ToolStore, "tools", newer)
    async with feeding(database_settings, {}) as feed:
        assert feed.state.failure == "the registry cannot be read; the reason is in the log"
        assert not feed.state.loaded


async def test_a_database_that_waiting_cannot_mend_is_a_failure(
    database_settings: DatabaseSettings, scratch: Path
) -> None:
    (scratch / "file").touch()
    refused = DatabaseSettings(
        **{
            field: getattr(database_settings, field)
            for field in database_settings.__struct_fields__
        }
        | {"url": "embedded", "data_dir": str(scratch)}
    )
    async with feeding(refused, {}) as feed:
        assert feed.state.failure is not None
        assert "has something else in it" in feed.state.failure
        assert feed.state.database == "unusable"


SERVER = {"up": SourceSettings(mcp=URL)}


async def test_a_server_that_changed_is_imported_when_somebody_says_so(
    database_settings: DatabaseSettings,
) -> None:
    listed = Listed({"up": snapshot(tool("a"))})
    async with feeding(database_settings, SERVER, lister=listed) as feed:
        assert names(feed) == ["a"]
        listed.snapshots["up"] = snapshot(tool("a"), tool("b"))
        await feed.refresh("up")
        assert names(feed) == ["a", "b"]
        await feed.refresh("nobody")
        assert listed.asked == ["up", "up"]


async def test_an_unreachable_server_keeps_its_tools(database_settings: DatabaseSettings) -> None:
    listed = Listed({"up": snapshot(tool("a"))})
    async with feeding(database_settings, SERVER, lister=listed) as feed:
        listed.snapshots = {}
        await feed.refresh("up")
        assert (names(feed), feed.state.sources) == (["a"], {"up": "failed"})
        listed.snapshots = {"up": snapshot(tool("a"))}
        await feed.refresh("up")
        assert (names(feed), feed.state.sources) == (["a"], {"up": "ok"})


async def test_a_server_imported_by_command_is_refreshed_with_its_options(
    database_settings: DatabaseSettings,
) -> None:
    listed = Listed({"up": snapshot(tool("a"))})
    async with feeding(database_settings, {}, lister=listed) as feed:
        assert feed.pool is not None
        store = ToolStore(feed.pool)
        await Sources(store, HOST, LIMITS, lister=listed).import_(spec(prefix="always"))
        await feed._catalogs.reload(store, HOST)
        listed.snapshots["up"] = snapshot(tool("b"))
        await feed.refresh("up")
        assert names(feed) == ["up_b"]
        assert feed.state.sources == {"up": "ok"}
        gone = anyio.Event()
        feed._events.lists_changed.subscribe(lambda tenant, lists: gone.set())
        await store.remove(HOST, "up")
        with anyio.fail_after(DEADLINE_S):
            await gone.wait()
        assert feed.state.sources == {}


async def test_servers_that_are_silent_are_waited_for_together(
    database_settings: DatabaseSettings,
) -> None:
    asked, all_asked = [], anyio.Event()

    async def silent(spec: ImportSpec) -> bytes:
        asked.append(spec.name)
        if len(asked) == 3:
            all_asked.set()
        await all_asked.wait()
        return snapshot(tool("same")).encode()

    servers = {name: SourceSettings(mcp=URL) for name in ("one", "two", "three")}
    async with feeding(database_settings, servers, lister=silent) as feed:
        assert names(feed) == ["same", "three_same", "two_same"]  # in the order of the settings


async def test_queued_refreshes_of_one_server_are_merged(
    database_settings: DatabaseSettings,
) -> None:
    listed = Listed({"up": snapshot(tool("a"))})
    async with feeding(database_settings, SERVER, lister=listed) as feed:
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(feed.refresh, "up")
        assert len(listed.asked) == 3  # at the start, then one, then one for all that came later


async def test_a_source_taken_out_of_the_settings_is_warned_of_at_start(
    database_settings: DatabaseSettings, description: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = {"pets": SourceSettings(openapi=str(description), base_url=URL)}
    async with feeding(database_settings, wanted):
        assert logged_sources(caplog, "sources_not_in_settings") == []
    async with feeding(database_settings, {}) as feed:
        assert logged_sources(caplog, "sources_not_in_settings") == [["pets"]]
        assert "listPets" in names(feed)


async def test_leftover_sources_are_removed_at_start_if_configured(
    database_settings: DatabaseSettings, description: Path
) -> None:
    pets = SourceSettings(openapi=str(description), base_url=URL)
    kept = SourceSettings(openapi=str(description), base_url=URL, include=("listPets",))
    async with feeding(database_settings, {"kept": kept, "pets": pets}) as feed:
        assert len(names(feed)) == 6
    limits = replace(LIMITS, prune=True)
    async with feeding(database_settings, {"kept": kept}, limits=limits) as feed:
        assert names(feed) == ["listPets"]


async def test_removal_of_leftover_sources_waits_for_a_long_import(
    database_settings: DatabaseSettings, description: Path
) -> None:
    pets = SourceSettings(openapi=str(description), base_url=URL)
    async with feeding(database_settings, {"pets": pets}):
        pass
    bounded, limits = replace(database_settings, lock_timeout_s=0.1), replace(LIMITS, prune=True)
    async with (
        await psycopg.AsyncConnection.connect(database_settings.url) as holder,
        await psycopg.AsyncConnection.connect(database_settings.url, autocommit=True) as observer,
        anyio.create_task_group() as tasks,
    ):

        async def last_wait() -> object:
            rows = await observer.execute(
                "SELECT max(query_start) FROM pg_stat_activity"
                " WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )
            return await rows.fetchone()

        async def start() -> None:
            async with feeding(bounded, {}, limits=limits) as feed:
                assert names(feed) == []

        await lock_tenant(holder, HOST)
        tasks.start_soon(start)
        first = await until(_beyond(last_wait, (None,)))
        await until(_beyond(last_wait, first))
        await holder.rollback()


def _beyond(read: Callable[[], Awaitable[object]], before: object) -> Callable[[], Awaitable[Any]]:
    """Asks for what is read once it differs from `before`."""

    async def ask() -> Any:
        value = await read()
        return None if value == before else value

    return ask


async def test_leftover_sources_are_reported_or_removed_on_a_reload(
    database_settings: DatabaseSettings, description: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = {"pets": SourceSettings(openapi=str(description), base_url=URL)}
    async with feeding(database_settings, wanted) as feed:
        await feed.reconfigure({}, imports=LIMITS)
        assert logged_sources(caplog, "sources_not_in_settings") == [["pets"]]
        assert "listPets" in names(feed)
        await feed.reconfigure({}, imports=replace(LIMITS, prune=True))
        assert names(feed) == []


def logged_sources(caplog: pytest.LogCaptureFixture, event: str) -> list[list[str]]:
    return [vars(one)["sources"] for one in caplog.records if one.getMessage() == event]


async def test_a_tenant_that_is_slow_to_reload_keeps_no_other_back(
    database_settings: DatabaseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = "00000000-0000-0000-0000-00000000510e"
    reached, go, reads = anyio.Event(), anyio.Event(), list[str]()
    real = ToolStore.tools

    async def slow(self: ToolStore, host_id: str, *, held: bool = False) -> list[Tool]:
        reads.append(host_id)
        if host_id == other and not held:
            reached.set()
            await go.wait()
        return await real(self, host_id, held=held)

    async with feeding(database_settings, {}) as feed:
        assert feed.pool is not None
        monkeypatch.setattr(ToolStore, "tools", slow)
        await notify(feed, other)
        with anyio.fail_after(DEADLINE_S):
            await reached.wait()
            changed = anyio.Event()
            feed._events.catalog_loaded.subscribe(
                lambda tenant: changed.set() if tenant == HOST else None
            )
            for _ in range(5):
                await notify(feed, other)
            await notify(feed, HOST)
            await changed.wait()
            again = anyio.Event()
            feed._events.catalog_loaded.subscribe(
                lambda tenant: again.set() if reads.count(other) == 2 and tenant == other else None
            )
            go.set()
            await again.wait()
        assert reads.count(other) == 2  # five notices that came meanwhile are one further read


async def test_a_tenant_whose_reload_failed_is_reloaded_again(
    database_settings: DatabaseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "RELOAD_RETRY_S", 0.01)
    failures = [PoolTimeout("no connection"), psycopg.OperationalError("gone")]
    real = ToolStore.tools

    async def failing(self: ToolStore, host_id: str, *, held: bool = False) -> list[Tool]:
        if failures:
            raise failures.pop()
        return await real(self, host_id, held=held)

    async with feeding(database_settings, {}) as feed:
        monkeypatch.setattr(ToolStore, "tools", failing)
        loaded = anyio.Event()
        feed._events.catalog_loaded.subscribe(lambda tenant: loaded.set())
        await notify(feed, HOST)
        with anyio.fail_after(DEADLINE_S):
            await loaded.wait()
        assert feed.state.failure is None


async def notify(feed: Feed, tenant: str) -> None:
    assert feed.pool is not None
    async with feed.pool.connection() as connection:
        await connection.execute("SELECT pg_notify('toolgate_registry', %s)", [tenant])


async def test_second_gateway_without_shared_state_is_logged(
    database_settings: DatabaseSettings, caplog: pytest.LogCaptureFixture
) -> None:
    def counts() -> list[int]:
        events = [record for record in caplog.records if record.message == "state_not_shared"]
        return [record.__dict__["gateways"] for record in events]

    async with feeding(database_settings, {}, own_state=True):
        assert counts() == []
        async with feeding(database_settings, {}):
            assert counts() == []  # it shares its state with others
        async with feeding(database_settings, {}, own_state=True):
            assert counts() == [2]
