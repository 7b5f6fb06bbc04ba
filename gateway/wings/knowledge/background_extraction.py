"""Extraction of names and relations by a chat model, in the background: documents that are found by
rules already are read once more, chunk by chunk. Answers are kept by their text, so that neither a
restart nor the same text again costs a request; of runs at the same time one asks. What guardrails
keep from callers does not reach the model.
"""

import logging
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import msgspec
from msgspec import Struct
from psycopg import sql
from psycopg.types.json import Jsonb

from config.knowledge import KnowledgeExtraction
from gateway.context import Principal
from gateway.operations.job_declarations import SCHEDULE, Job
from gateway.wings.document_library import DATA_KINDS
from gateway.wings.interface import Screen
from gateway.wings.knowledge.caller_access import READABLE, KnowledgeReader
from gateway.wings.knowledge.extracted_names import (
    ExtractedNames,
    UnusableAnswer,
    cache_key,
    check_extraction,
    extraction_messages,
)
from gateway.wings.knowledge.model_spending import DailySpending
from gateway.wings.models.messages import ChatModel, ChatModels, ModelFailed, Payer, RequestOptions
from gateway.wings.models.usage import BudgetExhausted
from registry.database.postgres import Pool, borrow
from registry.database.sql_fragments import compose
from registry.database.tenants import list_tenants

log = logging.getLogger("toolgate.knowledge")

SICK = 3  # documents in a row without any answer, after which a run ends
ASKING_S = 900  # after which a run that asks the model is taken for dead
SHOWN_BY = "knowledge_query"  # the tool whose rules say what the model may see
SPENT_DAYS = 30  # after which the account of a day is deleted


class ExtractionReport(Struct, frozen=True):
    """Report of one run. `asked`: requests to the model; `known`: chunks whose answer was kept."""

    documents: int
    failed: int
    asked: int
    known: int
    names: int
    relations: int
    dropped: int
    withheld: int  # chunks that guardrails keep from the model


@dataclass(frozen=True, slots=True)
class _Document:
    tenant: str
    id: str
    version: int
    attempt: int  # that failed
    owner: str  # of its collection

    @property
    def values(self) -> dict[str, Any]:
        return {"host": self.tenant, "document": self.id, "version": self.version}


@dataclass(frozen=True, slots=True)
class _Chunk:
    id: str
    header: str
    text: str


class _AskedElsewhere(Exception):
    """Another run asks the model for the same text."""


@dataclass(slots=True)
class _Reading:
    """The reading of one document."""

    document: _Document
    model: ChatModel
    limiter: anyio.CapacityLimiter
    requests: int  # that may be sent still
    answered: int = 0
    errors: list[str] = field(default_factory=list)
    awaited: list[_Chunk] = field(default_factory=list)  # for which others ask the model
    unusable: bool = False  # an answer came and is no extraction
    exhausted: str = ""  # why nothing more is asked in this run


@dataclass(slots=True)
class _TenantTurns:
    """A tenant that has turns in a run."""

    tenant: str
    requests: int  # that may be sent still
    sick: int = 0  # documents in a row without any answer


