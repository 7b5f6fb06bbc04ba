"""Tamper detection of the audit log: changed, removed or inserted records of the hash chains.

Undetectable without `audit.key`: a chain rebuilt, hashes included, by an attacker with write access
to the database. With the key there remains a rollback of the end of the newest chain to an earlier
state, seal included, before another chain has recorded its head; to detect that too, store the
heads that `verify` returns elsewhere.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
from psycopg import AsyncConnection, sql
from psycopg.rows import dict_row

from gateway.audit.queries import COLUMNS, recorded_entry, rows_of
from gateway.audit.records import Head, Header, first_hash, seal
from registry.database.postgres import Pool, borrow

Kind = Literal["changed", "missing", "added", "chain_changed", "chain_missing", "chain_unknown"]

_header = msgspec.json.Decoder(Header)
_CHAINS = """
SELECT chain_id::text, header::text, last_sequence, last_hash, removed_sequence, removed_hash, seal
  FROM audit_chain_t WHERE host_id = %s ORDER BY header ->> 'started_ts', chain_id
"""
_TOTAL = """
SELECT coalesce(sum(last_sequence - removed_sequence), 0) FROM audit_chain_t WHERE host_id = %s
"""
_RECORDS = sql.SQL("SELECT {} FROM audit_t WHERE chain_id = %(chain)s ORDER BY sequence").format(
    COLUMNS
)
_HASHES = """
SELECT chain_id::text, sequence, encode(hash, 'hex')
  FROM unnest(%s::uuid[], %s::bigint[]) AS head (chain_id, sequence)
  JOIN audit_t USING (chain_id, sequence)
"""
# Loose index scan: one index lookup per chain, not per record.
_UNKNOWN = """
WITH RECURSIVE chain AS (
    (SELECT chain_id FROM audit_t ORDER BY chain_id LIMIT 1)
    UNION ALL
    SELECT (SELECT a.chain_id FROM audit_t a WHERE a.chain_id > chain.chain_id
             ORDER BY a.chain_id LIMIT 1)
      FROM chain WHERE chain.chain_id IS NOT NULL
)
SELECT chain_id::text FROM chain WHERE chain_id IS NOT NULL
   AND chain_id NOT IN (SELECT chain_id FROM audit_chain_t)
