"""Pages of the audit log: its records, and their export."""

import csv
import io

from starlette.responses import Response

from gateway.console.page_request import PageRequest, as_json
from gateway.console.pages.operation_buttons import buttons
from gateway.console.routes import PageRoute
from gateway.operations.csv_cells import csv_cell

FILTERS = ("principal", "subject", "decision", "outcome", "since", "until")
EXPORT_RECORDS = 10_000  # records of one export
COLUMNS = (
    *("recorded_ts", "principal", "front", "method", "subject", "source", "decision", "rule"),
    *("outcome", "latency_us", "request_bytes", "result_bytes", "request_id", "client"),
    *("connection", "owner"),
)


async def audit(visit: PageRequest) -> Response:
    filters = {name: visit.query.get(name, "").strip() for name in FILTERS}
    query = {**filters, "since": _time(filters["since"]), "until": _time(filters["until"])}
    answer = await visit.operations.run(
        "searchAudit", query={**query, "after": visit.query.get("after", "")}
    )
    if not answer.ok:
        return visit.problem_page(answer)
    if visit.query.get("format") == "json":
        return as_json(answer.value)
    return visit.page(
        "audit.html",
        rows=answer.value["items"],
        next=answer.value.get("next", ""),
        given=filters,
        adds=buttons(visit, ("verifyAudit",), {}),
        mode=visit.parts.settings().audit.mode,
        recorded=is_recorded(visit),
    )


def is_recorded(visit: PageRequest) -> bool:
    """Whether the audit log has records of calls."""
    mode = visit.parts.settings().audit.mode
    return mode == "always" or (mode == "authenticated" and not visit.is_open)


async def export_records(visit: PageRequest) -> Response:
    """The records that match, the newest first, as CSV. Cells never begin a formula."""
    filters = {name: visit.query.get(name, "") for name in FILTERS}
    filters = {**filters, "since": _time(filters["since"]), "until": _time(filters["until"])}
    text, after, count = io.StringIO(), "", 0
    table = csv.writer(text)
    table.writerow(("chain_id", "sequence", *COLUMNS, "hash"))
    while count < EXPORT_RECORDS:
        answer = await visit.operations.run(
            "searchAudit", query={**filters, "after": after, "limit": 500}
        )
        if not answer.ok:
            return visit.problem_page(answer)
        for record in answer.value["items"]:
            cells = (record["entry"].get(name, "") for name in COLUMNS)
            table.writerow(
                [
                    csv_cell(cell)
                    for cell in (record["chain_id"], record["sequence"], *cells, record["hash"])
                ]
            )
            count += 1
        after = answer.value.get("next", "")
        if not after:
            break
    headers = {"content-disposition": 'attachment; filename="audit.csv"'}
    return Response(text.getvalue(), 200, headers, "text/csv")


def _time(text: str) -> str:
    """A time of a form, which has no zone, as UTC."""
    return f"{text}:00Z" if len(text) == len("2026-01-01T00:00") else text


ROUTES = (
    PageRoute("/audit", audit),
    PageRoute("/audit/export", export_records),
)
