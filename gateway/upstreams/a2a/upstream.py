"""Executes `A2aBinding`: a call is a message to an agent, its result what the agent makes of it.

Callers get ids of contexts and tasks as sealed handles (`sealed_handles.py`).
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from msgspec.structs import replace

from gateway.context import Context
from gateway.operations.progress_notifications import report_progress
from gateway.protocol.client_features import ELICIT
from gateway.protocol.sealed_state import Sealer
from gateway.state.background_tasks import BackgroundTasks
from gateway.upstreams.a2a.agent_client import Agent, AgentClient, AgentRefused
from gateway.upstreams.a2a.conversation import Conversation
from gateway.upstreams.a2a.results import result_of
from gateway.upstreams.a2a.sealed_handles import AgentHandle, SealedHandles
from gateway.upstreams.http.client import Client
from gateway.upstreams.http.file_arguments import file_of, media_type_of, name_of
from gateway.upstreams.http.responses_as_results import failed_call, failure_result
from gateway.upstreams.http.source_pools import UpstreamFailed
from gateway.upstreams.http.uploads import Uploads
from schemas.a2a.model import Message, Part
from schemas.binding import A2aBinding
from schemas.errors import InvalidParams
from schemas.jsonrpc import encode
from schemas.source import Source
from schemas.tool import AskingResult, TextContent, Tool, ToolResult

HOPS_LIMIT = 3  # agents that hand one request on
STATE = "toolgate/a2a:"  # begins the requestState of a client that was asked; a handle follows
INPUT = "a2a"  # key of the one question in a result


@dataclass(frozen=True, slots=True)
class ClientAnswer:
    """Answer of a client to a question in a result."""

    message: Message | None = None  # to the agent
    is_opened: bool = False  # an address
    is_declined: bool = False


class A2aUpstream:
    def __init__(
        self,
        client: Client,
        uploads: Uploads,
        sealer: Callable[[], Awaitable[Sealer]],
        background: BackgroundTasks,
    ) -> None:
        """`background` runs what cancels tasks of agents, after their calls."""
        self._client = client
        self._agents = AgentClient(client)
        self._uploads = uploads
        self._handles = SealedHandles(sealer)
        self._background = background

    async def call(
        self, tool: Tool, source: Source | None, arguments: Any, context: Context
    ) -> ToolResult:
        if source is None:
            return failure_result(f"The agent of {tool.name} is not known here any more")
        if context.agent_hops >= HOPS_LIMIT:
            text = f"{tool.name} was not called: {HOPS_LIMIT} agents have handed this request on"
            return failure_result(text)
        binding = cast("A2aBinding", tool.binding)  # app: each upstream has its own kind
        try:
            pool = self._client.connections.of(source)
            if pool.own.has_url(binding.url):
                return failure_result(f"{tool.name} was not called: it is an agent of this gateway")
            agent = Agent(source, binding, await self._client.caller(source, context))
            async with report_progress(context) as job:
                patience_s = self._agents.limits.a2a_task_s if context.absent else pool.timeout_s
                talk = Conversation(self._agents, agent, context, job, patience_s=patience_s)
                state = context.params.get("requestState")
                if isinstance(state, str) and state.startswith(STATE):
                    answered = await self._read_answer(talk, state, context)
                    return await self._follow(talk, answered.message, context, answered)
                message = await self._message(talk, tool, arguments, context)
                return await self._follow(talk, message, context)
        except UpstreamFailed as error:
            return failed_call(error)
        except AgentRefused as error:
            return failure_result(f"{source.name} refused: {error}")

    async def _read_answer(
        self, talk: Conversation, state: str, context: Context
    ) -> "ClientAnswer":
        """The answer of a client of 2026-07-28, which has called again. Raises InvalidParams."""
        source = talk.agent.source
        handle = await self._handles.open("task", state.removeprefix(STATE), source, context)
        _resume(talk, handle)
        responses = context.params.get("inputResponses")
        answer = responses.get(INPUT) if isinstance(responses, dict) else None
        if not isinstance(answer, dict) or answer.get("action") != "accept":
            return ClientAnswer(is_declined=True)
        content = answer.get("content")
        if not isinstance(content, dict):
            return ClientAnswer(is_opened=True)
        return ClientAnswer(talk.message((Part(data=content),)))

    async def _follow(
        self,
        talk: Conversation,
        message: Message | None,
        context: Context,
        reply: "ClientAnswer | None" = None,
    ) -> ToolResult:
        name, trouble = talk.agent.source.name, ""
        try:
            await talk.follow(message, is_opened=reply is not None and reply.is_opened)
        except asyncio.CancelledError:
            if talk.is_running:
                self._background.start(self._cancel(talk.agent, talk.task_id))
            raise
        except UpstreamFailed as error:
            if not talk.is_running:
                raise
            trouble = str(error)  # the task goes on, and can be asked for
        handles = await self._handles.seal(talk, context)
        result = result_of(talk, handles, name)
        if talk.question is not None and not (reply is not None and reply.is_declined):
            requests = {INPUT: {"method": ELICIT, "params": talk.question}}
            parts = {member: getattr(result, member) for member in ToolResult.__struct_fields__}
            return AskingResult(**parts, requests=requests, state=STATE + handles.task)
        if not trouble:
            return result
        return replace(result, content=(TextContent(trouble), *result.content))

    async def _cancel(self, agent: Agent, task_id: str) -> None:
        with suppress(UpstreamFailed, AgentRefused):  # it has ended meanwhile, or cannot be reached
            await self._agents.cancel(agent, task_id)

    async def _message(
        self, talk: Conversation, tool: Tool, arguments: dict[str, Any], context: Context
    ) -> Message | None:
        """The message that the arguments ask for, and into `talk` what they continue; None: only
        its task is looked at. Raises InvalidParams and UpstreamFailed."""
        source = talk.agent.source
        for name in ("context", "task"):
            if text := arguments.get(name):
                handle = await self._handles.open(name, text, source, context)
                if talk.context_id not in ("", handle.context):
                    raise InvalidParams("context: expected that of the task, or none")
                _resume(talk, handle)
        binding = cast("A2aBinding", tool.binding)
        opening = f"Use your skill {binding.skill}." if binding.skill and not talk.task_id else ""
        parts = await self._parts(arguments, context, opening)
        if parts:
            return talk.message(parts, _message_id(tool, context))
        if not talk.task_id:
            raise InvalidParams("message: expected a text, or data, files or a task")
        return None

    async def _parts(
        self, arguments: dict[str, Any], context: Context, opening: str
    ) -> tuple[Part, ...]:
        """`opening`: the first sentence of a message."""
        parts = []
        message = arguments.get("message", "")
        if not (message or arguments.get("files") or "data" in arguments):
            return ()
        if text := f"{opening} {message}".rstrip() if opening else message:
            parts.append(Part(text=text))
        if "data" in arguments:
            parts.append(Part(data=arguments["data"]))
        budget_bytes = self._agents.limits.upload_limit_bytes
        for index, value in enumerate(arguments.get("files", ())):
            part = await self._file(f"files[{index}]", value, context)
            budget_bytes -= len(part.raw) if isinstance(part.raw, bytes) else 0
            if budget_bytes < 0:
                raise InvalidParams(f"files[{index}]: too large (upstream.upload_limit_bytes)")
            parts.append(part)
        return tuple(parts)

    async def _file(self, argument: str, value: Any, context: Context) -> Part:
        """A file; one at a web address is the agent's to fetch."""
        file = file_of(argument, value)
        kind = media_type_of(file) or ""
        if file.uri.lower().startswith(("http://", "https://")):
            return Part(url=file.uri, filename=name_of(file, kind), media_type=kind)
        data = file.data
        if data is None:
            data, media_type = await self._uploads.resource(file, context)
            kind = kind or media_type or ""
        return Part(raw=data, filename=name_of(file, kind), media_type=kind)


def _resume(talk: Conversation, handle: AgentHandle) -> None:
    talk.context_id, talk.task_id, talk.answered_key = handle.context, handle.task, handle.question


def _message_id(tool: Tool, context: Context) -> str:
    """The same for each attempt at one call, by which the agent knows a repeated message."""
    key = context.headers.idempotency_key
    if key is None:
        return uuid.uuid4().hex
    name = encode([tool.id, *context.principal.key, key]).decode()
    return uuid.uuid5(uuid.NAMESPACE_OID, name).hex
