"""`toolgate worker`: a separate process that creates vectors beside the gateways."""

import asyncio
import logging
import signal
from functools import partial

import anyio
import click
from msgspec.structs import replace

from config.logging import configure
from config.settings import Settings
from gateway.cli.common.database import run, settings_option
from gateway.cli.common.failure import USAGE, fail
from gateway.cli.common.output import out
from registry.database.postgres import Database
from registry.embedding.abc import Embedder, EmbeddingFailed
from registry.embedding.crew import Crew
from registry.embedding.providers import ServingEmbedder, make_embedder
from registry.search.indexes import ensure_indexes

log = logging.getLogger("toolgate.embedding")

STOPPING = (signal.SIGINT, signal.SIGTERM)


@click.command()
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    metavar="N",
    help="Workers in this process [default: embedding.workers, at least 1].",
)
@settings_option
def worker(settings: Settings, workers: int | None) -> None:
    """Make vectors for the texts in the queue, until Ctrl-C.

    Gateways do that too, with `embedding.workers` workers each. Set it to 0 there where it should
    not take their processor, and start as many of these as you like, on any machine that reaches
    the database.

    \b
    SIGTERM, Ctrl-C  finish the texts in hand (server.drain_s), then stop;
                     Ctrl-C again stops at once
    """
    configure(settings.logging)
    run(_work(settings, workers))


async def _work(settings: Settings, workers: int | None) -> None:
    embedder = embedder_of(settings)
    try:
        async with Database.open(settings.database) as database:
            crew = crew_of(settings, database, embedder, workers)
            async with anyio.create_task_group() as group:
                group.start_soon(_until_signalled, crew, settings.server.drain_s)
                out.print(f"Worker is ready: {embedder.model}")
                await crew.run()
                group.cancel_scope.cancel()
    finally:
        await embedder.close()
    log.info("stopped", extra={"embedded": crew.done})


def embedder_of(settings: Settings) -> Embedder:
    try:
        embedder = make_embedder(settings.embedding)
    except EmbeddingFailed as error:
        fail(str(error), USAGE)
    if embedder is None:
        fail("embeddings are disabled: set embedding.provider, as to `bundled`", USAGE)
    return embedder


def crew_of(
    settings: Settings, database: Database, embedder: Embedder, workers: int | None = None
) -> Crew:
    workers = workers or max(settings.embedding.workers, 1)
    wanted = replace(settings.embedding, workers=workers)
    serving = ServingEmbedder(lambda: database.pool, wanted, embedder)
    after = partial(ensure_indexes, exact_limit=settings.search.exact_limit)
    return Crew(database, embedder, settings=wanted, serving=serving, after=after)


async def _until_signalled(crew: Crew, drain_s: float) -> None:
    """Stop the crew gracefully on a signal; cancel it after `drain_s`, or on a second signal."""
    loop, heard = asyncio.get_running_loop(), asyncio.Queue[int]()
    for number in STOPPING:
        loop.add_signal_handler(number, heard.put_nowait, number)
    try:
        log.info("stopping", extra={"signal": signal.Signals(await heard.get()).name})
        crew.stop()
        with anyio.move_on_after(drain_s):
            await heard.get()
        crew.cut_off()
    finally:
        for number in STOPPING:
            loop.remove_signal_handler(number)
