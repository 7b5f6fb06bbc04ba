"""The dialect of OpenAI's chat completions, which most providers speak: DeepSeek, Qwen, Mistral,
Gemini's endpoint, Ollama, vLLM, llama.cpp.

Source: platform.openai.com/docs/api-reference/chat, api-docs.deepseek.com/guides/thinking_mode.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.json import encode

from gateway.http.events import ServerEvent
from gateway.models.abc import (
    ChatMessage,
    ContentChunk,
    Finish,
    ModelEvent,
    ReasoningChunk,
    ToolCallDetected,
)
from gateway.models.assembly import CallAssembler, CallInProgress
from gateway.models.dialect import (
    ModelAnswer,
    Prompt,
    ProviderError,
    arguments_sent,
    cut,
    decoded,
    finished,
    provider_error,
)
from gateway.models.usage import TokenUsage, count

DONE = b"[DONE]"
FINISHES: Mapping[str, Finish] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "calls",
    "function_call": "calls",
    "content_filter": "filtered",
}
FAILED = frozenset({"insufficient_system_resource", "error"})  # the first is DeepSeek's


class _Function(Struct):
    name: Any = None
    arguments: Any = None


class _Fragment(Struct):
    index: Any = None
    id: Any = None
    function: _Function | None = None


class _Delta(Struct):
    """A delta, or the message of an answer that was not streamed."""

    content: Any = None
    reasoning_content: Any = None  # DeepSeek, Qwen
    reasoning: Any = None  # vLLM, OpenRouter
    refusal: Any = None
    tool_calls: list[_Fragment] | None = None


class _Choice(Struct):
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: Any = None


class _Chunk(Struct):
    choices: list[_Choice] | None = None
    usage: dict[str, Any] | None = None
    model: Any = None
    error: Any = None


class ChatCompletions:
    path = "/chat/completions"

    def headers(self, key: str) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {key}"} if key else {}

    def body(self, prompt: Prompt) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": prompt.model,
            "messages": [_message(prompt, one) for one in prompt.messages],
            prompt.settings.max_tokens_name: prompt.max_tokens,
        }
        if prompt.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": tool.name,
                        "description": tool.description,
                        "parameters": tool.parameters,
                    },
                }
                for tool in prompt.tools
            ]
            if prompt.options.tool_choice != "auto":
                body["tool_choice"] = prompt.options.tool_choice
        if prompt.options.json:
            body["response_format"] = {"type": "json_object"}
        if prompt.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return body

    def reader(self, made: str) -> "ChatReader":
        return ChatReader(made)

    def answer(self, body: bytes, made: str) -> ModelAnswer:
        reader = ChatReader(made)
        # DeepSeek sends empty lines before the body while a request waits
        reader.feed(ServerEvent(body.strip()))
        return reader.answer()


def _message(prompt: Prompt, message: ChatMessage) -> dict[str, Any]:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.call_id, "content": message.text}
    written: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.calls:
        written["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": arguments_sent(call)},
            }
            for call in message.calls
        ]
        if prompt.settings.returns_reasoning == "calls":
            # an empty one, too: DeepSeek refuses conversations that have lost one
            written["reasoning_content"] = (prompt.kept(message) or {}).get("reasoning_content", "")
    return written


class ChatReader:
    def __init__(self, made: str) -> None:
        self._calls = CallAssembler(made)
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._kept: bool = False  # whether there was a member of reasoning, perhaps an empty one
        self._finish: Finish | None = None
        self._usage: TokenUsage | None = None
        self._model = ""
        self._refused = False
        self.ended = False
        self.closed = False

    def feed(self, event: ServerEvent) -> Sequence[ModelEvent]:
        if event.data.strip() == DONE:
            self.ended = self.closed = True
            return ()
        chunk: _Chunk = decoded(event.data, _Chunk)
        if chunk.error is not None:
            raise provider_error(chunk.error)
        if isinstance(chunk.model, str) and chunk.model:
            self._model = chunk.model
        if chunk.usage:
            self._usage = _usage(chunk.usage)  # cumulative where it comes in each chunk
        events: list[ModelEvent] = []
        for choice in (chunk.choices or [])[:1]:
            delta = choice.delta or choice.message
            if delta is not None:
                self._delta(delta, events)
            self.ended = self.ended or choice.message is not None
            self._finished(choice.finish_reason)
        return events

    def answer(self) -> ModelAnswer:
        if not self.ended:
            raise cut()
        finish, calls = finished(self._finish or "stop", self._calls.calls())
        reasoning = "".join(self._reasoning)
        return ModelAnswer(
            "".join(self._text),
            calls,
            reasoning,
            "refused" if self._refused and not calls else finish,
            self._usage,
            self._model,
            {"reasoning_content": reasoning} if self._kept else None,
        )

    def _finished(self, reason: Any) -> None:
        if not isinstance(reason, str) or not reason:
            return
        if reason in FAILED:
            raise ProviderError("is busy or unavailable", "busy", detail=reason, retryable=True)
        self._finish = FINISHES.get(reason, "stop")
        self.ended = True

    def _delta(self, delta: _Delta, events: list[ModelEvent]) -> None:
        if isinstance(delta.reasoning_content, str):
            self._kept = True
        thought = _text(delta.reasoning_content) or _text(delta.reasoning)
        if thought:
            self._reasoning.append(thought)
            events.append(ReasoningChunk(thought))
        if refusal := _text(delta.refusal):
            self._refused = True
        if text := _text(delta.content) or refusal:
            self._text.append(text)
            events.append(ContentChunk(text))
        events.extend(
            ToolCallDetected(self._calls.id_of(call), call.name)
            for fragment in delta.tool_calls or ()
            if (call := self._fragment(fragment)) is not None
        )

    def _fragment(self, fragment: _Fragment) -> CallInProgress | None:
        function = fragment.function or _Function()
        index = fragment.index if isinstance(fragment.index, int) else None
        arguments = function.arguments
        if arguments is not None and not isinstance(arguments, str):
            arguments = encode(arguments).decode()  # some send the object itself
        return self._calls.feed(
            index, _string(fragment.id), _string(function.name), arguments or ""
        )


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _text(content: Any) -> str:
    """Text of a content: a string, or parts (Mistral)."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "".join(_string(part.get("text")) for part in content if isinstance(part, dict))


def _usage(members: Mapping[str, Any]) -> TokenUsage:
    """TokenUsage of OpenAI, and of DeepSeek with its own member of cached tokens."""
    prompt = members.get("prompt_tokens_details")
    completion = members.get("completion_tokens_details")
    cached = prompt.get("cached_tokens") if isinstance(prompt, dict) else None
    thought = completion.get("reasoning_tokens") if isinstance(completion, dict) else None
    return TokenUsage(
        count(members.get("prompt_tokens")),
        count(members.get("completion_tokens")),
        count(cached) or count(members.get("prompt_cache_hit_tokens")),
        count(thought),
    )
