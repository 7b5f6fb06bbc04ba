"""Operations of agents and their tasks. Every request of A2A is a call of one, so that policy,
limits and audit hold; for people they are pages of the console and commands.

Arguments and results are objects of A2A 1.0 as JSON.
"""

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import replace as with_
from typing import Annotated, Any, TypeVar
from uuid import uuid4

import msgspec
from msgspec import UNSET, Meta, Struct
from msgspec.structs import replace

from config.a2a import A2AAgent, A2AName, A2ASettings
from config.value_types import HostId
from gateway.context import Context
from gateway.operations.operation import Operation, OperationInput
from gateway.operations.problems import ProblemDetails
from gateway.operations.stored_callers import caller_of
from gateway.wings.a2a.cards import MODES, make_card, security_schemes, sign_card
from gateway.wings.a2a.client_questions import question_schema, read_answer
from gateway.wings.a2a.task_runner import TaskRunner
from gateway.wings.a2a.task_store import NewTask, StoredTask, make_status
from gateway.wings.a2a.task_webhooks import Webhooks, mask_credentials
from gateway.wings.interface import WingParts, is_open
from registry.database.leases import LeaseLost
from schemas.a2a.errors import (
    A2AFault,
    ContentTypeNotSupported,
    InvalidParameters,
    TaskNotCancelable,
    TaskNotFound,
    UnsupportedOperation,
)
from schemas.a2a.model import AgentCard, ListRequest, Message, PushConfig, Task, TaskState
from schemas.a2a.versions import Version, decode, encode
from schemas.tool import Tool

T = TypeVar("T")
Json = dict[str, Any]
READ, WRITE = "a2a:read", "a2a:write"
AGENT, TASK = "/agents/{agent}", "/tasks/{task}"
TYPES = {"agent": A2AName, "task": HostId, "webhook": Annotated[str, Meta(max_length=256)]}
TOOLS_SHOWN = 200  # on the card of a caller
PARTS = 100  # of a message


class SentMessage(Struct, frozen=True, forbid_unknown_fields=True):
    """A message of A2A. `wait`: for the end of its task."""

    message: Json
    wait: bool = True


class TaskFilter(Struct, frozen=True, forbid_unknown_fields=True):
    agent: str = ""
    context: str = ""
    state: str = ""
    since: str = ""
    limit: Annotated[int, Meta(ge=1, le=100)] = 50
    after: str = ""
    artifacts: bool = False


class AgentView(Struct, frozen=True):
    agent: str
    kind: str
    description: str
    path: str


class AgentPage(Struct, frozen=True):
    agents: tuple[AgentView, ...]


class TaskView(Struct, frozen=True):
    """`id` is `task` with its agent."""

    task: str
    agent: str
    context: str
    state: str
    updated: str
    object: Json


class TaskPage(Struct, frozen=True):
    tasks: tuple[TaskView, ...]
    after: str = ""
    """`after` of the next page; "": this is the last one."""
    total: int = 0


def task_view(row: StoredTask, *, artifacts: bool = True) -> TaskView:
    task = row.task
    status = task.status
    wire_task = task if artifacts else replace(task, artifacts=())
    state = status.state.name.lower()
    return TaskView(
        row.id, row.agent, task.context_id, state, status.timestamp, encode(Version.V1_0, wire_task)
    )


