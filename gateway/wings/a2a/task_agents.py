"""How agents work on tasks: "tools" makes the calls that messages name, "agent" asks the agent
wing. Everything is done as the caller of the task."""

import base64
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import NAMESPACE_URL, uuid4, uuid5

import anyio
import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from config.a2a import A2AAgent
from gateway.context import Context
from gateway.policy.approval_gate import awaited_approval
from gateway.wings.a2a.client_questions import ClientAsker
from gateway.wings.a2a.task_runner import Execute, TaskWork
from gateway.wings.http_tool_calls import structured_body
from gateway.wings.interface import WingEvent
from registry.access.approvals import Approvals
from schemas.a2a.model import Artifact, Message, Part, TaskState
from schemas.errors import Denied, Fault, Forbidden, InvalidParams, MethodNotFound, Unavailable
from schemas.tool import EmbeddedResource, ResourceLink, TextContent, Tool, ToolResult

OWN = "a2a"  # the source of the wing's tools
REASONING = "agent:reasoning"  # the scope to see calls of a run
ENDS = {  # by the state of a run
    "completed": TaskState.COMPLETED,
    "exhausted": TaskState.COMPLETED,
    "cancelled": TaskState.CANCELED,
}
WAITS = "A person has to decide on a call of the agent; it goes on by itself then."
AT_WORK = (TaskState.WORKING, TaskState.INPUT_REQUIRED)  # a question is one of an open call
CALL_EXPECTED = (
    'Expected one data part {"tool": NAME, "arguments": {...}}, of a tool that is no agent.'
)
FILES = 'Expected files with names of their own, each as {"part": NAME} in one argument.'


def make_agents(agents: Mapping[str, A2AAgent]) -> dict[str, Execute]:
    """How each agent of the settings works."""
    return {name: KINDS[agent.kind](name, agent) for name, agent in agents.items()}


def _call_context(agent: A2AAgent, work: TaskWork) -> Context:
    """The context of the calls of a task, whose client answers questions."""
    toolset = agent.toolset or work.context.toolset
    asker = ClientAsker(work) if work.settings.answer_s else None
    return replace(work.context, toolset=toolset, asker=asker)


# Calls of tools


def tool_agent(_name: str, agent: A2AAgent) -> Execute:
    return partial(_make_call, agent)


async def _make_call(agent: A2AAgent, work: TaskWork) -> None:
    """One call of a tool, with policy, limits, approvals and audit as any; its result is the
    artifact."""
    context = _call_context(agent, work)
    try:
        named = _named_call(work.request)
        tool = None if named is None else work.parts.check(context, *named)
    except Fault as fault:
        await work.status(TaskState.REJECTED, fault.message)
        return
    if named is None or tool is None or tool.source == OWN:  # which would call agents
        await work.status(TaskState.REJECTED, CALL_EXPECTED)
        return
    if work.was_working and not _is_repeatable(tool):
        text = "Its process ended while the call was made: whether it had an effect is unknown."
        await work.status(TaskState.FAILED, text)
        return
    if await _was_denied(work):
        await work.status(TaskState.REJECTED, "A person has rejected this call.")
        return
    await work.status(TaskState.WORKING)
    try:
        result = await work.parts.call(_with_key(context, work.row.id), tool.name, named[1])
    except Fault as fault:
        is_refusal = isinstance(fault, Denied | Forbidden | InvalidParams | MethodNotFound)
        state = TaskState.REJECTED if is_refusal else TaskState.FAILED
        await work.status(state, fault.message)
        return
    await _end_call(work, tool, result)


async def _end_call(work: TaskWork, tool: Tool, result: ToolResult) -> None:
    if not result.is_error:
        parts = result_parts(result)
        await work.artifact(Artifact(artifact_id=uuid4().hex, name=tool.name, parts=parts))
        await work.status(TaskState.COMPLETED)
        return
    text = result.text or f"{tool.name} failed."
    principal = work.context.principal
    approvals = Approvals(work.parts.pool, principal.tenant)
    awaited = await awaited_approval(result, approvals, principal.id, tool.name)
    if awaited is None:
        await work.status(TaskState.FAILED, text)
        return
    await work.status(TaskState.AUTH_REQUIRED, text, work="waiting", approval=awaited.id)


def _named_call(message: Message) -> tuple[str, dict[str, Any]] | None:
    """The tool and the arguments that a message names; None: it names none. Raises
    InvalidParams."""
    data = [part.data for part in message.parts if part.data is not UNSET]
    if len(data) != 1 or not isinstance(data[0], dict):
        return None
    name, arguments = data[0].get("tool"), data[0].get("arguments", {})
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return None
    return name, _with_files(arguments, message)


