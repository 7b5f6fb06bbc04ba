"""The dialect of Anthropic's messages.

An assistant's blocks go back as they came: thinking with its signature, redacted thinking, in their
order. The results of all calls of a turn are the first blocks of the next user message.

Source: platform.claude.com/docs/en/api/messages, .../streaming, .../extended-thinking.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from msgspec import DecodeError, Raw, Struct, ValidationError
from msgspec.json import decode, encode

from gateway.http_client.sse_parser import ServerEvent
from gateway.wings.models.dialect import (
    ModelAnswer,
    Prompt,
    arguments_sent,
    cut,
    decode_answer,
    malformed_error,
    provider_error,
    settle_finish,
)
from gateway.wings.models.messages import (
    ChatMessage,
    ContentChunk,
    Finish,
    ModelCall,
    ModelEvent,
    ReasoningChunk,
    ToolCallDetected,
)
from gateway.wings.models.usage import TokenUsage, count

VERSION = "2023-06-01"
FINISHES: Mapping[str, Finish] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "calls",
    "pause_turn": "paused",
    "refusal": "refused",
}
NOTHING: Mapping[str, str] = MappingProxyType({})
CHOICES = {"none": {"type": "none"}, "required": {"type": "any"}}


class _Event(Struct):
    type: str = ""
    index: int = 0
    content_block: dict[str, Any] | None = None
    delta: dict[str, Any] | None = None
    message: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None
    error: Any = None


class Anthropic:
    path = "/messages"

    def headers(self, key: str) -> Mapping[str, str]:
        named = {"anthropic-version": VERSION}
        return {**named, "x-api-key": key} if key else named

    def body(self, prompt: Prompt) -> dict[str, Any]:
        body: dict[str, Any] = {"model": prompt.model, "max_tokens": prompt.max_tokens}
        system = "\n\n".join(
            message.text for message in prompt.messages if message.role == "system"
        )
        if system:
            body["system"] = system
        body["messages"] = _turns(prompt)
        if prompt.tools:
            body["tools"] = [
                {
                    "name": tool.name,
                    "description": tool.description,
                    "input_schema": tool.parameters,
                }
                for tool in prompt.tools
            ]
            if (choice := CHOICES.get(prompt.options.tool_choice)) is not None:
                body["tool_choice"] = choice
        if prompt.stream:
            body["stream"] = True
        return body

    def reader(self, id_prefix: str) -> "AnthropicReader":
        return AnthropicReader(id_prefix)

    def answer(self, body: bytes, id_prefix: str) -> ModelAnswer:
        message = decode_answer(body, dict[str, Any])
        if message.get("type") == "error" or "error" in message:
            raise provider_error(message)
        blocks = message.get("content")
        if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
            raise malformed_error("a message without content")
        return _answer(blocks, message, id_prefix)


def _turns(prompt: Prompt) -> list[dict[str, Any]]:
    """Messages that alternate between user and assistant."""
    turns: list[dict[str, Any]] = []
    for message in prompt.messages:
        if message.role == "system":
            continue
        role = "assistant" if message.role == "assistant" else "user"
        blocks = _blocks(prompt, message)
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": role, "content": blocks})
    return turns


def _blocks(prompt: Prompt, message: ChatMessage) -> list[Any]:
    if message.role == "tool":
        result = {
            "type": "tool_result",
            "tool_use_id": message.call_id,
            "content": message.text,
        }
        return [{**result, "is_error": True} if message.is_error else result]
    if (kept_blocks := prompt.kept_answer(message)) is not None:
        return list(kept_blocks)
    text = [{"type": "text", "text": message.text}] if message.text.strip() else []
    calls = [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": Raw(_input(call))}
        for call in message.calls
    ]
    return [*text, *calls]


def _input(call: ModelCall) -> bytes:
    return arguments_sent(call).encode()


class _Block(Struct):
    members: dict[str, Any]
    pieces: dict[str, list[str]] = {}  # of texts, by member

    def add(self, delta: Mapping[str, Any]) -> tuple[str, str]:
        """Append a delta; returns its type and its text."""
        kind = str(delta.get("type", ""))
        member = _MEMBERS.get(kind, "")
        text = delta.get(member)
        if not isinstance(text, str):
            return kind, ""
        self.pieces.setdefault(member, []).append(text)
        return kind, text

    @property
    def json(self) -> str:
        """Of a tool's input."""
        return "".join(self.pieces.get(INPUT, ()))

    def whole(self) -> dict[str, Any]:
        texts = {
            member: "".join([str(self.members.get(member) or ""), *pieces])
            for member, pieces in self.pieces.items()
            if member != INPUT
        }
        return {**self.members, **texts}


INPUT = "partial_json"
_MEMBERS = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": INPUT,
}


