"""Habits of vendors of chat completions, which answers and requests have to survive."""

import json
from typing import Any

import pytest

from gateway.wings.models.messages import ChatMessage, ModelFailed, ReasoningChunk, ToolCallDetected
from tests.servers.provider import Answer, chat, delta, fragment, providing, sse
from tests.wings.models.asking import HELLO, PETS, asking, collect_events, reply_of, text_of

pytestmark = pytest.mark.anyio

CALLED, STOP = delta("tool_calls"), delta("stop")
TWO = [("find_pets", '{"kind":"cat"}'), ("count_pets", '{"kind":"dog"}')]
SIGNATURE = {"google": {"thought_signature": "c2ln"}}


def stream(*events: Any) -> Answer:
    return Answer(pieces=[sse(*events, done=True)])


def whole(message: dict[str, Any], finish: str = "stop", **members: Any) -> Answer:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    body = json.dumps({"choices": [choice], **members}).encode()
    return Answer(pieces=[body], kind="application/json")


def legacy(**function: str) -> dict[str, Any]:
    return delta(function_call=function)


def list_calls(*ids: str) -> list[dict[str, Any]]:
    return [
        {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}
        for id_, (name, arguments) in zip(ids, TWO, strict=True)
    ]


@pytest.mark.parametrize(
    "answer",
    [
        stream(
            delta(tool_calls=[fragment(0, "x", *TWO[0])]),
            delta(tool_calls=[fragment(1, "x", *TWO[1])]),
            CALLED,
        ),
        stream(
            delta(tool_calls=[fragment(0, "x", TWO[0][0], "")]),
            delta(tool_calls=[fragment(0, "", "", TWO[0][1])]),
            delta(tool_calls=[fragment(0, "y", TWO[1][0], "")]),
            delta(tool_calls=[fragment(1, "", "", TWO[1][1][:4])]),
            delta(tool_calls=[fragment(1, "", "", TWO[1][1][4:])]),
            CALLED,
        ),
        whole({"tool_calls": list_calls("x", "x")}, "tool_calls"),
        whole({"tool_calls": list_calls("", "")}, "tool_calls"),
        stream(
            delta(tool_calls=[fragment(0, "x", TWO[0][0], json.dumps(TWO[0][1]))]),
            delta(tool_calls=[fragment(1, "y", TWO[1][0], json.dumps(TWO[1][1])[:6])]),
            delta(tool_calls=[fragment(1, "", "", json.dumps(TWO[1][1])[6:])]),
            CALLED,
        ),
    ],
    ids=["one id", "another index", "one id, whole", "no id, whole", "encoded twice"],
)
async def test_two_calls_are_two_calls(answer: Answer) -> None:
    """Two calls with one id, or whose arguments count otherwise, are told apart (mending 32)."""
    async with providing(answer) as provider, asking(provider.url) as model:
        reply = reply_of(await collect_events(model, HELLO, [PETS]))
    assert [(one.name, one.arguments) for one in reply.calls] == TWO
    assert len({one.id for one in reply.calls}) == 2


@pytest.mark.parametrize(
    "answer",
    [
        stream(
            legacy(name="find_pets", arguments=""),
            legacy(arguments='{"kind":'),
            legacy(arguments='"cat"}'),
            delta("function_call"),
        ),
        whole({"function_call": {"name": "find_pets", "arguments": TWO[0][1]}}, "function_call"),
        stream(
            {**delta(tool_calls=[fragment(0, "x", *TWO[0])])},
            legacy(name="find_pets", arguments=TWO[0][1]),
            CALLED,
        ),
    ],
    ids=["streamed", "whole", "beside tool_calls"],
)
async def test_a_function_call_is_a_call(answer: Answer) -> None:
    """The member function_call, from before tool_calls, is read (mending 32)."""
    async with providing(answer) as provider, asking(provider.url) as model:
        events = await collect_events(model, HELLO, [PETS])
    reply = reply_of(events)
    assert [(one.name, one.arguments) for one in reply.calls] == TWO[:1]
    assert len([one for one in events if isinstance(one, ToolCallDetected)]) == 1
    assert reply.finish == "calls"


@pytest.mark.parametrize(
    ("pieces", "thought", "text"),
    [
        (["<think>cats, then</think>\n\nTom."], "cats, then", "Tom."),
        (["\n<th", "ink>cats", ", then<", "/think", ">", "\n", "\nTom", "."], "cats, then", "Tom."),
        (["<think>a < b</thin</think>Tom"], "a < b</thin", "Tom"),
        (["<think>never ended"], "never ended", ""),
        (["<think></think>Tom"], "", "Tom"),
        (["<thin", "g>Tom"], "", "<thing>Tom"),
        (["<th"], "", "<th"),
        (["Write <think>x</think>."], "", "Write <think>x</think>."),
        (list("<think>ab</think>Tom <think>"), "ab", "Tom <think>"),
    ],
)
async def test_thoughts_in_the_content_are_reasoning(
    pieces: list[str], thought: str, text: str
) -> None:
    """What stands between <think> tags at the beginning is no text (mending 32)."""
    async with (
        providing(stream(*(delta(content=one) for one in pieces), STOP)) as provider,
        asking(provider.url) as model,
    ):
        events = await collect_events(model, HELLO)
    reply = reply_of(events)
    assert (reply.reasoning, reply.text, text_of(events)) == (thought, text, text)
    assert "".join(one.text for one in events if isinstance(one, ReasoningChunk)) == thought


