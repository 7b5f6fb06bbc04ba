"""Invocations as tasks of MCP: those of 2025-11-25, and of the extension of 2026-07-28.

Any tool runs as a task: of 2025-11-25 where the client asks, of 2026-07-28 where the settings name
the tool, or its kind may take minutes, and the call takes its time. Task ids are sealed for their
owner with a secret in the database, so that they outlive this process. Servers may ask the client
of a task for input: it answers by tasks/update, or, of 2025-11-25, while it waits in tasks/result.
Not offered: status notifications; clients poll.
"""

import asyncio
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass
from typing import Any

import anyio
import msgspec
from msgspec import Raw
from msgspec.structs import replace

from config.events import EventsSettings
from gateway.context import Context
from gateway.interfaces import Handler
from gateway.operations.paging import cursor, place
from gateway.operations.problems import ProblemDetails
from gateway.operations.stored_callers import read_caller
from gateway.protocol.client_features import ELICIT, RefusalReason, for_client
from gateway.protocol.revision_adapter import task_result
from gateway.protocol.sealed_state import TaskIds, knows_tasks
from gateway.wings.events.acceptor import OWN, InvocationAcceptor, matches
from gateway.wings.events.invocation_journal import Filter, Invocation, Journal
from gateway.wings.events.requests_and_views import NewInvocation, seq_of, stamp
from gateway.wings.events.task_questions import (
    CANCELLED,
    LOOK_S,
    TaskQuestions,
    input_requests,
)
from gateway.wings.events.wakeups import CANCEL, CompletionWaiters
from gateway.wings.interface import Answer, WingParts
from registry.catalog.tool_lists import relays_tasks
from registry.database.postgres import AWAY, unavailability
from registry.database.shared_pool import borrow_for
from schemas.binding import GatewayBinding
from schemas.errors import ClientRequestFailed, InvalidParams, RelayedFault, Unavailable
from schemas.jsonrpc import Request, decode_json, decode_members, encode
from schemas.mcp.messages import META_RELATED_TASK
from schemas.tool import Tool, ToolResult

TASK_MEMBER = "toolgate/task"  # in `_meta` of a call: it is to be a task
POLL_MS = 1000
KEEP_ALIVE_S = 15.0
CLOSED_S = 1.0  # interval of looking whether a question to a client is still open
PAGE = 50
CALLS = GatewayBinding("call_tool")

INPUT_REQUIRED = "input_required"
UNKNOWN = "Unknown task: it ended, or never was"

Json = dict[str, Any]
_results = msgspec.json.Decoder(ToolResult)


