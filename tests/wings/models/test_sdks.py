"""The vendors' SDKs as judges: our scripted provider is one that they understand as we do.

They are not imported at the top: that takes seconds of CPU, in each worker.
"""

import json
from importlib import import_module
from typing import Any

import pytest

from gateway.wings.models.messages import ModelCall
from tests.servers.provider import chat, chat_whole, claude, claude_whole, providing, responses
from tests.servers.provider import responses_whole as whole_response
from tests.wings.models.asking import HELLO, PETS, asking, collect_events, reply_of
from tests.wings.models.test_streams import CASES

pytestmark = pytest.mark.anyio

CALLS = [("a1", "find_pets", '{"kind":"cat"}')]
ASKED: Any = [{"role": "user", "content": "Hello"}]
CHAT_TOOL: Any = {
    "type": "function",
    "function": {"name": "find_pets", "description": "Find.", "parameters": {"type": "object"}},
}


async def test_openai_reads_our_chat_completions_as_we_do() -> None:
    async with (
        providing(chat("Well, well.", CALLS), chat_whole("", CALLS)) as provider,
        asking(provider.url) as model,
        import_module("openai").AsyncOpenAI(
            base_url=provider.url, api_key="k", max_retries=0
        ) as client,
    ):
        async with client.chat.completions.stream(
            model="m", messages=ASKED, tools=[CHAT_TOOL]
        ) as stream:
            judged = (await stream.get_final_completion()).choices[0].message
        whole = await client.chat.completions.create(model="m", messages=ASKED)
        provider.requests.clear()
        ours = reply_of(await collect_events(model, HELLO, [PETS]))
    found = (judged.tool_calls or [])[0]
    assert judged.content == ours.text == "Well, well."
    assert ours.calls == (ModelCall(found.id, found.function.name, found.function.arguments),)
    assert whole.usage is not None
    assert whole.usage.total_tokens == ours.usage.total


async def test_anthropic_reads_our_messages_as_we_do() -> None:
    async with (
        providing(claude("Well, well.", CALLS, thinking="hm"), claude_whole("", CALLS)) as provider,
        asking(provider.url, strategy={"dialect": "anthropic"}) as model,
        import_module("anthropic").AsyncAnthropic(
            base_url=provider.url.removesuffix("/v1"), api_key="k", max_retries=0
        ) as client,
    ):
        async with client.messages.stream(model="c", max_tokens=9, messages=ASKED) as stream:
            judged = await stream.get_final_message()
        whole = await client.messages.create(model="c", max_tokens=9, messages=ASKED)
        provider.requests.clear()
        ours = reply_of(await collect_events(model, HELLO, [PETS]))
    assert [block.type for block in judged.content] == ["thinking", "text", "tool_use"]
    assert judged.content[0].type == "thinking"
    assert judged.content[0].thinking == ours.reasoning
    assert judged.content[2].type == "tool_use"
    assert judged.content[2].input == json.loads(ours.calls[0].arguments)
    assert judged.usage.input_tokens + judged.usage.output_tokens == ours.usage.total
    assert whole.stop_reason == "tool_use"


async def test_openai_reads_our_responses_as_we_do() -> None:
    async with (
        providing(responses("Well.", CALLS, encrypted="X"), whole_response("Well.")) as provider,
        asking(provider.url, strategy={"dialect": "openai-responses"}) as model,
        import_module("openai").AsyncOpenAI(
            base_url=provider.url, api_key="k", max_retries=0
        ) as client,
    ):
        async with client.responses.stream(model="r", input="Hello") as stream:
            judged = await stream.get_final_response()
        whole = await client.responses.create(model="r", input="Hello")
        provider.requests.clear()
        ours = reply_of(await collect_events(model, HELLO, [PETS]))
    assert judged.output_text == ours.text == whole.output_text == "Well."
    assert [one.type for one in judged.output] == ["reasoning", "message", "function_call"]
    assert judged.usage is not None
    assert judged.usage.total_tokens == ours.usage.total


@pytest.mark.parametrize("name", ["two calls, index 0 and 1", "two calls, interleaved", "CRLF"])
async def test_well_formed_streams_are_read_as_by_openai(name: str) -> None:
    case = CASES[name]
    async with (
        providing(case.answer) as provider,
        import_module("openai").AsyncOpenAI(
            base_url=provider.url, api_key="k", max_retries=0
        ) as client,
        client.chat.completions.stream(model="m", messages=ASKED) as stream,
    ):
        judged = (await stream.get_final_completion()).choices[0].message
    calls = tuple((c.function.name, c.function.arguments) for c in judged.tool_calls or ())
    assert calls == case.calls
    assert (judged.content or "") == case.text