def _with_files(arguments: dict[str, Any], message: Message) -> dict[str, Any]:
    """The arguments with the files of a message as tools take them: raw ones as base64; one at a
    URL as that, which the gateway fetches where a tool uploads it, as for any caller. Raises
    InvalidParams."""
    files = [part for part in message.parts if part.raw is not UNSET or part.url is not UNSET]
    by_name = {part.filename: part for part in files}
    used = Counter[str]()  # once each: a message must not become many times its size

    def fill(value: Any) -> Any:
        if isinstance(value, list):
            return [fill(item) for item in value]
        if not isinstance(value, dict):
            return value
        name = value.get("part")
        if len(value) == 1 and isinstance(name, str) and name in by_name:
            used[name] += 1
            return _file_argument(by_name[name]) if used[name] == 1 else {}
        return {key: fill(item) for key, item in value.items()}

    filled: dict[str, Any] = fill(arguments) if files else arguments
    if "" in by_name or len(by_name) != len(files) or used != Counter(by_name.keys()):
        raise InvalidParams(FILES)
    return filled


def _file_argument(part: Part) -> dict[str, str]:
    """The form of `gateway.upstreams.http.file_arguments`."""
    media_type = {"mimeType": part.media_type} if part.media_type else {}
    if isinstance(part.raw, bytes):
        data = base64.b64encode(part.raw).decode()
        return {"data": data, "filename": part.filename, **media_type}
    return {"uri": str(part.url), "filename": part.filename, **media_type}


def _is_repeatable(tool: Tool) -> bool:
    return tool.annotations.read_only_hint is True or tool.annotations.idempotent_hint is True


async def _was_denied(work: TaskWork) -> bool:
    if work.row.approval is None:
        return False
    approval = await Approvals(work.parts.pool, work.row.tenant).get(work.row.approval)
    return approval is not None and approval.state == "denied"


def _with_key(context: Context, key: str) -> Context:
    """The context of a call that counts once, however often it is made."""
    headers = replace(context.headers, idempotency_key=key)
    return replace(context, headers=headers)


def result_parts(result: ToolResult) -> tuple[Part, ...]:
    """The structured result as data, and content that is not its text."""
    parts: list[Part] = []
    is_structured = isinstance(result.structured_content, Raw)
    if isinstance(result.structured_content, Raw):
        parts.append(Part(data=msgspec.json.decode(result.structured_content)))
    for content in result.content:
        if isinstance(content, TextContent):
            if not is_structured:
                parts.append(Part(text=content.text))
        else:
            parts.append(_content_part(content))
    return tuple(parts) or (Part(text=""),)


def _content_part(content: Any) -> Part:
    if isinstance(content, ResourceLink):
        return Part(url=content.uri, filename=content.name, media_type=content.mime_type or "")
    if isinstance(content, EmbeddedResource):
        resource = content.resource
        return Part(raw=base64.b64decode(resource.blob), media_type=resource.mime_type)
    return Part(raw=base64.b64decode(content.data), media_type=content.mime_type)


# Runs of the agent wing


class _RunView(msgspec.Struct):
    run: str = ""
    state: str = ""
    answer: str = ""
    stopped: str = ""
    error: str = ""
    approvals: tuple[str, ...] = ()


def run_agent(name: str, agent: A2AAgent) -> Execute:
    return partial(_ask_agent, name, agent)


async def _ask_agent(name: str, agent: A2AAgent, work: TaskWork) -> None:
    """A run of the agent wing: the context is its conversation, its answer the artifact."""
    context = _call_context(agent, work)
    run, skill = work.row.run, _named_skill(name, agent, work.request)
    if skill is None:
        skill_names = ", ".join(agent.skills) or "there are none"
        expectation = f"expected one of its card ({skill_names})"
        text = f'metadata: "skill" names no skill of this agent; {expectation}'
        await work.status(TaskState.REJECTED, text)
        return
    try:
        if work.was_working:
            await work.status(TaskState.WORKING)  # or a question of before would seem open
        if not run:
            with anyio.CancelScope(shield=True):  # stores the id that a cancellation needs
                run = await _begin_run(name, agent, work, context, skill=skill)
                await work.keep_run(run)
        await _follow_run(work, context, run)
    except anyio.get_cancelled_exc_class():
        if run and work.is_cancelled:
            with anyio.CancelScope(shield=True), suppress(Fault):
                await work.parts.call(context, "agent_cancel_run", {"run": run})
        raise


async def _begin_run(
    name: str, agent: A2AAgent, work: TaskWork, context: Context, *, skill: str
) -> str:
    """The id of the run. Sent again by another process it is the same one. Raises Fault."""
    owner = work.context.principal.key
    conversation = str(uuid5(NAMESPACE_URL, json.dumps([name, *owner, work.task.context_id])))
    named = {"id": conversation, "strategy": agent.strategy, "title": name}
    await _call(work, context, "agent_create_conversation", named)
    content = message_text(work.request)
    if skill:
        used = msgspec.json.decode(await _call_raw(work, context, "use_skill", {"name": skill}))
        instructions = used.get("instructions", "")
        content = f"Instructions of the skill {skill}:\n\n{instructions}\n\n{content}"
    message = {"conversation": conversation, "content": content, "wait": False, "stream": True}
    view = await _call(work, _with_key(context, work.row.id), "agent_send", message)
    return view.run


