"""Operations that keep and end memories: promotion, forgetting, erasure, export, import, and the
text for a prompt."""

import re
from dataclasses import replace
from typing import Annotated, Any

from msgspec import Meta, Struct, structs
from psycopg import sql

from config.value_types import HostId
from gateway.operations.job_declarations import AsJob
from gateway.operations.operation import Operation, OperationInput
from gateway.operations.paging import Cursor, ListPage
from gateway.operations.problems import invalid
from gateway.wings.memory.caller_owners import ERASE, READ, WRITE, WRITE_ORG, Reader
from gateway.wings.memory.erasure import ErasureCounts
from gateway.wings.memory.export_and_import import ImportCounts, Transfer, list_memories_of
from gateway.wings.memory.member_texts import FORGET, PROMOTION
from gateway.wings.memory.memory_rows import (
    SCOPES,
    Memory,
    Scope,
    check_content,
    check_metadata,
    check_source,
    check_text,
    check_year,
)
from gateway.wings.memory.memory_search import MemoryQuery
from gateway.wings.memory.promotion import PromotedMemory
from gateway.wings.memory.prompt_text import text_of
from gateway.wings.memory.requests_and_views import (
    ByCaller,
    Filter,
    Query,
    SessionName,
    date_text,
    taken_items,
)
from gateway.wings.memory.retention import PurgeCounts
from gateway.wings.memory.search_conditions import EVERY, READABLE, filter_condition
from gateway.wings.memory.wiring import MemoryParts

IMPORT_LIMIT = 200  # memories of one call
EXPORT_PAGE = 500
Ids = Annotated[tuple[HostId, ...], Meta(max_length=100)]
IMPORT_MEMBERS = ("content", "metadata", "source", "kind", "slot", "trust")  # of what is imported
SESSION_OWNER = re.compile(r"[0-9a-f]{40}")
CONTEXT_KINDS = ("persona", "preference")
NOTHING_TO_FIND = 100  # memories that a context without a query looks at


class Forget(Struct, frozen=True, forbid_unknown_fields=True):
    """Exactly one of `ids`, `filter` and `subject`."""

    ids: Ids | None = None
    filter: Filter | None = None
    subject: (
        Annotated[
            str,
            Meta(min_length=1, max_length=256, description="a user: erases all that is held of it"),
        ]
        | None
    ) = None
    scopes: Annotated[tuple[Scope, ...], Meta(description="of a filter; empty: all")] = ()
    dry_run: Annotated[bool, Meta(description="only count")] = False
    expect: Annotated[int, Meta(ge=0, description="forget only if so many match")] | None = None
    session: SessionName | None = None


class Promote(Struct, frozen=True, forbid_unknown_fields=True):
    """Memories of the session by id, or all that the rules promote."""

    ids: Ids = ()
    session: SessionName | None = None


class GetContext(ByCaller, frozen=True, kw_only=True):
    query: Query = ""
    tokens: Annotated[int, Meta(ge=50, le=100_000)] | None = None


class ContextText(Struct, frozen=True, omit_defaults=True):
    """Memories as text for a prompt: data, no instructions."""

    text: str
    memories: int
    omitted: int = 0
    note: str | None = None


class ExportPage(Struct, frozen=True, forbid_unknown_fields=True):
    subject: Annotated[str, Meta(max_length=256)] | None = None
    limit: Annotated[int, Meta(ge=1, le=EXPORT_PAGE)] = 100
    after: Cursor | None = None


class Import(Struct, frozen=True, forbid_unknown_fields=True):
    items: Annotated[tuple[Memory, ...], Meta(max_length=IMPORT_LIMIT)]
    session: SessionName | None = None


class Stats(Struct, frozen=True):
    """Counts of the caller's owners."""

    memories: dict[str, int]  # by scope