"""
PROGRESS = 1000  # records
PROBLEMS = 1000  # in a report


@dataclass(slots=True)
class _Found:
    """Counts and problems found so far."""

    good: int = 0
    bad: int = 0
    missing: int = 0
    erased: int = 0
    problems: list["ChainProblem"] = field(default_factory=list)

    def add(self, problem: "ChainProblem") -> None:
        if len(self.problems) < PROBLEMS:
            self.problems.append(problem)


@dataclass(frozen=True, slots=True)
class ChainProblem:
    """One place where a chain breaks."""

    chain_id: str
    sequence: int | None  # None: the chain as a whole
    kind: Kind
    text: str


@dataclass(frozen=True, slots=True)
class ChainReport:
    """Report of a verification: counts of valid (`records`), invalid (`bad`) and `missing` records.
    `erased` are those of the valid ones that an erasure of a person has pseudonymised.
    Records of a chain whose row was tampered with are not counted. `problems`: the first `PROBLEMS`
    breaks."""

    heads: list[Head]
    records: int
    problems: list[ChainProblem]
    bad: int = 0
    missing: int = 0
    erased: int = 0


@dataclass(frozen=True, slots=True)
class _Chain:
    id: str
    header: Header
    last: tuple[int, bytes]
    removed: tuple[int, bytes]


async def verify(
    pool: Pool,
    host_id: str,
    key: bytes,
    progress: Callable[[int, int], None] = lambda _count, _total: None,
) -> ChainReport:
    """Verify all chains of a tenant's gateways in one snapshot. `progress` is called with the
    number of records checked, and that of all."""
    findings = _Found()
    chains: list[_Chain] = []
    async with borrow(pool) as connection:
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        total = await _total(connection, host_id)

        def look_on(count: int) -> None:
            progress(count, total)

        async for chain in _chains(connection, host_id, key):
            if isinstance(chain, ChainProblem):
                findings.add(chain)
                continue
            chains.append(chain)
            await _look(connection, chain, key=key, findings=findings, progress=look_on)
        for problem in await _unseen(connection, chains):
            findings.add(problem)
        rows = await connection.execute(_UNKNOWN)
        async for (chain_id,) in rows:
            text = "records of a chain without a row in audit_chain_t"
            findings.add(ChainProblem(chain_id, None, "chain_unknown", text))
        look_on(findings.good + findings.bad)
    heads = [Head(chain.id, chain.last[0], chain.last[1].hex()) for chain in chains]
    return ChainReport(
        heads,
        records=findings.good,
        problems=findings.problems,
        bad=findings.bad,
        missing=findings.missing,
        erased=findings.erased,
    )


async def _total(connection: AsyncConnection, host_id: str) -> int:
    """Number of records according to the rows of the chains."""
    rows = await connection.execute(_TOTAL, [host_id])
    (total,) = await rows.fetchone() or (0,)
    return int(total)


async def _chains(
    connection: AsyncConnection, host_id: str, key: bytes
) -> AsyncIterator[_Chain | ChainProblem]:
    async with connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(_CHAINS, [host_id])
        for row in await cursor.fetchall():
            yield _chain(row, host_id, key)


def _chain(row: dict[str, Any], host_id: str, key: bytes) -> _Chain | ChainProblem:
    id_, header = row["chain_id"], row["header"].encode()
    last = (row["last_sequence"], bytes(row["last_hash"]))
    removed = (row["removed_sequence"], bytes(row["removed_hash"]))
    try:
        begun = _header.decode(header)
    except msgspec.DecodeError:
        return ChainProblem(id_, None, "chain_changed", "its header is none")
    if (begun.chain_id, begun.host_id) != (id_, host_id):
        return ChainProblem(id_, None, "chain_changed", "its header is that of another chain")
    if seal(key, id_, last, removed) != bytes(row["seal"]):
        text = "its row in audit_chain_t was changed, or audit.key is another one"
        return ChainProblem(id_, None, "chain_changed", text)
    if removed[0] == 0 and removed[1] != first_hash(key, header):
        return ChainProblem(id_, None, "chain_changed", "its header was changed")
    return _Chain(id_, begun, last, removed)


async def _look(
    connection: AsyncConnection,
    chain: _Chain,
    *,
    key: bytes,
    findings: _Found,
    progress: Callable[[int], None],
) -> None:
    """Verify all records of a chain. After a break, verification continues from the record's stored
    hash."""
    sequence, before = chain.removed
    async with aclosing(rows_of(connection, _RECORDS, {"chain": chain.id})) as rows:
        async for row in rows:
            number = row["sequence"]
            if number <= sequence or number > chain.last[0]:
                findings.bad += 1
                text = "a record that the chain does not have"
                findings.add(ChainProblem(chain.id, number, "added", text))
                continue
            if (missing := number - sequence - 1) > 0:
                findings.missing += missing
                text = f"{missing} records are gone from here on"
                findings.add(ChainProblem(chain.id, sequence + 1, "missing", text))
            # the previous hash of the first record after a gap is unknown
            problem = _wrong(row, chain, key, None if missing else before)
            if problem is None:
                findings.good += 1
                findings.erased += row["erased"] is not None
            else:
                findings.bad += 1
                findings.add(problem)
            sequence, before = number, bytes(row["hash"])
            if (findings.good + findings.bad) % PROGRESS == 0:
                progress(findings.good + findings.bad)
    _look_at_end(chain, sequence, before, findings)


def _look_at_end(chain: _Chain, sequence: int, before: bytes, findings: _Found) -> None:
    if sequence < chain.last[0]:
        gone = chain.last[0] - sequence
        findings.missing += gone
        text = f"it ends here; {gone} records are gone"
        findings.add(ChainProblem(chain.id, sequence + 1, "missing", text))
    elif before != chain.last[1]:
        text = "the chain ends with another hash"
        findings.add(ChainProblem(chain.id, sequence, "changed", text))


def _wrong(
    row: dict[str, Any], chain: _Chain, key: bytes, before: bytes | None
) -> ChainProblem | None:
    """The problem of a record, if any, given the previous hash; `before` None: that hash is
    unknown."""
    number = row["sequence"]
    try:
        record = recorded_entry(row)
    except (ValueError, msgspec.ValidationError):
        return ChainProblem(chain.id, number, "changed", "no gateway writes such a record")
    if (before is not None or record.erased) and not record.is_intact(key, before or b""):
        text = "it is not what was written, or not in order"
        return ChainProblem(chain.id, number, "changed", text)
    return None


async def _unseen(connection: AsyncConnection, chains: list[_Chain]) -> list[ChainProblem]:
    """Problems from comparing chains with the heads that other chains recorded of them."""
    chains_by_id, problems = {chain.id: chain for chain in chains}, {}
    # each chain names those before it: without repetitions they are as many as the chains
    seen = dict.fromkeys(head for chain in chains for head in chain.header.seen)
    hashes = await _hashes(connection, [head for head in seen if _is_stored(head, chains_by_id)])
    for head in seen:
        chain = chains_by_id.get(head.chain_id)
        if chain is None:
            rows = await connection.execute(
                "SELECT FROM audit_chain_t WHERE chain_id = %s", [head.chain_id]
            )
            if await rows.fetchone() is None:  # else reported as a problem of that chain
                text = f"a later one saw {head.sequence} records of it; all are gone"
                problems[head.chain_id] = ChainProblem(head.chain_id, None, "chain_missing", text)
        elif chain.last[0] < head.sequence:
            text = f"a later chain saw {head.sequence} records of it; it ends with {chain.last[0]}"
            problems[chain.id] = ChainProblem(chain.id, chain.last[0] + 1, "missing", text)
        elif (
            head.sequence > chain.removed[0]
            and hashes.get((chain.id, head.sequence), head.hash) != head.hash
        ):
            text = "a later chain saw another record here"
            problems[chain.id] = ChainProblem(chain.id, head.sequence, "changed", text)
    return list(problems.values())


def _is_stored(head: Head, chains: Mapping[str, _Chain]) -> bool:
    """Whether a chain has the record of a head; the header of a changed chain may name anything."""
    chain = chains.get(head.chain_id)
    return chain is not None and chain.removed[0] < head.sequence <= chain.last[0]


async def _hashes(
    connection: AsyncConnection, heads: Iterable[Head]
) -> Mapping[tuple[str, int], str]:
    """Stored hashes of the records that heads name, by chain and sequence."""
    places = list(heads)
    rows = await connection.execute(
        _HASHES, [[head.chain_id for head in places], [head.sequence for head in places]]
    )
    return {(chain_id, sequence): hash_ async for chain_id, sequence, hash_ in rows}