def _named_skill(name: str, agent: A2AAgent, message: Message) -> str | None:
    """The skill that a message asks for, or the first of the agent; "": it has none; None: the
    message names another one."""
    skill = (message.metadata or {}).get("skill", name)
    if skill == name:  # the agent itself is a skill of its card
        return agent.skills[0] if agent.skills else ""
    return skill if skill in agent.skills else None


async def _follow_run(work: TaskWork, context: Context, run: str) -> None:
    """Tell what a run does until it has ended, or a person has to decide. Raises Fault."""
    follow = work.parts.follow()
    if follow is None:
        raise Unavailable("The agent is not open")
    answer = AnswerStream(work, run)
    async for event in follow(context, run, 0):
        if event.type in ("Completed", "Error"):
            break
        if event.type == "Waiting":
            view = await _call(work, context, "agent_get_run", {"run": run})
            if (awaited := await _open_approval(work, view.approvals)) is not None:
                await work.status(TaskState.AUTH_REQUIRED, WAITS, work="waiting", approval=awaited)
                return
        elif event.data.get("status") == "waiting_for_connection":
            await work.status(TaskState.AUTH_REQUIRED, str(event.data.get("message", "")))
        else:
            if work.task.status.state not in AT_WORK:
                await work.status(TaskState.WORKING)
            await answer.take(event)
    view = await _call(work, context, "agent_get_run", {"run": run})
    if view.state in ("completed", "exhausted"):
        await answer.end(view.answer)
    await work.status(ENDS.get(view.state, TaskState.FAILED), view.stopped)


class AnswerStream:
    """The answer of a run as an artifact that grows, and its calls for those who may see them."""

    def __init__(self, work: TaskWork, run: str) -> None:
        self._work = work
        self._run = run
        self._stored = ""
        self._waiting: list[str] = []  # texts that are not stored yet
        self._time = time.monotonic()  # of the last chunk
        scopes = work.context.identity.scopes
        self._shows_calls = work.settings.show_calls and REASONING in scopes
        messages = (part.data for message in work.task.history for part in message.parts)
        self._shown = {json.dumps(data) for data in messages if data is not UNSET}

    async def take(self, event: WingEvent) -> None:
        """Raises LeaseLost."""
        if event.type == "ResponseChunk":
            self._waiting.append(str(event.data["text"]))
            if time.monotonic() - self._time >= self._work.settings.poll_s:
                await self._store(keep=1)  # one remains for the last chunk
        elif event.type in ("IterationComplete", "StatusUpdate"):
            if event.data.get("should_continue") or event.data.get("status") == "restarted":
                self._stored, self._waiting = "", []  # it was no answer, and is replaced
        elif event.type in ("ToolCallStart", "ToolCallResult") and self._shows_calls:
            await self._show_call({"event": event.type, **event.data})

    async def end(self, answer: str) -> None:
        """Store what is left of the whole answer. Raises LeaseLost."""
        if answer != self._stored + "".join(self._waiting) or not self._waiting:
            self._stored, self._waiting = "", [answer] if answer else []
        await self._store(last=True)

    async def _store(self, *, keep: int = 0, last: bool = False) -> None:
        count = len(self._waiting) - keep
        text, self._waiting = "".join(self._waiting[:count]), self._waiting[count:]
        if text:
            chunk = Artifact(artifact_id=self._run, name="answer", parts=(Part(text=text),))
            await self._work.artifact(chunk, append=bool(self._stored), last=last)
            self._stored, self._time = self._stored + text, time.monotonic()

    async def _show_call(self, call: Mapping[str, Any]) -> None:
        call_text = json.dumps(call)
        if call_text not in self._shown:
            self._shown.add(call_text)
            await self._work.status(
                TaskState.WORKING, f"{call['event']}: {call['tool']}", Part(data=dict(call))
            )


async def _open_approval(work: TaskWork, ids: tuple[str, ...]) -> str | None:
    """The first of these approvals that a person may still decide."""
    approvals = Approvals(work.parts.pool, work.row.tenant)
    for id_ in ids:
        approval = await approvals.get(id_)
        if approval and approval.state == "waiting" and approval.expires > datetime.now(UTC):
            return id_
    return None


async def _call(
    work: TaskWork, context: Context, operation: str, arguments: Mapping[str, Any]
) -> _RunView:
    """Raises Fault."""
    body = await _call_raw(work, context, operation, arguments)
    return msgspec.json.decode(body, type=_RunView)


async def _call_raw(
    work: TaskWork, context: Context, tool: str, arguments: Mapping[str, Any]
) -> bytes:
    """The structured result of a tool. Raises Fault."""
    result = await work.parts.call(context, tool, arguments)
    body = structured_body(result)
    if result.is_error:
        problem = msgspec.json.decode(body)
        raise Unavailable(str(problem.get("detail") or result.text))
    return body


def message_text(message: Message) -> str:
    """Text of a message for a model: its texts, and its data as JSON."""
    return "\n\n".join(
        part.text if isinstance(part.text, str) else json.dumps(part.data, ensure_ascii=False)
        for part in message.parts
        if part.text is not UNSET or part.data is not UNSET
    )


KINDS: dict[str, Callable[[str, A2AAgent], Execute]] = {"tools": tool_agent, "agent": run_agent}
