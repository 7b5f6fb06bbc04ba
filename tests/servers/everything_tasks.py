"""Tasks of the "everything" server: the experimental ones of 2025-11-25, which a client asks for
and whose results it fetches, and those of the 2026-07-28 extension, which the server begins by
itself and whose results stand in `tasks/get`.

The SDK has neither. A task belongs to the session that it was begun in, where there is one.
"""

import asyncio
import datetime
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import mcp_types as types
from mcp.server.context import CallNext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import decode_header_value
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import Field

from tests.servers.everything_call import ANSWERS, Audience, Call, Context, Questions, session_key
from tests.servers.everything_tools import TOOLS, Tool

EXTENSION = "io.modelcontextprotocol/tasks"
RELATED = "io.modelcontextprotocol/related-task"
TTL_MS, POLL_MS = 60_000, 100
OVER = ("completed", "failed", "cancelled")
STATELESS_METHODS = ("tasks/get", "tasks/update", "tasks/cancel")

Json = dict[str, Any]


class TaskParams(types.RequestParams):
    task_id: str
    input_responses: dict[str, Any] = Field(default_factory=dict)


@dataclass(eq=False)
class Task:
    owner: str | None  # id of the session; None in 2026-07-28
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    status: str = "working"
    created: str = ""
    result: Json | None = None
    error: Json | None = None
    questions: dict[str, tuple[types.InputRequest, "asyncio.Future[Any]"]] = field(
        default_factory=dict
    )
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    work: "asyncio.Task[None] | None" = None

    def __post_init__(self) -> None:
        self.created = _now()

    @property
    def over(self) -> bool:
        return self.status in OVER

    def turn(self, status: str) -> None:
        if not self.over:
            self.status = status
        self.changed.set()

    def status_members(self) -> Json:
        said = {"taskId": self.id, "status": self.status}
        return {**said, "createdAt": self.created, "lastUpdatedAt": _now()}

    def answer(self, key: str, value: Any) -> None:
        """What is no answer of what was asked is not heard."""
        if key not in self.questions:
            return
        question, waiting = self.questions[key]
        waiting.set_result(ANSWERS[type(question)].model_validate(value))
        del self.questions[key]
        if not self.questions:
            self.turn("working")


@dataclass(frozen=True)
class TaskCall(Call):
    """A call that goes on after its request."""

    task: Task
    known: Mapping[str, Any]  # answers that were there before the task was

    async def ask(self, questions: Questions, *, stateful: bool = False) -> Json:
        loop = asyncio.get_running_loop()
        waiting = {key: loop.create_future() for key in questions if key not in self.known}
        self.task.questions |= {key: (questions[key], one) for key, one in waiting.items()}
        if waiting:
            self.task.turn("input_required")
        return {**self.known, **{key: await one for key, one in waiting.items()}}