class DocumentExtractor:
    def __init__(
        self,
        pool: Pool,
        models: ChatModels,
        strategy: str,
        settings: KnowledgeExtraction,
        *,
        screen: Screen,
    ) -> None:
        self._pool = pool
        self._screen = screen
        self._models = models
        self._strategy = strategy
        self._settings = settings
        self._spending = DailySpending(pool, "extraction", settings.tokens_per_day)
        self._served: dict[str, str] = {}  # by tenant: the owner that had the last turn
        self.counts: Counter[str] = Counter()

    async def run(self, job: Job, tenant: str | None = None) -> ExtractionReport:
        """Read what is due of a tenant, a document of each owner in turn; None: of all tenants, a
        document of each in turn. Raises ModelFailed where no model is configured."""
        model = self._models.of(self._strategy)
        before = self.counts.copy()
        waiting = deque[_TenantTurns]()
        for each in await list_tenants(self._pool) if tenant is None else [tenant]:
            await self._execute(_FORGET, {"host": each, "days": self._settings.cache_days})
            waiting.append(_TenantTurns(each, self._settings.requests))
        while waiting:
            turns = waiting.popleft()
            if await self._read_next(turns, model, job, before):
                waiting.append(turns)
        spent = self.counts - before
        return ExtractionReport(*(spent[name] for name in ExtractionReport.__struct_fields__))

    async def retry(self, reader: KnowledgeReader, collection: str) -> int:
        """Have failed documents of a collection read again; returns how many there are."""
        values = {**reader.values("write"), "name": collection}
        async with borrow(self._pool) as connection:
            return (await connection.execute(_RETRY, values)).rowcount

    async def _read_next(
        self, turns: _TenantTurns, model: ChatModel, job: Job, before: Mapping[str, int]
    ) -> bool:
        """Read the next document of a tenant; returns whether it has another turn in this run."""
        tenant = turns.tenant
        longest_s = max(self._settings.backoff_s, self._settings.backoff_max_s)
        served = self._served.get(tenant, "")
        values = {"host": tenant, "longest_s": longest_s, "served": served}
        rows = await self._rows(_DUE, values)
        if not rows:
            return False
        document = _Document(tenant, *rows[0])
        self._served[tenant] = document.owner
        reading = _Reading(
            document,
            model,
            anyio.CapacityLimiter(self._settings.concurrency),
            turns.requests,
        )
        await self._read(reading)
        if reading.exhausted:
            log.info("knowledge_extraction_paused", extra={"reason": reading.exhausted})
            return False
        turns.requests = reading.requests
        turns.sick = 0 if reading.answered or not reading.errors else turns.sick + 1
        job.progress(self.counts["documents"] - before["documents"])
        return turns.sick < SICK and turns.requests > 0

    async def _read(self, reading: _Reading) -> None:
        values = {**reading.document.values, "kinds": list(DATA_KINDS)}  # code is left to parsers
        chunks = [_Chunk(*row) for row in await self._rows(_CHUNKS, values)]
        async with anyio.create_task_group() as group:
            for chunk in chunks:
                group.start_soon(self._of_chunk, reading, chunk)
        awaited, reading.awaited = reading.awaited, []
        for chunk in awaited:  # the same text may stand twice in the document
            await self._of_chunk(reading, chunk)
        if reading.exhausted and not reading.errors:
            paused = {"attempt": reading.document.attempt, "error": reading.exhausted[:500]}
            await self._execute(_PAUSED_COLLECTIONS, {**reading.document.values, **paused})
            return
        if reading.errors or not reading.awaited:
            self.counts["failed" if reading.errors else "documents"] += 1
        await self._execute(_STATE, {**reading.document.values, **self._state(reading)})

    def _state(self, reading: _Reading) -> dict[str, Any]:
        """Next state of the document. An endpoint that fails does not make documents fail."""
        if reading.awaited and not reading.errors:
            return {
                "status": "waiting",
                "attempt": reading.document.attempt,
                "pause_s": self._settings.backoff_s,
                "error": "another run is asking the model",
            }
        if not reading.errors:
            return {"status": "processed", "attempt": 0, "pause_s": 0.0, "error": None}
        attempt = reading.document.attempt + 1
        is_final = reading.unusable and attempt >= self._settings.attempts
        pause_s = self._settings.backoff_s * 2.0 ** min(attempt - 1, 20)
        error = f"{len(reading.errors)} chunks: {reading.errors[0]}"
        return {
            "status": "failed" if is_final else "waiting",
            "attempt": attempt,
            "pause_s": min(pause_s, self._settings.backoff_max_s),
            "error": error[:500],
        }

    async def _of_chunk(self, reading: _Reading, chunk: _Chunk) -> None:
        async with reading.limiter:
            if reading.exhausted:
                return
            if len(reading.errors) >= SICK and not reading.answered:
                reading.errors.append("not asked: other chunks got no answer")
                return
            prompt_parts = self._screened_chunk(reading.document, chunk)
            if prompt_parts is None:
                self.counts["withheld"] += 1
                return
            try:
                extracted = await self._extract_chunk(reading, chunk, prompt_parts)
            except _AskedElsewhere:
                reading.awaited.append(chunk)
            except BudgetExhausted as error:
                reading.exhausted = str(error)
            except (ModelFailed, UnusableAnswer) as error:
                reading.unusable |= not isinstance(error, ModelFailed)
                reading.errors.append(str(error))
            else:
                await self._store(reading.document, chunk, extracted)

    def _screened_chunk(self, document: _Document, chunk: _Chunk) -> tuple[str, str] | None:
        """The header and text of a chunk after the guardrails of a query by a caller without roles;
        None: they refuse the chunk."""
        passage = {"text": chunk.text, "header": chunk.header}
        principal = Principal(SCHEDULE, document.tenant)
        screened = self._screen(principal, SHOWN_BY, {"evidence": [passage]})
        try:
            return (screened["evidence"][0]["header"], screened["evidence"][0]["text"])
        except (TypeError, LookupError):  # a rule masks more than texts
            return None

    async def _extract_chunk(
        self, reading: _Reading, chunk: _Chunk, prompt_parts: tuple[str, str]
    ) -> ExtractedNames:
        """Raises ModelFailed, UnusableAnswer, BudgetExhausted and _AskedElsewhere."""
        model, tenant = reading.model, reading.document.tenant
        key = cache_key(model.strategy, await model.model(), *prompt_parts)
        values = {"host": tenant, "key": key}
        claimed = await self._rows(_CLAIM, values)
        if not claimed:
            raise _AskedElsewhere
        values["claimed"] = claimed[0][1]
        if claimed[0][0] is not None:
            self.counts["known"] += 1
            return msgspec.convert(claimed[0][0], ExtractedNames)
        try:
            extracted = await self._ask_model(reading, chunk, prompt_parts)
            await self._execute(_KEEP, {**values, "found": Jsonb(msgspec.to_builtins(extracted))})
        finally:
            with anyio.CancelScope(shield=True):
                await self._execute(_RELEASE, values)
        self.counts["dropped"] += extracted.dropped
        return extracted

    async def _ask_model(
        self, reading: _Reading, chunk: _Chunk, prompt_parts: tuple[str, str]
    ) -> ExtractedNames:
        """Raises ModelFailed, UnusableAnswer and BudgetExhausted."""
        model, messages = reading.model, extraction_messages(*prompt_parts)
        options = RequestOptions(
            max_tokens=self._settings.answer_tokens,
            json=True,
            payer=Payer(reading.document.tenant),
        )
        if reading.requests < 1:
            raise BudgetExhausted(f"the run's {self._settings.requests:,} requests are sent")
        reading.requests -= 1
        worst, _ = model.worst(messages, (), options)
        async with self._spending.reserve(reading.document.tenant, worst.total) as budget:
            self.counts["asked"] += 1
            reply = await model.complete(messages, (), replace(options, budget=budget))
        reading.answered += 1
        return check_extraction(reply, chunk.text)

    async def _store(self, document: _Document, chunk: _Chunk, names: ExtractedNames) -> None:
        """Add what was found, if the chunk is still there."""
        self.counts["names"] += len(names.names)
        self.counts["relations"] += len(names.relations)
        values = {
            "host": document.tenant,
            "chunk": chunk.id,
            "names": Jsonb(msgspec.to_builtins(names.names)),
            "relations": Jsonb(msgspec.to_builtins(names.relations)),
        }
        async with borrow(self._pool) as connection:
            for statement in (_NAMES, _RELATIONS):
                await connection.execute(statement, values)

    async def _execute(self, statement: bytes, values: Mapping[str, Any]) -> None:
        async with borrow(self._pool) as connection:
            await connection.execute(statement, values)

    async def _rows(self, statement: bytes, values: Mapping[str, Any]) -> Sequence[Any]:
        async with borrow(self._pool) as connection:
            return await (await connection.execute(statement, values)).fetchall()


