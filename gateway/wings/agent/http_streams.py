"""Streams of the agent over HTTP: the events of a run as they come.

A message is sent by a call of the tool, so that policy, limits and audit hold as for any other way.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import Any

import anyio
import msgspec
from msgspec import UNSET, Struct
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from config.agent import AgentSettings
from gateway.context import Context
from gateway.operations.problems import ProblemDetails, not_found
from gateway.protocol import sse_writer
from gateway.wings.agent.conversation_and_run_store import Run
from gateway.wings.agent.operations import REASONING, RunView
from gateway.wings.agent.run_events import RunEvent, RunFollower, run_event, terminal_event
from gateway.wings.agent.runner import Runner
from gateway.wings.event_stream_responses import last_event_number, stream_events
from gateway.wings.http_tool_calls import ToolCalls, problem_of, respond_problem
from gateway.wings.interface import WingParts
from registry.display.token_budgets import CHARACTERS
from schemas.errors import Fault
from schemas.tool import ToolResult

ROOT = "/agent/v1"
LEAVING_S = 10.0  # for the cancellation of a run whose client has left
MESSAGE_BYTES = CHARACTERS * 4  # of a character of a message, escaped


class _Problem(Struct):
    status: int = 500
    type: str = "problems/failed"
    detail: str = ""


class StreamApi:
    """The requests of `/agent/v1` that accept a stream of events."""

    def __init__(self, parts: WingParts, runner: Runner) -> None:
        self._parts = parts
        self.context = ToolCalls(parts).context
        self._runner = runner
        self.settings: AgentSettings = parts.settings

    def app(self, *more: Route) -> Starlette:
        return Starlette(
            routes=[
                *more,
                Route(f"{ROOT}/ask", self.ask, methods=["POST"]),
                Route(
                    f"{ROOT}/conversations/{{conversation}}/messages", self.send, methods=["POST"]
                ),
                Route(f"{ROOT}/runs/{{run}}/events", self.events, methods=["GET"]),
            ],
            exception_handlers={ProblemDetails: respond_problem, Fault: respond_problem},
        )

    async def ask(self, request: Request) -> Response:
        return await self._begin_stream(request, "agent_ask", {})

    async def send(self, request: Request) -> Response:
        names = {"conversation": request.path_params["conversation"]}
        return await self._begin_stream(request, "agent_send", names)

    async def events(self, request: Request) -> Response:
        """Events behind `Last-Event-ID`; without it all that are kept."""
        context = await self.context(request)
        view = await self.call_operation(
            context, "agent_get_run", {"run": request.path_params["run"]}
        )
        run = await self.run(context, view.run)
        return self._stream(context, run, last_event_number(request))

    async def call_operation(
        self, context: Context, name: str, arguments: Mapping[str, Any]
    ) -> RunView:
        """A call of an operation that gives a run. Raises ProblemDetails."""
        try:
            result = await self._parts.call(context, name, arguments)
        except Fault as fault:
            raise problem_of(fault) from fault
        return _run_of(result)

    async def create(self, context: Context, conversation: str) -> None:
        """Make sure that the caller's conversation of this id exists. Raises ProblemDetails."""
        try:
            result = await self._parts.call(
                context, "agent_create_conversation", {"id": conversation}
            )
        except Fault as fault:
            raise ProblemDetails(422, "refused", fault.message) from fault
        if result.is_error:
            raise ProblemDetails(422, "refused", result.text)

    async def run(self, context: Context, run_id: str) -> Run:
        run = await self._runner.get(context, run_id)
        if run is None:
            raise not_found("run", run_id)
        return run

    async def _begin_stream(
        self, request: Request, name: str, names: Mapping[str, str]
    ) -> Response:
        context = await self.context(request)
        body = await self.body(request)
        view = await self.call_operation(
            context, name, {**body, **names, "wait": False, "stream": True}
        )
        run = await self.run(context, view.run)
        return self._stream(context, run, 0, leaving=True)

    async def events_of_run(
        self, context: Context, run_id: str, after: int
    ) -> AsyncIterator[RunEvent]:
        """The events of a run for its owner, behind a number, up to its end. While it waits for an
        approval, which is an event too, the run is read now and then. Raises ProblemDetails."""
        run = await self.run(context, run_id)
        shows = REASONING in context.identity.scopes
        while not run.has_ended:
            async for events in self.follow(run, after):
                for event in events:
                    if shows or event.type != "ReasoningTrace":
                        yield event
                after = events[-1].number
                if events[-1].terminal:
                    return
            yield run_event(after, "Waiting", {"run_id": run.id})
            run = await self._wait_until_resumed(run)
        yield terminal_event(run, after + 1)

    async def _wait_until_resumed(self, run: Run) -> Run:
        """The run once it waits no longer. Raises ProblemDetails for one that is gone."""
        while True:
            current = await self._runner.runs.get(run.tenant, run.owner, run.id)
            if current is None:
                raise not_found("run", run.id)
            if current.state != "waiting":
                return current
            await anyio.sleep(self.settings.poll_s)

    def _stream(self, context: Context, run: Run, after: int, *, leaving: bool = False) -> Response:
        return self.response(self._send_events(context, run, after, leaving))

    def response(self, events: AsyncIterator[bytes]) -> Response:
        return stream_events(events, self.settings.keep_alive_s)

    async def body(self, request: Request) -> dict[str, Any]:
        """The members of the body. Raises ProblemDetails."""
        return await json_body(request, self.settings.message_characters * MESSAGE_BYTES)

    async def _send_events(
        self, context: Context, run: Run, after: int, leaving: bool
    ) -> AsyncIterator[bytes]:
        shows = REASONING in context.identity.scopes
        async with self.bind(context, run) if leaving else nullcontext():
            async for events in self.follow(run, after):
                frames = [
                    sse_writer.event(bytes(event.body), event.type.encode(), str(event.number))
                    for event in events
                    if shows or event.type != "ReasoningTrace"
                ]
                if frames:
                    yield b"".join(frames)

    @asynccontextmanager
    async def bind(self, context: Context, run: Run) -> AsyncIterator[None]:
        """Cancels the run where its client leaves the stream within, if the settings want it."""
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit):
            if self.settings.cancel_on_disconnect:
                with anyio.move_on_after(LEAVING_S, shield=True):
                    await self._runner.cancel(context, run.id)
            raise

    def follow(self, run: Run, after: int = 0) -> AsyncIterator[Sequence[RunEvent]]:
        """The events of a run, up to its end; those that are ready together at once."""
        log, writers = self._runner.stream, self._runner.writers
        reread = partial(self._runner.runs.get, run.tenant, run.owner, run.id)
        follower = RunFollower(log, run, after, reread=reread, writers=writers)
        return follower.follow(self.settings.keep_alive_s)


def content_text(content: Any) -> str:
    """The text of a message: a string, or parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


async def json_body(request: Request, limit_bytes: int) -> dict[str, Any]:
    """The members of the body. Raises ProblemDetails."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit_bytes:
            raise ProblemDetails(413, "too-large", f"Expected at most {limit_bytes:,} bytes.")
    try:
        return msgspec.json.decode(bytes(body), type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProblemDetails(400, "bad-request", f"Expected a JSON object: {error}.") from error


def _run_of(result: ToolResult) -> RunView:
    """Raises ProblemDetails."""
    structured = result.structured_content
    body = b"{}" if structured is UNSET else bytes(structured)
    if result.is_error and structured is UNSET:  # what its schema or a guard refuses
        raise ProblemDetails(422, "invalid", result.text)
    if result.is_error:
        problem = msgspec.json.decode(body, type=_Problem)
        kind = problem.type.rpartition("/")[2]
        raise ProblemDetails(problem.status, kind, problem.detail)
    return msgspec.json.decode(body, type=RunView)
