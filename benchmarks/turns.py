"""`python -m benchmarks.turns`: how long a small text waits to be stored and to have its vector,
beside the burst of another tenant or, with `--beside colleague`, of another person of its tenant.

The burst is one text of 4 MB, whose words are made up, and its chunks are embedded by the bundled
model. Meanwhile two lines are stored and embedded, again and again.
"""

import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import click
import numpy as np

from benchmarks.many_chunks import SEED, OpenedWing, open_wing
from config.load import load
from gateway.wings.knowledge.caller_access import KnowledgeReader
from gateway.wings.knowledge.chunk_search import KIND
from gateway.wings.knowledge.collections import NewCollection
from gateway.wings.knowledge.documents import NewDocument
from registry.embedding.embedder_factory import make_embedder
from registry.embedding.search_kinds import search_kinds
from registry.embedding.worker import Worker

GOAL_S = 3.0  # p95
WORDS = 20_000  # of the made-up language
ANOTHER = "00000000-0000-4000-8000-000000000002"
SMALL = "The heron nests in reeds.\nIt eats fish. Note {number}."


def made_up_text(size: int) -> str:
    """Paragraphs of words whose frequencies are those of a language (Zipf)."""
    chance = np.random.default_rng(SEED)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = ["".join(chance.choice(letters, chance.integers(3, 10))) for _ in range(WORDS)]
    places = np.minimum(chance.zipf(1.2, size // 5), WORDS) - 1

    def paragraphs() -> Iterator[str]:
        for at in range(0, len(places), 100):
            yield " ".join(words[place] for place in places[at : at + 100])

    return "\n\n".join(paragraphs())[:size]


async def wait_for_vectors(wing: OpenedWing, collection: str) -> None:
    while await waiting(wing, collection):  # noqa: ASYNC110 - by a worker, in a database
        await anyio.sleep(0.02)


async def waiting(wing: OpenedWing, collection: str) -> int:
    """Texts of a collection that have no vector yet."""
    async with wing.database.pool.connection() as connection:
        rows = await connection.execute(
            """
            SELECT count(*) FROM embedding_task_t AS task
            JOIN knowledge_chunk_t AS chunk ON task.entity_id = chunk.chunk_id
            JOIN knowledge_collection_t AS collection USING (collection_id)
            WHERE collection.name = %s
            """,
            [collection],
        )
        [(count,)] = await rows.fetchall()
    return int(count)


async def time_small_texts(wing: OpenedWing, tenant: str) -> list[float]:
    """Seconds until each small text of Bo, of `tenant`, has its vector, as long as those of the
    burst wait for theirs."""
    reader, spent = KnowledgeReader(tenant, "bo", ("*", "user:bo")), list[float]()
    while await waiting(wing, "all"):
        started = time.perf_counter()
        small = NewDocument(f"{len(spent)}.md", SMALL.format(number=len(spent)))
        await wing.parts.ingestion.text(reader, NewCollection("small"), small)
        await wait_for_vectors(wing, "small")
        spent.append(time.perf_counter() - started)
    return spent


async def measure(folder: Path, size: int, beside: str) -> None:
    embedder = make_embedder(load(None, {}).embedding)
    async with open_wing(folder, embedder) as wing:
        async with wing.database.pool.connection() as connection:
            await connection.execute(
                "INSERT INTO host_t (host_id, name) VALUES (%s, 'b')", [ANOTHER]
            )
        burst = NewDocument("burst.md", made_up_text(size))
        document = await wing.parts.ingestion.text(wing.reader, NewCollection("all"), burst)
        worker = Worker(
            wing.database.pool, wing.embedder, wing.settings.embedding, search_kinds([KIND])
        )
        tenant = wing.reader.tenant if beside == "colleague" else ANOTHER
        async with anyio.create_task_group() as group:
            group.start_soon(worker.run)
            spent = await time_small_texts(wing, tenant)
            group.cancel_scope.cancel()
    p95 = statistics.quantiles(spent, n=20)[-1] if len(spent) > 1 else spent[0]
    verdict = "reached" if p95 < GOAL_S else "NOT reached"
    click.echo(
        f"{len(spent)} small texts beside {document.chunks:,} chunks of a {beside}: p50 "
        f"{statistics.median(spent):.2f} s, p95 {p95:.2f} s ({verdict}: < {GOAL_S:g} s)"
    )


@click.command()
@click.option("--bytes", "size", type=click.IntRange(10_000), default=4_000_000, show_default=True)
@click.option(
    "--beside", type=click.Choice(["stranger", "colleague"]), default="stranger", show_default=True
)
def main(size: int, beside: str) -> None:
    """Measure small texts beside the burst of another tenant or person, without a gateway."""
    with TemporaryDirectory(prefix="toolgate-bench-", ignore_cleanup_errors=True) as work:
        Path(work).chmod(0o755)  # of PostgreSQL's own user
        anyio.run(measure, Path(work), size, beside)


if __name__ == "__main__":
    main()
