"""The agent as a model of OpenAI's chat completions, for clients that know nothing else.

The models listed are strategies. A conversation is what the client sends, unless
`metadata.conversation` names one. Calls of tools stay inside; what waits for an approval is said in
words.
"""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial, reduce
from typing import Any, Literal

import msgspec
from msgspec import Struct
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.context import Context
from gateway.operations.problems import ProblemDetails
from gateway.protocol import sse_writer
from gateway.wings.agent.conversation_and_run_store import Run
from gateway.wings.agent.http_streams import StreamApi, content_text
from gateway.wings.agent.operations import REASONING, RunView
from gateway.wings.agent.run_events import WAITS_FOR_CONNECTION, RunEvent
from gateway.wings.agent.runner import Runner
from gateway.wings.http_tool_calls import problem_of
from gateway.wings.models.usage import TokenUsage
from schemas.errors import Fault
from schemas.jsonrpc import encode
from schemas.mismatch import mismatch_text

COMPLETIONS, MODELS = "/v1/chat/completions", "/v1/models"
AGENT = "agent"  # the default strategy, as a model
UNSUPPORTED_MEMBERS = (
    "logprobs", "top_logprobs", "tools", "functions", "audio", "max_tokens",
    "max_completion_tokens", "stop",
)  # fmt: skip
HARMLESS: Mapping[str, tuple[Any, ...]] = {  # values that ask for what the agent does anyway
    "n": (None, 1),
    "response_format": (None, {"type": "text"}),
    "tool_choice": (None, "none", "auto"),
}
FINISH_REASONS: Mapping[str, str] = {  # OpenAI's word for why a run stopped; of all others: length
    "": "stop", "length": "length", "filtered": "content_filter", "refused": "content_filter",
}  # fmt: skip


class _Message(Struct):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[dict[str, Any]] | None = None

    @property
    def text(self) -> str:
        return content_text(self.content)


class _Completion(Struct):
    messages: list[_Message]
    model: str = AGENT
    stream: bool = False
    stream_options: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None