class A2AOperations:
    def __init__(self, parts: WingParts, runner: TaskRunner, webhooks: Webhooks) -> None:
        self._parts = parts
        self._settings: A2ASettings = parts.settings
        self._runner = runner
        self.task_webhooks = webhooks

    @property
    def operations(self) -> tuple[Operation, ...]:
        return tuple(
            with_(operation, handle=_answering(operation.handle), types=TYPES)
            for operation in (
                Operation(
                    "a2a_list_agents", "GET", "/agents",
                    "List the agents that are served to other agents.", READ, self.agents,
                    AgentPage,
                ),
                Operation(
                    "a2a_get_card", "GET", f"{AGENT}/card", "Show your card of an agent.", READ,
                    self.own_card, Json,
                ),
                Operation(
                    "a2a_send_message", "POST", f"{AGENT}/messages",
                    "Send a message to an agent: a new task, or the answer to one that asks.",
                    WRITE, self.send, TaskView, body=SentMessage, waits=True,
                ),
                Operation(
                    "a2a_list_tasks", "GET", "/tasks", "List your tasks, the newest first.", READ,
                    self.tasks, TaskPage, query=TaskFilter,
                ),
                Operation(
                    "a2a_get_task", "GET", TASK, "Show a task.", READ, self.task, TaskView,
                ),
                Operation(
                    "a2a_cancel_task", "POST", f"{TASK}/cancel", "Cancel a task.", WRITE,
                    self.cancel, TaskView,
                ),
                Operation(
                    "a2a_list_webhooks", "GET", f"{TASK}/webhooks",
                    "List the webhooks that changes of a task are sent to.", READ,
                    self.webhooks, Json,
                ),
                Operation(
                    "a2a_add_webhook", "POST", f"{TASK}/webhooks",
                    "Send changes of a task to a webhook.", WRITE, self.add_webhook, Json,
                ),
                Operation(
                    "a2a_delete_webhook", "DELETE", f"{TASK}/webhooks/{{webhook}}",
                    "Send changes of a task to a webhook no more.", WRITE,
                    self.delete_webhook, None, 204,
                ),
            )
        )  # fmt: skip

    def find_agent(self, name: str) -> A2AAgent:
        """Raises InvalidParameters."""
        agent = self._settings.agents.get(name)
        if agent is None:
            raise InvalidParameters(f"There is no agent {name[:60]!r}")
        return agent

    async def card(
        self, name: str, context: Context | None, *, url: str, is_open: bool
    ) -> AgentCard:
        """The card of an agent; `context`: with what its caller may use; `is_open`: callers need no
        credential. Raises InvalidParameters, and Unavailable where cards are signed."""
        agent, parts = self.find_agent(name), self._parts
        catalog = parts.catalogs.of(parts.tenant, None)
        tools: tuple[Tool, ...] = ()
        if context is not None:
            toolset = agent.toolset or context.toolset
            tools = tuple(parts.view(replace(context, toolset=toolset)).tools)[:TOOLS_SHOWN]
        skills = (catalog.skills.get(skill) for skill in agent.skills)
        card = make_card(
            name,
            agent,
            self._settings,
            url=url,
            schemes={} if is_open else security_schemes(parts.callers, parts.public_url),
            skills=[skill for skill in skills if skill is not None],
            tools=tools,
        )
        if not self._settings.sign or parts.sign is None:
            return card
        return await sign_card(card, parts.sign, parts.public_url)

    async def find_task(self, context: Context, agent: str, id_: str) -> StoredTask:
        """A task of the caller; `agent`: "" for any. Raises TaskNotFound, also for one of
        another caller."""
        principal = context.principal
        row = await self._runner.tasks.get(principal.tenant, principal.id, agent, id_)
        if row is None or row.reply is not None:
            raise TaskNotFound(f"Task not found: {id_[:60]!r}")
        return row

    async def agents(self, _request: OperationInput) -> AgentPage:
        return AgentPage(
            tuple(
                AgentView(name, agent.kind, agent.description, f"/a2a/{name}")
                for name, agent in sorted(self._settings.agents.items())
            )
        )

    async def own_card(self, request: OperationInput) -> Json:
        context = _context(request)
        url, free = self._settings.url or "", is_open(context.identity)
        card = await self.card(request.names["agent"], context, url=url, is_open=free)
        value: Json = encode(Version.V1_0, card)
        return value

    async def send(self, request: OperationInput) -> TaskView:
        context, name = _context(request), request.names["agent"]
        if context.run is not None:
            raise ProblemDetails(403, "forbidden", "An agent does not call agents.")
        agent = self.find_agent(name)
        message = decode(Version.V1_0, Message, request.body.message)
        _check_parts(message, takes_files=agent.kind == "tools")
        context = replace(context, agent_hops=max(context.agent_hops, message.hops))
        if message.task_id:
            row = await self._continue(context, name, message)
        else:
            row = await self._begin(context, name, message)
        if request.body.wait:
            row = await self._runner.wait_until_idle(row)
        return task_view(row)

    async def _begin(self, context: Context, name: str, message: Message) -> StoredTask:
        id_, context_id = str(uuid4()), message.context_id or str(uuid4())
        task = Task(
            id=id_,
            context_id=context_id,
            status=make_status(TaskState.SUBMITTED),
            history=(replace(message, task_id=id_, context_id=context_id),),
        )
        new = NewTask(
            agent=name,
            owner=context.principal.id,
            caller=caller_of(context),
            message_key=hashlib.sha256(msgspec.json.encode(message)).digest(),
            task=task,
        )
        row, _ = await self._runner.begin(context, new)
        return row

    async def _continue(self, context: Context, name: str, message: Message) -> StoredTask:
        row = await self.find_task(context, name, message.task_id)
        task = row.task
        if message.context_id and message.context_id != task.context_id:
            raise InvalidParameters("The task is of another context than the message")
        if any(former.message_id == message.message_id for former in task.history):
            return row  # a repetition
        if row.has_ended:
            raise UnsupportedOperation(f"The task has ended: it is {task.status.state.name}")
        schema = question_schema(task.status.message)
        if task.status.state is TaskState.INPUT_REQUIRED and schema is not None:
            read_answer(schema, message)
        return await self._runner.answer(context, row, replace(message, context_id=task.context_id))

    async def tasks(self, request: OperationInput) -> TaskPage:
        query: TaskFilter = request.query
        state = f"TASK_STATE_{query.state.upper()}" if query.state else None
        list_request = decode(
            Version.V1_0,
            ListRequest,
            {
                "contextId": query.context,
                "status": state,
                "statusTimestampAfter": query.since or None,
                "pageSize": query.limit,
                "pageToken": query.after,
            },
        )
        rows, after, total = await self._runner.tasks.page(
            request.tenant,
            request.principal.id,
            query.agent,
            list_request,
            list_bytes=self._settings.list_bytes,
        )
        views = tuple(task_view(row, artifacts=query.artifacts) for row in rows)
        return TaskPage(views, after, total)

    async def task(self, request: OperationInput) -> TaskView:
        return task_view(await self._task_of(request))

    async def cancel(self, request: OperationInput) -> TaskView:
        row = await self._task_of(request)
        if row.has_ended:
            state = row.task.status.state.name
            raise TaskNotCancelable(f"The task has ended: it is {state}")
        return task_view(await self._runner.cancel(row))

    async def webhooks(self, request: OperationInput) -> Json:
        configs = await self.task_webhooks.all(await self._task_of(request))
        return {"configs": [encode(Version.V1_0, mask_credentials(config)) for config in configs]}

    async def add_webhook(self, request: OperationInput) -> Json:
        """The config and the version of its client are beside the arguments, which are recorded: it
        holds credentials."""
        upload = _context(request).upload
        if upload is None:
            raise InvalidParameters("Expected a config of push notifications: use A2A")
        version, _, data = upload.data.partition(b" ")
        config = msgspec.json.decode(data, type=PushConfig)
        row = await self._task_of(request)
        stored = await self.task_webhooks.add(row, config, Version(version.decode()))
        value: Json = encode(Version.V1_0, mask_credentials(stored))
        return value

    async def delete_webhook(self, request: OperationInput) -> None:
        await self.task_webhooks.delete(await self._task_of(request), request.names["webhook"])

    async def _task_of(self, request: OperationInput) -> StoredTask:
        return await self.find_task(_context(request), "", request.names["task"])


