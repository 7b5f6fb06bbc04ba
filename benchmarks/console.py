"""Server time of the console's pages beside 12,000 tools, 1,000 sources, 100,000 audit records and
a schema of 6.7 MB.

    python -m benchmarks.console

The database is a temporary one. Gateway and client share a process, so what is told is the whole
of a request over loopback. Goal: 100 ms for each page, the first as for the last.
"""

import asyncio
import json
import os
import re
import statistics
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import aiohttp
from msgspec.structs import replace

from config.settings import Settings
from gateway.operations.paging import cursor
from registry.database.postgres import EMBEDDED_URL, Database, borrow
from registry.evaluation.temporary_catalog import CARELESS
from registry.sources.import_plan import SourceDraft
from registry.sources.tool_store import ToolStore
from schemas.binding import OpenAPIBinding
from schemas.source import OpenAPIOptions
from schemas.tool import ToolDraft
from tests.fixtures_gateway import running, wordless

SOURCES, TOOLS_EACH, RECORDS = 1000, 12, 100_000
HUGE = 6_700_000  # characters of a schema
ROUNDS = 7
GOAL_MS = 100
VERBS = ("list", "create", "update", "delete", "export", "approve")
NOUNS = ("invoices", "customers", "orders", "pets", "repositories", "tickets", "payments")
NEXT = re.compile(r'rel="next" href="/console/([^"]+)"')


class PageTime(NamedTuple):
    page: str
    median_ms: float
    slowest_ms: float
    kilobytes: float


def drafts(source: int) -> list[ToolDraft]:
    return [
        ToolDraft(
            key=f"op{number}",
            name=f"s{source:04}_{VERBS[number % 6]}_{NOUNS[(source + number) % 7]}_{number}",
            title=None,
            description=f"{VERBS[number % 6]} {NOUNS[(source + number) % 7]} of system {source}",
            input_schema=schema(wide=source == 0 and number == 0),
            binding=OpenAPIBinding("GET", f"/{source}/{number}"),
        )
        for number in range(TOOLS_EACH)
    ]


def schema(*, wide: bool) -> dict[str, object]:
    if not wide:
        return {"type": "object", "properties": {"id": {"type": "string"}}}
    each = 200
    properties = {
        f"member_{at:06}": {"type": "string", "description": "x" * each}
        for at in range(HUGE // (each + 60))
    }
    return {"type": "object", "properties": properties}


async def fill(database: Database, host_id: str) -> None:
    store = ToolStore(database.pool)
    for number in range(SOURCES):
        name = f"system-{number:04}"
        source = SourceDraft(
            name, "openapi", f"/{name}.json", base_url="http://127.0.0.1:9",
            options=OpenAPIOptions(),
        )  # fmt: skip
        await store.save(host_id, source, drafts(number))
    async with borrow(database.pool) as connection:
        await connection.execute(
            """
            INSERT INTO audit_t (host_id, recorded_ts, chain_id, sequence, principal, front, method,
                subject, source, decision, outcome, latency_us, request_id, hash)
            SELECT %s, now() - at * interval '1 second', %s, %s - at, 'user-' || at %% 500, 'mcp',
                'tools/call', 'tool-' || at %% 12000, 'system-' || at %% 1000,
                CASE WHEN at %% 50 = 0 THEN 'deny' ELSE 'allow' END, 'ok', 900, at::text, '\\x00'
            FROM generate_series(1, %s) AS at
            """,
            [host_id, "00000000-0000-0000-0000-0000000000aa", RECORDS, RECORDS],
        )
        await connection.execute("ANALYZE")


@asynccontextmanager
async def filled(settings: Settings, folder: Path) -> AsyncIterator[Settings]:
    options = {**settings.database.options, **CARELESS}
    database_settings = replace(
        settings.database, url=EMBEDDED_URL, data_dir=str(folder / "data"), options=options
    )
    async with Database.open(database_settings, wait=False) as database:
        await fill(database, settings.tenant.host_id)
        yield replace(settings, database=database_settings)


async def timed(http: aiohttp.ClientSession, url: str, page: str) -> tuple[PageTime, str]:
    took, text = [], ""
    for _ in range(ROUNDS):
        began = time.perf_counter()
        async with http.get(f"{url}/console/{page}") as answer:
            text = await answer.text()
            assert answer.status == 200, (page, answer.status)
        took.append((time.perf_counter() - began) * 1000)
    kilobytes = len(text.encode()) / 1000
    return PageTime(page, statistics.median(took), max(took), kilobytes), text


async def pages(http: aiohttp.ClientSession, url: str) -> list[PageTime]:
    last_tool = cursor(f"s{SOURCES - 1:04}_a")
    times = []
    for page in (
        *("", "tools", f"tools?after={last_tool}", "tools?q=approve+a+payment", "sources"),
        *("tools?source=system-0500", "tools?protocol=openapi&state=served", "sources/system-0500"),
        *("policy", "audit", "audit?subject=tool-77", "audit?principal=user-3&decision=deny"),
        *("tools/s0000_list_invoices_0", "tools/s0000_list_invoices_0/try", "sessions", "keys"),
        "health",
    ):
        first, text = await timed(http, url, page)
        times.append(first)
        following = NEXT.search(text)
        if following is not None and page in {"tools", "sources", "audit"}:
            after, _ = await timed(http, url, following[1].replace("&amp;", "&"))
            times.append(after._replace(page=f"{page}, next page"))
    return times


def told(times: Sequence[PageTime]) -> str:
    head = f"{'page':48} {'median ms':>10} {'slowest':>10} {'kB':>8}"
    rows = (
        f"/{page.page:47} {page.median_ms:10.1f} {page.slowest_ms:10.1f} {page.kilobytes:8.0f}"
        + ("" if page.median_ms <= GOAL_MS else "  over the goal")
        for page in times
    )
    return "\n".join([head, *rows])


async def main() -> int:
    with TemporaryDirectory(prefix="toolgate-console-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        os.chmod(folder, 0o755)  # noqa: PTH101 - as root the database runs as another user
        defaults = wordless()
        settings = replace(
            defaults,
            console=replace(defaults.console, enabled=True),
            admin=replace(defaults.admin, requests=0),
            audit=replace(defaults.audit, spool_dir=str(folder / "audit")),
        )
        async with filled(settings, folder) as rig_settings, running(rig_settings) as client:
            times = await pages(client.http, client.url)
    sys.stdout.write(told(times) + "\n" + json.dumps([page._asdict() for page in times]) + "\n")
    return 0 if all(page.median_ms <= GOAL_MS for page in times) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