class KeepingOperations:
    def __init__(self, parts: MemoryParts) -> None:
        self._parts = parts
        self._settings = parts.settings

    @property
    def operations(self) -> tuple[Operation, ...]:
        return (
            Operation(
                "memory_context", "POST", "/context",
                "Get what is remembered as one text for a prompt.", READ, self.context, ContextText,
                body=GetContext,
                details="With a query, what is found; without, what is pinned, personas, slots and "
                "preferences.",
            ),
            Operation(
                "memory_promote", "POST", "/promote",
                "Keep memories of the session for its user.", WRITE, self.promote, PromotedMemory,
                body=Promote, members=PROMOTION,
            ),
            Operation(
                "memory_forget", "POST", "/forget",
                "Delete memories for good, with their history.", WRITE, self.forget, ErasureCounts,
                body=Forget, members=FORGET, problems=(409,), destroys=True,
                details="By ids, by a filter, or all that is held of a user. Use dry_run to count "
                f"first. Other users take the scope {ERASE}.",
            ),
            Operation(
                "memory_export", "GET", "/export", "Export all that is held of a user.", READ,
                self.export, ListPage[Memory], query=ExportPage,
            ),
            Operation(
                "memory_import", "POST", "/import",
                "Store exported memories again; those that are there stay as they are.", WRITE,
                self.import_, ImportCounts, body=Import,
            ),
            Operation(
                "memory_stats", "GET", "/stats", "Count memories by scope.", READ, self.stats,
                Stats,
            ),
            Operation(
                "memory_purge", "POST", "/purge",
                "Delete expired memories, and promote from sessions that end.", WRITE, self.purge,
                PurgeCounts,
                job=AsJob(always=True, once=True, schedule=self._settings.purge_schedule),
                no_tool="it runs on a schedule",
            ),
        )  # fmt: skip

    async def context(self, request: OperationInput) -> ContextText:
        body: GetContext = request.body
        reader, query = self._parts.reader(request), body.query.strip()
        condition = EVERY
        if not query:
            clause = sql.SQL("(m.pinned OR m.slot IS NOT NULL OR m.kind = ANY (%(context_kinds)s))")
            condition = (clause, {"context_kinds": list(CONTEXT_KINDS)})
        limit = None if query else NOTHING_TO_FIND
        recall = MemoryQuery(reader=reader, query=query, condition=condition, limit=limit)
        result = await self._parts.recaller.search(recall)
        memories = [memory for memory, _ in result.scored]
        tokens = body.tokens or self._settings.context_tokens
        text, count = text_of(memories, tokens)
        return ContextText(text, count, len(memories) - count, result.note)

    async def promote(self, request: OperationInput) -> PromotedMemory:
        body: Promote = request.body
        reader = self._parts.reader(request)
        owner = reader.owner("session")
        reader.owner("user")
        if not body.ids:
            return await self._parts.promoter.promote_session(reader.tenant, owner)
        memories = await self._parts.store.get(reader, body.ids)
        missing = set(body.ids) - {memory.id for memory in memories}
        promoted = await self._parts.promoter.promote(reader.tenant, memories)
        return PromotedMemory(promoted.ids, (*promoted.refused, *sorted(missing)))

    async def forget(self, request: OperationInput) -> ErasureCounts:
        body: Forget = request.body
        selectors = [
            selector for selector in (body.ids, body.filter, body.subject) if selector is not None
        ]
        if len(selectors) != 1 or not selectors[0]:
            raise invalid("Expected exactly one of ids, filter and subject, and not an empty one.")
        reader = self._parts.reader(request)
        if body.subject is not None:
            return await self._erase(reader, body.subject, body)
        scopes = body.scopes or SCOPES
        if not reader.may(WRITE_ORG):
            scopes = tuple(scope for scope in scopes if scope != "org")
        condition = filter_condition(body.filter)
        if body.ids is not None:
            clause = sql.SQL("m.memory_id = ANY (%(wanted)s::uuid[])")
            condition = (clause, {"wanted": list(body.ids)})
        return await self._parts.eraser.forget(
            reader, scopes, condition, dry_run=body.dry_run, expect=body.expect
        )

    async def _erase(self, reader: Reader, subject: str, body: Forget) -> ErasureCounts:
        if subject != reader.subject:
            reader.require(ERASE, "Erasing another user")
        return await self._parts.eraser.erase(
            reader.tenant, subject, dry_run=body.dry_run, expect=body.expect,
            mentions=reader.may(ERASE),
        )  # fmt: skip

    async def export(self, request: OperationInput) -> ListPage[Memory]:
        query: ExportPage = request.query
        reader = self._parts.reader(request)
        subject = query.subject or reader.owner("user")
        if subject != reader.subject:
            reader.require(ERASE, "Exporting another user")
        all_ = reader.may(ERASE)  # also those for other agents
        condition = EVERY if all_ else (READABLE, {"agent": reader.agent})
        return await list_memories_of(
            self._parts.pool, reader.tenant, subject, condition=condition, after=query.after,
            limit=query.limit,
        )  # fmt: skip

    async def import_(self, request: OperationInput) -> ImportCounts:
        body: Import = request.body
        reader = self._parts.reader(request)
        transfer = Transfer(self._parts.pool, self._parts.store, self._settings.session)
        accepted_items, refused = taken_items(body.items, self._imported_memory)
        counts = await transfer.import_(reader, [line for _, line in accepted_items])
        return structs.replace(counts, refused=tuple(refused))

    def _imported_memory(self, memory: Memory) -> Memory:
        """A memory to be imported, checked and masked. Raises ProblemDetails."""
        check = check_text if memory.kind == "file" else check_content
        check(memory.content, self._settings.content_bytes)
        _check_times(memory)
        check_source(memory.source)
        fields = {name: getattr(memory, name) for name in IMPORT_MEMBERS}
        check_metadata({**memory.metadata, "": memory.source}, self._settings.metadata_bytes)
        clean = self._parts.intake.mask_fields(memory.scope, fields)
        clean["masked"] = tuple(dict.fromkeys((*memory.masked, *clean["masked"])))
        clean["dated"] = date_text(memory.content, memory.valid_from) if memory.dated else ""
        if not SESSION_OWNER.fullmatch(memory.session or ""):
            self._parts.intake.check_names(memory.scope, "session", [memory.session or ""])
        return replace(memory, **clean)

    async def stats(self, request: OperationInput) -> Stats:
        return Stats(await self._parts.store.counts(self._parts.reader(request)))

    async def purge(self, _request: OperationInput) -> Any:
        return await self._parts.retention.purge()


def _check_times(memory: Memory) -> None:
    """Raises ProblemDetails."""
    for name in ("valid_from", "valid_to", "created", "retired", "expires"):
        if (time := getattr(memory, name)) is not None:
            check_year(name, time)
    if memory.valid_to is not None and memory.valid_to < memory.valid_from:
        raise invalid("valid_to: expected a time after valid_from")
    if (memory.retired is None) != (memory.retired_by is None):
        raise invalid("retired and retired_by: expected both or neither")
    if memory.scope == "session" and memory.expires is None:
        raise invalid("expires: expected a time, for a memory of a session")
