"""One conversation in each dialect, with a provider as strict as vendors."""

import json
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from gateway.wings.models.messages import (
    ChatMessage,
    IterationComplete,
    ModelFailed,
    ReasoningChunk,
    RequestOptions,
    ToolCallDetected,
)
from gateway.wings.models.usage import TokenUsage
from tests.servers.provider import (
    Answer,
    chat,
    chat_whole,
    claude,
    claude_whole,
    providing,
    responses,
    responses_whole,
)
from tests.wings.models.asking import HELLO, PETS, asking, collect_events, reply_of, text_of

pytestmark = pytest.mark.anyio

CALLS = [("a1", "find_pets", '{"kind":"cat"}'), ("a2", "find_pets", "{}")]
Make = Callable[..., Answer]
DIALECTS: list[tuple[str, Make, Make]] = [
    ("chat-completions", chat, chat_whole),
    ("anthropic", claude, claude_whole),
    ("openai-responses", responses, responses_whole),
]
every_dialect = pytest.mark.parametrize(
    ("dialect", "streaming", "whole"), DIALECTS, ids=[one for one, _, _ in DIALECTS]
)


@every_dialect
async def test_text_comes_in_chunks_and_as_a_whole(
    dialect: str, streaming: Make, whole: Make
) -> None:
    async with (
        providing(streaming("Hello, dear friend."), whole("Hello, dear friend.")) as provider,
        asking(provider.url, strategy={"dialect": dialect}) as model,
    ):
        with anyio.fail_after(30):
            events = await collect_events(model, HELLO)
            reply = await model.complete(HELLO)
    assert text_of(events) == reply.text == "Hello, dear friend."
    assert len(events) == 5
    assert reply_of(events).finish == reply.finish == "stop"
    assert reply.usage.total == reply_of(events).usage.total == 18
    assert events[-1] == IterationComplete(18, False)
    assert [one.body.get("stream", False) for one in provider.requests] == [True, False]


@every_dialect
async def test_calls_and_their_results_go_back_and_forth(
    dialect: str, streaming: Make, whole: Make
) -> None:
    answers = (streaming("Let me see.", CALLS), whole("", CALLS[:1]), streaming("Two cats."))
    messages = [ChatMessage("system", "Be kind."), *HELLO]
    async with (
        providing(*answers) as provider,
        asking(provider.url, strategy={"dialect": dialect}) as model,
    ):
        with anyio.fail_after(30):
            events = await collect_events(model, messages, [PETS])
            first = reply_of(events)
            messages += [
                first.message,
                ChatMessage("tool", "Tom", call_id="a1"),
                ChatMessage("tool", "none", call_id="a2", is_error=True),
                ChatMessage("user", "And now?"),
            ]
            second = await model.complete(messages, [PETS])
            messages += [ChatMessage("assistant", "Hm."), ChatMessage("user", "Well?")]
            third = reply_of(await collect_events(model, messages, [PETS]))
    assert [(one.id, one.name, one.arguments) for one in first.calls] == CALLS
    assert [one.id for one in events if isinstance(one, ToolCallDetected)] == ["a1", "a2"]
    assert (first.finish, first.text) == ("calls", "Let me see.")
    assert second.calls == first.calls[:1]
    assert third.text == "Two cats."
    assert [one.path.rpartition("v1")[2] for one in provider.requests] == [
        {"chat-completions": "/chat/completions", "anthropic": "/messages"}.get(
            dialect, "/responses"
        )
    ] * 3


@every_dialect
async def test_equal_requests_have_equal_bytes(dialect: str, streaming: Make, whole: Make) -> None:
    del whole
    async with (
        providing(streaming("Yes.")) as provider,
        asking(provider.url, strategy={"dialect": dialect, "options": '{"top_k": 3}'}) as model,
    ):
        for _ in range(2):
            await collect_events(model, HELLO, [PETS], RequestOptions(tool_choice="none"))
    first, second = provider.requests
    assert first.raw == second.raw
    assert first.body["top_k"] == 3


async def test_reasoning_of_turns_with_calls_goes_back_to_deepseek() -> None:
    thought = {"returns_reasoning": "calls"}
    answers = (
        chat("", CALLS[:1], reasoning="cats, then"),
        chat("", [("b1", "find_pets", "{}")], reasoning=""),  # empty, which has to go back, too
        chat("Done.", reasoning="fine"),
    )
    async with (
        providing(*answers, thinking=True) as provider,
        asking(provider.url, strategy=thought) as model,
    ):
        messages = list(HELLO)
        for id_ in ("a1", "b1"):
            events = await collect_events(model, messages, [PETS])
            messages += [reply_of(events).message, ChatMessage("tool", "Tom", call_id=id_)]
        events = await collect_events(model, messages, [PETS])
        assert ReasoningChunk("fine") in events
        assert reply_of(events).reasoning == "fine"
    sent = [one.get("reasoning_content") for one in provider.requests[2].body["messages"]]
    assert sent == [None, "cats, then", None, "", None]


