"""Tokens and money by day, caller, toolset and model, as a table or as CSV."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace as replace_fields
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from config.value_types import END
from gateway.admin.registry_parts import JobParts
from gateway.operations.csv_cells import csv_cell
from gateway.operations.operation import (
    Operation,
    OperationDependencies,
    OperationInput,
    Time,
    allows,
)
from registry.costs.daily_costs import (
    DIMENSIONS,
    MICROS,
    CostQuery,
    DailyCosts,
    Dimension,
    SummedCosts,
)

READ = "admin:audit:read"  # of the costs of all callers
PERIOD = timedelta(days=29)  # before the last day
ROWS, CSV_ROWS = 100, 10_000
NUMBERS = (
    *("requests", "input_tokens", "output_tokens", "unpriced_tokens"),
    *("definition_tokens", "answer_tokens"),
)
_NAME = f"(?:{'|'.join(DIMENSIONS)})"


class CostFilter(Struct, frozen=True, forbid_unknown_fields=True):
    """The days, and what they are summed by."""

    by: Annotated[
        str,
        Meta(
            pattern=f"^{_NAME}(?:,{_NAME}){{0,3}}{END}",
            description="what to sum by: day, caller, toolset, model, or several with commas",
        ),
    ] = "day"
    since: Annotated[
        Time | None, Meta(description="only days (UTC) since then; 30 days, by default")
    ] = None
    until: Annotated[
        Time | None, Meta(description="only days (UTC) until then, that one included")
    ] = None
    format: Annotated[
        Literal["json", "csv"], Meta(description="csv: the rows as a text for spreadsheets")
    ] = "json"
    limit: Annotated[
        Annotated[int, Meta(ge=1, le=CSV_ROWS)] | None,
        Meta(description=f"most rows; {ROWS}, or {CSV_ROWS} as csv, by default"),
    ] = None

    def __post_init__(self) -> None:
        if self.since and self.until and self.since > self.until:
            raise ValueError("Expected `since` not to be later than `until`")


class CostRow(Struct, frozen=True):
    """A sum; `day`, `caller`, `toolset` and `model` are null where it is not one of them. Requests
    are those to chat models. `unpriced_tokens` are those of models without a price, for which
    there is no money. An empty caller: work in the background; an empty toolset: all tools."""

    day: date | None
    caller: str | None
    toolset: str | None
    model: str | None
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    unpriced_tokens: int = 0
    definition_tokens: int = 0  # of lists that clients were sent
    answer_tokens: int = 0  # of results that clients were sent
    money: Mapping[str, float] = {}  # by currency


class CostReport(Struct, frozen=True):
    """Sums of the days `first` to `last`: the newest days first, then the most tokens. Without
    `all_callers` they are those of the caller alone. `more`: there are further rows. `recording`:
    whether costs are recorded (`costs.enabled`)."""

    first: date
    last: date
    all_callers: bool
    recording: bool
    total: CostRow
    rows: tuple[CostRow, ...] = ()
    more: bool = False
    csv: str = ""


class CostOperations:
    def __init__(self, dependencies: OperationDependencies, *, recording: bool) -> None:
        self._dependencies = dependencies
        self._recording = recording

    @classmethod
    def of(cls, parts: JobParts) -> "CostOperations":
        return cls(parts.dependencies, recording=parts.settings.costs.enabled)

    @property
    def operations(self) -> Sequence[Operation]:
        return (
            Operation(
                "sumCosts", "GET", "/costs/sums",
                "Sum tokens and money by day, caller, toolset or model.", "", self.sum, CostReport,
                query=CostFilter,
                details=f"Callers without the scope {READ} get their own costs alone.",
            ),
        )  # fmt: skip

    async def sum(self, request: OperationInput) -> CostReport:
        filters: CostFilter = request.query
        last = _day(filters.until or datetime.now(UTC))
        all_callers = allows(request.principal, READ)
        as_csv = filters.format == "csv"
        limit = filters.limit or (CSV_ROWS if as_csv else ROWS)
        chosen = filters.by.split(",")
        by = tuple(name for name in DIMENSIONS if name in chosen)
        query = CostQuery(
            first=_day(filters.since) if filters.since else max(last, date.min + PERIOD) - PERIOD,
            last=last,
            caller=None if all_callers else request.principal.id,
        )
        costs, tenant = DailyCosts(self._dependencies.pool), request.tenant
        totals = await costs.sums(tenant, query)
        rows = await costs.sums(tenant, replace_fields(query, by=by, limit=limit + 1))
        report = CostReport(
            query.first,
            query.last,
            all_callers=all_callers,
            recording=self._recording,
            total=_row(totals[0]) if totals else CostRow(None, None, None, None),
            rows=tuple(_row(sums) for sums in rows[:limit]),
            more=len(rows) > limit,
        )
        return replace(report, rows=(), csv=_csv(by, report)) if as_csv else report


def _day(time: datetime) -> date:
    try:
        return time.astimezone(UTC).date()
    except OverflowError:  # at the first and the last hours of the calendar
        return time.date()


def _row(sums: SummedCosts) -> CostRow:
    money = {currency: micros / MICROS for currency, micros in sorted(sums.money.items())}
    return CostRow(
        sums.day, sums.caller, sums.toolset, sums.model, sums.requests, sums.tokens_in,
        sums.tokens_out, sums.unpriced, sums.definitions, sums.answers, money,
    )  # fmt: skip


def _csv(by: Sequence[Dimension], report: CostReport) -> str:
    """The rows, with a column for each currency. Cells never begin a formula."""
    currencies, text = list(report.total.money), io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow((*by, *NUMBERS, *(f"money_{currency}" for currency in currencies)))
    for row in report.rows:
        amounts = (row.money.get(currency, "") for currency in currencies)
        cells = (*(getattr(row, name) for name in (*by, *NUMBERS)), *amounts)
        table.writerow([csv_cell(cell) for cell in cells])
    return text.getvalue()
