"""The dialect of OpenAI's responses, without state at the provider (`store: false`).

The items of an answer go back as they came, reasoning encrypted.

Source: platform.openai.com/docs/api-reference/responses, .../responses-streaming.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

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

ENCRYPTED_REASONING = "reasoning.encrypted_content"
ITEM_STATUS = "status"  # members of items that requests must not repeat


class _Event(Struct):
    type: str = ""
    output_index: Any = None
    item: dict[str, Any] | None = None
    delta: Any = None
    arguments: Any = None
    response: dict[str, Any] | None = None
    message: Any = None
    code: Any = None
    error: Any = None


class OpenAIResponses:
    path = "/responses"

    def headers(self, key: str) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {key}"} if key else {}

    def body(self, prompt: Prompt) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": prompt.model,
            "input": [item for message in prompt.messages for item in _items(prompt, message)],
            "max_output_tokens": prompt.max_tokens,
            "store": False,
            "include": [ENCRYPTED_REASONING],
        }
        if prompt.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                    "strict": False,
                }
                for tool in prompt.tools
            ]
            if prompt.options.tool_choice != "auto":
                body["tool_choice"] = prompt.options.tool_choice
        if prompt.options.json:
            body["text"] = {"format": {"type": "json_object"}}
        if prompt.stream:
            body["stream"] = True
        return body

    def reader(self, id_prefix: str) -> "ResponsesReader":
        return ResponsesReader(id_prefix)

    def answer(self, body: bytes, id_prefix: str) -> ModelAnswer:
        return _answer(decode_answer(body, dict[str, Any]), [], id_prefix)


def _items(prompt: Prompt, message: ChatMessage) -> list[Any]:
    if message.role == "tool":
        return [
            {
                "type": "function_call_output",
                "call_id": message.call_id,
                "output": message.text,
            }
        ]
    if (kept_items := prompt.kept_answer(message)) is not None:
        return list(kept_items)
    kind = "output_text" if message.role == "assistant" else "input_text"
    text = [
        {
            "type": "message",
            "role": message.role,
            "content": [{"type": kind, "text": message.text}],
        }
    ]
    calls = [
        {
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": arguments_sent(call),
        }
        for call in message.calls
    ]
    return [*(text if message.text or not calls else []), *calls]


class ResponsesReader:
    def __init__(self, id_prefix: str) -> None:
        self._made = id_prefix
        self._items: dict[int, dict[str, Any]] = {}
        self._response: dict[str, Any] | None = None
        self.ended = False
        self.closed = False

    def feed(self, event: ServerEvent) -> Sequence[ModelEvent]:
        if event.data.strip() == b"[DONE]":
            return ()
        event_: _Event = decode_answer(event.data, _Event)
        match event_.type:
            case "response.output_text.delta" | "response.refusal.delta":
                return _chunk(ContentChunk, event_.delta)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                return _chunk(ReasoningChunk, event_.delta)
            case "response.output_item.added":
                return self._begin_call(event_.item or {})
            case "response.output_item.done":
                place = event_.output_index
                at = place if isinstance(place, int) else len(self._items)
                self._items[at] = event_.item or {}
            case "response.completed" | "response.incomplete" | "response.failed":
                self._response = event_.response or {}
                self.ended = self.closed = True
            case "error":
                raise provider_error(
                    event_.error or {"message": event_.message, "code": event_.code or ""}
                )
            case _:
                if not event_.type and event_.error is not None:
                    raise provider_error(event_.error)
        return ()

    def answer(self) -> ModelAnswer:
        if self._response is None:
            raise cut()
        items = [item for _, item in sorted(self._items.items())]
        return _answer(self._response, items, self._made)

    def _begin_call(self, item: Mapping[str, Any]) -> Sequence[ModelEvent]:
        if item.get("type") != "function_call":
            return ()
        return (ToolCallDetected(str(item.get("call_id") or ""), str(item.get("name") or "")),)


def _chunk(kind: type[ContentChunk] | type[ReasoningChunk], delta: Any) -> Sequence[ModelEvent]:
    return (kind(delta),) if isinstance(delta, str) and delta else ()


def _answer(response: dict[str, Any], items: list[dict[str, Any]], id_prefix: str) -> ModelAnswer:
    """`items`: those of the stream, for servers whose last event repeats none."""
    error = response.get("error")
    if error is not None or response.get("status") in ("failed", "cancelled"):
        raise provider_error(error or {"message": str(response.get("status"))})
    output = response.get("output") or items
    if not isinstance(output, list) or not all(isinstance(item, dict) for item in output):
        raise malformed_error("a response whose output is no list of items")
    calls = _calls(output, id_prefix)
    refused = any(part.get("type") == "refusal" for part in _parts(output))
    finish, calls = settle_finish("refused" if refused else _finish(response), calls)
    return ModelAnswer(
        "".join(str(part.get("text") or part.get("refusal") or "") for part in _parts(output)),
        calls,
        _reasoning(output),
        finish,
        _usage(response.get("usage")),
        str(response.get("model") or ""),
        [_returned_item(item) for item in output] or None,
    )


def _finish(response: Mapping[str, Any]) -> Finish:
    if response.get("status") != "incomplete":
        return "stop"
    details = response.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, dict) else ""
    return "filtered" if reason == "content_filter" else "length"


def _calls(output: Sequence[dict[str, Any]], id_prefix: str) -> tuple[ModelCall, ...]:
    calls: dict[str, ModelCall] = {}
    for place, item in enumerate(output):
        if item.get("type") == "function_call":
            id_ = str(item.get("call_id") or "")
            if not id_ or id_ in calls:
                id_ = item["call_id"] = f"{id_prefix}_{place}"
            arguments = item.get("arguments")
            written = arguments if isinstance(arguments, str) else ""
            calls[id_] = ModelCall(id_, str(item.get("name") or ""), written)
    return tuple(calls.values())


def _parts(output: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [
        part
        for item in output
        if item.get("type") == "message"
        for part in _as_list(item.get("content"))
        if isinstance(part, dict)
    ]


def _as_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _reasoning(output: Sequence[Mapping[str, Any]]) -> str:
    return "\n\n".join(
        str(part.get("text") or "")
        for item in output
        if item.get("type") == "reasoning"
        for part in _as_list(item.get("summary"))
        if isinstance(part, dict)
    )


def _returned_item(item: dict[str, Any]) -> dict[str, Any]:
    """An item as it goes back. The status is the provider's."""
    members = {name: value for name, value in item.items() if name != ITEM_STATUS}
    if members.get("type") == "function_call" and not isinstance(members.get("arguments"), str):
        members["arguments"] = "{}"
    return members


def _usage(usage: Any) -> TokenUsage | None:
    if not isinstance(usage, dict):
        return None
    input_details, output_details = (
        usage.get("input_tokens_details"),
        usage.get("output_tokens_details"),
    )
    return TokenUsage(
        count(usage.get("input_tokens")),
        count(usage.get("output_tokens")),
        count(input_details.get("cached_tokens")) if isinstance(input_details, dict) else 0,
        count(output_details.get("reasoning_tokens")) if isinstance(output_details, dict) else 0,
    )