async def test_thinking_goes_back_to_anthropic_with_its_signature() -> None:
    answers = (
        claude("", CALLS[:1], thinking="cats are best", redacted="SECRET"),
        claude("Done."),
    )
    async with (
        providing(*answers) as provider,
        asking(provider.url, strategy={"dialect": "anthropic"}) as model,
    ):
        reply = reply_of(await collect_events(model, HELLO, [PETS]))
        assert reply.reasoning == "cats are best"
        again = [*HELLO, reply.message, ChatMessage("tool", "Tom", call_id="a1")]
        assert (await model.complete(again, [PETS])).text == "Done."
    blocks = provider.requests[1].body["messages"][1]["content"]
    assert [one["type"] for one in blocks] == ["thinking", "redacted_thinking", "tool_use"]
    assert blocks[0]["signature"] == "sig-cats are best"


async def test_encrypted_reasoning_goes_back_to_responses() -> None:
    answers = (responses("", CALLS[:1], encrypted="XYZ"), responses("Done."))
    async with (
        providing(*answers) as provider,
        asking(provider.url, strategy={"dialect": "openai-responses"}) as model,
    ):
        reply = reply_of(await collect_events(model, HELLO, [PETS]))
        again = [*HELLO, reply.message, ChatMessage("tool", "Tom", call_id="a1")]
        assert reply_of(await collect_events(model, again, [PETS])).text == "Done."
    assert reply.reasoning == "thought"
    assert reply.usage == TokenUsage(11, 7, 3, 2)
    kinds = [one["type"] for one in provider.requests[1].body["input"]]
    assert kinds == ["message", "reasoning", "function_call", "function_call_output"]


async def test_another_strategy_gets_the_words_without_the_reasoning() -> None:
    """From DeepSeek to Anthropic and back, in one conversation."""
    async with (
        providing(chat("Hm.", CALLS[:1], reasoning="why"), chat("Bye."), thinking=True) as deep,
        providing(claude("", [("c1", "find_pets", "{}")], thinking="so")) as clever,
        asking(deep.url, strategy={"returns_reasoning": "calls"}) as first,
        asking(clever.url, strategy={"dialect": "anthropic"}) as second,
    ):
        second.strategy = "other"
        messages: list[ChatMessage] = list(HELLO)
        reply = reply_of(await collect_events(first, messages, [PETS]))
        messages += [reply.message, ChatMessage("tool", "Tom", call_id="a1")]
        reply = reply_of(await collect_events(second, messages, [PETS]))
        messages += [reply.message, ChatMessage("tool", "Tim", call_id="c1")]
        assert reply_of(await collect_events(first, messages, [PETS])).text == "Bye."
    sent: list[Any] = deep.requests[1].body["messages"]
    assert [one.get("reasoning_content") for one in sent] == [None, "why", None, "", None]
    assert clever.requests[0].body["messages"][1]["content"][0] == {"type": "text", "text": "Hm."}


async def test_the_first_listed_model_is_asked_where_none_is_named() -> None:
    async with (
        providing(chat("Yes.")) as provider,
        asking(provider.url, strategy={"model": ""}) as model,
    ):
        await collect_events(model, HELLO)
    assert provider.requests[0].body["model"] == "listed"


@pytest.mark.parametrize(
    "item", [{"type": "message", "content": 5}, {"type": "reasoning", "summary": 5}]
)
async def test_parts_that_are_no_lists_are_none(item: Any) -> None:
    body = json.dumps({"status": "completed", "output": [item]}).encode()
    answer = Answer(pieces=[body], kind="application/json")
    async with (
        providing(answer) as provider,
        asking(provider.url, strategy={"dialect": "openai-responses"}) as model,
    ):
        reply = await model.complete(HELLO)
    assert (reply.text, reply.reasoning) == ("", "")


@pytest.mark.parametrize("data", [{"id": "m"}, 5, [], [5], None])
async def test_a_list_of_models_that_is_none_is_told(data: Any) -> None:
    listed = Answer(pieces=[json.dumps({"data": data}).encode()], kind="application/json")
    async with (
        providing(chat_whole("Hi")) as provider,
        asking(provider.url, strategy={"model": ""}) as model,
    ):
        provider.listed = listed
        with pytest.raises(ModelFailed) as caught:
            await model.complete(HELLO)
    assert caught.value.kind == "unconfigured"
