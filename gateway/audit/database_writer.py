"""Audit writer: idempotent, ordered inserts of records into the database."""

import logging
import socket
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, LiteralString

import anyio
import anyio.lowlevel
import msgspec
import psycopg
from anyio import to_thread
from anyio.lowlevel import checkpoint
from msgspec.structs import astuple
from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from psycopg_pool import PoolTimeout

from config.access import Audit
from config.settings import Settings
from gateway.audit.disk_spool import Spool, SpoolFull
from gateway.audit.records import AuditEntry, Chain, ChainEnd, Head, Header, Line, first_hash, seal
from registry.database.postgres import Pool, borrow
from schemas.errors import Unavailable

_header = msgspec.json.Decoder(Header)

_BEGIN = """
INSERT INTO audit_chain_t (host_id, chain_id, header, last_sequence, last_hash, last_ts,
    removed_hash, seal)
VALUES (%(host)s, %(chain)s, %(header)s::json, 0, %(hash)s, %(started)s, %(hash)s, %(seal)s)
ON CONFLICT DO NOTHING
"""
_LAST = """
SELECT last_sequence, last_hash, removed_sequence, removed_hash, seal
  FROM audit_chain_t WHERE host_id = %(host)s AND chain_id = %(chain)s FOR UPDATE
"""
_END = """
UPDATE audit_chain_t SET last_sequence = %(sequence)s, last_hash = %(hash)s, last_ts = %(ts)s,
    seal = %(seal)s
 WHERE host_id = %(host)s AND chain_id = %(chain)s
"""
_SEEN = """
SELECT chain_id::text, last_sequence, encode(last_hash, 'hex') FROM audit_chain_t
 WHERE host_id = %s AND last_ts > current_timestamp - make_interval(days => %s)
   AND removed_sequence < last_sequence
 ORDER BY last_ts DESC LIMIT 1000
"""

PIECE = 128  # records

log = logging.getLogger("toolgate.audit")


STORE_S = 30.0  # for one batch
RETRY_S = 1.0  # until the next database attempt
SETTLE_S = 10.0  # wait for the database at shutdown
# Steps of the clock beyond this are no corrections of a running clock, which a chain sits out.
SET_BACK = timedelta(minutes=1)


def _copy() -> LiteralString:
    names: LiteralString = ", ".join(AuditEntry.__struct_fields__)
    return (
        "COPY audit_t (chain_id, sequence, " + names + ", hash) FROM STDIN"
        r" WITH (FORMAT csv, ESCAPE '\', FORCE_NULL (" + names + "))"  # empty texts are null
    )


_COPY = _copy()
_OMITTED = ("", "", *AuditEntry.__struct_defaults__)  # the first two never are
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\""})
_members = msgspec.json.Decoder(dict[str, str | int])
_encode_lines = msgspec.json.Encoder().encode_lines


async def store(
    pool: Pool, key: bytes, header: bytes, lines: list[Line], *, pauses: bool = True
) -> int:
    """Insert records of the chain with `header`; returns how many were new. With `pauses` it yields
    to other tasks every `PIECE` records. Raises psycopg.Error and PoolTimeout."""
    begun = _header.decode(header)
    async with borrow(pool) as connection:
        before = await _end(connection, begun, header, key)
        new = _new(lines, before.last[0])
        if not new:
            return 0
        async with connection.cursor().copy(_COPY) as copy:
            for first in range(0, len(new), PIECE):
                if pauses:
                    await checkpoint()
                piece = new[first : first + PIECE]
                await copy.write(_rows(piece, begun.chain_id))
        end = new[-1]
        values = {
            "host": begun.host_id,
            "chain": begun.chain_id,
            "sequence": end.sequence,
            "hash": end.hash,
            "ts": end.recorded_ts,
            "seal": before.sealed_with(key, last=(end.sequence, end.hash)),
        }
        await connection.execute(_END, values)
    return len(new)