@pytest.mark.parametrize(
    "ending",
    [
        {"x_groq": {"id": "r", "usage": {"prompt_tokens": 30, "completion_tokens": 12}}},
        {"usage": None, "x_groq": {"usage": {"prompt_tokens": 30, "completion_tokens": 12}}},
    ],
)
async def test_usage_of_groq_is_counted(ending: Any) -> None:
    """Groq's usage stands in x_groq (mending 32)."""
    answer = stream(delta(content="Hi"), {**STOP, **ending})
    async with providing(answer) as provider, asking(provider.url) as model:
        usage = reply_of(await collect_events(model, HELLO)).usage
    assert (usage.input, usage.output, usage.estimated) == (30, 12, False)


async def test_usage_of_a_choice_is_counted() -> None:
    ending = delta("stop")
    ending["choices"][0]["usage"] = {"prompt_tokens": 30, "completion_tokens": 12}
    async with (
        providing(stream(delta(content="Hi"), ending)) as provider,
        asking(provider.url) as model,
    ):
        assert reply_of(await collect_events(model, HELLO)).usage.total == 42


def failing(error: Any) -> list[Answer]:
    body = json.dumps({"error": error}).encode()
    return [stream({"error": error}), Answer(pieces=[body], kind="application/json")]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": 429, "message": "Rate limited"}, "busy"),
        ({"code": "503", "message": "Down"}, "busy"),
        ({"code": 502, "message": "Bad gateway", "metadata": {}}, "busy"),
        ({"message": "x", "status": 529}, "busy"),
        ({"code": 401, "message": "No key"}, "auth"),
        ({"code": 400, "message": "Bad"}, "refused"),
        ({"code": 1302, "message": "Own number"}, "refused"),
    ],
)
@pytest.mark.parametrize("place", [0, 1], ids=["stream", "whole"])
async def test_an_error_inside_an_answer_counts_as_its_status(
    error: Any, kind: str, place: int
) -> None:
    """Numbers of errors inside a 200 are read as statuses, and retried like them (mending 32)."""
    async with (
        providing(failing(error)[place], chat("Fine.")) as provider,
        asking(provider.url) as model,
    ):
        if kind == "busy":
            assert reply_of(await collect_events(model, HELLO)).text == "Fine."
            assert len(provider.requests) == 2
        else:
            with pytest.raises(ModelFailed) as caught:
                await collect_events(model, HELLO)
            assert caught.value.kind == kind
            assert len(provider.requests) == 1


@pytest.mark.parametrize(
    "event",
    [
        {"object": "error", "message": "Down", "code": 503},
        {"choices": [{"index": 0, "delta": {}, "error": {"code": 502, "message": "Down"}}]},
    ],
)
async def test_errors_of_other_shapes_are_errors(event: Any) -> None:
    async with (
        providing(stream(event), chat("Fine.")) as provider,
        asking(provider.url) as model,
    ):
        assert reply_of(await collect_events(model, HELLO)).text == "Fine."


async def test_signatures_of_gemini_go_back_with_their_calls() -> None:
    """The extra_content of calls and texts is sent back as it came (mending 32)."""
    signed = {**fragment(0, "x", *TWO[0]), "extra_content": SIGNATURE}
    plain = fragment(1, "y", *TWO[1])
    answers = (
        stream(delta(tool_calls=[signed]), delta(tool_calls=[plain]), CALLED),
        stream(delta(content="Tom."), delta(extra_content={"google": {"thought": 1}}), STOP),
        chat("Bye."),
    )
    async with providing(*answers) as provider, asking(provider.url) as model:
        messages = list(HELLO)
        for _ in range(2):
            reply = reply_of(await collect_events(model, messages, [PETS]))
            messages.append(reply.message)
            messages += [ChatMessage("tool", "Tom", call_id=one.id) for one in reply.calls]
        await collect_events(model, messages, [PETS])
    _, called, _, _, final = provider.requests[2].body["messages"]
    assert [one.get("extra_content") for one in called["tool_calls"]] == [SIGNATURE, None]
    assert final["extra_content"] == {"google": {"thought": 1}}


@pytest.mark.parametrize(
    ("answer", "wanted", "sent"),
    [
        (chat("Tom.", reasoning="cats"), "always", {"reasoning_content": "cats"}),
        (chat("Tom.", reasoning="cats"), "calls", {}),
        (chat("Tom.", reasoning="cats"), "never", {}),
        (
            stream(delta(reasoning="cats"), delta(content="Tom."), STOP),
            "always",
            {"reasoning": "cats"},
        ),
        (
            stream(delta(content="<think>cats</think>Tom."), STOP),
            "always",
            {"content": "<think>cats</think>Tom."},
        ),
        (stream(delta(content="<think>cats</think>Tom."), STOP), "never", {}),
    ],
)
async def test_reasoning_of_a_final_answer_is_sent_back_if_required(
    answer: Answer, wanted: str, sent: dict[str, str]
) -> None:
    """The strategy says whether reasoning of answers without calls is sent back (mending 32)."""
    async with (
        providing(answer, chat("Bye.")) as provider,
        asking(provider.url, strategy={"returns_reasoning": wanted}) as model,
    ):
        reply = reply_of(await collect_events(model, HELLO))
        assert (reply.text, reply.reasoning) == ("Tom.", "cats")
        await collect_events(model, [*HELLO, reply.message, ChatMessage("user", "Thanks")])
    assert provider.requests[1].body["messages"][1] == {
        "role": "assistant",
        "content": "Tom.",
        **sent,
    }
