"""Feed: keeps catalogs current with the database, with one run at a time.

Also keeps the sources of the settings imported: those that the database does not have yet before
the gateway is ready, the others behind its back.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import anyio
import psycopg
from anyio.abc import TaskGroup

from config.networks import without_queries
from config.settings import DatabaseSettings, Imports
from config.sources import SourceSettings
from registry.catalog.catalogs import Catalogs
from registry.database.embedded import DatabaseError
from registry.database.postgres import RESYNC, Database, Notice, Pool
from registry.sources.imports import Sources
from registry.sources.source_reader import NO_SERVICES, ImportSpec, Lister, Services, asked_ahead
from registry.sources.specs import configured, left_over, spec_of
from registry.sources.store import ToolStore
from schemas.errors import ToolgateError


class Turns:
    """Who asks while a run is on waits for the next one, together with all others who do: a run
    may have begun before what they want it to see."""

    def __init__(self) -> None:
        self._running = asyncio.Lock()
        self._asked = 0
        self._served = 0  # all that were asked up to here

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Return when a run is over that began after this call."""
        self._asked += 1
        mine = self._asked
        async with self._running:
            if self._served >= mine:
                return
            began = self._asked
            try:
                await work()
            except Exception:  # who waits learns nothing from failing the same way again
                self._served = began
                raise
            self._served = began


log = logging.getLogger("toolgate.feed")

CHANNEL = "toolgate_registry"  # triggers notify it with a host_id (0005_catalog_changes.sql)
LEFT_OVER = (
    "the settings name them no longer, so they are served without the headers and credentials that "
    "stood there: toolgate sources prune removes them, imports.prune does so at every start"
)
RELOAD_RETRY_S = 1.0  # where the database did not answer
DATABASE_UP = ("without pgvector", "ok")  # by whether it has pgvector
RETRY_FIRST_S, RETRY_LONGEST_S = 5.0, 300.0  # a service often starts after its gateway


@dataclass(slots=True)
class FeedState:
    """What operators may see; names and states, no addresses."""

    loaded: bool = False  # the catalog is there: requests can be served
    # or "ok", "unreachable", "without pgvector", or "unusable": waiting does not mend it
    database: str = "connecting"
    sources: dict[str, str] = field(default_factory=dict)  # name -> "importing", "ok", "failed"
    failure: str | None = None  # why there will never be a catalog

    @property
    def degraded(self) -> bool:
        return self.database != "ok" or any(state != "ok" for state in self.sources.values())