# Times that no pause reaches are of a clock that was ahead. The owners that follow the one that had
# the last turn come first, in the order of their names.
_DUE = b"""
    SELECT document.document_id::text, document.live, CASE WHEN state.version = document.live
        THEN state.attempt ELSE 0 END, collection.owner
    FROM knowledge_document_t AS document
    JOIN knowledge_collection_t AS collection USING (host_id, collection_id)
    LEFT JOIN knowledge_extraction_t AS state
        ON (state.host_id, state.document_id) = (%(host)s, document.document_id)
    WHERE document.host_id = %(host)s AND document.live > 0
        AND (state.version IS DISTINCT FROM document.live
            OR (state.status = 'waiting' AND (state.next_ts <= now()
                OR state.next_ts > now() + %(longest_s)s * interval '1 second')))
    ORDER BY collection.owner <= %(served)s, collection.owner,
        coalesce(state.next_ts, document.changed_ts), document.document_id LIMIT 1
"""
_CHUNKS = b"""
    SELECT chunk.chunk_id::text, chunk.header, knowledge_text(content, start_byte, end_byte)
    FROM knowledge_chunk_t AS chunk JOIN knowledge_blob_t AS blob
        ON (blob.host_id, blob.sha256) = (%(host)s, chunk.sha256)
    WHERE (chunk.host_id, chunk.document_id) = (%(host)s, %(document)s::uuid)
        AND chunk.kind = ANY (%(kinds)s)
    ORDER BY chunk.ordinal
"""
# One row with the answer that is kept, or without an answer: then this run asks the model. No row:
# another run is asking.
_CLAIM = compose(
    """
    INSERT INTO knowledge_extracted_t AS had (host_id, key) VALUES (%(host)s, %(key)s)
    ON CONFLICT (host_id, key) DO UPDATE SET used_ts = now()
    WHERE had.found IS NOT NULL OR had.used_ts NOT BETWEEN now() - interval {asking}
        AND now() + interval {asking}
    RETURNING found, used_ts
""",
    asking=sql.Literal(f"{ASKING_S} seconds"),
)
_KEEP = b"""
    UPDATE knowledge_extracted_t SET found = %(found)s
    WHERE (host_id, key) = (%(host)s, %(key)s)
"""
# Of this run alone: one that asks for longer than a claim lasts has lost it to another.
_RELEASE = b"""
    DELETE FROM knowledge_extracted_t
    WHERE (host_id, key) = (%(host)s, %(key)s) AND found IS NULL AND used_ts = %(claimed)s
"""
_FORGET = compose(
    """
    WITH old AS (
        DELETE FROM knowledge_spent_t
        WHERE host_id = %(host)s AND day < now() - interval {kept}
    )
    DELETE FROM knowledge_extracted_t
    WHERE host_id = %(host)s AND used_ts < now() - make_interval(days => %(days)s)
""",
    kept=sql.Literal(f"{SPENT_DAYS} days"),
)
_HERE = sql.SQL("""(SELECT collection_id FROM knowledge_chunk_t
    WHERE (host_id, chunk_id) = (%(host)s, %(chunk)s::uuid) FOR NO KEY UPDATE) AS chunk""")
