"""`toolgate embed`: the vectors of tools and skills, and the queue that makes them."""

from collections.abc import Sequence

import anyio
import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from config.settings import Settings
from gateway.cli.database import Registry, open_registry, run
from gateway.cli.failure import FAILED, USAGE, fail, no_such
from gateway.cli.lazy import LazyGroup
from gateway.cli.options import json_option
from gateway.cli.output import err, print_json, print_rows, remark, say
from gateway.cli.settings import settings_option
from gateway.cli.worker import crew_of, embedder_of
from registry.embedding import population
from registry.embedding.crew import Crew
from registry.embedding.models import register, settle
from registry.embedding.status import Counts, Status, status, tasks
from registry.postgres import borrowed

COMMANDS = {
    "status": ("gateway.cli.embed:status_", "Show how many texts have vectors."),
    "backfill": ("gateway.cli.embed:backfill", "Make the vectors that are missing."),
    "refresh": ("gateway.cli.embed:refresh", "Make the vectors of some tools anew."),
    "retry": ("gateway.cli.embed:retry", "Try again what has failed."),
}
EVERY_S = 0.2  # between two looks at the queue, for the bar


@click.group(cls=LazyGroup, lazy=COMMANDS)
def embed() -> None:
    """Look after the vectors by which tools and skills are found.

    They are made behind the back of whoever writes a tool, by `toolgate serve` or `toolgate
    worker`; these commands are for looking at it and for repairs. Which model makes them stands in
    the settings, under `embedding`.
    """


@click.command(name="status")
@json_option
@settings_option
def status_(settings: Settings, as_json: bool) -> None:
    """Show how many tools and skills have vectors, and why others have none.

    \b
    ready     found by meaning
    pending   waits for a worker; it is found by its words
    failed    was given up; `toolgate embed retry` tries again
    disabled  embeddings are switched off
    blank     there is nothing to embed
    """
    found = run(_status(settings))
    if as_json:
        print_json({"models": found.models, "counts": found.counts, "failed": found.failed})
        return
    _print(found)


@click.command()
@click.option("--no-wait", is_flag=True, help="Only queue; leave the work to the gateways.")
@json_option
@settings_option
def backfill(settings: Settings, no_wait: bool, as_json: bool) -> None:
    """Make the vectors that are missing, and those of older texts.

    It queues them and works until the queue is empty, also on what others have queued. It may be
    stopped with Ctrl-C and begun again at any time: what is done stays, and what is not stays in
    the queue. Several may run at once, also beside gateways.
    """
    queued, done = run(_backfill(settings, no_wait))
    found = run(_status(settings))
    if as_json:
        print_json({"queued": queued, "done": done, "counts": found.counts})
    else:
        say(f"Queued {queued}, embedded {done}.")
        _print(found)
    if not no_wait and any(one.failed for one in found.counts):
        click.get_current_context().exit(FAILED)


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--force", is_flag=True, help="Also those that are ready.")
@settings_option
def refresh(settings: Settings, names: tuple[str, ...], force: bool) -> None:
    """Queue tools again, if they are not ready.

    Until a worker has come to them they are found by their words.
    """
    count = run(_refresh(settings, names, force))
    say(f"Queued {count} of {len(set(names))}.")
    if not force and count < len(set(names)):
        remark("The others are ready, or out of service; --force queues those that are ready.")


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@settings_option
def retry(settings: Settings, names: tuple[str, ...]) -> None:
    """Try again at once what has failed.

    With names only these tools; else all that has failed, or waits for its next attempt.
    """
    say(f"Queued {run(_retry(settings, names))} again.")


def _print(found: Status) -> None:
    if not found.counts:
        say("There are no tools yet.")
        return
    columns = ("total", "ready", "pending", "failed", "disabled", "blank")
    print_rows(
        ("type", *columns, "model"),
        [
            (one.entity_type, *(str(getattr(one, name)) for name in columns), _model(one))
            for one in found.counts
        ],
    )
    for failure in found.failed:
        say(f"{failure.count} x {failure.error} (as {failure.example})")
    if found.models.target is None:
        remark("Embeddings are disabled, or no gateway has run yet: see embedding.provider.")
    elif found.models.serving != found.models.target:
        remark(f"{found.models.target} takes over when none of its texts is pending.")


def _model(one: Counts) -> str:
    return f"{one.model or '-'}{f' ({one.role})' if one.role else ''}"


async def _status(settings: Settings) -> Status:
    async with open_registry(settings) as registry:
        return await status(registry.database.pool, registry.host_id)


async def _backfill(settings: Settings, no_wait: bool) -> tuple[int, int]:
    embedder = embedder_of(settings)
    async with open_registry(settings) as registry:
        pool = registry.database.pool
        await register(pool, embedder)
        queued = await population.backfill(pool)
        if no_wait:
            return queued, 0
        crew = crew_of(settings, registry.database, embedder)
        async with anyio.create_task_group() as group:
            group.start_soon(crew.run)
            await _watch(registry, crew)
            crew.stop()
        async with borrowed(pool) as connection:
            await settle(connection)
        await embedder.close()
        return queued, crew.done


async def _watch(registry: Registry, crew: Crew) -> None:
    """Until the queue is empty, with a bar on standard error while somebody looks."""
    columns = (
        TextColumn("Embedding"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    )  # fmt: skip
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task("", total=None)
        total = 0
        while not crew.stopped:
            counts = await tasks(registry.database.pool)
            left = counts["pending"] + counts["running"]
            total = max(total, left)
            bar.update(task, completed=total - left, total=total)
            if not left:
                return
            if crew.displaced:
                fail(
                    "another gateway has registered another model meanwhile; do they all have "
                    "the same settings under `embedding`?"
                )
            await anyio.sleep(EVERY_S)


async def _refresh(settings: Settings, names: Sequence[str], force: bool) -> int:
    async with open_registry(settings) as registry:
        ids = await _ids(registry, names)
        await _check_enabled(registry)
        pool = registry.database.pool
        return await population.refresh(pool, registry.host_id, "tool", ids, force)


async def _retry(settings: Settings, names: Sequence[str]) -> int:
    async with open_registry(settings) as registry:
        ids = await _ids(registry, names) if names else None
        return await population.retry(registry.database.pool, registry.host_id, ids)


async def _check_enabled(registry: Registry) -> None:
    found = await status(registry.database.pool, registry.host_id)
    if found.models.target is None:
        fail(
            "embeddings are disabled, or no gateway has run yet: set embedding.provider, then "
            "`toolgate embed backfill`",
            USAGE,
        )


async def _ids(registry: Registry, names: Sequence[str]) -> list[str]:
    known = {tool.name: tool.id for tool in await registry.store.tools(registry.host_id)}
    for name in names:
        if name not in known:
            no_such("tool", name, known)
    return [known[name] for name in dict.fromkeys(names)]
