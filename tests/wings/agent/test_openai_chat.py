"""OpenAI's SDK as a client of the agent."""

from collections.abc import AsyncIterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

from tests.servers.provider import chat, chat_whole, failing
from tests.wings.agent.rig import Rig
from tests.wings.agent.test_takeover import DELETE, GET

if TYPE_CHECKING:
    from openai import AsyncOpenAI

pytestmark = pytest.mark.anyio

ASKED: Any = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hello?"},
    {"role": "assistant", "content": "Yes?"},
    {"role": "user", "content": [{"type": "text", "text": "Which pet?"}]},
]


@pytest.fixture
async def openai(rig: Rig) -> AsyncIterator["AsyncOpenAI"]:
    sdk = import_module("openai")  # not at the top: a second of CPU of each worker
    async with sdk.AsyncOpenAI(
        base_url=f"{rig.client.url}/v1", api_key="k", max_retries=0
    ) as client:
        yield client


async def test_agents_are_models(openai: "AsyncOpenAI") -> None:
    assert [one.id async for one in openai.models.list()] == ["agent", "scripted", "clever"]


async def test_an_answer_hides_the_calls(rig: Rig, openai: "AsyncOpenAI") -> None:
    rig.script(chat_whole("", [GET]), chat_whole("A cat."))
    found = await openai.chat.completions.create(model="agent", messages=ASKED)
    assert found.choices[0].message.content == "A cat."
    assert found.choices[0].message.tool_calls is None
    assert found.usage is not None
    used = found.usage.prompt_tokens, found.usage.completion_tokens, found.usage.total_tokens
    assert used == (22, 14, 36)
    assert found.usage.prompt_tokens_details is None  # which the provider did not tell
    told = [
        one["content"] for one in rig.sent_messages(0) if not one["content"].startswith("<data")
    ]
    assert told[1:] == ["Be brief.", "Hello?", "Yes?", "Which pet?"]


async def test_an_answer_is_streamed(rig: Rig, openai: "AsyncOpenAI") -> None:
    rig.script(chat("Let me see. ", [GET]), chat("A fine cat."))
    stream = await openai.chat.completions.create(model="scripted", messages=ASKED, stream=True)
    chunks = [chunk async for chunk in stream]
    words = [one.choices[0].delta.content or "" for one in chunks if one.choices]
    assert "".join(words) == "Let me see. A fine cat."
    assert [one.choices[0].finish_reason for one in chunks if one.choices][-1] == "stop"
    assert all(one.usage is None for one in chunks)


async def test_usage_is_streamed_when_asked_for(rig: Rig, openai: "AsyncOpenAI") -> None:
    """The chunk of the usage follows `stream_options.include_usage` only, and has the sum of all
    answers, with details that a provider told; other chunks have null (mending 33)."""
    told = {
        "prompt_tokens": 40,
        "completion_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 32},
        "completion_tokens_details": {"reasoning_tokens": 5},
    }
    rig.script(chat("", [GET], usage=told), chat("A fine cat."))
    stream = await openai.chat.completions.create(
        model="agent", messages=ASKED, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    assert chunks[-1].choices == []
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert all("usage" in chunk.model_fields_set for chunk in chunks)
    usage = chunks[-1].usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (51, 16, 67)
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens == 32
    assert usage.completion_tokens_details is not None
    assert usage.completion_tokens_details.reasoning_tokens == 5


@pytest.mark.parametrize(("said", "told"), [("length", "length"), ("content_filter",) * 2])
async def test_a_cut_answer_has_the_finish_reason_of_the_model(
    rig: Rig, openai: "AsyncOpenAI", said: str, told: str
) -> None:
    """The reason why the model stopped is that of the completion (mending 33)."""
    rig.script(chat("A fine", finish=said))
    stream = await openai.chat.completions.create(model="agent", messages=ASKED, stream=True)
    finished = [one.choices[0].finish_reason async for one in stream if one.choices]
    assert finished[-1] == told


async def test_a_model_is_found_by_its_id(openai: "AsyncOpenAI") -> None:
    """`GET /v1/models/{id}` has one strategy (mending 33)."""
    assert (await openai.models.retrieve("clever")).owned_by == "toolgate"
    with pytest.raises(import_module("openai").APIStatusError) as caught:
        await openai.models.retrieve("other")
    assert caught.value.status_code == 404


@pytest.mark.parametrize(
    "given",
    [
        {"response_format": {"type": "json_object"}},
        {"tool_choice": "required"},
        {"max_tokens": 5},
        {"max_completion_tokens": 5},
        {"stop": ["."]},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
        {"messages": [{"role": "tool", "content": "x", "tool_call_id": "a"}, ASKED[-1]]},
    ],
    ids=lambda given: next(iter(given)),
)
async def test_unsupported_members_are_refused_by_name(
    openai: "AsyncOpenAI", given: dict[str, Any]
) -> None:
    """Members that the agent would ignore are refused by their names (mending 33)."""
    with pytest.raises(import_module("openai").APIStatusError) as caught:
        await openai.chat.completions.create(**{"model": "agent", "messages": ASKED, **given})
    assert caught.value.status_code == 400
    assert next(iter(given)) in str(caught.value.message)


async def test_default_values_of_members_are_accepted(rig: Rig, openai: "AsyncOpenAI") -> None:
    """Defaults that clients spell out are no reason for a refusal (mending 33)."""
    rig.script(chat_whole("A cat."))
    asked: Any = {"response_format": {"type": "text"}, "tool_choice": "auto", "n": 1}
    found = await openai.chat.completions.create(model="agent", messages=ASKED, **asked)
    assert found.choices[0].finish_reason == "stop"


async def test_a_conversation_of_ours_goes_on(rig: Rig, openai: "AsyncOpenAI") -> None:
    rig.script(chat_whole("One."), chat_whole("Two."))
    first = await rig.ask("First?")
    metadata = {"conversation": first["conversation"]}
    asked: Any = [{"role": "user", "content": "Second?"}]
    await openai.chat.completions.create(model="agent", messages=asked, metadata=metadata)
    assert "One." in [one["content"] for one in rig.sent_messages(1)]


async def test_an_approval_is_said_in_words(rig: Rig, openai: "AsyncOpenAI") -> None:
    rig.script(chat("", [DELETE]), chat("Done."))
    stream = await openai.chat.completions.create(model="agent", messages=ASKED, stream=True)
    words = [one.choices[0].delta.content or "" async for one in stream if one.choices]
    assert "waits for an approval" in "".join(words)


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"n": 2}, 400),
        ({"logprobs": True}, 400),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, 400),
        ({"model": "other"}, 404),
        ({"messages": []}, 400),
        ({"messages": [{"role": "tool", "content": "x", "tool_call_id": "a"}]}, 400),
        ({"messages": [{"role": "user", "content": ""}]}, 422),
    ],
)
async def test_unsupported_requests_are_refused(
    openai: "AsyncOpenAI", changed: dict[str, Any], status: int
) -> None:
    with pytest.raises(import_module("openai").APIStatusError) as caught:
        await openai.chat.completions.create(**{"model": "agent", "messages": ASKED, **changed})
    assert caught.value.status_code == status


async def test_a_failure_of_the_provider_is_an_error(rig: Rig, openai: "AsyncOpenAI") -> None:
    rig.script(failing(401))
    with pytest.raises(import_module("openai").APIStatusError) as caught:
        await openai.chat.completions.create(model="agent", messages=ASKED)
    assert (caught.value.status_code, caught.value.type) == (502, "provider_auth")
