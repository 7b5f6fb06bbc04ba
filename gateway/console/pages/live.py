"""The live view of calls: records of the audit log of all nodes, as they come.

A view reads the log while it is open; nobody looking costs nothing. It ends by itself, with its
session, and with the tab.
"""

import logging
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import msgspec
from starlette.responses import Response

from config.access import Audit
from gateway.admin.resources.audit import READ
from gateway.console.page_request import PageRequest, as_json
from gateway.console.pages.audit import is_recorded
from gateway.console.routes import PageRoute
from gateway.context import Principal
from gateway.operations.problems import ProblemDetails, lacks_scope
from gateway.protocol import sse_writer
from gateway.wings.event_stream_responses import stream_events
from registry.database.postgres import AWAY

log = logging.getLogger("toolgate.console")

FILTERS = ("principal", "subject", "outcome")
FIRST = 20  # records that a view begins with
BATCH = 200  # records that one look reads at most
LOOK_S = 1.0
READ_S = 10.0  # for one look
LATE_S = 10.0  # that a node may take to store a record, where `audit.flush_s` is not longer
PING_S = 15.0


async def live_page(visit: PageRequest) -> Response:
    """The newest calls; with scripts, those that follow."""
    filters = _filters(visit)
    answer = await visit.operations.run("searchAudit", query={**filters, "limit": FIRST})
    if not answer.ok:
        return visit.problem_page(answer)
    if visit.query.get("format") == "json":
        return as_json(answer.value)
    settings = visit.parts.settings()
    return visit.page(
        "live.html",
        rows=answer.value["items"],
        given=filters,
        recorded=is_recorded(visit),
        mode=settings.audit.mode,
        has_arguments=settings.audit.arguments == "masked",
        seconds=settings.console.live_s,
    )


async def live_events(visit: PageRequest) -> Response:
    """Rows of the live view, as server-sent events."""
    if not visit.operations.may("searchAudit"):
        raise lacks_scope(READ)
    visit.parts.live_views.check_room(_principal(visit), visit.parts.settings().console)
    filters = _filters(visit)
    newest = await _read_records(visit, filters)
    return stream_events(_stream_rows(visit, filters, newest), PING_S)


async def _stream_rows(
    visit: PageRequest, filters: Mapping[str, str], newest: Sequence[Any]
) -> AsyncIterator[bytes]:
    """The newest records, and those that follow."""
    settings, principal = visit.parts.settings().console, _principal(visit)
    ends, reach = time.monotonic() + settings.live_s, _reach(visit.parts.settings().audit)
    places, records = {_place(record) for record in newest}, newest[:FIRST]
    try:
        with visit.parts.live_views.open(principal, settings):
            while time.monotonic() < ends:
                if records:
                    html = visit.render("audit_rows.html", rows=records)
                    yield sse_writer.event(msgspec.json.encode({"html": html}), b"calls")
                await anyio.sleep(LOOK_S)
                # a tab that closes must not break a connection of the pool in its query
                with anyio.fail_after(READ_S, shield=True):
                    if not await visit.is_logged_in():
                        break
                    since = datetime.now(UTC) - reach
                    latest = await _read_records(visit, filters, since.isoformat())
                records = [record for record in latest if _place(record) not in places]
                places = {_place(record) for record in latest}
    except (ProblemDetails, TimeoutError, *AWAY) as error:
        log.info("live_view_ended", extra={"reason": str(error)[:200]})
    yield sse_writer.event(b"{}", b"end")


async def _read_records(
    visit: PageRequest, filters: Mapping[str, str], since: str = ""
) -> Sequence[Any]:
    """The newest records since a time. Raises ProblemDetails."""
    query = {**filters, "limit": BATCH, "since": since}
    answer = await visit.operations.run("searchAudit", query=query)
    if not answer.ok:
        raise ProblemDetails(answer.status, "audit-log", answer.problem)
    items: Sequence[Any] = answer.value["items"]
    return items


def _reach(settings: Audit) -> timedelta:
    """How far back each look reads: nodes store their records late and in any order, so that no
    place in the log parts new ones from others."""
    return timedelta(seconds=max(LATE_S, 2 * settings.flush_s))


def _place(record: Mapping[str, Any]) -> tuple[str, int]:
    return record["chain_id"], record["sequence"]


def _principal(visit: PageRequest) -> Principal:
    """Raises ProblemDetails."""
    if visit.identity is None:
        raise lacks_scope(READ)
    return visit.identity.principal


def _filters(visit: PageRequest) -> dict[str, str]:
    return {name: visit.query.get(name, "").strip() for name in FILTERS}


ROUTES = (PageRoute("/live", live_page), PageRoute("/live/events", live_events))
