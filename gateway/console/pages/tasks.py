"""Tasks of the visitor: calls that outlive their request, as MCP has them since 2025-11-25."""

from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from gateway.console.page_request import PageRequest
from gateway.console.pages.playground import (
    ContentView,
    answer_values,
    content_view,
    exchange_json,
    items_of,
    text_of,
)
from gateway.console.rendering import pretty
from gateway.console.routes import PageRoute
from gateway.console.visitor_operations import RpcAnswer
from schemas.errors import InvalidParams, MethodNotFound

END_STATES = frozenset({"completed", "failed", "cancelled"})
METHODS = {"cancel": "tasks/cancel", "result": "tasks/result"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskView:
    """A task as a page shows it; a member of another type than MCP's is empty."""

    id: str
    state: str
    note: str
    created: str
    changed: str
    ttl_ms: float

    @classmethod
    def read(cls, members: Any) -> "TaskView":
        ttl_ms = members.get("ttl") if isinstance(members, dict) else None
        return cls(
            id=text_of(members, "taskId"),
            state=text_of(members, "status"),
            note=text_of(members, "statusMessage"),
            created=text_of(members, "createdAt"),
            changed=text_of(members, "lastUpdatedAt"),
            ttl_ms=ttl_ms if isinstance(ttl_ms, int | float) else 0,
        )

    @property
    def is_ended(self) -> bool:
        return self.state in END_STATES


async def list_page(visit: PageRequest) -> Response:
    """The visitor's tasks, the newest first, or the one whose id is given."""
    if task := visit.query.get("task", "").strip():
        return visit.to("tasks", task)
    after = visit.query.get("after", "")
    answer = await visit.operations.send("tasks/list", {"cursor": after} if after else {})
    if visit.query.get("format") == "json":
        return exchange_json(answer)
    is_unlisted = isinstance(answer.fault, MethodNotFound)
    if answer.fault is not None and not is_unlisted:
        return visit.problem(answer.fault.failed_status(), answer.fault.message)
    result = answer.result or {}
    return visit.page(
        "tasks.html",
        rows=[TaskView.read(task) for task in items_of(result, "tasks")],
        next=result.get("nextCursor", ""),
        is_unlisted=is_unlisted,
        **answer_values(visit, answer),
    )


async def task_page(visit: PageRequest) -> Response:
    """A task; its result, or its cancellation, where that is asked for."""
    named = {"taskId": visit.path("task")}
    answer = await visit.operations.send("tasks/get", named)
    if answer.fault is not None:
        is_unknown = isinstance(answer.fault, InvalidParams)
        status = 404 if is_unknown else answer.fault.failed_status()
        response = visit.problem(status, answer.fault.message)
        if visit.is_part("task"):  # a whole page must not stand in place of the part
            response.headers["HX-Refresh"] = "true"
        return response
    task, act = TaskView.read(answer.result), visit.posted_value("act")
    # no result is waited for: it may take longer than a page
    has_acted = act in METHODS and (act == "result") == task.is_ended
    if has_acted:
        answer = await visit.operations.send(METHODS[act], named)
        if act == "cancel" and answer.result is not None:
            task = TaskView.read(answer.result)
    if visit.query.get("format") == "json":
        return exchange_json(answer)
    template = "task_state.html" if visit.is_part("task") else "task.html"
    return visit.page(
        template,
        task=task,
        has_acted=has_acted,
        contents=_result_views(answer) if act == "result" else [],
        **answer_values(visit, answer),
    )


def _result_views(answer: RpcAnswer) -> list[ContentView]:
    """The result of a call; its structured content stands for its texts."""
    result: dict[str, Any] = answer.result or {}
    views = [content_view(content) for content in items_of(result, "content")]
    structured = result.get("structuredContent")
    if structured is not None:
        views = [ContentView(media_type="application/json", text=pretty(structured))] + [
            view for view in views if not view.text
        ]
    return views


ROUTES = (
    PageRoute("/tasks", list_page),
    PageRoute("/tasks/{task}", task_page, ("GET", "POST")),
)
