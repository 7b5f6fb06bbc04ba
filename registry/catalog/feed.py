"""Catalog feed: keeps catalogs current with the database, one run at a time.

Also imports the sources of the settings: those missing in the database before the gateway is ready,
the others in the background.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from secrets import randbits
from typing import Literal

import anyio
import psycopg
from anyio.abc import TaskGroup
from psycopg import AsyncConnection
from psycopg.errors import LockNotAvailable

from config.settings import DatabaseSettings, Imports
from config.sources import SourceSettings
from registry.catalog.catalog_events import CatalogEvents
from registry.catalog.catalogs import Catalogs
from registry.database.embedded_server import DatabaseError
from registry.database.migrate import REGISTRY, Component
from registry.database.own_state import mark_own_state
from registry.database.postgres import RESYNC, Database, DatabaseHandle, Notice, Pool
from registry.sources.import_specs import (
    ImportSpec,
    configured_import,
    removed_from_settings,
    spec_of,
)
from registry.sources.imports import Sources
from registry.sources.source_reader import NO_SERVICES, Lister, Services, concurrent_lister
from registry.sources.tool_store import ToolStore
from schemas.errors import ToolgateError
from schemas.urls import without_queries

log = logging.getLogger("toolgate.feed")


CHANNEL = "toolgate_registry"  # triggers notify it with a host_id (0005_catalog_changes.sql)
NOT_IN_SETTINGS = (
    "the settings name them no longer, so they are served without the headers and credentials that "
    "stood there: toolgate sources prune removes them, imports.prune does so at every start"
)
RELOAD_RETRY_S = 1.0  # while the database does not respond
DatabaseState = Literal[
    "connecting", "ok", "without pgvector", "unreachable", "locked", "unusable"
]  # locked: by a transaction of another program that holds a table; unusable: permanently
DATABASE_UP: tuple[DatabaseState, ...] = ("without pgvector", "ok")  # by whether it has pgvector
RETRY_FIRST_S, RETRY_LONGEST_S = 5.0, 300.0  # backoff; a service often starts after its gateway


class SingleFlight:
    """Single-flight: concurrent callers share one run that started after they called, because a run
    under way may not see their change."""

    def __init__(self) -> None:
        self._running = asyncio.Lock()
        self._calls = 0
        self._served = 0  # number of the last call that is done

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Return when a run that began after this call is over."""
        self._calls += 1
        call = self._calls
        async with self._running:
            if self._served >= call:
                return
            began = self._calls
            try:
                await work()
            except Exception:  # waiters would only fail the same way
                self._served = began
                raise
            self._served = began


@dataclass(slots=True)
class FeedState:
    """Status for operators: names and states, no addresses."""

    loaded: bool = False  # the catalog is loaded: requests can be served
    database: DatabaseState = "connecting"
    sources: dict[str, str] = field(default_factory=dict)  # name -> "importing", "ok", "failed"
    behind: int = 0  # catalogs to reload after a lost connection
    failure: str | None = None  # why there will never be a catalog

    @property
    def catalog(self) -> str:
        """ "loading" before the gateway is ready, "stale" while changes that were made during an
        outage of the database are still to be loaded, else "ok"."""
        return "loading" if not self.loaded else "stale" if self.behind else "ok"

    @property
    def is_degraded(self) -> bool:
        failing = any(state != "ok" for state in self.sources.values())
        return self.database != "ok" or self.behind > 0 or failing


