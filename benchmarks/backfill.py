"""Throughput of embedding a catalog: `toolgate embed backfill`, with the bundled model, on an
embedded database with default settings.

Tools are those of public sets where a directory is given, and synthetic ones up to the number. The
gateway's memory is measured while it computes the vectors itself.
"""

import asyncio
import subprocess
import time
from pathlib import Path

import msgspec

from benchmarks.catalog import catalog
from benchmarks.processes import clean_environment, pin
from benchmarks.request import Unavailable
from benchmarks.rig import Rig
from benchmarks.table import Row, Target
from benchmarks.toolgate import COMMAND, Installation, installation, serving
from config.load import load as load_settings
from config.settings import Settings
from registry.database.postgres import Database
from registry.embedding.backfills import refresh
from registry.embedding.embedder_factory import make_embedder
from registry.embedding.status import tasks
from registry.embedding.target_models import register
from registry.evaluation.request_sets import CatalogTool
from registry.evaluation.temporary_catalog import load
from registry.sources.tool_store import ToolStore

COUNT, QUICK_COUNT = 4000, 400  # tools
AGAIN = 1000  # tools that a gateway embeds again
TIMEOUT_S = 300.0
POLL_S = 0.05
TARGETS = (Target("least", 400.0),)


class Outcome(msgspec.Struct, frozen=True):
    """What `toolgate embed backfill --json` prints, as far as it matters here."""

    done: int


def measure_backfill(rig: Rig, directory: Path | None, quick: bool) -> list[Row]:
    """On all cores: the model and the database share them."""
    pin(0, rig.cores.tested | rig.cores.load)
    try:
        tools = catalog(directory, QUICK_COUNT if quick else COUNT)
        with installation(rig, "backfill", {}) as site:
            settings = load_settings(str(site.settings), {})
            rig.say(f"backfill: writing {len(tools):,} tools")
            asyncio.run(_write(settings, tools))
            rig.say(f"backfill: embedding {len(tools):,} tools")
            seconds = _backfill(site, len(tools))
            return [
                Row(
                    "toolgate embed backfill, with its start",
                    len(tools) / seconds,
                    "tools/s",
                    targets=() if quick else TARGETS,
                    note=f"{len(tools):,} tools in {seconds:.1f} s",
                ),
                *_memory(rig, site, settings, min(AGAIN, len(tools))),
            ]
    finally:
        pin(0, rig.cores.load)


async def _write(settings: Settings, tools: list[CatalogTool]) -> None:
    async with Database.open(settings.database) as database:
        await register(database.pool, make_embedder(settings.embedding))
        await load(database, tools, settings.tenant.host_id)


def _backfill(site: Installation, count: int) -> float:
    """Seconds. The embedded database starts with it."""
    arguments = [*COMMAND, "embed", "backfill", "--json", "--config", str(site.settings)]
    begin = time.perf_counter()
    ended = subprocess.run(
        arguments,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=clean_environment(),
        timeout=TIMEOUT_S,
        check=False,
    )
    seconds = time.perf_counter() - begin
    if ended.returncode != 0:
        complaint = ended.stderr.decode(errors="replace")[-200:]
        raise Unavailable(f"backfill failed: {complaint}")
    done = msgspec.json.decode(ended.stdout, type=Outcome).done
    if done != count:
        raise Unavailable(f"backfill embedded {done} of {count}")
    return seconds


def _memory(rig: Rig, site: Installation, settings: Settings, count: int) -> list[Row]:
    with serving(rig, site) as child:
        before = child.rss_mb
        rig.say(f"backfill: embedding {count:,} tools in a gateway")
        asyncio.run(_again(settings, count))
        after = child.rss_mb
    return [
        Row("gateway memory before it embeds", before, "MB"),
        Row(f"gateway memory after {count:,} texts", after, "MB", note="the model stays loaded"),
    ]


async def _again(settings: Settings, count: int) -> None:
    """Let the gateway embed so many tools again."""
    host_id = settings.tenant.host_id
    async with Database.open(settings.database) as database:
        ids = [tool.id for tool in await ToolStore(database.pool).tools(host_id)][:count]
        await refresh(database.pool, host_id, ids, force=True)
        begin = time.perf_counter()
        while any((await tasks(database.pool)).values()):
            if time.perf_counter() - begin > TIMEOUT_S:
                raise Unavailable(f"the gateway did not embed {count} texts in {TIMEOUT_S:.0f} s")
            await asyncio.sleep(POLL_S)
