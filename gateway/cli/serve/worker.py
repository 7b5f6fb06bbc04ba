"""`toolgate worker`: a process that makes vectors and runs jobs beside the gateways."""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import anyio
import click
from msgspec.structs import replace

from config.logging import configure
from config.settings import Settings
from gateway.app.access_for_commands import stored_in
from gateway.app.components import has_jobs
from gateway.cli.common.database import Registry, open_registry
from gateway.cli.common.event_loop import run
from gateway.cli.common.failure import USAGE, fail
from gateway.cli.common.mcp_connections import open_lister
from gateway.cli.common.output import out
from gateway.cli.common.settings import settings_option
from gateway.wings.table import wing_kinds, with_tasks
from registry.database.postgres import Database
from registry.embedding.embedder import Embedder, EmbeddingFailed
from registry.embedding.embedder_factory import Embedders, ServingEmbedder, make_embedder
from registry.embedding.search_kinds import Kinds
from registry.embedding.worker_pool import WorkerPool
from registry.search.indexes import ensure_indexes

if TYPE_CHECKING:
    from gateway.app.jobs import Jobs

log = logging.getLogger("toolgate.worker")

STOPPING = (signal.SIGINT, signal.SIGTERM)


@click.command()
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    metavar="N",
    help="Embedding workers [default: embedding.workers, at least 1].",
)
@click.option(
    "--events", is_flag=True, help="Run invocations, too; it then reads the sources as a gateway."
)
@settings_option
def worker(settings: Settings, workers: int | None, *, events: bool) -> None:
    """Run a worker process for embeddings and jobs, until Ctrl-C.

    Gateways run `embedding.workers` workers and `jobs.concurrency` jobs themselves. To take that
    load from them, set both to 0 there and start any number of worker processes, on any machine
    with access to the database. --events is for those that run invocations (`events.concurrency`).

    \b
    SIGTERM, Ctrl-C  finish current texts (server.drain_s) and jobs
                     (jobs.grace_s; other workers take the rest), then stop;
                     a second Ctrl-C stops at once
    """
    configure(settings.logging)
    if not events:
        run(_work(settings, workers))
        return
    if not with_tasks(settings):
        fail("invocations are switched off: set events.enabled", USAGE)
    from gateway.cli.serve.events_worker import run_events_worker

    if (reason := run(run_events_worker(settings, workers))) is not None:
        fail(reason)


async def _work(settings: Settings, workers: int | None) -> None:
    kinds, with_jobs = wing_kinds(settings), has_jobs(settings)
    async with AsyncExitStack() as stack:
        embedders = await stack.enter_async_context(
            open_embedders(settings, kinds, needed=not with_jobs)
        )
        registry = await stack.enter_async_context(open_registry(settings))
        crews = crews_of(settings, registry.database, embedders, kinds=kinds, workers=workers)
        jobs = await _jobs(settings, registry, embedders, stack) if with_jobs else None
        async with anyio.create_task_group() as group:
            group.start_soon(_until_signalled, crews, jobs, settings.server.drain_s)
            models = dict.fromkeys(embedder.model for embedder in embedders.values())
            out.print(f"Worker is ready: {', '.join([*models, *(['jobs'] if jobs else [])])}")
            async with anyio.create_task_group() as working:
                for crew in crews:
                    working.start_soon(crew.run)
                if jobs is not None:
                    working.start_soon(jobs.run)
            group.cancel_scope.cancel()
    log.info("stopped", extra={"embedded": sum(crew.stored_count for crew in crews)})


async def _jobs(
    settings: Settings,
    registry: Registry,
    embedders: Mapping[str, Embedder],
    stack: AsyncExitStack,
) -> "Jobs":
    from gateway.app.worker import jobs_of_worker

    stored = await stored_in(settings, registry.database.pool)
    lister = await stack.enter_async_context(open_lister(settings, stored))
    return await stack.enter_async_context(
        jobs_of_worker(settings, registry.database, lister, embedders)
    )


@asynccontextmanager
async def open_embedders(
    settings: Settings, kinds: Kinds, *, needed: bool = True
) -> AsyncIterator[Mapping[str, Embedder]]:
    """The embedders by purpose; fails where they are all disabled, if they are needed."""
    embedders = Embedders(settings.embedding, make_embedder)
    try:
        by_purpose = {kind.purpose: embedders.of(kind.purpose) for kind in kinds.values()}
    except EmbeddingFailed as error:
        fail(str(error), USAGE)
    enabled = {
        purpose: embedder for purpose, embedder in by_purpose.items() if embedder is not None
    }
    if needed and not enabled:
        fail("embeddings are disabled: set embedding.provider, as to `bundled`", USAGE)
    try:
        yield enabled
    finally:
        await embedders.close()


def crews_of(
    settings: Settings,
    database: Database,
    embedders: Mapping[str, Embedder],
    *,
    kinds: Kinds,
    workers: int | None = None,
) -> Sequence[WorkerPool]:
    """A crew for each purpose."""
    workers = workers or max(settings.embedding.workers, 1)
    embedding = replace(settings.embedding, workers=workers)
    after = partial(ensure_indexes, exact_limit=settings.search.exact_limit)
    return [
        WorkerPool(
            database,
            embedder,
            settings=embedding,
            serving=ServingEmbedder(
                lambda: database.pool, embedding.of(purpose), embedder, purpose
            ),
            after=after,
            kinds=kinds,
        )
        for purpose, embedder in embedders.items()
    ]


async def _until_signalled(
    crews: Sequence[WorkerPool], jobs: "Jobs | None", drain_s: float
) -> None:
    """Stop crews and jobs gracefully on a signal; cancel the crews after `drain_s`, or on a second
    signal."""
    loop, heard = asyncio.get_running_loop(), asyncio.Queue[int]()
    for number in STOPPING:
        loop.add_signal_handler(number, heard.put_nowait, number)
    try:
        log.info("stopping", extra={"signal": signal.Signals(await heard.get()).name})
        for crew in crews:
            crew.stop()
        if jobs is not None:
            jobs.stop()
        with anyio.move_on_after(drain_s):
            await heard.get()
        for crew in crews:
            crew.cancel()
    finally:
        for number in STOPPING:
            loop.remove_signal_handler(number)