class AnthropicReader:
    def __init__(self, id_prefix: str) -> None:
        self._made = id_prefix
        self._blocks: dict[int, _Block] = {}
        self._usage: dict[str, Any] = {}
        self._model = ""
        self._reason: Any = None
        self.ended = False
        self.closed = False

    def feed(self, event: ServerEvent) -> Sequence[ModelEvent]:
        event_: _Event = decode_answer(event.data, _Event)
        match event_.type:
            case "message_start":
                message = event_.message or {}
                self._model = str(message.get("model") or "")
                self._usage |= _stated_members(message.get("usage"))
            case "content_block_start":
                return self._begin(event_.index, event_.content_block or {})
            case "content_block_delta":
                return self._delta(event_.index, event_.delta or {})
            case "message_delta":
                self._reason = (event_.delta or {}).get("stop_reason") or self._reason
                self._usage |= _stated_members(event_.usage)  # cumulative
                self.ended = self.ended or self._reason is not None
            case "message_stop":
                self.ended = self.closed = True
            case "error":
                raise provider_error(event_.error)
            case _:  # ping, and what is to come
                pass
        return ()

    def answer(self) -> ModelAnswer:
        if not self.ended:
            raise cut()
        blocks = [self._whole(block) for _, block in sorted(self._blocks.items())]
        texts = {
            str(block.members.get("id") or ""): block.json
            for block in self._blocks.values()
            if block.json
        }
        ending = {"stop_reason": self._reason, "usage": self._usage, "model": self._model}
        return _answer(blocks, ending, self._made, texts)

    def _begin(self, index: int, block: dict[str, Any]) -> Sequence[ModelEvent]:
        self._blocks[index] = _Block(block)
        if block.get("type") == "tool_use":
            block["id"] = block.get("id") or f"{self._made}_{index}"
            return (ToolCallDetected(str(block["id"]), str(block.get("name") or "")),)
        text = block.get("text")
        return (ContentChunk(text),) if isinstance(text, str) and text else ()

    def _delta(self, index: int, delta: Mapping[str, Any]) -> Sequence[ModelEvent]:
        block = self._blocks.get(index)
        if block is None:
            raise malformed_error("a delta of a block that has not begun")
        kind, text = block.add(delta)
        if kind == "text_delta" and text:
            return (ContentChunk(text),)
        return (ReasoningChunk(text),) if kind == "thinking_delta" and text else ()

    def _whole(self, block: _Block) -> dict[str, Any]:
        full_block = block.whole()
        if full_block.get("type") != "tool_use" or not block.json:
            return full_block
        try:
            arguments = decode(block.json.encode())
        except (DecodeError, ValidationError, RecursionError):
            arguments = {}  # the block must have an object; the call keeps the text
        return {**full_block, "input": arguments if isinstance(arguments, dict) else {}}


def _answer(
    blocks: list[dict[str, Any]],
    message: Mapping[str, Any],
    id_prefix: str,
    texts: Mapping[str, str] = NOTHING,
) -> ModelAnswer:
    """`message` has stop_reason, usage and model; `texts`: arguments as they were written, by the
    id of their call."""
    calls: dict[str, ModelCall] = {}
    for place, block in enumerate(blocks):
        if block.get("type") == "tool_use":
            id_ = str(block.get("id") or "")
            if not id_ or id_ in calls:
                id_ = block["id"] = f"{id_prefix}_{place}"
            written = texts.get(id_) or encode(block.get("input") or {}).decode()
            calls[id_] = ModelCall(id_, str(block.get("name") or ""), written)
    finish, kept_calls = settle_finish(
        FINISHES.get(str(message.get("stop_reason")), "stop"), tuple(calls.values())
    )
    return ModelAnswer(
        "".join(str(block.get("text") or "") for block in blocks if block.get("type") == "text"),
        kept_calls,
        "".join(
            str(block.get("thinking") or "") for block in blocks if block.get("type") == "thinking"
        ),
        finish,
        _usage(message.get("usage")),
        str(message.get("model") or ""),
        _returned_blocks(blocks) if finish not in ("filtered", "refused") else None,
    )


def _returned_blocks(blocks: Sequence[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """The blocks that go back: all but empty texts, which the API refuses."""
    returned = [
        block
        for block in blocks
        if block.get("type") != "text" or str(block.get("text", "")).strip()
    ]
    return returned or None


def _stated_members(usage: Any) -> dict[str, Any]:
    """The members of a usage that say something: a later one has null for what it repeats."""
    return {k: v for k, v in usage.items() if v is not None} if isinstance(usage, dict) else {}


def _usage(usage: Any) -> TokenUsage | None:
    if not isinstance(usage, dict) or not usage:
        return None
    cached = count(usage.get("cache_read_input_tokens"))
    written = count(usage.get("cache_creation_input_tokens"))
    fresh, output = count(usage.get("input_tokens")), count(usage.get("output_tokens"))
    return TokenUsage(fresh + cached + written, output, cached)
