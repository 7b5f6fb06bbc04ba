"""`toolgate embed`: the vectors of tools and skills, and their work queue."""

import anyio
import click
import msgspec
from rich.progress import TimeRemainingColumn

from config.settings import EmbeddingSettings, Settings
from gateway.cli.commands import RESOURCES
from gateway.cli.common.database import Registry, open_registry
from gateway.cli.common.event_loop import run
from gateway.cli.common.failure import fail
from gateway.cli.common.options import json_option
from gateway.cli.common.output import err, print_json, print_rows, remark, say
from gateway.cli.common.progress import progress_bar
from gateway.cli.common.settings import settings_option
from gateway.cli.common.text import harmless
from gateway.cli.doctor.registry import mismatch
from gateway.cli.operations import open_client
from gateway.cli.serve.worker import crews_of, open_embedders
from gateway.wings.table import wing_kinds
from registry.database.postgres import borrow
from registry.embedding import backfills
from registry.embedding.embedder import Embedder, EmbeddingFailed
from registry.embedding.search_kinds import TOOLS
from registry.embedding.status import EmbeddingCounts, EmbeddingStatus, tasks
from registry.embedding.target_models import Models, models, register, settle
from registry.embedding.worker_pool import WorkerPool

RESOURCE = RESOURCES + "embeddings:EmbeddingOperations"
EVERY_S = 0.2  # polling interval of the queue, for the progress bar


@click.command(name="status")
@json_option
@settings_option
def status_(settings: Settings, as_json: bool) -> None:
    """Show how many tools and skills have embeddings, and the errors of failed ones.

    \b
    ready     has a vector and is found by meaning
    pending   waits for a worker; it is found by its words
    failed    has failed for good; `toolgate embed retry` retries
    disabled  embeddings are switched off
    blank     has no text to embed
    """
    state = run(_status(settings))
    if as_json:
        print_json({"models": state.models, "counts": state.counts, "failed": state.failed})
        return
    _print(state, settings.embedding)


@click.command()
@click.option("--no-wait", is_flag=True, help="Only queue; workers create the embeddings.")
@json_option
@settings_option
def backfill(settings: Settings, no_wait: bool, as_json: bool) -> None:
    """Create missing and outdated embeddings.

    The command queues the texts and works until the queue is empty. Ctrl-C stops it; a later run
    continues with the rest of the queue. Several can run at once, and beside gateways.
    """
    queued, done = run(_backfill(settings, no_wait))
    state = run(_status(settings))
    if as_json:
        print_json({"queued": queued, "done": done, "counts": state.counts})
    else:
        say(f"Queued {queued}, embedded {done}.")
        _print(state, settings.embedding)
    failed = sum(count.failed for count in state.counts)
    if failed and not no_wait:
        fail(f"texts that failed: {failed}; `toolgate embed retry` queues them again")


def _print(status: EmbeddingStatus, settings: EmbeddingSettings) -> None:
    if not status.counts:
        say("There are no tools yet.")
        return
    columns = ("total", "ready", "pending", "failed", "disabled", "blank")
    print_rows(
        ("type", *columns, "model"),
        [
            (count.entity_type, *(str(getattr(count, name)) for name in columns), _model(count))
            for count in status.counts
        ],
    )
    for failure in status.failed:
        say(f"{failure.count} x {failure.error} (as {failure.example})")
    for purpose, purpose_models in status.models.items():
        if text := _of_models(purpose, purpose_models, settings.of(purpose)):
            remark(text)


def _of_models(purpose: str, models: Models, settings: EmbeddingSettings) -> str | None:
    """Why vectors are not those of the settings' model, if so."""
    try:
        if text := mismatch(settings, models):
            return f"{text[:1].upper()}{text[1:]}."
    except EmbeddingFailed as error:
        return str(error)
    if models.target is None:
        return _why_none(purpose, settings)
    if models.serving != models.target:
        return f"{models.target} takes over once none of its texts is pending."
    return None


def _why_none(purpose: str, settings: EmbeddingSettings) -> str:
    """Why no model creates vectors of this purpose."""
    if settings.provider == "disabled":
        where = "provider" if purpose == TOOLS else "purposes"
        return f"Embeddings are disabled: see embedding.{where}."
    return (
        "There are no embeddings yet: `toolgate serve` or `toolgate embed backfill` creates them."
    )


def _model(count: EmbeddingCounts) -> str:
    return f"{count.model or '-'}{f' ({count.role})' if count.role else ''}"


async def _status(settings: Settings) -> EmbeddingStatus:
    async with open_client(settings, url=None, key_file=None, resources=(RESOURCE,)) as client:
        answer = await client.call("getEmbeddings", {})
        return msgspec.convert(answer.value, EmbeddingStatus)


async def _backfill(settings: Settings, no_wait: bool) -> tuple[int, int]:
    kinds = wing_kinds(settings)
    async with open_embedders(settings, kinds) as embedders, open_registry(settings) as registry:
        for purpose, embedder in embedders.items():
            await _register(registry, embedder, purpose)
        queued = await backfills.backfill(registry.database.pool, kinds)
        if no_wait:
            return queued, 0
        crews = crews_of(settings, registry.database, embedders, kinds=kinds)
        return queued, sum([await _embed_all(registry, crew) for crew in crews])


async def _register(registry: Registry, embedder: Embedder, purpose: str) -> None:
    pool = registry.database.pool
    async with borrow(pool) as connection:
        before = (await models(connection, purpose)).target
    if await register(pool, embedder, purpose) and before:
        _warn(
            f"The model is now {embedder.model} instead of {before}: gateways with {before} in "
            "their settings create no embeddings until they are restarted."
        )


async def _embed_all(registry: Registry, crew: WorkerPool) -> int:
    """Work until the queue of the crew is empty; returns the number of vectors made."""
    async with anyio.create_task_group() as group:
        group.start_soon(crew.run)
        await _watch(registry, crew)
        crew.stop()
    if crew.is_displaced:
        fail(
            "another gateway has registered another model: expected the same settings under "
            "`embedding` at all gateways"
        )
    async with borrow(registry.database.pool) as connection:
        await settle(connection, crew.purpose, crew.kinds)
    return crew.stored_count


async def _watch(registry: Registry, crew: WorkerPool) -> None:
    """Wait until the queue is empty or the crew displaced; shows a progress bar at a terminal."""
    with progress_bar(TimeRemainingColumn()) as bar:
        task = bar.add_task("Embedding", total=None)
        total, warned = 0, False
        while not crew.is_displaced:
            counts = await tasks(registry.database.pool, crew.kinds)
            unfinished = counts["pending"] + counts["running"]
            total = max(total, unfinished)
            bar.update(task, completed=total - unfinished, total=total)
            if not unfinished:
                return
            if not warned and await crew.elsewhere() == unfinished:
                _warn(f"Waiting for texts that other workers embed: {unfinished}.")
                warned = True
            await anyio.sleep(EVERY_S)


def _warn(text: str) -> None:
    err.print(harmless(text))
