"""`toolgate worker`: a separate process that creates vectors beside the gateways."""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

import anyio
import click
from msgspec.structs import replace

from config.logging import configure
from config.settings import Settings
from gateway.cli.common.database import run, settings_option
from gateway.cli.common.failure import USAGE, fail
from gateway.cli.common.output import out
from gateway.wings.table import wing_kinds
from registry.database.postgres import Database
from registry.embedding.abc import Embedder, EmbeddingFailed
from registry.embedding.crew import Crew
from registry.embedding.kinds import Kinds
from registry.embedding.providers import Embedders, ServingEmbedder, make_embedder
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
    kinds = wing_kinds(settings)
    async with (
        open_embedders(settings, kinds) as embedders,
        Database.open(settings.database) as database,
    ):
        crews = crews_of(settings, database, embedders, kinds=kinds, workers=workers)
        async with anyio.create_task_group() as group:
            group.start_soon(_until_signalled, crews, settings.server.drain_s)
            models = dict.fromkeys(one.model for one in embedders.values())
            out.print(f"Worker is ready: {', '.join(models)}")
            async with anyio.create_task_group() as working:
                for crew in crews:
                    working.start_soon(crew.run)
            group.cancel_scope.cancel()
    log.info("stopped", extra={"embedded": sum(crew.done for crew in crews)})


@asynccontextmanager
async def open_embedders(settings: Settings, kinds: Kinds) -> AsyncIterator[Mapping[str, Embedder]]:
    """The embedders by purpose; fails where they are all disabled."""
    embedders = Embedders(settings.embedding, make_embedder)
    try:
        found = {kind.purpose: embedders.of(kind.purpose) for kind in kinds.values()}
    except EmbeddingFailed as error:
        fail(str(error), USAGE)
    enabled = {purpose: one for purpose, one in found.items() if one is not None}
    if not enabled:
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
) -> Sequence[Crew]:
    """A crew for each purpose."""
    workers = workers or max(settings.embedding.workers, 1)
    wanted = replace(settings.embedding, workers=workers)
    after = partial(ensure_indexes, exact_limit=settings.search.exact_limit)
    return [
        Crew(
            database,
            embedder,
            settings=wanted,
            serving=ServingEmbedder(lambda: database.pool, wanted.of(purpose), embedder, purpose),
            after=after,
            kinds=kinds,
        )
        for purpose, embedder in embedders.items()
    ]


async def _until_signalled(crews: Sequence[Crew], drain_s: float) -> None:
    """Stop the crews gracefully on a signal; cancel them after `drain_s`, or on a second signal."""
    loop, heard = asyncio.get_running_loop(), asyncio.Queue[int]()
    for number in STOPPING:
        loop.add_signal_handler(number, heard.put_nowait, number)
    try:
        log.info("stopping", extra={"signal": signal.Signals(await heard.get()).name})
        for crew in crews:
            crew.stop()
        with anyio.move_on_after(drain_s):
            await heard.get()
        for crew in crews:
            crew.cut_off()
    finally:
        for number in STOPPING:
            loop.remove_signal_handler(number)