_NAMES = compose(
    """
    SELECT knowledge_name(%(host)s, collection_id, (
        SELECT jsonb_agg(given || jsonb_build_object('id', %(chunk)s::text, 'role', 'mention',
            'method', 'llm'))
        FROM jsonb_array_elements(%(names)s) AS given), true)
    FROM {here}
""",
    here=_HERE,
)
_RELATIONS = compose(
    """
    INSERT INTO knowledge_relation_t (host_id, chunk_id, source, target, type, collection_id,
        description, start_byte, end_byte)
    SELECT %(host)s, %(chunk)s, source, target, type, collection_id, description, start_byte,
        end_byte
    FROM {here}, jsonb_to_recordset(%(relations)s) AS given (source text, target text, type text,
        description text, start_byte integer, end_byte integer)
    ON CONFLICT DO NOTHING
""",
    here=_HERE,
)
# What is left out of a run stays due, with the reason.
_PAUSED_COLLECTIONS = b"""
    INSERT INTO knowledge_extraction_t (host_id, document_id, version, status, attempt, error)
    SELECT %(host)s, document_id, %(version)s, 'waiting', %(attempt)s, %(error)s
    FROM knowledge_document_t
    WHERE (host_id, document_id) = (%(host)s, %(document)s::uuid) FOR KEY SHARE
    ON CONFLICT (host_id, document_id) DO UPDATE SET version = excluded.version,
        status = excluded.status, attempt = excluded.attempt, error = excluded.error
"""
_STATE = b"""
    INSERT INTO knowledge_extraction_t (host_id, document_id, version, status, attempt, next_ts,
        error)
    SELECT %(host)s, document_id, %(version)s, %(status)s, %(attempt)s,
        now() + %(pause_s)s * interval '1 second', %(error)s
    FROM knowledge_document_t
    WHERE (host_id, document_id) = (%(host)s, %(document)s::uuid) FOR KEY SHARE
    ON CONFLICT (host_id, document_id) DO UPDATE SET version = excluded.version,
        status = excluded.status, attempt = excluded.attempt, next_ts = excluded.next_ts,
        error = excluded.error
"""
_RETRY = compose(
    """
    WITH failed AS MATERIALIZED (
        SELECT state.document_id
        FROM knowledge_collection_t AS collection JOIN knowledge_document_t AS document
            ON (document.host_id, document.collection_id) = (%(host)s, collection.collection_id)
        JOIN knowledge_extraction_t AS state
            ON (state.host_id, state.document_id) = (%(host)s, document.document_id)
        WHERE {allowed} AND collection.name = %(name)s AND state.error IS NOT NULL
        ORDER BY document.document_id FOR KEY SHARE OF document FOR UPDATE OF state
    )
    UPDATE knowledge_extraction_t AS state
    SET status = 'waiting', attempt = 0, next_ts = now()
    FROM failed WHERE (state.host_id, state.document_id) = (%(host)s, failed.document_id)
""",
    allowed=READABLE,
)
