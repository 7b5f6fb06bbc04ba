"""Tasks of the visitor: calls that outlive their request, as MCP has them since 2025-11-25."""

from typing import Any

from starlette.responses import Response

from gateway.console.operations import RpcAnswer
from gateway.console.page_request import PageRequest, pretty
from gateway.console.pages.playground import (
    ContentView,
    answer_values,
    content_view,
    exchange_json,
)
from gateway.console.routes import PageRoute
from schemas.errors import MethodNotFound

ENDED = frozenset({"completed", "failed", "cancelled"})
METHODS = {"cancel": "tasks/cancel", "result": "tasks/result"}


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
        rows=result.get("tasks", ()),
        next=result.get("nextCursor", ""),
        is_unlisted=is_unlisted,
        **answer_values(visit, answer),
    )


async def task_page(visit: PageRequest) -> Response:
    """A task; its result, or its cancellation, where that is asked for."""
    named = {"taskId": visit.path("task")}
    answer = await visit.operations.send("tasks/get", named)
    if answer.fault is not None:
        return visit.problem(404, answer.fault.message)
    task, act = answer.result, visit.posted_value("act")
    # no result is waited for: it may take longer than a page
    has_acted = act in METHODS and (act == "result") == (task["status"] in ENDED)
    if has_acted:
        answer = await visit.operations.send(METHODS[act], named)
        if act == "cancel" and answer.result is not None:
            task = answer.result
    if visit.query.get("format") == "json":
        return exchange_json(answer)
    template = "task_state.html" if visit.is_part("task") else "task.html"
    return visit.page(
        template,
        task=task,
        is_ended=task["status"] in ENDED,
        has_acted=has_acted,
        contents=_result_views(answer) if act == "result" else [],
        **answer_values(visit, answer),
    )


def _result_views(answer: RpcAnswer) -> list[ContentView]:
    """The result of a call; its structured content stands for its texts."""
    result: dict[str, Any] = answer.result or {}
    views = [content_view(content) for content in result.get("content", ())]
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
