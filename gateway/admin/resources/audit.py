"""Audit log: search of its records, and verification of the hash chains."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from gateway.admin.registry_parts import JobParts
from gateway.audit.call_summary import SummedCalls, sum_calls
from gateway.audit.queries import AuditQuery, LegacyClient, RecordedEntry, legacy_clients, search
from gateway.audit.records import AuditEntry
from gateway.audit.verification import ChainReport, verify
from gateway.operations.job_declarations import AsJob
from gateway.operations.operation import (
    Line,
    Operation,
    OperationDependencies,
    OperationInput,
    Time,
)
from gateway.operations.paging import ListPage, Paging, cursor, place, unknown
from gateway.operations.problems import conflict, unavailable
from gateway.policy.explain import BUILT_INS, OF_OPERATOR
from registry.access.policies import Policies

READ = "admin:audit:read"
LEGACY_REPORTED = timedelta(days=7)
PERIOD = timedelta(days=1)
SUMMED_RECORDS = 10_000  # of the newest, that one summary reads
FAILURES = 10


class RecordView(Struct, frozen=True):
    """A record, and its position in its chain. A rule that is no longer one of the tenant's is not
    named; the hash covers the record as it was written."""

    chain_id: str
    sequence: int
    hash: str
    entry: AuditEntry


class AuditFilter(Paging, frozen=True):
    """Filters of records by principal, tool, and so on."""

    principal: Annotated[Line | None, Meta(description="only records of this caller")] = None
    subject: Annotated[
        Line | None, Meta(description="only records of this tool, prompt, resource or entry")
    ] = None
    decision: Annotated[
        Literal["allow", "deny", "approve"] | None, Meta(description="only this decision")
    ] = None
    outcome: Annotated[
        Line | None,
        Meta(description="only this outcome: ok, tool_error, cancelled, crashed or an error code"),
    ] = None
    since: Annotated[Time | None, Meta(description="only records since then")] = None
    until: Annotated[Time | None, Meta(description="only records before then")] = None
    order: Annotated[Literal["newest", "oldest"], Meta(description="which records come first")] = (
        "newest"
    )

    def __post_init__(self) -> None:
        if self.since and self.until and self.since >= self.until:
            raise ValueError("Expected `since` to be earlier than `until`")


class LegacyFilter(Struct, frozen=True, forbid_unknown_fields=True):
    """How far a report of legacy payloads goes back, and how many callers it has at most."""

    since: Annotated[
        Time | None, Meta(description="only payloads since then; a week, by default")
    ] = None
    limit: Annotated[int, Meta(ge=1, le=10_000, description="most callers, 100 by default")] = 100


class LegacyReport(Struct, frozen=True):
    """Callers that sent legacy payloads since a time, those with the most requests first."""

    since: datetime
    clients: tuple[LegacyClient, ...]


class SumFilter(Struct, frozen=True, forbid_unknown_fields=True):
    """How far the sums of calls go back."""

    since: Annotated[Time | None, Meta(description="only calls since then; a day, by default")] = (
        None
    )


class CallSums(Struct, frozen=True):
    """Sums of the newest calls, and those among them that failed or were denied."""

    sums: SummedCalls
    failures: tuple[RecordView, ...]


class AuditOperations:
    def __init__(self, dependencies: OperationDependencies, key: bytes) -> None:
        """`key`: the HMAC key of the chains."""
        self._dependencies = dependencies
        self._key = key
        self._verifying = False

    @classmethod
    def of(cls, parts: JobParts) -> "AuditOperations":
        return cls(parts.dependencies, parts.settings.audit.key.encode())

    @property
    def operations(self) -> Sequence[Operation]:
        return (
            Operation(
                "searchAudit",
                "GET",
                "/audit",
                "Search the audit log, by default the newest first.",
                READ,
                self.search,
                ListPage[RecordView],
                query=AuditFilter,
            ),
            Operation(
                "reportLegacyPayloads",
                "GET",
                "/audit/legacy-payloads",
                "Report who still sends legacy payloads, from the audit log.",
                READ,
                self.legacy,
                LegacyReport,
                query=LegacyFilter,
            ),
            Operation(
                "sumCalls",
                "GET",
                "/audit/calls",
                "Sum the newest calls by source and tool, from the audit log.",
                READ,
                self.sum_calls,
                CallSums,
                query=SumFilter,
            ),
            Operation(
                "verifyAudit",
                "POST",
                "/audit/verification",
                "Tell whether the audit log is as it was written.",
                READ,
                self.verify,
                ChainReport,
                job=AsJob(always=True, lock="audit", once=True),
            ),
        )

    async def search(self, request: OperationInput) -> ListPage[RecordView]:
        filters: AuditFilter = request.query
        query = AuditQuery(
            principal=filters.principal,
            subject=filters.subject,
            decision=filters.decision,
            outcome=filters.outcome,
            since=filters.since,
            until=filters.until,
            after=place(filters.after) or None,
            limit=self._dependencies.pages.limit(filters),
            oldest_first=filters.order == "oldest",
        )
        try:
            page = await search(self._dependencies.pool, request.tenant, query)
        except ValueError as error:
            raise unknown() from error
        visible_rules = await self._visible_rules(request)
        records = tuple(_view(record, visible_rules) for record in page.records)
        return ListPage(records, cursor(page.next) if page.next else "")

    async def legacy(self, request: OperationInput) -> LegacyReport:
        filters: LegacyFilter = request.query
        since = filters.since or datetime.now(UTC) - LEGACY_REPORTED
        clients = await legacy_clients(
            self._dependencies.pool, request.tenant, since, filters.limit
        )
        return LegacyReport(since, tuple(clients))

    async def sum_calls(self, request: OperationInput) -> CallSums:
        since = request.query.since or datetime.now(UTC) - PERIOD
        sums, failures = await sum_calls(
            self._dependencies.pool, request.tenant, since,
            records=SUMMED_RECORDS, failures=FAILURES,
        )  # fmt: skip
        visible_rules = await self._visible_rules(request)
        return CallSums(sums, tuple(_view(record, visible_rules) for record in failures))

    async def _visible_rules(self, request: OperationInput) -> frozenset[str] | None:
        """Rules whose names the caller may see; None: all."""
        if self._dependencies.is_operator(request):
            return None
        stored = await Policies(self._dependencies.pool, request.tenant).all()
        return BUILT_INS | {rule.name for rule in stored}

    async def verify(self, request: OperationInput) -> ChainReport:
        if not self._dependencies.is_own(request):  # other tenants' records share the chains
            raise conflict("Chains are verified by people of the gateway's own tenant only.")
        if self._verifying:
            raise unavailable("The audit log is being verified; try again later.")
        self._verifying = True
        try:
            return await verify(
                self._dependencies.pool, request.tenant, self._key, request.job.progress
            )
        finally:
            self._verifying = False


def _view(record: RecordedEntry, visible_rules: frozenset[str] | None) -> RecordView:
    entry = record.entry
    if visible_rules is not None and entry.rule not in visible_rules:
        entry = msgspec.structs.replace(entry, rule=OF_OPERATOR)
    return RecordView(record.chain_id, record.sequence, record.hash.hex(), entry)