def _rows(lines: Sequence[Line], chain_id: str) -> bytes:
    """Records in the CSV format of COPY, nearly all of them encoded in one call: a JSON array of
    texts and integers is a row of it, once its brackets are gone.

    https://www.postgresql.org/docs/18/sql-copy.html#SQL-COPY-FILE-FORMATS
    """
    arrays, others = [], b""
    for line in lines:
        row = (chain_id, line.sequence, *_values(line), rf"\x{line.hash.hex()}")
        if b"\\" in line.text and _has_control_characters(line.text):
            texts = [f'"{str(value).translate(_ESCAPES)}"' for value in row]
            others += ",".join(texts).encode() + b"\n"
        else:
            arrays.append(row)
    if not arrays:
        return others
    # JSON has no line break within a text, so these are the brackets of rows
    return _encode_lines(arrays)[1:-2].replace(b"]\n[", b"\n") + b"\n" + others


def _has_control_characters(text: bytes) -> bool:
    r"""Whether JSON escapes more than quotes and backslashes, as in `\n`."""
    return b"\\" in text.replace(rb"\\", b"").replace(rb"\"", b"")


def _values(line: Line) -> tuple[Any, ...]:
    """The members of a record, in the order of their columns."""
    if line.entry is not None:
        return astuple(line.entry)
    return tuple(map(_members.decode(line.text).get, AuditEntry.__struct_fields__, _OMITTED))


async def heads(pool: Pool, host_id: str, days: int) -> list[Head]:
    """Heads of chains with records of the last `days`. Raises psycopg.Error and PoolTimeout."""
    async with borrow(pool) as connection:
        rows = await connection.execute(_SEEN, [host_id, days])
        return [Head(*row) async for row in rows]


async def _end(
    connection: AsyncConnection[TupleRow], chain: Header, header: bytes, key: bytes
) -> ChainEnd:
    """The end of the chain, locked; inserts the chain if it is new."""
    names = {"host": chain.host_id, "chain": chain.chain_id}
    row = await (await connection.execute(_LAST, names)).fetchone()
    if row is not None:
        return ChainEnd.of(chain.chain_id, *row)
    start = (0, first_hash(key, header))
    fresh = ChainEnd(chain.chain_id, start, start, seal(key, chain.chain_id, start, start))
    values = {
        **names,
        "header": header.decode(),
        "hash": start[1],
        "started": chain.started_ts,
        "seal": fresh.seal,
    }
    if (await connection.execute(_BEGIN, values)).rowcount:
        return fresh
    # an earlier attempt, whose commit was in doubt, has ended meanwhile
    row = await (await connection.execute(_LAST, names)).fetchone()
    return fresh if row is None else ChainEnd.of(chain.chain_id, *row)


def _new(lines: list[Line], last: int) -> list[Line]:
    """Lines that the database lacks: a spool may contain duplicates."""
    new = []
    for line in lines:
        if line.sequence > last:
            new.append(line)
            last = line.sequence
    return new


def is_recorded(settings: Settings) -> bool:
    """Whether the audit log is enabled."""
    mode = settings.audit.mode
    return mode == "always" or (mode == "authenticated" and settings.auth.mode != "none")


