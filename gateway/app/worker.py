"""Wiring of `toolgate worker`: a process that runs jobs, those of wings too, and serves nothing."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import anyio
from msgspec.structs import replace

from config.settings import Settings
from gateway.app.admin import operations_as_jobs
from gateway.app.audit_log import job_entry, spool_dir
from gateway.app.jobs import JobRules, Jobs
from gateway.app.wings import READY_WAIT_S, migrate_wing, stored_parts
from gateway.audit.database_writer import AuditWriter, is_recorded
from gateway.middleware.guardrails import Guardrails
from gateway.operations.job_declarations import OnJobAct
from gateway.operations.operation_server import IdempotentRunner, OperationServer
from gateway.policy.visibility import PolicyView
from gateway.state.idempotency import IdempotencyKeys
from gateway.wings.interface import Task, Wing, WingContributions, WingParts
from gateway.wings.models.configured_models import ConfiguredModels
from gateway.wings.table import load_wing, with_jobs
from gateway.wings.wing_operations import WingServer, drafts
from gateway.wings.wing_restarts import WingLife
from registry.access.secrets import Keys, Secrets
from registry.database.postgres import Database, DatabaseHandle
from registry.embedding.embedder import Embedder
from registry.search import Search
from registry.sources.source_reader import Lister


@asynccontextmanager
async def jobs_of_worker(
    settings: Settings, database: Database, lister: Lister, embedders: Mapping[str, Embedder]
) -> AsyncIterator[Jobs]:
    """The jobs of a process that serves no requests; `run` them before the block ends."""
    handle = DatabaseHandle()
    handle.opened = database
    handle.settled.set()
    search = Search(
        handle.pool, embedders.get, settings.search, when_down=settings.disclosure.when_down
    )
    operations = operations_as_jobs(settings, handle.pool, lister, search.run)
    repeats = IdempotentRunner(IdempotencyKeys(handle.pool, settings.admin.idempotency_ttl_s))
    server = OperationServer(operations, repeats, settings.admin.path)
    job_settings = replace(settings.jobs, concurrency=max(settings.jobs.concurrency, 1))
    async with AsyncExitStack() as stack:
        heard = await stack.enter_async_context(_recording(settings, handle))
        view = PolicyView(settings.policy, settings.limits.json_depth)
        rules = JobRules(view, with_jobs(settings), loads=True)
        jobs = Jobs(
            replace(settings, jobs=job_settings), handle, lambda: server, on_act=heard, rules=rules
        )
        if with_jobs(settings):
            wings = wings_of_worker(settings, database, jobs, embedders)
            await stack.enter_async_context(wings)
        yield jobs


@asynccontextmanager
async def _recording(settings: Settings, handle: DatabaseHandle) -> AsyncIterator[OnJobAct]:
    """Writes starts and ends to the audit log, if there is one."""
    pool = handle.pool()
    if not is_recorded(settings) or pool is None:
        yield lambda _act: None
        return
    writer = AuditWriter(settings.audit, spool_dir(settings), settings.tenant.host_id, handle.pool)
    await writer.begin(pool)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(writer.run)
            yield lambda act: writer.add(job_entry(act, writer.now()))
            await writer.settle()
            group.cancel_scope.cancel()
    finally:
        await writer.close()


@asynccontextmanager
async def wings_of_worker(
    settings: Settings,
    database: Database,
    jobs: Jobs,
    embedders: Mapping[str, Embedder],
) -> AsyncIterator[None]:
    """The wings that have jobs, open in a process that serves nothing."""
    search = Search(lambda: database.pool, embedders.get, settings.search)
    keys = Secrets(database.pool, settings.tenant.host_id, Keys.of(settings.secrets))
    stored, _ = await keys.read()
    offers: dict[str, WingContributions] = {}
    async with AsyncExitStack() as stack:
        on_used = None
        if settings.costs.enabled:
            from gateway.app.costs import count_models

            counting = count_models(settings, lambda: database.pool)
            on_used = await stack.enter_async_context(counting)
        models = ConfiguredModels(settings.models, lambda: stored, on_used=on_used)
        await stack.enter_async_context(models)
        parts = partial(
            stored_parts,
            settings,
            database=database,
            embedder=embedders.get,
            search=search.run,
            models=models,
            offers=offers,
            guardrails=partial(Guardrails, settings.guardrails),
        )
        worker_wings = [
            WorkerWing(wing, parts(wing.name), jobs, settings, offers=offers)
            for wing in map(load_wing, with_jobs(settings))
        ]
        tasks = await stack.enter_async_context(anyio.create_task_group())
        for worker_wing in worker_wings:
            worker_wing.begin()
            tasks.start_soon(worker_wing.run)
        with anyio.move_on_after(READY_WAIT_S):
            for worker_wing in worker_wings:
                await worker_wing.attempted.wait()
        yield
        for worker_wing in worker_wings:
            await worker_wing.stop()


class WorkerWing(WingLife):
    """Supervisor of one wing of `toolgate worker`, for its jobs: without requests and tasks."""

    def __init__(
        self,
        wing: Wing,
        parts: WingParts,
        jobs: Jobs,
        settings: Settings,
        *,
        offers: dict[str, WingContributions],
    ) -> None:
        """`offers` of the wings that are open in the process."""
        super().__init__(wing)
        self._offers = offers
        self._parts = parts
        self._jobs = jobs
        self._settings = settings

    async def parts(self) -> WingParts:
        await migrate_wing(self._wing, self._parts.database)
        return self._parts

    @asynccontextmanager
    async def serving(self, offer: WingContributions) -> AsyncIterator[None]:
        drafts(self._wing, offer)
        settings, pool = self._settings, self._parts.pool
        repeats = IdempotentRunner(IdempotencyKeys(lambda: pool, settings.admin.idempotency_ttl_s))
        server = WingServer(
            offer.operations,
            repeats,
            self._wing.root,
            verify_scope=settings.auth.verify_scope,
            masks=settings.guardrails.mask,
        )
        self._offers[self.name] = offer
        try:
            with self._jobs.offering(server):
                yield
        finally:
            self._offers.pop(self.name, None)

    def tasks(self, offer: WingContributions) -> Sequence[Task]:  # noqa: ARG002 - the signature is theirs
        return ()