class Tasks:
    """All tasks of one server."""

    def __init__(self, audience: Audience) -> None:
        self._audience = audience
        self._tasks: dict[str, Task] = {}

    def serve(self, server: Server[Any]) -> None:
        server.middleware.append(self.check_request)
        for method, handler in (
            ("tasks/get", self.get),
            ("tasks/result", self.result),
            ("tasks/update", self.update),
            ("tasks/cancel", self.cancel),
        ):
            server.add_request_handler(method, TaskParams, handler)

    async def check_request(self, context: Context, call_next: CallNext) -> Any:
        """Middleware: what the SDK does not check, and results that it would not let out."""
        params = context.params or {}
        if _stateless(context) and context.method in STATELESS_METHODS:
            _check_name(context, params)
            if not declares_tasks(context):
                raise declaration_error()
        if context.method == "tools/call" and "task" in params and not _stateless(context):
            tool = TOOLS.get(params["name"])
            if tool is None or tool.task is None:
                raise MCPError(types.METHOD_NOT_FOUND, "This tool does not run as a task")
            typed = types.CallToolRequestParams.model_validate(params, by_name=False)
            return await self.begin(tool, Call(context, typed, self._audience))
        return await call_next(context)

    async def begin(self, tool: Tool, call: Call) -> Json:
        known = await call.ask(tool.first) if tool.first and call.stateless else {}
        task = Task(None if call.stateless else session_key(call.context))
        self._tasks[task.id] = task
        running = TaskCall(call.context, call.params, call.audience, task, known)
        task.work = asyncio.create_task(_work(tool, running))
        if call.stateless:
            return {"resultType": "task", **_describe_task(task)}
        return {"task": _describe_task(task)}

    async def get(self, context: Context, params: TaskParams) -> Json:
        task = self._find(context, params)
        if not _stateless(context):
            return _describe_task(task)
        asked = {
            key: one.model_dump(by_alias=True, mode="json", exclude_none=True)
            for key, (one, _) in task.questions.items()
        }
        more = {"result": task.result, "error": task.error, "inputRequests": asked or None}
        return _describe_task(task) | {
            name: said for name, said in more.items() if said is not None
        }

    async def update(self, context: Context, params: TaskParams) -> Json:
        if not _stateless(context):
            raise MCPError(types.METHOD_NOT_FOUND, "Method not found")
        task = self._find(context, params)
        for key, value in params.input_responses.items():
            task.answer(key, value)
        return {}

    async def cancel(self, context: Context, params: TaskParams) -> Json:
        task = self._find(context, params)
        if task.over and not _stateless(context):
            raise MCPError(types.INVALID_PARAMS, f"The task is {task.status} already")
        if not task.over and task.work is not None:
            task.turn("cancelled")
            task.work.cancel()
        return {} if _stateless(context) else _describe_task(task)

    async def result(self, context: Context, params: TaskParams) -> Json:
        """Of 2025-11-25: waits for the end, and asks meanwhile what the task wants to know."""
        if _stateless(context):
            raise MCPError(types.METHOD_NOT_FOUND, "Method not found")
        task = self._find(context, params)
        await _log_status(context, task)
        while not task.over:
            task.changed.clear()
            for key, (question, _) in list(task.questions.items()):
                task.answer(key, await _ask_client(context, task, question))
            if not task.over:
                await task.changed.wait()
        if task.error is not None:
            raise MCPError(task.error["code"], task.error["message"], task.error.get("data"))
        if task.result is None:
            raise MCPError(types.INVALID_PARAMS, "The task was cancelled")
        return {**task.result, "_meta": {RELATED: {"taskId": task.id}}}

    def _find(self, context: Context, params: TaskParams) -> Task:
        task = self._tasks.get(params.task_id)
        if task is None or task.owner != session_key(context):
            raise MCPError(types.INVALID_PARAMS, "Failed to retrieve task: Task not found")
        return task


async def _work(tool: Tool, call: TaskCall) -> None:
    assert tool.run is not None
    task = call.task
    try:
        result = await tool.run(call)
    except MCPError as error:
        task.error = error.error.model_dump(mode="json", exclude_none=True)
        task.turn("failed")
        return
    if not isinstance(result, types.CallToolResult):
        result = types.CallToolResult(content=result if isinstance(result, list) else [result])
    task.result = result.model_dump(by_alias=True, mode="json", exclude_none=True)
    # an error of the tool: of 2025-11-25 a failure, of 2026-07-28 none
    task.turn("failed" if result.is_error and task.owner is not None else "completed")


async def _log_status(context: Context, task: Task) -> None:
    """Log how the task is."""
    params = types.LoggingMessageNotificationParams(
        level="info", data=task.status, _meta={RELATED: {"taskId": task.id}}
    )
    note = types.LoggingMessageNotification(params=params)
    await context.session.send_notification(note, related_request_id=context.request_id)


async def _ask_client(context: Context, task: Task, question: types.InputRequest) -> Any:
    params = question.params
    meta = {RELATED: {"taskId": task.id}}
    related = question.model_copy(update={"params": params.model_copy(update={"meta": meta})})
    return await context.session.send_request(
        related, ANSWERS[type(question)], metadata=ServerMessageMetadata(context.request_id)
    )


def declares_tasks(context: Context) -> bool:
    """Whether a 2026-07-28 request says that its client knows tasks."""
    extensions = context.session.client_capabilities
    return EXTENSION in ((extensions and extensions.extensions) or {})


def declaration_error() -> MCPError:
    needed = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
    code = types.MISSING_REQUIRED_CLIENT_CAPABILITY
    return MCPError(code, "The client has to declare that it knows tasks", needed)


def _check_name(context: Context, params: Mapping[str, Any]) -> None:
    headers = getattr(context.request, "headers", {})
    if decode_header_value(headers.get("mcp-name")) != params.get("taskId"):
        raise MCPError(types.HEADER_MISMATCH, "Mcp-Name has to repeat the id of the task")


def _describe_task(task: Task) -> Json:
    if task.owner is None:
        return {**task.status_members(), "ttlMs": TTL_MS, "pollIntervalMs": POLL_MS}
    return {**task.status_members(), "ttl": TTL_MS, "pollInterval": POLL_MS}


def _stateless(context: Context) -> bool:
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat()