def _context(request: OperationInput) -> Context:
    if request.context is None:  # operations of wings have one
        raise ProblemDetails(500, "failed", "The operation was called without a context.")
    return request.context


def _check_parts(message: Message, *, takes_files: bool) -> None:
    """Raises ContentTypeNotSupported and InvalidParameters."""
    if len(message.parts) > PARTS:
        raise InvalidParameters(f"Expected at most {PARTS} parts, found {len(message.parts)}")
    for part in message.parts:
        if takes_files and (part.raw is not UNSET or part.url is not UNSET):
            continue
        media_type = part.media_type.partition(";")[0].strip().lower()
        if part.text is not UNSET:
            media_type = media_type or "text/plain"
        elif part.data is not UNSET:
            media_type = media_type or "application/json"
        if media_type not in MODES:
            content_type = media_type or "a file without a media type"
            raise ContentTypeNotSupported(
                f"The agent does not take {content_type}: expected {' or '.join(MODES)}"
            )


def _answering(
    handle: Callable[[OperationInput], Awaitable[T]],
) -> Callable[[OperationInput], Awaitable[T]]:
    """The handler with errors of A2A as problems, whose kinds are their reasons."""

    async def answer(request: OperationInput) -> T:
        try:
            return await handle(request)
        except A2AFault as fault:
            kind = fault.reason.lower().replace("_", "-")
            raise ProblemDetails(fault.failed_status(), kind, fault.message) from fault
        except LeaseLost as error:
            raise ProblemDetails(404, "task-not-found", "The task was deleted.") from error

    return answer