class Feed:
    def __init__(
        self,
        database: DatabaseSettings,
        imports: Imports,
        sources: Mapping[str, SourceSettings],
        host_id: str,
        catalogs: Catalogs,
        services: Services = NO_SERVICES,
        lister: Lister | None = None,
    ) -> None:
        """`services`: the actions of each source that is written in Python. `lister` asks other MCP
        servers for what they have. What is in `before` is awaited, with the pool, before the
        catalog counts as there."""
        self._database = database
        self._imports = imports
        self._wanted = sources
        self._host_id = host_id
        self._catalogs = catalogs
        self._services = services
        self._lister = lister
        self._refreshing: defaultdict[str, Turns] = defaultdict(Turns)
        self._reloading: defaultdict[str, Turns] = defaultdict(Turns)
        self._awaited: set[str] = set()  # tenants whose next reload has not begun
        self._store: ToolStore | None = None
        self._opened: Database | None = None
        self.before: list[Callable[[Pool], Awaitable[None]]] = []
        self._importing = False  # begun, which happens once
        self.state = FeedState()
        self.settled = asyncio.Event()  # loaded, or failed for good

    async def run(self) -> None:
        """Follow the database until cancelled. A failure that waiting cannot mend ends it."""
        try:
            async with Database.open(self._database) as database:
                await self._follow(database)
        except DatabaseError as error:
            log.error("database_unusable", extra={"reason": str(error)})
            self._fail(str(error))
        except Exception:
            log.exception("feed_crashed")
            self._fail("the registry cannot be read; the log says why")

    @property
    def pool(self) -> Pool | None:
        """The connections to the database; None until it has answered for the first time."""
        return self._opened.pool if self._opened else None

    @property
    def database(self) -> Database | None:
        """None until it has answered for the first time."""
        return self._opened

    async def reconfigure(
        self,
        sources: Mapping[str, SourceSettings],
        services: Services = NO_SERVICES,
        imports: Imports | None = None,
    ) -> None:
        """Take other sources, and look again at all descriptions. `imports` None: as before."""
        self._wanted = sources
        self._imports = imports or self._imports
        self._services = services
        for name in self.state.sources.keys() - sources.keys():
            del self.state.sources[name]
        if self._store is not None:
            await self._check_left_over(self._store)
            await self._import(self._store, self._described())

    async def refresh(self, name: str) -> None:
        """Import the source again if what there is of it changed, as when its server says so.

        Whoever asks while that runs shares one further run with all others who do.
        """
        store = self._store
        spec = self._spec(name)
        if store is not None and spec is not None:
            await self._refreshing[name].run(lambda: self._import(store, [spec]))

    def _spec(self, name: str) -> ImportSpec | None:
        """As the settings want it; else as it was imported by command."""
        wanted = self._wanted.get(name)
        if wanted is not None and (spec := configured(name, wanted)):
            return spec
        source = self._catalogs.of(self._host_id).sources.get(name)
        return None if source is None else spec_of(source)

    def _fail(self, reason: str) -> None:
        self.state.failure = reason
        self.state.database = "unusable"
        self.settled.set()

    def _described(self) -> list[ImportSpec]:
        specs = (configured(name, wanted) for name, wanted in self._wanted.items())
        return [spec for spec in specs if spec is not None]

    async def _follow(self, database: Database) -> None:
        self._opened = database
        store = self._store = ToolStore(database.pool)
        has_vector = True

        def checked(has: bool) -> None:
            nonlocal has_vector
            has_vector = has
            if self.state.database in DATABASE_UP:
                self.state.database = DATABASE_UP[has]

        async with anyio.create_task_group() as tasks:

            async def changed(notice: Notice) -> None:
                if notice is not RESYNC:
                    tasks.start_soon(self._reload_apart, store, notice)
                    return
                for load in self.before:
                    await load(database.pool)
                await self._resync(store, tasks)
                self.state.database = DATABASE_UP[has_vector]
                if not self._importing:
                    self._importing = True
                    tasks.start_soon(self._import_all, store)

            await database.listen(CHANNEL, changed, self._lost, checked)

    async def _resync(self, store: ToolStore, tasks: TaskGroup) -> None:
        """Reload all tenants. Before the gateway is ready that is waited for; later each of them is
        served as it was until it is reloaded, however long another takes."""
        if not self._importing:
            await self._catalogs.reload_all(store, self._host_id)
            return
        for tenant in await self._catalogs.tenants(store, self._host_id):
            tasks.start_soon(self._reload_apart, store, tenant)

    async def _reload_apart(self, store: ToolStore, tenant: str) -> None:
        """Single-flight: notices that come while the tenant is reloaded share one further run. It
        is tried again until the database answers."""

        async def reload() -> None:
            self._awaited.discard(tenant)
            while True:
                try:
                    await self._reload(store, tenant)
                except (psycopg.OperationalError, TimeoutError):
                    self._lost()
                    await asyncio.sleep(RELOAD_RETRY_S)
                else:
                    self.state.database = "ok"
                    return

        if tenant not in self._awaited:
            self._awaited.add(tenant)
            await self._reloading[tenant].run(reload)

    async def _reload(self, store: ToolStore, tenant: str) -> None:
        await self._catalogs.reload(store, tenant)
        known = self._wanted.keys() | self._catalogs.of(self._host_id).sources.keys()
        for name in self.state.sources.keys() - known:
            del self.state.sources[name]

    def _lost(self) -> None:
        self.state.database = "unreachable"

    async def _import_all(self, store: ToolStore) -> None:
        await self._check_left_over(store)
        known = self._catalogs.of(self._host_id).sources

        def can_wait(spec: ImportSpec) -> bool:
            # Not what is written in Python: no code runs with the schemas of an older edition.
            return spec.name in known and not spec.facts.loaded

        await self._import(store, [spec for spec in self._described() if not can_wait(spec)])
        self.state.loaded = True
        self.settled.set()
        await self._import(store, [spec for spec in self._described() if can_wait(spec)])
        await self._retry(store)

    async def _check_left_over(self, store: ToolStore) -> None:
        """Warn of sources that were taken out of the settings; remove them if those ask for it."""
        names = left_over(self._catalogs.of(self._host_id).sources.values(), self._wanted)
        if names and not self._imports.prune:
            log.warning("sources_left_over", extra={"sources": names, "hint": LEFT_OVER})
        elif names:
            await self._prune(store, names)

    async def _prune(self, store: ToolStore, names: Iterable[str]) -> None:
        try:
            for name in names:
                tools = await store.remove(self._host_id, name)
                log.warning("source_pruned", extra={"source": name, "tools": tools})
            await self._reload(store, self._host_id)
        except psycopg.OperationalError as error:  # the next start or reload tries again
            log.error("sources_not_pruned", extra={"reason": str(error).partition("\n")[0]})

    async def _retry(self, store: ToolStore) -> None:
        """Try what failed again, until cancelled."""
        pause_s = RETRY_FIRST_S
        while True:
            await asyncio.sleep(pause_s)
            states = self.state.sources
            failed = [spec for spec in self._described() if states.get(spec.name) == "failed"]
            await self._import(store, failed)
            pause_s = min(pause_s * 2, RETRY_LONGEST_S) if failed else RETRY_FIRST_S

    async def _import(self, store: ToolStore, specs: Iterable[ImportSpec]) -> None:
        specs = list(specs)
        async with asked_ahead(self._lister, specs) as lister:
            sources = Sources(store, self._host_id, self._imports, self._services, lister)
            changed = [await self._import_one(sources, spec) for spec in specs]
        if any(changed):  # the notice comes too, but ready means that the tools are there
            with suppress(psycopg.OperationalError):  # whoever listens notices, and reads all again
                await self._reload(store, self._host_id)

    async def _import_one(self, sources: Sources, spec: ImportSpec) -> bool:
        """Whether there was anything new."""
        if self.state.sources.get(spec.name) != "ok":  # else it is served as it was, meanwhile
            self.state.sources[spec.name] = "importing"
        try:
            if self.state.sources[spec.name] != "ok":
                log.info("source_importing", extra={"source": spec.name})
            report = await sources.import_changed(spec)
        except (ToolgateError, psycopg.OperationalError) as error:
            reason = without_queries(str(error))
            log.error("source_failed", extra={"source": spec.name, "reason": reason})
        except Exception:  # one description that we cannot digest must not stop the others
            log.exception("source_crashed", extra={"source": spec.name})
        else:
            self.state.sources[spec.name] = "ok"
            event = "source_imported" if report else "source_unchanged"
            tools = {"tools": len(report.saved.names)} if report and report.saved else {}
            log.info(event, extra={"source": spec.name, **tools})
            return report is not None
        self.state.sources[spec.name] = "failed"
        return False
