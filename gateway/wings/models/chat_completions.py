"""The dialect of OpenAI's chat completions, which most providers speak: DeepSeek, Qwen, Mistral,
Gemini's endpoint, Ollama, vLLM, llama.cpp.

Source: platform.openai.com/docs/api-reference/chat, api-docs.deepseek.com/guides/thinking_mode.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.json import encode

from gateway.http_client.sse_parser import ServerEvent
from gateway.wings.models.dialect import (
    ModelAnswer,
    Prompt,
    ProviderError,
    arguments_sent,
    cut,
    decode_answer,
    provider_error,
    settle_finish,
)
from gateway.wings.models.messages import (
    ChatMessage,
    ContentChunk,
    Finish,
    ModelEvent,
    ReasoningChunk,
    ToolCallDetected,
)
from gateway.wings.models.tool_call_assembly import CallAssembler, CallInProgress
from gateway.wings.models.usage import TokenUsage, count

STREAM_END = b"[DONE]"
OPENING, CLOSING = "<think>", "</think>"
REASONING = ("reasoning_content", "reasoning")  # members of reasoning, as vendors name them
FINISHES: Mapping[str, Finish] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "calls",
    "function_call": "calls",
    "content_filter": "filtered",
}
FAILURE_REASONS = frozenset({"insufficient_system_resource", "error"})  # the first is DeepSeek's


class _Function(Struct):
    name: Any = None
    arguments: Any = None


class _Fragment(Struct):
    index: Any = None
    id: Any = None
    function: _Function | None = None
    extra_content: Any = None  # Gemini: signatures of its thoughts, which have to go back


class _Delta(Struct):
    """A delta, or the message of an answer that was not streamed."""

    content: Any = None
    reasoning_content: Any = None  # DeepSeek, Qwen
    reasoning: Any = None  # vLLM, OpenRouter
    refusal: Any = None
    tool_calls: list[_Fragment] | None = None
    function_call: _Function | None = None  # before there were tool_calls
    extra_content: Any = None


class _Choice(Struct):
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: Any = None
    usage: Any = None  # Kimi
    error: Any = None  # OpenRouter


class _Chunk(Struct):
    choices: list[_Choice] | None = None
    usage: dict[str, Any] | None = None
    model: Any = None
    error: Any = None
    object: Any = None
    message: Any = None  # of an error whose `object` says that it is one (vLLM)
    code: Any = None
    x_groq: Any = None


class ChatCompletions:
    path = "/chat/completions"

    def headers(self, key: str) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {key}"} if key else {}

    def body(self, prompt: Prompt) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": prompt.model,
            "messages": [_message(prompt, message) for message in prompt.messages],
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

    def reader(self, id_prefix: str) -> "ChatReader":
        return ChatReader(id_prefix)

    def answer(self, body: bytes, id_prefix: str) -> ModelAnswer:
        reader = ChatReader(id_prefix)
        # DeepSeek sends empty lines before the body while a request waits
        reader.feed(ServerEvent(body.strip()))
        return reader.answer()


def _message(prompt: Prompt, message: ChatMessage) -> dict[str, Any]:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.call_id, "content": message.text}
    written: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.calls:
        extras = (prompt.kept_answer(message) or {}).get("extras", {})
        written["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": arguments_sent(call)},
                **({"extra_content": extras[call.id]} if call.id in extras else {}),
            }
            for call in message.calls
        ]
    if message.role == "assistant":
        written |= _returned_members(prompt, message)
    return written


def _returned_members(prompt: Prompt, message: ChatMessage) -> dict[str, Any]:
    """Members of its own answer that the provider wants back."""
    provider_members = prompt.kept_answer(message) or {}
    returned = (
        {"extra_content": provider_members["extra_content"]}
        if "extra_content" in provider_members
        else {}
    )
    policy = prompt.settings.returns_reasoning
    if policy == "always" or (policy == "calls" and message.calls):
        names = [name for name in (*REASONING, "content") if name in provider_members]
        returned |= {name: provider_members[name] for name in names}
        if message.calls and not names:
            # an empty one, too: DeepSeek refuses conversations that have lost one
            returned[REASONING[0]] = ""
    return returned


class ChatReader:
    def __init__(self, id_prefix: str) -> None:
        self._calls = CallAssembler(id_prefix)
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._kept = ""  # name of the member of reasoning, if there was one, perhaps empty
        self._thinking = ThinkTags()
        self._extra: Any = None  # what goes back with the text
        self._legacy = False  # whether the call is a function_call
        self._finish: Finish | None = None
        self._usage: TokenUsage | None = None
        self._model = ""
        self._refused = False
        self.ended = False
        self.closed = False

    def feed(self, event: ServerEvent) -> Sequence[ModelEvent]:
        if event.data.strip() == STREAM_END:
            self.ended = self.closed = True
            return ()
        chunk: _Chunk = decode_answer(event.data, _Chunk)
        if chunk.error is not None:
            raise provider_error(chunk.error)
        if chunk.object == "error":
            raise provider_error({"message": chunk.message, "code": chunk.code})
        if isinstance(chunk.model, str) and chunk.model:
            self._model = chunk.model
        self._read_usage(chunk.usage)
        if isinstance(chunk.x_groq, dict):
            self._read_usage(chunk.x_groq.get("usage"))
        events: list[ModelEvent] = []
        for choice in (chunk.choices or [])[:1]:
            self._read_usage(choice.usage)
            if choice.error is not None:
                raise provider_error(choice.error)
            delta = choice.delta or choice.message
            if delta is not None:
                self._delta(delta, events, is_complete=choice.message is not None)
            self.ended = self.ended or choice.message is not None
            self._read_finish(choice.finish_reason)
        if self.ended:
            self._add_text(self._thinking.end(), events)
        return events

    def answer(self) -> ModelAnswer:
        if not self.ended:
            raise cut()
        finish, calls = settle_finish(self._finish or "stop", self._calls.calls())
        reasoning, text = "".join(self._reasoning), "".join(self._text)
        provider_members = {
            **({self._kept: reasoning} if self._kept else {}),
            **({"content": self._thinking.whole} if self._thinking.tagged else {}),
            **({"extras": extras} if (extras := self._calls.extras()) else {}),
            **({"extra_content": self._extra} if self._extra is not None else {}),
        }
        return ModelAnswer(
            text,
            calls,
            reasoning,
            "refused" if self._refused and not calls else finish,
            self._usage,
            self._model,
            provider_members or None,
        )

    def _read_finish(self, reason: Any) -> None:
        if not isinstance(reason, str) or not reason:
            return
        if reason in FAILURE_REASONS:
            raise ProviderError("is busy or unavailable", "busy", detail=reason, retryable=True)
        self._finish = FINISHES.get(reason, "stop")
        self.ended = True

    def _read_usage(self, usage: Any) -> None:
        if isinstance(usage, dict) and usage:
            self._usage = _usage(usage)  # cumulative where it comes in each chunk

    def _delta(self, delta: _Delta, events: list[ModelEvent], *, is_complete: bool) -> None:
        if delta.reasoning_content is not None or delta.reasoning is not None:
            for name in REASONING:
                if isinstance(getattr(delta, name), str) and not self._kept:
                    self._kept = name
            self._add_reasoning(_text(delta.reasoning_content) or _text(delta.reasoning), events)
        if delta.extra_content is not None:
            self._extra = delta.extra_content
        refusal = _text(delta.refusal)
        self._refused = self._refused or bool(refusal)
        if text := _text(delta.content) or refusal:
            self._add_text(self._thinking.feed(text), events)
        if delta.tool_calls is None and delta.function_call is None:
            return
        for place, fragment in enumerate(self._fragments(delta)):
            call = self._fragment(fragment, place if is_complete else None)
            if call is not None:
                events.append(ToolCallDetected(self._calls.id_of(call), call.name))

    def _add_text(self, chunk: tuple[str, str], events: list[ModelEvent]) -> None:
        """Add reasoning and text."""
        thought, text = chunk
        self._add_reasoning(thought, events)
        if text:
            self._text.append(text)
            events.append(ContentChunk(text))

    def _add_reasoning(self, reasoning: str, events: list[ModelEvent]) -> None:
        if reasoning:
            self._reasoning.append(reasoning)
            events.append(ReasoningChunk(reasoning))

    def _fragments(self, delta: _Delta) -> Sequence[_Fragment]:
        """The fragments of calls; those of function_call where the answer has no tool_calls."""
        if delta.tool_calls:
            return delta.tool_calls
        if delta.function_call is None or (self._calls.any and not self._legacy):
            return ()
        self._legacy = True
        return (_Fragment(0, None, delta.function_call),)

    def _fragment(self, fragment: _Fragment, place: int | None) -> CallInProgress | None:
        """`place` in a list of whole calls, which need no index."""
        function = fragment.function or _Function()
        index = fragment.index if isinstance(fragment.index, int) else None
        index = index if place is None else place
        arguments = function.arguments
        if arguments is not None and not isinstance(arguments, str):
            arguments = encode(arguments).decode()  # some send the object itself
        return self._calls.feed(
            index,
            _string(fragment.id),
            _string(function.name),
            arguments or "",
            extra=fragment.extra_content,
        )


class ThinkTags:
    """Reasoning in the content, between <think> and </think> at its beginning, as templates of
    local models write it. Tags may be cut between chunks."""

    def __init__(self) -> None:
        self.tagged = False
        self._parts: list[str] = []  # of the content as it came
        self._waiting = ""  # what may be the beginning of a tag
        self._place: Literal["before", "inside", "behind", "text"] = "before"

    @property
    def whole(self) -> str:
        """The content as it came."""
        return "".join(self._parts)

    def feed(self, text: str) -> tuple[str, str]:
        """Reasoning and text of a piece of content."""
        if self._place == "text" and not self.tagged:
            return "", text
        self._parts.append(text)
        text, self._waiting = self._waiting + text, ""
        if self._place == "before":
            bare = text.lstrip()
            if len(bare) < len(OPENING) and OPENING.startswith(bare):
                self._waiting = text
                return "", ""
            self.tagged = bare.startswith(OPENING)
            self._place = "inside" if self.tagged else "text"
            text = bare.removeprefix(OPENING) if self.tagged else text
        thought = ""
        if self._place == "inside":
            thought, closing, text = text.partition(CLOSING)
            if not closing:
                cut = _beginning(thought, CLOSING)
                self._waiting = thought[len(thought) - cut :]
                return thought[: len(thought) - cut], ""
            self._place = "behind"
        if self._place == "behind" and (text := text.lstrip()):
            self._place = "text"
        return thought, text

    def end(self) -> tuple[str, str]:
        """Text that waited for the rest of a tag."""
        waiting, self._waiting = self._waiting, ""
        return (waiting, "") if self._place == "inside" else ("", waiting)


def _beginning(text: str, tag: str) -> int:
    """How many characters at the end of `text` may begin `tag`."""
    return next((n for n in range(len(tag) - 1, 0, -1) if text.endswith(tag[:n])), 0)


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