class Feed:
    def __init__(
        self,
        database: DatabaseSettings,
        imports: Imports,
        sources: Mapping[str, SourceSettings],
        host_id: str,
        *,
        catalogs: Catalogs,
        services: Services = NO_SERVICES,
        lister: Lister | None = None,
        handle: DatabaseHandle | None = None,
        events: CatalogEvents | None = None,
        wings: Collection[str] = (),
        components: Sequence[Component] = (REGISTRY,),
        own_state: bool = False,
    ) -> None:
        """A feed that is not running yet. `services`: the actions of each source that is
        written in Python. `lister` lists the tools of other MCP servers. `handle` gets the
        database once it responds, with the tables of `components`. `wings`: the names of those
        that are switched on. `own_state`: sessions and counters are in this process alone."""
        self._database = database
        self._components = components
        self._imports = imports
        self._wanted = sources
        self._host_id = host_id
        self._catalogs = catalogs
        self._services = services
        self._lister = lister
        self._wings = wings
        self._own_state = own_state
        self._number = randbits(31)  # of this gateway
        self._refreshing: defaultdict[str, SingleFlight] = defaultdict(SingleFlight)
        self._reloading: defaultdict[str, SingleFlight] = defaultdict(SingleFlight)
        self._awaited: set[str] = set()  # tenants with a reload pending
        self._store: ToolStore | None = None
        self._handle = handle or DatabaseHandle()
        self._events = events or CatalogEvents()
        self._events.source_changed.subscribe(self.refresh)
        self._importing = False  # set once, when imports begin
        self._listening = False  # notifications arrive
        self._has_vector = True
        self.state = FeedState()
        self.settled = self._handle.settled

    async def run(self) -> None:
        """Follow the database until cancelled. A permanent failure ends it."""
        try:
            async with Database.open(self._database, components=self._components) as database:
                await self._follow(database)
        except DatabaseError as error:
            log.error("database_unusable", extra={"reason": str(error)})
            self._fail(str(error))
        except Exception:
            log.exception("feed_crashed")
            self._fail("the registry cannot be read; the reason is in the log")

    @property
    def pool(self) -> Pool | None:
        """The connection pool; None until the database has responded for the first time."""
        return self._handle.pool()

    @property
    def database(self) -> Database | None:
        """The database; None until it has responded for the first time."""
        return self._handle.opened

    async def reconfigure(
        self,
        sources: Mapping[str, SourceSettings],
        services: Services = NO_SERVICES,
        imports: Imports | None = None,
    ) -> None:
        """Replace the sources, and check all descriptions again. `imports` None: unchanged."""
        self._wanted = sources
        self._imports = imports or self._imports
        self._services = services
        for name in self.state.sources.keys() - sources.keys():
            del self.state.sources[name]
        if self._store is not None:
            await self._check_removed(self._store)
            await self._import(self._store, self._import_specs())

    async def refresh(self, name: str) -> None:
        """Import the source again if its description changed, as after a notification of its
        server.

        Single-flight: concurrent callers share one further run.
        """
        store = self._store
        spec = self._spec(name)
        if store is not None and spec is not None:
            await self._refreshing[name].run(lambda: self._import(store, [spec]))

    def _spec(self, name: str) -> ImportSpec | None:
        """The import options of a source: from the settings, else from its import by command."""
        source_settings = self._wanted.get(name)
        if source_settings is not None and (spec := configured_import(name, source_settings)):
            return spec
        source = self._catalogs.of(self._host_id).sources.get(name)
        return None if source is None else spec_of(source)

    def _fail(self, reason: str) -> None:
        self.state.failure = reason
        self.state.database = "unusable"
        self.settled.set()

    def _import_specs(self) -> list[ImportSpec]:
        specs = (
            configured_import(name, source_settings)
            for name, source_settings in self._wanted.items()
        )
        return [spec for spec in specs if spec is not None]

    async def _follow(self, database: Database) -> None:
        self._handle.opened = database
        store = self._store = ToolStore(database.pool)
        async with anyio.create_task_group() as tasks:

            async def follow_notice(notice: Notice) -> None:
                if notice is not RESYNC:
                    tasks.start_soon(self._reload_in_background, store, notice)
                    return
                await self._events.database_connected.publish(database.pool)
                await self._resync(store, tasks)
                self._listening = True
                self._mark_reachable()
                if not self._importing:
                    self._importing = True
                    tasks.start_soon(self._import_all, store)

            await database.listen(
                CHANNEL,
                follow_notice,
                self._on_disconnect,
                self._on_check,
                prepare=self._warn_of_own_states if self._own_state else None,
            )

    async def _warn_of_own_states(self, connection: AsyncConnection) -> None:
        """Log that other gateways of the database have other sessions and counters."""
        count = await mark_own_state(connection, self._number)
        if count > 1:
            hint = "set state.backend to postgres or redis at each of them"
            log.warning("state_not_shared", extra={"gateways": count, "hint": hint})

    async def _resync(self, store: ToolStore, tasks: TaskGroup) -> None:
        """Reload all tenants. Before the gateway is ready that is awaited; later each tenant is
        served its old catalog until it is reloaded, however long another takes."""
        if not self._importing:
            for tenant in await store.tenants():
                await store.reclaim_names(tenant)
            await self._catalogs.reload_all(store, self._host_id)
            return
        for tenant in await self._catalogs.tenants(store, self._host_id):
            self.state.behind += 1
            tasks.start_soon(self._catch_up, store, tenant)

    async def _catch_up(self, store: ToolStore, tenant: str) -> None:
        """Reload one tenant; a run that began before the connection was back does not count."""
        await self._reloading[tenant].run(partial(self._reload_until_done, store, tenant))
        self.state.behind -= 1

    async def _reload_in_background(self, store: ToolStore, tenant: str) -> None:
        """Reload one tenant, single-flight: notifications during a run share one further run."""
        if tenant not in self._awaited:
            self._awaited.add(tenant)
            await self._reloading[tenant].run(partial(self._reload_until_done, store, tenant))

    async def _reload_until_done(self, store: ToolStore, tenant: str) -> None:
        """Reload one tenant, retried until the database responds."""
        self._awaited.discard(tenant)
        while True:
            try:
                await self._reload(store, tenant)
            except (psycopg.OperationalError, TimeoutError) as error:
                self._mark_away(error)
                await asyncio.sleep(RELOAD_RETRY_S)
            else:
                self._mark_reachable()
                return

    async def _reload(self, store: ToolStore, tenant: str) -> None:
        await self._catalogs.reload(store, tenant)
        names = self._wanted.keys() | self._catalogs.of(self._host_id).sources.keys()
        for name in self.state.sources.keys() - names:
            del self.state.sources[name]

    def _mark_away(self, error: Exception) -> None:
        is_locked = isinstance(error, LockNotAvailable)
        self.state.database = "locked" if is_locked else "unreachable"

    def _on_disconnect(self, error: Exception) -> None:
        self._listening = False
        self._mark_away(error)

    def _mark_reachable(self) -> None:
        if self._listening:  # else changes are missed, although a query succeeded
            self.state.database = DATABASE_UP[self._has_vector]

    def _on_check(self, has_vector: bool) -> None:
        self._has_vector = has_vector
        if self.state.database in DATABASE_UP:
            self._mark_reachable()

    async def _import_all(self, store: ToolStore) -> None:
        await self._check_removed(store)
        await self._remove_wings(store)
        loaded_sources = self._catalogs.of(self._host_id).sources

        def can_wait(spec: ImportSpec) -> bool:
            # Not sources in Python: no code runs with the schemas of an older edition.
            return spec.name in loaded_sources and not spec.facts.loaded

        await self._import(store, [spec for spec in self._import_specs() if not can_wait(spec)])
        self.state.loaded = True
        self.settled.set()
        await self._import(store, [spec for spec in self._import_specs() if can_wait(spec)])
        await self._retry(store)

    async def _check_removed(self, store: ToolStore) -> None:
        """Warn of sources removed from the settings; delete them if the settings demand it."""
        stored = self._catalogs.of(self._host_id).sources
        with suppress(psycopg.Error):  # the next start or reload tries again
            await store.end_failures_except(self._host_id, [*self._wanted, *stored])
        names = removed_from_settings(stored.values(), self._wanted)
        if names and not self._imports.prune:
            log.warning(
                "sources_not_in_settings", extra={"sources": names, "hint": NOT_IN_SETTINGS}
            )
        elif names:
            await self._prune(store, self._host_id, names)

    async def _remove_wings(self, store: ToolStore) -> None:
        """Delete the sources of wings that are switched off, of all tenants."""
        for tenant in await self._catalogs.tenants(store, self._host_id):
            sources = self._catalogs.of(tenant).sources.values()
            disabled = [
                source.name
                for source in sources
                if source.facts.own and source.name not in self._wings
            ]
            if disabled:
                await self._prune(store, tenant, disabled)

    async def _prune(self, store: ToolStore, tenant: str, names: Iterable[str]) -> None:
        try:
            for name in names:
                tools = await _remove(store, tenant, name)
                log.warning("source_pruned", extra={"source": name, "tools": tools})
            await self._reload(store, tenant)
        except psycopg.OperationalError as error:  # the next start or reload tries again
            log.error("sources_not_pruned", extra={"reason": str(error).partition("\n")[0]})

    async def _retry(self, store: ToolStore) -> None:
        """Retry failed imports, until cancelled."""
        pause_s = RETRY_FIRST_S
        while True:
            await asyncio.sleep(pause_s)
            names = [name for name, state in self.state.sources.items() if state == "failed"]
            failed = [spec for name in names if (spec := self._spec(name)) is not None]
            await self._import(store, failed)
            pause_s = min(pause_s * 2, RETRY_LONGEST_S) if failed else RETRY_FIRST_S

    async def _import(self, store: ToolStore, specs: Iterable[ImportSpec]) -> None:
        specs = list(specs)
        async with concurrent_lister(self._lister, specs) as lister:
            sources = Sources(
                store, self._host_id, self._imports, services=self._services, lister=lister
            )
            changed = [await self._import_one(store, sources, spec) for spec in specs]
        if any(changed):  # the notification comes too, but ready means that the tools are loaded
            with suppress(psycopg.OperationalError):  # the listener detects it, and reads all again
                await self._reload(store, self._host_id)

    async def _import_one(self, store: ToolStore, sources: Sources, spec: ImportSpec) -> bool:
        """Import one source; whether anything changed."""
        if self.state.sources.get(spec.name) != "ok":  # else its old version is served meanwhile
            self.state.sources[spec.name] = "importing"
        try:
            if self.state.sources[spec.name] != "ok":
                log.info("source_importing", extra={"source": spec.name})
            report = await sources.import_changed(spec)
        except (ToolgateError, psycopg.OperationalError) as error:
            reason = without_queries(str(error))
            log.error("source_failed", extra={"source": spec.name, "reason": reason})
        except Exception:  # one bad description must not stop the others
            reason = "internal error; the log has it (source_crashed)"
            log.exception("source_crashed", extra={"source": spec.name})
        else:
            self.state.sources[spec.name] = "ok"
            event = "source_imported" if report else "source_unchanged"
            tools = {"tools": len(report.saved.names)} if report and report.saved else {}
            log.info(event, extra={"source": spec.name, **tools})
            if report is None:  # else the import has ended it
                with suppress(psycopg.Error):
                    await store.end_failure(self._host_id, spec.name)
            return report is not None
        # The database is away, as /ready says, or takes no changes: the log has the reason.
        with suppress(psycopg.Error):
            await store.record_failure(self._host_id, spec.name, reason)
        self.state.sources[spec.name] = "failed"
        return False


async def _remove(store: ToolStore, tenant: str, name: str) -> int | None:
    """Remove a source, see `ToolStore.remove`; however long imports of other gateways hold the lock
    of the tenant."""
    while True:
        with suppress(LockNotAvailable):
            return await store.remove(tenant, name)