@dataclass(eq=False)
class Tasks:
    parts: WingParts
    journal: Journal
    accepting: InvocationAcceptor
    waits: CompletionWaiters
    _: KW_ONLY
    questions: TaskQuestions
    ids: TaskIds
    settings: EventsSettings
    say: Callable[[str], None]

    @property
    def answers(self) -> Mapping[str, Answer]:
        of_tasks = {
            "tasks/get": self.get,
            "tasks/result": self.result,
            "tasks/cancel": self.cancel,
            "tasks/update": self.update,
            "tasks/list": self.list,
        }
        return {
            "tools/call": self.call,
            **{method: _borrow_for_caller(answer) for method, answer in of_tasks.items()},
        }

    async def call(self, context: Context, request: Request, handle: Handler) -> Any:
        """Run a call as a task where that is wanted; else the gateway does."""
        params = request.params if isinstance(request.params, dict) else {}
        context_of_call = replace(context, params=params)
        asks = params.get("task") is not None
        if not (asks if context.revision.tasks else knows_tasks(context_of_call)):
            return await handle(context, request)
        name, arguments = _target(params)
        tool = self.accepting.tool(context, name)
        if tool is not None and tool.binding == CALLS and "skill" not in arguments:
            name, arguments = _target(arguments)
            tool = self.accepting.tool(context, name)
        if tool is None or not self._runs(context, tool, params):
            return await handle(context, request)
        with _translated_errors():
            if context.revision.tasks:
                ttl_ms = self._ttl_ms(params["task"])
                row = await self._accept(context_of_call, name, arguments, ttl_ms)
                return {"task": await self._describe(row, context)}
            return await self._begin(
                context_of_call, request, handle, name=name, arguments=arguments
            )

    def _runs(self, context: Context, tool: Tool, params: Mapping[str, Any]) -> bool:
        """Whether a call of the tool is a task of the gateway; else its server may make it one."""
        facts = tool.binding.facts
        if facts.own or tool.source == OWN:
            return False
        if context.revision.tasks:
            catalog = self.parts.catalogs.of(context.principal.tenant, context.toolset)
            return tool.definition is None or not relays_tasks(catalog.servers.get(tool.source))
        meta = params.get("_meta")
        asks = isinstance(meta, dict) and meta.get(TASK_MEMBER) is True
        patterns = self.settings.tasks
        if facts.relayed:  # it may ask its client what a task cannot answer: it has to be named
            patterns = tuple(pattern for pattern in patterns if pattern != "*")
        named = matches(tool.name, patterns)
        return asks or facts.lasts or named

    async def _begin(
        self,
        context: Context,
        request: Request,
        handle: Handler,
        *,
        name: str,
        arguments: Mapping[str, Any],
    ) -> Any:
        """The result of a call that ends soon, else its task."""
        try:
            row = await self._accept(context, name, arguments)
        except InvalidParams:  # the gateway says what is wrong as for any call
            return await handle(context, request)
        wait_s = self.settings.task_wait_s
        # The call runs: its client must not repeat it.
        with suppress(*AWAY), borrow_for(context.principal.key):
            ended = await self.waits.until_ended(row.host_id, row.invocation_id, wait_s)
            if ended is not None and ended.has_ended:
                return self._result_of(ended, context)
        return {"resultType": "task", **self._described_2026(row)}

    def _ttl_ms(self, task_member: Any) -> int | None:
        """How long the client wants to know its task, at most `events.retention_s`; None: it does
        not say. Raises InvalidParams."""
        ttl_ms = task_member.get("ttl") if isinstance(task_member, dict) else None
        if ttl_ms is None:
            return None
        if isinstance(ttl_ms, bool) or not isinstance(ttl_ms, int | float) or not ttl_ms > 0:
            raise InvalidParams("task.ttl: expected a number of milliseconds above 0, or null")
        return int(min(max(ttl_ms, 1), self._kept_ms))

    @property
    def _kept_ms(self) -> int:
        return int(self.settings.retention_s * 1000)

    async def _accept(
        self,
        context: Context,
        name: str,
        arguments: Mapping[str, Any],
        ttl_ms: int | None = None,
    ) -> Invocation:
        id_ = str(uuid.uuid4())
        sealed = await self.ids.expose("", id_, context, ttl_ms)
        invocation = NewInvocation(name, dict(arguments))
        accepted = await self.accepting.accept(
            context, invocation, id_=id_, task_id=sealed, shows_forms=shows_forms(context)
        )
        if accepted.row is None:  # the id is new
            raise InvalidParams(UNKNOWN)
        return accepted.row

    async def get(self, context: Context, request: Request, handle: Handler) -> Any:
        row = await self._find_invocation(context, request)
        if row is None:
            return await handle(context, request)
        questions = await self._open_questions(row)
        if context.revision.tasks:
            return await self._describe(row, context, asks=bool(questions))
        members = {"resultType": "complete", **self._described_2026(row)}
        if questions:
            requests = input_requests(questions)
            return {**members, "status": INPUT_REQUIRED, "inputRequests": requests}
        if row.status == "ACKED" or (row.status == "FAILED" and row.result is not None):
            return {**members, "result": self._result_of(row, context)}
        if row.status == "FAILED" and row.reason != "cancelled":
            fault = fault_of(row)
            return {**members, "error": {"code": fault.code, "message": fault.message}}
        return members

    async def result(self, context: Context, request: Request, handle: Handler) -> Any:
        """The result of a task of 2025-11-25, once it has ended."""
        row = await self._find_invocation(context, request)
        if row is None or not context.revision.tasks:
            return await handle(context, request)
        alive_at = anyio.current_time()
        while not row.has_ended:
            for key, question in (await self._open_questions(row)).items():
                await self._ask_client(context, row, key, question)
            wait_s = LOOK_S if shows_forms(context) else KEEP_ALIVE_S
            ended = await self.waits.until_ended(row.host_id, row.invocation_id, wait_s)
            if ended is None:
                raise InvalidParams(UNKNOWN)
            row = ended
            is_silent = anyio.current_time() - alive_at >= KEEP_ALIVE_S
            if context.peer is not None and is_silent and not row.has_ended:
                await context.peer.keep_alive()
                alive_at = anyio.current_time()
        members = self._result_of(row, context)
        meta = members.get("_meta")
        upstream_meta = {} if meta is None else decode_members(meta)
        related = Raw(encode({"taskId": row.task_id}))
        return {**members, "_meta": {**upstream_meta, META_RELATED_TASK: related}}

    async def _ask_client(
        self, context: Context, row: Invocation, key: str, question: Json
    ) -> None:
        """Ask the client that waits for the result, if it can be asked."""
        if context.session is None or context.peer is None or not shows_forms(context):
            return
        params = {**question, "_meta": {META_RELATED_TASK: {"taskId": row.task_id}}}
        asking = asyncio.create_task(context.peer.ask(ELICIT, params))
        closing = asyncio.create_task(self._until_closed(row, key))
        try:
            await asyncio.wait((asking, closing), return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                return
            answer = self.questions.check(key, question, asking.result())
        except (ClientRequestFailed, InvalidParams):
            answer = CANCELLED
        finally:
            for task in (asking, closing):
                task.cancel()
            await asyncio.gather(asking, closing, return_exceptions=True)
        await self.questions.answer(row.host_id, row.invocation_id, {key: answer})

    async def _until_closed(self, row: Invocation, key: str) -> None:
        """Wait until a question has an answer, or its call has ended."""
        while True:
            try:
                current = await self.waits.until_ended(row.host_id, row.invocation_id, CLOSED_S)
                if current is None or key not in await self._open_questions(current):
                    return
            except AWAY:
                await anyio.sleep(CLOSED_S)

    async def cancel(self, context: Context, request: Request, handle: Handler) -> Any:
        row = await self._find_invocation(context, request)
        if row is None:
            return await handle(context, request)
        if row.has_ended:
            if context.revision.tasks:
                raise InvalidParams(f"The task is {status_of(row, legacy=True)} already")
            return _completion_members(context)
        _, running = await self.journal.cancel(row.host_id, [row.invocation_id])
        if running:
            self.say(CANCEL)
        self.waits.look()
        if not context.revision.tasks:
            return _completion_members(context)
        ended = await self.waits.until_ended(row.host_id, row.invocation_id, 5.0)
        return await self._describe(ended or row, context)

    async def update(self, context: Context, request: Request, handle: Handler) -> Any:
        """Take the client's answers to questions of a task."""
        row = await self._find_invocation(context, request)
        if row is None:
            return await handle(context, request)
        params = request.params if isinstance(request.params, dict) else {}
        answers = params.get("inputResponses", {})
        if not isinstance(answers, dict):
            raise InvalidParams("inputResponses: expected an object, with an answer for each key")
        await self.questions.answer(row.host_id, row.invocation_id, answers)
        return _completion_members(context)

    async def _open_questions(self, row: Invocation) -> dict[str, Json]:
        """Questions to the client of a task, by key."""
        if not _may_ask(row):
            return {}
        id_ = row.invocation_id
        return (await self.questions.open_questions(row.host_id, [id_])).get(id_, {})

    async def list(self, context: Context, request: Request, handle: Handler) -> Any:
        """The caller's own tasks, the newest first."""
        context.require_identity()
        if not context.revision.tasks or not context.identity.verified:
            return await handle(context, request)
        params = request.params if isinstance(request.params, dict) else {}
        before = _before(params.get("cursor"))
        own_tasks = Filter(principal=context.principal.id, tasks=True)
        rows = await self.journal.page(
            context.principal.tenant, own_tasks, before=before, limit=PAGE + 1
        )
        running = [row.invocation_id for row in rows[:PAGE] if row.status == "DISPATCHED"]
        questions = await self.questions.open_questions(context.principal.tenant, running)
        tasks = []
        for row in rows[:PAGE]:
            with suppress(InvalidParams):  # its time is over
                asks = row.invocation_id in questions
                tasks.append(await self._describe(row, context, asks=asks))
        answer: Json = {"tasks": tasks}
        if len(rows) > PAGE:
            answer["nextCursor"] = cursor(str(rows[PAGE - 1].seq))
        return answer

    async def _find_invocation(self, context: Context, request: Request) -> Invocation | None:
        """The invocation whose task the request names; None for a task of another server. Raises
        InvalidParams."""
        params = request.params if isinstance(request.params, dict) else {}
        if context.revision.result_type and not knows_tasks(replace(context, params=params)):
            return None  # refused with the capability that it needs
        try:
            handle = await self.ids.read(params.get("taskId"), context)
        except InvalidParams:
            return None
        if handle.source:
            return None
        row = await self.journal.get(context.principal.tenant, handle.task)
        if row is None:
            raise InvalidParams(UNKNOWN)
        return row

    def _result_of(self, row: Invocation, context: Context) -> Mapping[str, Raw]:
        """The result of the call, for the caller's revision. Raises RelayedFault without one."""
        if row.result is None:
            raise fault_of(row)
        result = _results.decode(row.result)
        members = self.parts.result(result, replace(context, request_id=row.invocation_id))
        return task_result(decode_members(Raw(encode(members))))

    async def _describe(self, row: Invocation, context: Context, *, asks: bool = False) -> Json:
        """A task of 2025-11-25 of the caller. Raises InvalidParams once its time is over."""
        ttl_ms = (await self.ids.read(row.task_id, context)).ttl_ms
        members = _state_members(row, legacy=True)
        if asks:
            members["status"] = INPUT_REQUIRED
        return {**members, "ttl": ttl_ms or self._kept_ms, "pollInterval": POLL_MS}

    def _described_2026(self, row: Invocation) -> Json:
        members = _state_members(row, legacy=False)
        return {**members, "ttlMs": self._kept_ms, "pollIntervalMs": POLL_MS}


def _borrow_for_caller(answer: Answer) -> Answer:
    async def answer_in_turn(context: Context, request: Request, handle: Handler) -> Any:
        with borrow_for(context.principal.key), _translated_errors():
            return await answer(context, request, handle)

    return answer_in_turn


@contextmanager
def _translated_errors() -> Iterator[None]:
    try:
        yield
    except AWAY as error:
        raise Unavailable(f"{unavailability(error)}; try again later") from error


def shows_forms(context: Context) -> bool:
    """Whether the client of a request answers forms of servers."""
    probe = {"mode": "form", "requestedSchema": {}}
    capabilities = dict(context.capabilities)
    return not isinstance(for_client(ELICIT, probe, context.revision, capabilities), RefusalReason)


def _may_ask(row: Invocation) -> bool:
    """Whether the call of an invocation runs, and may ask its client."""
    running = row.status == "DISPATCHED" and row.principal is not None
    return running and read_caller(row.principal or "").shows_forms


def _target(params: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Name and arguments of a call; those that are none are refused as usual."""
    name, arguments = params.get("name"), params.get("arguments")
    return (
        name if isinstance(name, str) else "",
        arguments if isinstance(arguments, dict) else {},
    )


def status_of(row: Invocation, *, legacy: bool) -> str:
    """The status of a task. A tool that reports an error has failed only in 2025-11-25."""
    if row.status == "ACKED":
        return "completed"
    if row.status != "FAILED":
        return "working"
    if row.reason == "cancelled":
        return "cancelled"
    return "failed" if legacy or row.result is None else "completed"


def _state_members(row: Invocation, *, legacy: bool) -> Json:
    members: Json = {
        "taskId": row.task_id,
        "status": status_of(row, legacy=legacy),
        "createdAt": stamp(row.created),
        "lastUpdatedAt": stamp(row.changed),
    }
    message = _message(row)
    return {**members, "statusMessage": message} if message else members


def _message(row: Invocation) -> str:
    if row.approval_id is not None:
        return f"It waits for the approval {row.approval_id}"
    if row.status == "FAILED":
        return fault_of(row).message
    return f"Attempt {row.attempt + 1} follows" if row.status == "PENDING" and row.attempt else ""


def fault_of(row: Invocation) -> RelayedFault:
    """The error of an invocation that has no result."""
    error = None if row.error is None else decode_json(row.error.encode())
    members = error if isinstance(error, dict) else {}
    code, message = members.get("code"), members.get("message")
    return RelayedFault(
        code if isinstance(code, int) else -32603,
        message if isinstance(message, str) else "The call failed",
    )


def _completion_members(context: Context) -> Json:
    return {"resultType": "complete"} if context.revision.result_type else {}


def _before(cursor: Any) -> int | None:
    """The place that a cursor names. Raises InvalidParams."""
    if cursor is None:
        return None
    try:
        before = seq_of(place(cursor) if isinstance(cursor, str) else "")
    except ProblemDetails as problem:
        raise InvalidParams("Unknown cursor") from problem
    if before is None:
        raise InvalidParams("Unknown cursor")
    return before
