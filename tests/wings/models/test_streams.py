"""Forty malformed streams, each with its outcome: an answer, or the kind of failure."""

import json
from dataclasses import dataclass, replace
from typing import Any

import anyio
import pytest

from gateway.wings.models.messages import (
    ContentChunk,
    ModelCall,
    ModelFailed,
    RequestOptions,
    StatusUpdate,
)
from gateway.wings.models.tool_call_assembly import UnusableArguments, call_arguments
from gateway.wings.models.usage import Budget
from tests.servers.provider import Answer, chat, claude, delta, fragment, providing, responses, sse
from tests.wings.models.asking import HELLO, PETS, asking, collect_events, reply_of

pytestmark = pytest.mark.anyio

STOP = delta("stop")
CALLS = delta("tool_calls")
X, Y = '{"x":1}', '{"y":2}'


@dataclass(frozen=True, kw_only=True)
class Case:
    answer: Answer
    dialect: str = "chat-completions"
    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()  # name and arguments
    finish: str = "stop"
    failure: str = ""  # instead of an answer


def stream(*events: Any, done: bool = True, **answer: Any) -> Answer:
    return Answer(pieces=[sse(*events, done=done)], **answer)


def call_answer(*fragments: Any, finish: Any = CALLS) -> Answer:
    return stream(*(delta(tool_calls=[one]) for one in fragments), finish)


def split(answer: Answer, size: int) -> Answer:
    whole = b"".join(answer.pieces)
    return replace(answer, pieces=[whole[i : i + size] for i in range(0, len(whole), size)])


def rewritten(answer: Answer, old: bytes, new: bytes) -> Answer:
    return replace(answer, pieces=[one.replace(old, new) for one in answer.pieces])


TWO = (("f", X), ("g", Y))
LARGE = json.dumps({"x": "y" * 1_000_000})
CLAUDE_HALF = claude("One two three.").pieces
RESPONSES_HALF = responses("One two three.").pieces

