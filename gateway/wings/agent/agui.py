"""AG-UI 1.0: the events of a run in the words of that protocol, and requests of its clients.

A thread is a conversation of ours, kept here; of the messages that a client sends, the last one
counts. Calls that wait for an approval end a run with an interrupt, which snapshots of the state
and the messages precede; `resume` answers all that are open and may deny them, and the same run
goes on; only another person can approve them. What follows the interrupt is told, also where the
run has gone on before `resume` came.

Source: docs.ag-ui.com, concepts/events and concepts/interrupts.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import anyio
import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from gateway.context import Context
from gateway.operations.problems import ProblemDetails, lacks_scope
from gateway.protocol import sse_writer
from gateway.wings.agent.conversation_and_run_store import Run
from gateway.wings.agent.http_streams import StreamApi, content_text
from gateway.wings.agent.operations import APPROVE, REASONING, TurnQuery
from gateway.wings.agent.run_events import WAITS_FOR_CONNECTION, RunEvent, interrupt_number
from gateway.wings.agent.run_steps import AgentTurn
from gateway.wings.agent.runner import Runner
from registry.access.approvals import Approvals
from schemas.jsonrpc import encode
from schemas.mismatch import mismatch_text

PATH = "/agent/v1/agui"
VERSION = "1.0"
ANSWER = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}},
    "required": ["approved"],
    "additionalProperties": False,
}
EDITED_TEXT = (
    "An approval is of the call as it is, and takes no editedArgs: answer with approved: false, and"
    " say in a message what to call instead."
)
Json = dict[str, Any]


class _Message(Struct, rename="camel"):
    role: str
    content: Any = None


class _Resume(Struct, rename="camel"):
    interrupt_id: str
    status: str
    payload: Any = None

    @property
    def is_approved(self) -> bool:
        granted = isinstance(self.payload, dict) and self.payload.get("approved") is True
        return self.status == "resolved" and granted

    @property
    def edits(self) -> bool:
        """Whether the arguments of the call would be others than those that wait."""
        return isinstance(self.payload, dict) and "editedArgs" in self.payload


class _Input(Struct, rename="camel"):
    thread_id: str
    run_id: str
    messages: list[_Message]
    resume: list[_Resume] = []
    tools: list[Any] = []


class AgUi:
    def __init__(self, api: StreamApi, runner: Runner) -> None:
        self._api = api
        self._runner = runner

    async def run(self, request: Request) -> Response:
        """`POST /agent/v1/agui`."""
        context = await self._api.context(request)
        body = await self._api.body(request)
        try:
            run_input = msgspec.convert(body, _Input)
        except msgspec.ValidationError as error:
            text = f"{mismatch_text(body, _Input, error)}."
            raise ProblemDetails(400, "bad-request", text) from error
        if run_input.tools:
            raise ProblemDetails(400, "bad-request", "Tools of clients are not supported.")
        principal = context.principal
        name = f"{principal.tenant}/{principal.id}/{run_input.thread_id}"
        conversation = str(uuid5(NAMESPACE_URL, name))
        if not run_input.resume:
            run, after = await self._begin_run(context, conversation, run_input)
        else:
            run = await self._waiting(context, conversation, run_input)
            if expired := await self._expired_interrupts(run, run_input):
                return self._api.response(_refuse(run_input, expired))
            after = await self._resume(context, run, run_input)
        return self._api.response(self._events(context, run_input, run, after))

    async def _begin_run(
        self, context: Context, conversation: str, run_input: _Input
    ) -> tuple[Run, int]:
        if not run_input.messages or run_input.messages[-1].role != "user":
            text = "Expected a message of the user as the last one."
            raise ProblemDetails(400, "bad-request", text)
        content = content_text(run_input.messages[-1].content)
        await self._api.create(context, conversation)
        arguments = {
            "conversation": conversation, "content": content, "wait": False, "stream": True
        }  # fmt: skip
        view = await self._api.call_operation(context, "agent_send", arguments)
        return await self._api.run(context, view.run), 0

    async def _waiting(self, context: Context, conversation: str, run_input: _Input) -> Run:
        """The run of the thread that is resumed. Raises ProblemDetails."""
        principal = context.principal
        if context.identity.verified and APPROVE not in context.identity.scopes:
            raise lacks_scope(APPROVE, action="Answering a run that waits")
        if any(entry.edits for entry in run_input.resume):
            raise ProblemDetails(400, "bad-request", EDITED_TEXT)
        conversations, tenant = self._runner.conversations, principal.tenant
        thread = await conversations.get(tenant, principal.id, conversation)
        turns = [] if thread is None else await conversations.turns(tenant, thread.id, 1)
        own_runs = [run for run, _ in turns if run.owner == principal.id]
        if not own_runs:
            raise ProblemDetails(404, "not-found", "There is no such thread.")
        return own_runs[0]

    async def _expired_interrupts(self, run: Run, run_input: _Input) -> list[str]:
        """Interrupts that are answered too late. Raises ProblemDetails if an open one is left
        out."""
        approvals = Approvals(self._runner.pool, run.tenant)
        approvals_of_run = [
            approval for id_ in run.approvals if (approval := await approvals.get(id_)) is not None
        ]
        waiting = [approval for approval in approvals_of_run if approval.state == "waiting"]
        now = datetime.now(UTC)
        late = {entry.id for entry in waiting if entry.expires <= now}
        answered = {approval.interrupt_id for approval in run_input.resume}
        missing = [approval.id for approval in waiting if approval.id not in late | answered]
        if missing and run.state == "waiting":
            text = f"Expected an answer to each open interrupt; resume lacks {', '.join(missing)}."
            raise ProblemDetails(400, "bad-request", text)
        return sorted(late & answered)

    async def _resume(self, context: Context, run: Run, run_input: _Input) -> int:
        """Decide on what the run waits for; a repeated decision changes nothing. The number of the
        event of the interrupt: the run may have gone on since, where another person has decided.
        Raises ProblemDetails."""
        answered = {resumed.interrupt_id for resumed in run_input.resume}
        after = await interrupt_number(self._runner.stream, run, answered)
        for entry in run_input.resume:
            if entry.interrupt_id in run.approvals:
                await self._runner.decide(context.principal, entry.interrupt_id, entry.is_approved)
        return after

    async def _events(
        self, context: Context, run_input: _Input, run: Run, after: int
    ) -> AsyncIterator[bytes]:
        encoder = Encoder(
            run_input.thread_id, run_input.run_id, REASONING in context.identity.scopes
        )
        for begin_event in encoder.begin():
            yield sse_writer.event(encode(begin_event), b"")
        if run_input.resume:
            run = await self._wait_until_taken_up(run)
        interrupts: list[Json] = []
        async with self._api.bind(context, run):
            async for events in self._api.follow(run, after):
                interrupts += [_interrupt(event) for event in events if event.awaited_approval]
                frames = [
                    sse_writer.event(encode(encoded), b"")
                    for event in events
                    for encoded in encoder.encode(event)
                ]
                if frames:
                    yield b"".join(frames)
        if not encoder.ended:
            turns = await self._turns(run) if interrupts else []
            for event in encoder.interrupt(interrupts, turns):
                yield sse_writer.event(encode(event), b"")

    async def _turns(self, run: Run) -> list[tuple[Run, AgentTurn]]:
        limit = TurnQuery().limit
        return await self._runner.conversations.turns(run.tenant, run.conversation, limit)

    async def _wait_until_taken_up(self, run: Run) -> Run:
        """The run, once somebody has taken it up after a decision."""
        for _ in range(int(60 / self._api.settings.poll_s)):
            current = await self._runner.runs.get(run.tenant, run.owner, run.id) or run
            if current.state != "waiting":
                return current
            await self._runner.take_up()
            await anyio.sleep(self._api.settings.poll_s)
        return run


class Encoder:
    """Events of one run in AG-UI. Pure."""

    def __init__(self, thread: str, run: str, shows_reasoning: bool) -> None:
        self._ids = {"threadId": thread, "runId": run}
        self._shows = shows_reasoning
        self._open = ""  # the kind of the message that is open: TEXT or REASONING
        self._step = 0
        self._message = 0
        self.ended = False

    def begin(self) -> Iterator[Json]:
        yield {"type": "RUN_STARTED", **self._ids, "protocolVersion": VERSION}

    def encode(self, event: RunEvent) -> Iterator[Json]:
        data = event.data
        yield from self._change_step(data["iteration"])
        match event.type:
            case "ResponseChunk":
                yield from self._say("TEXT_MESSAGE", data["text"], "assistant")
            case "ReasoningTrace" if self._shows:
                yield from self._say("REASONING_MESSAGE", data["text"], "reasoning")
            case "ToolCallStart":
                yield from self._close()
                id_ = data["tool_call_id"]
                yield {"type": "TOOL_CALL_START", "toolCallId": id_, "toolCallName": data["tool"]}
                arguments = encode(data["arguments"]).decode()
                yield {"type": "TOOL_CALL_ARGS", "toolCallId": id_, "delta": arguments}
                yield {"type": "TOOL_CALL_END", "toolCallId": id_}
            case "ToolCallResult":
                yield from self._close()
                yield {
                    "type": "TOOL_CALL_RESULT", "messageId": f"result-{data['tool_call_id']}",
                    "toolCallId": data["tool_call_id"], "content": data["text"], "role": "tool",
                }  # fmt: skip
            case "StatusUpdate" if data["status"] == WAITS_FOR_CONNECTION:
                yield from self._close()
                names = ("tool_call_id", "message", "url", "source", "reason", "ends")
                value = {name: data[name] for name in names if name in data}
                yield {"type": "CUSTOM", "name": "toolgate/connect", "value": value}
            case "Completed":
                yield from self._finish({"type": "success"}, data)
            case "Error":
                yield from self._close()
                self.ended = True
                yield {"type": "RUN_ERROR", "message": data["message"], "code": data["code"]}

    def interrupt(
        self, interrupts: list[Json], turns: Sequence[tuple[Run, AgentTurn]]
    ) -> Iterator[Json]:
        """`turns`: the newest ones of the thread, for the snapshots that precede an interrupt; none
        of one that was erased meanwhile."""
        yield from self._change_step(0)
        if not turns:
            interrupts = []
        if interrupts:
            state = {
                "state": turns[-1][0].state,
                "interrupts": [interrupt["id"] for interrupt in interrupts],
            }
            yield {"type": "STATE_SNAPSHOT", "snapshot": state}
            messages = [
                message for run, turn in turns for message in _messages(run, turn, self._shows)
            ]
            yield {"type": "MESSAGES_SNAPSHOT", "messages": messages}
        outcome = {"type": "interrupt", "interrupts": interrupts}
        yield from self._finish(outcome if interrupts else {"type": "success"}, {})

    def expire(self, interrupts: Sequence[str]) -> Iterator[Json]:
        text = f"Nobody answered in time; expired: {', '.join(interrupts)}. Its call was not made."
        self.ended = True
        yield {"type": "RUN_ERROR", "message": text, "code": "interrupt_expired"}

    def _finish(self, outcome: Json, data: Json) -> Iterator[Json]:
        yield from self._change_step(0)
        self.ended = True
        result = {name: data[name] for name in ("state", "stopped", "tokens") if name in data}
        members = {"result": result} if result else {}
        yield {"type": "RUN_FINISHED", **self._ids, "outcome": outcome, **members}

    def _change_step(self, step: int) -> Iterator[Json]:
        if step == self._step:
            return
        yield from self._close()
        if self._step:
            yield {"type": "STEP_FINISHED", "stepName": f"iteration {self._step}"}
        self._step = step
        if step:
            yield {"type": "STEP_STARTED", "stepName": f"iteration {step}"}

    def _say(self, kind: str, text: str, role: str) -> Iterator[Json]:
        if self._open != kind:
            yield from self._close()
            self._open = kind
            self._message += 1
            if kind == "REASONING_MESSAGE":
                yield {"type": "REASONING_START", "messageId": self._id}
            yield {"type": f"{kind}_START", "messageId": self._id, "role": role}
        if text:
            yield {"type": f"{kind}_CONTENT", "messageId": self._id, "delta": text}

    def _close(self) -> Iterator[Json]:
        kind, self._open = self._open, ""
        if kind:
            yield {"type": f"{kind}_END", "messageId": self._id}
        if kind == "REASONING_MESSAGE":
            yield {"type": "REASONING_END", "messageId": self._id}

    @property
    def _id(self) -> str:
        return f"{self._ids['runId']}-{self._message}"


def _messages(run: Run, turn: AgentTurn, shows_reasoning: bool) -> Iterator[Json]:
    """A turn in AG-UI's messages."""
    yield {"id": run.id, "role": "user", "content": run.content}
    for number, round_ in enumerate(turn.rounds, 1):
        reply, id_ = round_.reply, f"{run.id}-{number}"
        if shows_reasoning and reply.reasoning:
            yield {"id": f"{id_}-reasoning", "role": "reasoning", "content": reply.reasoning}
        calls = [
            {"id": call.id, "type": "function",
             "function": {"name": call.name, "arguments": call.arguments}}
            for call in reply.calls
        ]  # fmt: skip
        members = {"toolCalls": calls} if calls else {}
        yield {"id": id_, "role": "assistant", "content": reply.text, **members}
        for call in reply.calls:
            if (result := round_.results.get(call.id)) is not None:
                yield {
                    "id": f"result-{call.id}", "role": "tool",
                    "toolCallId": call.id, "content": result.text,
                }  # fmt: skip


async def _refuse(run_input: _Input, interrupts: Sequence[str]) -> AsyncIterator[bytes]:
    """Of a resume that comes after the end of an interrupt."""
    encoder = Encoder(run_input.thread_id, run_input.run_id, shows_reasoning=False)
    for event in (*encoder.begin(), *encoder.expire(interrupts)):
        yield sse_writer.event(encode(event), b"")


def _interrupt(event: RunEvent) -> Json:
    data = event.data
    return {
        "id": data["approval"],
        "reason": "tool_call",
        "toolCallId": data["tool_call_id"],
        "responseSchema": ANSWER,
        "expiresAt": data["expires"],
    }
