"""The page of notifications: the subjects of each target, its test, and the last incidents."""

from typing import Any

from starlette.responses import Response

from gateway.console.page_request import PageRequest
from gateway.console.pages.operation_buttons import buttons
from gateway.console.routes import PageRoute

SUBJECTS = (
    *("approvals", "schedules", "jobs", "sources", "budgets", "connections", "certificates"),
)  # as gateway.wings.interface has them, which is not imported where no wing is on
INCIDENTS_LISTED = 10  # incidents


async def list_page(visit: PageRequest) -> Response:
    return await _page(visit)


async def change(visit: PageRequest) -> Response:
    """Save the subjects of a target, or send it a test message, by the button that was pressed."""
    names = {"target": visit.path("target")}
    if visit.posted_value("act") == "test":
        answer = await visit.operations.run("testTarget", names)
        if not answer.ok:
            return await _page(visit, problem=answer.problem, status=answer.status)
        return await _page(visit, tested=answer.value)
    target = await visit.operations.run("getTarget", names)
    if not target.ok:
        return visit.problem_page(target)
    body = {"kind": target.value["kind"], "subjects": (visit.form or {}).get("subject", [])}
    answer = await visit.operations.run("putTarget", names, body=body)
    if not answer.ok:
        return await _page(visit, problem=answer.problem, status=answer.status)
    return await _page(visit, saved=True)


async def _page(
    visit: PageRequest,
    *,
    problem: str = "",
    status: int = 200,
    tested: Any = None,
    saved: bool = False,
) -> Response:
    answer = await visit.operations.run(
        "listTargets", query={"after": visit.query.get("after", "")}
    )
    if not answer.ok:
        return visit.problem_page(answer)
    return visit.page(
        "notifications.html",
        status,
        rows=answer.value["items"],
        next=answer.value.get("next", ""),
        subjects=SUBJECTS,
        incidents=await visit.operations.items("listIncidents", limit=INCIDENTS_LISTED),
        may=visit.operations.may("putTarget"),
        adds=buttons(visit, ("putTarget",), {}),
        acts=lambda name: buttons(visit, ("putTarget", "deleteTarget"), {"target": name}),
        name=visit.request.path_params.get("target", ""),
        problem=problem,
        tested=tested,
        saved=saved,
    )


ROUTES = (
    PageRoute("/notifications", list_page),
    PageRoute("/notifications/{target}", change, ("POST",)),
)