CASES: dict[str, Case] = {
    # -- which fragment belongs to which call --
    "two calls, index 0 and 1": Case(
        answer=call_answer(
            fragment(0, "a", "f"), fragment(0, arguments=X),
            fragment(1, "b", "g"), fragment(1, arguments=Y),
        ),
        calls=TWO, finish="calls",
    ),
    "two calls, one index": Case(
        answer=call_answer(fragment(0, "a", "f", X), fragment(0, "b", "g", Y)),
        calls=TWO, finish="calls",
    ),
    "two calls, no index": Case(
        answer=call_answer(
            fragment(None, "a", "f", X[:3]), fragment(None, arguments=X[3:]),
            fragment(None, "b", "g", Y),
        ),
        calls=TWO, finish="calls",
    ),
    "two calls, no id": Case(
        answer=call_answer(fragment(0, "", "f", X), fragment(0, "", "g", Y)),
        calls=TWO, finish="calls",
    ),
    "two calls, neither id nor index": Case(
        answer=call_answer(fragment(None, "", "f", X), fragment(None, "", "g", Y)),
        calls=TWO, finish="calls",
    ),
    "two calls, interleaved": Case(
        answer=call_answer(
            fragment(0, "a", "f", X[:2]), fragment(1, "b", "g", Y[:2]),
            fragment(0, arguments=X[2:]), fragment(1, arguments=Y[2:]),
        ),
        calls=TWO, finish="calls",
    ),
    "the id in every fragment": Case(
        answer=call_answer(
            fragment(0, "a", "f", X[:2]), fragment(0, "a", arguments=X[2:]),
            fragment(0, "b", "g", Y[:2]), fragment(0, "b", arguments=Y[2:]),
        ),
        calls=TWO, finish="calls",
    ),
    "the id comes late": Case(
        answer=call_answer(
            fragment(0, "", "f"), fragment(0, "a", arguments=X), fragment(1, "b", "g", Y)
        ),
        calls=TWO, finish="calls",
    ),
    "one id twice": Case(
        answer=call_answer(fragment(0, "a", "f", X[:2]), fragment(1, "a", arguments=X[2:])),
        calls=(("f", X),), finish="calls",
    ),
    "the id changes in mid call": Case(
        answer=call_answer(fragment(0, "a", "f", X[:3]), fragment(0, "b", arguments=X[3:])),
        calls=(("f", X[:3]), ("", X[3:])), finish="calls",  # neither can be executed
    ),
    "arguments are an object": Case(
        answer=call_answer(
            {"index": 0, "id": "a", "function": {"name": "f", "arguments": {"x": 1}}}
        ),
        calls=(("f", X),), finish="calls",
    ),
    # -- arguments --
    "arguments cut": Case(
        answer=call_answer(fragment(0, "a", "f", X[:4])), calls=(("f", X[:4]),), finish="calls"
    ),
    "arguments empty": Case(
        answer=call_answer(fragment(0, "a", "f", "")), calls=(("f", ""),), finish="calls"
    ),
    "length within arguments": Case(
        answer=call_answer(fragment(0, "a", "f", X[:4]), finish=delta("length")),
        calls=(("f", X[:4]),), finish="length",
    ),
    "1 MB of arguments": Case(
        answer=split(call_answer(fragment(0, "a", "f", LARGE)), 65536),
        calls=(("f", LARGE),), finish="calls",
    ),
    # -- the wire --
    "keep-alive comments": Case(
        answer=Answer(pieces=[b": keep-alive\n\n", sse(delta(content="Hi")), b": \n\n",
                              sse(STOP, done=True)]),
        text="Hi",
    ),
    "one byte per chunk, characters split": Case(
        answer=split(stream(delta(content="Grüße, 世界 🐈"), STOP), 1), text="Grüße, 世界 🐈"
    ),
    "CRLF": Case(
        answer=rewritten(stream(delta(content="Hi"), STOP), b"\n", b"\r\n"), text="Hi"
    ),
    "no space behind data:": Case(
        answer=rewritten(stream(delta(content="Hi"), STOP), b"data: ", b"data:"), text="Hi"
    ),
    "data on several lines": Case(
        answer=rewritten(stream(delta(content="Hi"), STOP), b', "choices"', b'\ndata: , "choices"'),
        text="Hi",
    ),
    "a byte order mark": Case(
        answer=Answer(pieces=[b"\xef\xbb\xbf", sse(delta(content="Hi"), STOP, done=True)]),
        text="Hi",
    ),
    "no empty line at the end": Case(
        answer=Answer(pieces=[sse(delta(content="Hi"), STOP).rstrip()]), text="Hi"
    ),
    "no [DONE]": Case(answer=stream(delta(content="Hi"), STOP, done=False), text="Hi"),
    "[DONE] without finish_reason": Case(answer=stream(delta(content="Hi")), text="Hi"),
    "the connection breaks behind the finish": Case(
        answer=stream(delta(content="Hi"), STOP, done=False, end="cut"), text="Hi"
    ),
    # -- members --
    "choices empty, usage last": Case(
        answer=stream({**delta(), "choices": []}, delta(content="Hi"), STOP,
                    {**delta(), "choices": [], "usage": {"prompt_tokens": 3}}),
        text="Hi",
    ),
    "null everywhere": Case(
        answer=stream(
            {"choices": [{"delta": {"content": None, "tool_calls": None,
                                    "reasoning_content": None}, "finish_reason": None}],
             "usage": None, "error": None},
            delta(content="Hi"), {**STOP, "choices": [{"finish_reason": "stop"}]},
        ),
        text="Hi",
    ),
    "calls that finish with stop": Case(
        answer=call_answer(fragment(0, "a", "f", X), finish=STOP), calls=(("f", X),), finish="calls"
    ),
    "calls announced, none made": Case(
        answer=stream(delta(content="Hi"), CALLS), text="Hi", finish="stop"
    ),
    "filtered": Case(
        answer=stream(delta(content="Hi"), delta(tool_calls=[fragment(0, "a", "f", X)]),
                    delta("content_filter")),
        text="Hi", finish="filtered",
    ),
    # -- failures --
    "ends without a sign after half a sentence": Case(
        answer=stream(delta(content="Hi"), done=False), failure="cut"
    ),
    "ends without a sign after a whole call": Case(
        answer=stream(delta(tool_calls=[fragment(0, "a", "f", X)]), done=False), failure="cut"
    ),
    "the connection breaks": Case(
        answer=stream(delta(content="Hi"), done=False, end="reset"), failure="cut"
    ),
    "an error in mid stream": Case(
        answer=stream(delta(content="Hi"),
                    {"error": {"message": "boom", "type": "server_error"}}),
        failure="busy",
    ),
    "insufficient_system_resource": Case(
        answer=stream(delta(content="Hi"), delta("insufficient_system_resource")), failure="busy"
    ),
    "no JSON": Case(answer=stream(delta(content="Hi"), "{nonsense"), failure="malformed"),
    "HTML with status 200": Case(
        answer=Answer(pieces=[b"<html>Hi</html>"], kind="text/html"), failure="malformed"
    ),
    "Anthropic: an overload in mid stream": Case(
        dialect="anthropic",
        answer=Answer(pieces=[*CLAUDE_HALF[:5], sse(
            {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
            named=True)]),
        failure="busy",
    ),
    "Anthropic: ends without message_stop": Case(
        dialect="anthropic", answer=Answer(pieces=CLAUDE_HALF[:-2]), failure="cut"
    ),
    "responses: ends without response.completed": Case(
        dialect="openai-responses", answer=Answer(pieces=RESPONSES_HALF[:-1]), failure="cut"
    ),
}  # fmt: skip


def test_there_are_forty() -> None:
    assert len(CASES) == 40


@pytest.mark.parametrize("name", CASES)
async def test_each_malformed_stream_has_its_outcome(name: str) -> None:
    case = CASES[name]
    async with (
        providing(case.answer) as provider,
        asking(provider.url, strategy={"dialect": case.dialect}, retries=0) as model,
    ):
        with anyio.fail_after(60):
            if case.failure:
                with pytest.raises(ModelFailed) as caught:
                    await collect_events(model, HELLO, [PETS])
                assert caught.value.kind == case.failure
                assert provider.url not in str(caught.value)
                return
            reply = reply_of(await collect_events(model, HELLO, [PETS]))
    assert (reply.text, reply.finish) == (case.text, case.finish)
    assert tuple((one.name, one.arguments) for one in reply.calls) == case.calls
    ids = [one.id for one in reply.calls]
    assert all(ids)
    assert len(set(ids)) == len(ids)


def _refused_by_responses() -> Answer:
    part = {"type": "refusal", "refusal": "I cannot."}
    item = {"type": "message", "id": "m", "role": "assistant", "content": [part]}
    response = {"id": "r", "status": "completed", "model": "m", "output": [item]}
    told = {"type": "response.refusal.delta", "delta": "I cannot."}
    done = {"type": "response.completed", "response": response}
    return Answer(pieces=[sse(told, done, named=True)])


@pytest.mark.parametrize(
    ("dialect", "answer"),
    [
        ("chat-completions", Answer(pieces=[sse(delta(refusal="I cannot."), STOP, done=True)])),
        ("anthropic", claude("I cannot.", reason="refusal")),
        ("openai-responses", _refused_by_responses()),
    ],
)
async def test_a_refusal_of_the_model_is_reported_as_refusal(dialect: str, answer: Answer) -> None:
    async with (
        providing(answer) as provider,
        asking(provider.url, strategy={"dialect": dialect}) as model,
    ):
        events = await collect_events(model, HELLO, [PETS])
    assert "".join(one.text for one in events if isinstance(one, ContentChunk)) == "I cannot."
    reply = reply_of(events)
    assert (reply.text, reply.finish, reply.calls) == ("I cannot.", "refused", ())


@pytest.mark.parametrize("name", ["two calls, no id", "filtered", "CRLF"])
async def test_ids_that_are_made_are_equal_for_equal_requests(name: str) -> None:
    async with providing(CASES[name].answer) as provider, asking(provider.url) as model:
        first = reply_of(await collect_events(model, HELLO, [PETS]))
        assert reply_of(await collect_events(model, HELLO, [PETS])).calls == first.calls


@pytest.mark.parametrize(
    ("answer", "retried"),
    [
        (stream(done=False), True),
        (stream(delta(role="assistant", content=""), done=False), True),
        (stream(delta(content="Hi"), done=False), False),
        (stream(delta(reasoning_content="Hm"), done=False), False),
        (stream(delta(tool_calls=[fragment(0, "a", "f", X)]), done=False), False),
    ],
)
async def test_a_cut_stream_is_retried_while_nothing_was_shown(
    answer: Answer, retried: bool
) -> None:
    async with providing(answer, chat("Yes.")) as provider, asking(provider.url) as model:
        with anyio.fail_after(30):
            if not retried:
                with pytest.raises(ModelFailed):
                    await collect_events(model, HELLO)
                assert len(provider.requests) == 1
                return
            events = await collect_events(model, HELLO)
    assert events[0] == StatusUpdate("retrying", "cut")
    assert reply_of(events).text == "Yes."


@pytest.mark.parametrize(
    ("usage", "total"),
    [
        (None, 0),
        ({"prompt_tokens": -5, "completion_tokens": "many"}, 0),
        ({"prompt_tokens": 1 << 62, "completion_tokens": 1 << 62}, 0),
        ({"prompt_tokens": 3, "completion_tokens": 2}, 5),
    ],
)
async def test_usage_that_is_missing_or_nonsense_is_estimated(usage: Any, total: int) -> None:
    budget = Budget(tokens=100_000)
    async with providing(chat("Yes, yes.", usage=usage)) as provider, asking(provider.url) as model:
        reply = reply_of(await collect_events(model, HELLO, [], RequestOptions(budget=budget)))
    assert reply.usage.estimated is (total == 0)
    assert reply.usage.total == total or reply.usage.estimated
    assert budget.tokens == 100_000 - reply.usage.total


async def test_usage_in_every_chunk_is_not_added() -> None:
    chunks = [{**delta(content="Hi"), "usage": {"prompt_tokens": 5, "completion_tokens": n}}
              for n in (1, 2, 3)]  # fmt: skip
    async with providing(stream(*chunks, STOP)) as provider, asking(provider.url) as model:
        assert reply_of(await collect_events(model, HELLO)).usage.total == 8


async def test_json_although_a_stream_was_asked_is_an_answer() -> None:
    body = json.dumps({"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]})
    answer = Answer(pieces=[body.encode()], kind="application/json")
    async with providing(answer) as provider, asking(provider.url) as model:
        assert reply_of(await collect_events(model, HELLO)).text == "Hi"


@pytest.mark.parametrize(
    ("arguments", "outcome"),
    [
        ("", {}),
        ("  \n", {}),
        (X, {"x": 1}),
        ("null", "found null"),
        ("[]", "found an array"),
        ('"text"', "found a string"),
        ('{"a":1}{"a":2}', "Not JSON"),
        ('{"a":1,"a":2}', "'a' twice"),
        ('{"a":1e400}', "out of range"),
        ('{"a":"\\ud800"}', "surrogate"),
        ("[" * 10_000, "deeper"),
        ('{"a":' * 10_000 + "1" + "}" * 10_000, "deeper"),
        (json.dumps({"a": "y" * 5_000_000}), "bytes"),
        (X[:4], "Not JSON"),
    ],
    ids=range(14),
)
def test_arguments_are_one_object_or_nothing_is_executed(arguments: str, outcome: Any) -> None:
    call = ModelCall("a", "f", arguments)
    if isinstance(outcome, dict):
        assert call_arguments(call, 1 << 20) == outcome
        return
    with pytest.raises(UnusableArguments, match=outcome):
        call_arguments(call, 1 << 20)
