"""What vendors refuse with 400."""

import json
import re
from dataclasses import dataclass, field
from typing import Any

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass
class Issued:
    """Secrets of the answers that were given: what has to come back unaltered."""

    reasoning: dict[str, str] = field(default_factory=dict)  # DeepSeek: by the id of a call
    signatures: dict[str, str] = field(default_factory=dict)  # Anthropic: thinking by signature
    encrypted: set[str] = field(default_factory=set)

    def note(self, body: bytes) -> None:
        reasoning, ids = "", set()
        for line in body.split(b"\n"):
            text = line.removeprefix(b"data: ").strip()
            if not text.startswith(b"{"):
                continue
            try:
                found = json.loads(text)
            except ValueError:
                continue
            for choice in found.get("choices") or ():
                said = choice.get("delta") or choice.get("message") or {}
                reasoning += said.get("reasoning_content") or ""
                ids |= {one.get("id") for one in said.get("tool_calls") or ()} - {None}
            self._claude(found)
            for item in (found.get("response") or found).get("output") or ():
                if item.get("encrypted_content"):
                    self.encrypted.add(item["encrypted_content"])
        self.reasoning |= dict.fromkeys(ids, reasoning)

    def _claude(self, event: dict[str, Any]) -> None:
        delta = event.get("delta")
        signature = delta.get("signature") if isinstance(delta, dict) else None
        if isinstance(signature, str):
            self.signatures[signature] = signature.removeprefix("sig-")


def complaint(path: str, headers: dict[str, str], body: Any, issued: Issued, thinking: bool) -> str:
    """What is wrong with a request; "" for none."""
    if not isinstance(body, dict) or not body.get("model"):
        return "model is required"
    if path.endswith("/chat/completions"):
        return _names([one["function"]["name"] for one in body.get("tools", ())]) or _chat(
            body["messages"], issued, thinking
        )
    if path.endswith("/messages"):
        if "anthropic-version" not in headers:
            return "anthropic-version is required"
        if "max_tokens" not in body:
            return "max_tokens is required"
        names = _names([one["name"] for one in body.get("tools", ())])
        return names or _claude(body["messages"], issued)
    return _names([one["name"] for one in body.get("tools", ())]) or _responses(
        body["input"], issued
    )


def _names(names: list[str]) -> str:
    if len(set(names)) < len(names):
        return "tool names must be unique"
    return next((f"invalid tool name {one}" for one in names if not NAME.fullmatch(one)), "")


def _chat(messages: list[Any], issued: Issued, thinking: bool) -> str:
    open_: set[str] = set()
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_:
                return "messages with role 'tool' must follow a message with 'tool_calls'"
            open_.discard(message["tool_call_id"])
            continue
        if open_:
            return f"tool_call_ids did not have response messages: {sorted(open_)}"
        if message["role"] not in ("system", "user", "assistant"):
            return "unknown role"
        if not isinstance(message.get("content"), str):
            return "content must be a string"
        calls = message.get("tool_calls") or []
        open_ = {call["id"] for call in calls}
        if text := _chat_calls(message, calls, issued, thinking):
            return text
    return f"tool_call_ids did not have response messages: {sorted(open_)}" if open_ else ""


def _chat_calls(message: Any, calls: list[Any], issued: Issued, thinking: bool) -> str:
    ids = [call["id"] for call in calls]
    if len(set(ids)) < len(ids):
        return "duplicate tool call ids"
    if not all(isinstance(_json(call["function"]["arguments"]), dict) for call in calls):
        return "arguments must be a JSON object"
    if not (thinking and calls):
        return ""
    thought = message.get("reasoning_content")
    if not isinstance(thought, str):
        return "the reasoning_content in the thinking mode must be passed back to the API"
    altered = any(issued.reasoning.get(id_, thought) != thought for id_ in ids)
    return "reasoning_content was altered" if altered else ""


def _claude(messages: list[Any], issued: Issued) -> str:
    open_: list[str] = []
    for place, message in enumerate(messages):
        role = "assistant" if place % 2 else "user"
        if message["role"] != role:
            return "roles must alternate and begin with user"
        blocks = message["content"]
        if isinstance(blocks, str):
            blocks = [{"type": "text", "text": blocks}]
        if not blocks:
            return "content must not be empty"
        results = [one["tool_use_id"] for one in blocks if one["type"] == "tool_result"]
        if sorted(results) != sorted(open_):
            return "each tool_use must have a single tool_result in the next message"
        if any(one["type"] != "tool_result" for one in blocks[: len(results)]):
            return "tool_result blocks must come first"
        open_ = [one["id"] for one in blocks if one["type"] == "tool_use"]
        for one in blocks:
            if one["type"] == "text" and not one["text"].strip():
                return "text content blocks must be non-empty"
            if one["type"] == "tool_use" and not isinstance(one["input"], dict):
                return "input must be an object"
            if (
                one["type"] == "thinking"
                and issued.signatures.get(one["signature"]) != one["thinking"]
            ):
                return "thinking blocks cannot be modified"
    return "each tool_use must have a single tool_result in the next message" if open_ else ""


def _responses(items: Any, issued: Issued) -> str:
    if isinstance(items, str):
        return ""
    called: set[str] = set()
    answered: set[str] = set()
    for item in items:
        match item["type"]:
            case "function_call":
                if item["call_id"] in called:
                    return "duplicate call_id"
                called.add(item["call_id"])
            case "function_call_output":
                if item["call_id"] not in called:
                    return f"No tool call found for function call output {item['call_id']}"
                answered.add(item["call_id"])
            case "reasoning":
                if item.get("encrypted_content") not in issued.encrypted:
                    return "encrypted content could not be verified"
            case "message":
                if "status" in item:
                    return "Unknown parameter: status"
    if called - answered:
        return f"No tool output found for function call {sorted(called - answered)}"
    return ""


def _json(text: Any) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError):
        return None