class AuditWriter:
    """Queues entries; `run` writes them. Before and after `run` they stay in memory."""

    def __init__(
        self,
        settings: Audit,
        spool_dir: Path,
        host_id: str,
        pool: Callable[[], Pool | None],
        *,
        copy: Callable[[AuditEntry], None] | None = None,
    ) -> None:
        """A writer for the tenant `host_id` of the gateway. `pool` is None until the database has
        answered. `copy` gets each entry that is queued."""
        self._copy = copy
        self._settings = settings
        self._spool_dir = spool_dir
        self._host_id = host_id
        self._pool = pool
        self.key = settings.key.encode()
        self._chain: Chain | None = None
        self.spool: Spool | None = None
        self._entries: list[AuditEntry] = []  # not in the chain yet
        self._lines: list[Line] = []  # in the chain, neither spooled nor stored
        self._moved = 0.0  # monotonic time of the last change of the first line
        self._last = self._linked = datetime.fromtimestamp(0, UTC)
        self._is_set_back = False  # the clock, and the chain goes on with the time before
        self._full = anyio.Event()  # a full batch of entries
        self._ready = anyio.Event()  # records to store
        self._opening, self._linking, self._storing = anyio.Lock(), anyio.Lock(), anyio.Lock()
        self._unavailable = False
        self.written = self.spooled = self.dropped = 0

    @property
    def waiting(self) -> int:
        """Number of records in memory."""
        return len(self._entries) + len(self._lines)

    @property
    def lag_s(self) -> float:
        """Age of the oldest record in memory, in seconds."""
        first: list[Line | AuditEntry] = [*self._lines[:1], *self._entries[:1]]
        return (datetime.now(UTC) - first[0].recorded_ts).total_seconds() if first else 0.0

    def admit(self) -> None:
        """Raises Unavailable when the queue and the spool are full (`when_full: refuse`)."""
        settings = self._settings
        if len(self._entries) + len(self._lines) < settings.queue:  # fast path of every message
            return
        if settings.when_full == "refuse" and self._is_full():
            raise Unavailable("Calls cannot be recorded now; try again later")

    def add(self, entry: AuditEntry) -> None:
        """Queue an entry; dropped when queue and spool are full (`when_full: drop`)."""
        settings, entries = self._settings, self._entries
        is_crowded = len(entries) + len(self._lines) >= settings.queue
        if is_crowded and settings.when_full == "drop" and self._is_full():
            self.dropped += 1
            return
        entries.append(entry)
        if self._copy is not None:
            self._copy(entry)
        if len(entries) == settings.batch:
            self._full.set()

    def now(self) -> datetime:
        """Clock for `recorded_ts`. It does not go back, since time in a chain never does, unless it
        was set back by more than SET_BACK: then another chain begins."""
        clock = datetime.now(UTC)
        if clock > self._last:
            self._last = clock
        elif (back := self._last - clock) > SET_BACK:
            self._is_set_back, self._last = True, clock
            log.warning("audit_clock_set_back", extra={"by_s": back.total_seconds()})
        return self._last

    async def begin(self, pool: Pool) -> None:
        """Start the chain, with the heads of other chains. Call it before `run`. Raises
        psycopg.Error and PoolTimeout."""
        if self._chain is None:
            await self._open(await heads(pool, self._host_id, self._settings.retention_days))

    async def run(self) -> None:
        """Write records until cancelled."""
        await self._open([])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._store_all)
            while True:
                with anyio.move_on_after(self._settings.flush_s):
                    await self._full.wait()
                self._full = anyio.Event()
                await self._gather()

    async def settle(self) -> None:
        """Flush before `run` is cancelled: to the database if it answers, else to disk."""
        await self._open([])
        with anyio.move_on_after(SETTLE_S):
            while not self._unavailable and self._has_backlog():
                await self._gather()
                await self._store_some()
        await self._spool_all()

    async def close(self) -> None:
        """Spool the remaining records and close, after the last entry."""
        if self.waiting:
            await self._open([])
            await self._spool_all()
        if self.spool is not None:
            self.spool.close()
        if self.waiting:
            log.error("audit_lost", extra={"records": self.waiting})

    def _is_full(self) -> bool:
        """Whether the spool is full too, or not written fast enough."""
        room = self.spool is not None and self.spool.has_room()
        return not room or self.waiting >= 2 * self._settings.queue

    def _has_backlog(self) -> bool:
        return self.waiting > 0 or (self.spool is not None and not self.spool.empty)

    async def _open(self, heads: Sequence[Head]) -> None:
        async with self._opening:
            if self._chain is not None:
                return
            chain = self._make_chain(self.now(), heads)
            spool = Spool(self._spool_dir, self._settings.spool_bytes, chain.id)
            try:
                await to_thread.run_sync(spool.open)
            except OSError as error:
                reason = f"{self._spool_dir}: {error.strerror or error}"
                log.error("audit_spool_unusable", extra={"reason": reason})
            self._chain, self.spool = chain, spool

    def _make_chain(self, start: datetime, heads: Sequence[Head]) -> Chain:
        node = socket.gethostname()
        return Chain(self._host_id, node=node, started=start, key=self.key, seen=heads)

    async def _follow_clock(self) -> bool:
        """Begin another chain for records of an earlier time, once those before are stored or on
        disk; returns whether it did."""
        if self._unavailable:
            await self._spool_lines()
        async with self._linking:
            is_next = self._entries and not self._count_linkable(1)
            if not is_next or self._lines or self._chain is None or self.spool is None:
                return False
            seen = [self._chain.head] if self.spool.empty else []  # what is stored
            self._chain = self._make_chain(self._entries[0].recorded_ts, seen)
            self._linked = self._entries[0].recorded_ts
            self._is_set_back = self._count_linkable(None) is not None
            await to_thread.run_sync(self.spool.turn_to, self._chain.id)
            self._link()
        return True

    def _count_linkable(self, limit: int | None) -> int | None:
        """Number of entries, `limit` at most, that come before the clock was set back."""
        before = self._linked
        for count, entry in enumerate(self._entries[:limit]):
            if before - entry.recorded_ts > SET_BACK:
                return count
            before = entry.recorded_ts
        return limit

    async def _gather(self) -> None:
        """Chain the queued entries; spool them unless the database keeps up."""
        async with self._linking:
            if self._has_small_backlog():
                for _ in range(0, len(self._entries), PIECE):
                    self._link(PIECE)
                    await anyio.lowlevel.checkpoint()
            self._link()
        if self._is_set_back:
            await self._follow_clock()
        if (
            self._unavailable
            or self._is_late()
            or (self.spool is not None and not self.spool.empty)
        ):
            await self._spool_lines()
        if self._has_backlog():
            self._ready.set()

    def _has_small_backlog(self) -> bool:
        """Whether the backlog is small enough to yield to calls between pieces."""
        return self.waiting <= 2 * self._settings.batch

    def _is_late(self) -> bool:
        """Whether the database is stalled, or slower than the calls."""
        many = len(self._lines) > self._settings.queue // 2
        is_stalled = time.monotonic() - self._moved > 2 * self._settings.flush_s
        return many or (is_stalled and bool(self._lines))

    def _link(self, limit: int | None = None) -> None:
        if self._is_set_back:
            limit = self._count_linkable(limit)
        if self._chain is not None and (entries := self._entries[:limit]):
            if not self._lines:
                self._moved = time.monotonic()
            del self._entries[:limit]
            self._lines += self._chain.link(entries)
            self._linked = entries[-1].recorded_ts

    async def _spool_lines(self) -> None:
        """Spool all records, even those being stored right now: inserts are idempotent."""
        async with self._linking:
            self._link()
            lines = list(self._lines)
            if not lines or self._chain is None or self.spool is None:
                return
            try:
                await to_thread.run_sync(self.spool.append, self._chain.header, lines)
            except (SpoolFull, OSError) as error:
                reason = getattr(error, "strerror", None) or "audit.spool_bytes is reached"
                log.error("audit_spool_full", extra={"reason": reason, "waiting": self.waiting})
                return
            self._forget(lines)
            self.spooled += len(lines)

    async def _spool_all(self) -> None:
        """Spool the records of all chains."""
        await self._spool_lines()
        while self._is_set_back and await self._follow_clock():
            await self._spool_lines()

    def _forget(self, lines: Sequence[Line]) -> None:
        last = lines[-1].sequence
        self._lines = [line for line in self._lines if line.sequence > last]
        self._moved = time.monotonic()

    async def _store_all(self) -> None:
        while True:
            await self._ready.wait()
            while self._has_backlog():
                if not await self._store_some():
                    await anyio.sleep(RETRY_S)
                elif not self._lines and self.spool is not None and self.spool.empty:
                    break  # entries are not chained yet
            self._ready = anyio.Event()

    async def _store_some(self) -> bool:
        """Store one batch, oldest records first; returns whether that succeeded."""
        async with self._storing:
            chain, spool, limit = self._chain, self.spool, self._settings.batch
            if chain is None or spool is None:
                return False
            spooled = None if spool.empty else await to_thread.run_sync(spool.batch, limit)
            lines = self._lines[:limit] if spooled is None else spooled.lines
            header = chain.header if spooled is None else spooled.header
            if not lines:
                return True
            if not await self._store_lines(header, lines):
                return False
            if spooled is not None:
                await to_thread.run_sync(spool.acknowledge)
            elif chain is self._chain:  # else they were spooled meanwhile
                self._forget(lines)
            return True

    async def _store_lines(self, header: bytes, lines: list[Line]) -> bool:
        pool = self._pool()
        try:
            if pool is None:
                raise TimeoutError
            with anyio.fail_after(STORE_S):
                pauses = self._has_small_backlog()
                self.written += await store(pool, self.key, header, lines, pauses=pauses)
        except (psycopg.Error, PoolTimeout, TimeoutError) as error:
            if not self._unavailable:
                reason = str(error).split("\n", 1)[0][:200] or "no answer"
                log.warning("audit_database_unavailable", extra={"reason": reason})
            self._unavailable = True
            return False
        if self._unavailable:
            log.info("audit_database_recovered")
        self._unavailable = False
        return True