class Facade:
    def __init__(self, api: StreamApi, runner: Runner, strategies: Sequence[str]) -> None:
        """`strategies`: those that can be asked."""
        self._api = api
        self._runner = runner
        self._strategies = strategies

    @property
    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route(COMPLETIONS, self.complete, methods=["POST"]),
                Route(MODELS, self.models, methods=["GET"]),
                Route(MODELS + "/{model}", self.model, methods=["GET"]),
            ],
            exception_handlers={ProblemDetails: _problem, Fault: _problem},
        )

    async def models(self, request: Request) -> Response:
        await self._api.context(request)
        rows = [_model(name) for name in (AGENT, *self._strategies)]
        return _json({"object": "list", "data": rows})

    async def model(self, request: Request) -> Response:
        await self._api.context(request)
        name = request.path_params["model"]
        self._check_model(name)
        return _json(_model(name))

    def _check_model(self, name: str) -> None:
        """Raises ProblemDetails."""
        if name != AGENT and name not in self._strategies:
            raise ProblemDetails(404, "not-found", f"There is no model {name[:100]!r}.")

    async def complete(self, request: Request) -> Response:
        context = await self._api.context(request)
        completion = await self._read_request(request)
        view = await self._api.call_operation(context, "agent_ask", self._arguments(completion))
        run = await self._api.run(context, view.run)
        if not completion.stream:
            return _json(_whole(view, completion.model, await self._usage(run)))
        usage = (completion.stream_options or {}).get("include_usage") is True
        return self._api.response(self._chunks(context, run, completion.model, usage=usage))

    async def _read_request(self, request: Request) -> _Completion:
        """Raises ProblemDetails."""
        body = await self._api.body(request)
        unsupported = [name for name in UNSUPPORTED_MEMBERS if body.get(name)]
        unsupported += [name for name, values in HARMLESS.items() if body.get(name) not in values]
        if unsupported:
            raise _bad(f"The agent does not support {', '.join(unsupported)}.")
        try:
            completion = msgspec.convert(body, _Completion)
        except msgspec.ValidationError as error:
            raise _bad(f"{mismatch_text(body, _Completion, error)}.") from error
        if not completion.messages or completion.messages[-1].role != "user":
            raise _bad("Expected a message of the user as the last one.")
        for place, message in enumerate(completion.messages):
            parts = message.content if isinstance(message.content, list) else ()
            if kind := next((str(p.get("type")) for p in parts if p.get("type") != "text"), None):
                raise _bad(f"messages[{place}]: expected parts of text, not {kind[:40]}.")
        self._check_model(completion.model)
        return completion

    def _arguments(self, completion: _Completion) -> dict[str, Any]:
        *before, last = completion.messages
        conversation = (completion.metadata or {}).get("conversation")
        strategy = "" if completion.model == AGENT else completion.model
        common = {"message": last.text, "strategy": strategy, "stream": completion.stream}
        common["wait"] = not completion.stream
        if conversation is not None:
            return {**common, "conversation": str(conversation)}
        history = [
            {"role": "assistant" if message.role == "assistant" else "user", "text": message.text}
            for message in before
            if message.text
        ]
        return {**common, "history": history}

    async def _chunks(
        self, context: Context, run: Run, model: str, *, usage: bool
    ) -> AsyncIterator[bytes]:
        shows = REASONING in context.identity.scopes
        chunk = partial(_chunk, run.id, model, members={"usage": None} if usage else {})
        yield chunk({"role": "assistant", "content": ""})
        async with self._api.bind(context, run):
            async for events in self._api.follow(run):
                deltas = [delta for event in events if (delta := _delta(event, shows=shows))]
                if deltas:
                    yield b"".join(map(chunk, deltas))
                if events[-1].type == "Error":
                    data = events[-1].data
                    error = {"message": data["message"], "type": data["code"]}
                    yield sse_writer.event(encode({"error": error}), b"")
                    return
        ended = await self._runner.runs.get(run.tenant, run.owner, run.id) or run
        yield chunk({}, _finish(ended.stopped))
        if usage:
            last = {"choices": [], "usage": await self._usage(ended)}
            yield sse_writer.event(encode({**_head(run.id, model, "chunk"), **last}), b"")
        yield sse_writer.event(b"[DONE]", b"")

    async def _usage(self, run: Run) -> dict[str, Any]:
        """Usage of a run: that of its answers, and as the prompt's also that of failed requests.
        Details stand there where a provider told them."""
        turn = await self._runner.runs.turn(run)
        replies = [round_.reply for round_ in turn.rounds]
        usages = [reply.usage for reply in replies if not reply.cached]
        usage = reduce(TokenUsage.plus, usages, TokenUsage())
        output = min(usage.output, run.tokens)
        members: dict[str, Any] = {
            "prompt_tokens": run.tokens - output,
            "completion_tokens": output,
            "total_tokens": run.tokens,
        }
        if usage.cached:
            members["prompt_tokens_details"] = {"cached_tokens": usage.cached}
        if usage.reasoning:
            members["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning}
        return members


def _delta(event: RunEvent, *, shows: bool) -> dict[str, str] | None:
    """The delta of an event; `shows` reasoning, too. None: it has none."""
    data = event.data
    match event.type:
        case "ResponseChunk":
            return {"content": data["text"]}
        case "ReasoningTrace" if shows:
            return {"reasoning_content": data["text"]}
        case "StatusUpdate" if data["status"] == "waiting_for_approval":
            return {"content": _waits([data["approval"]])}
        case "StatusUpdate" if data["status"] == WAITS_FOR_CONNECTION:
            return {"content": f"\n\n{data['message']}\n"}
    return None


def _whole(view: RunView, model: str, usage: Mapping[str, Any]) -> dict[str, Any]:
    if view.state == "failed":
        raise ProblemDetails(502, view.error, view.stopped)
    waits = _waits(view.approvals) if view.approvals else ""
    message = {"role": "assistant", "content": f"{view.answer}{waits}", "refusal": None}
    finish = _finish(view.stopped)
    choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
    return {**_head(view.run, model, ""), "choices": [choice], "usage": usage}


def _finish(stopped: str) -> str:
    return FINISH_REASONS.get(stopped, "length")


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "toolgate"}


def _waits(approvals: Sequence[str]) -> str:
    return f"\n\nA call waits for an approval: {', '.join(approvals)}\n"


def _head(run: str, model: str, part: str) -> dict[str, Any]:
    kind = f"chat.completion.{part}" if part else "chat.completion"
    created = int(time.time())
    return {"id": f"chatcmpl-{run}", "object": kind, "created": created, "model": model}


def _chunk(
    run: str,
    model: str,
    delta: dict[str, Any],
    finish: str | None = None,
    *,
    members: Mapping[str, Any],
) -> bytes:
    """`members`: further ones of the chunk."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {**_head(run, model, "chunk"), **members, "choices": [choice]}
    return sse_writer.event(encode(chunk), b"")


def _json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(encode(value), status, headers, media_type="application/json")


def _bad(detail: str) -> ProblemDetails:
    return ProblemDetails(400, "invalid_request_error", detail)


async def _problem(_request: Request, error: Exception) -> Response:
    """An error as OpenAI writes it."""
    problem = problem_of(error)
    error_members = {"message": problem.detail, "type": problem.kind}
    return _json({"error": error_members}, problem.status, problem.headers)
