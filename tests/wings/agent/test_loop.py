"""The loop: tools are called until the model answers."""

import json
import re
from collections.abc import Sequence
from random import Random
from typing import Any

import anyio
import pytest

from gateway.wings.agent.conversation_and_run_store import Conversations
from registry.database.postgres import borrow
from registry.display.token_budgets import tokens
from tests import polling
from tests.fixtures_database import HOST
from tests.properties import seeds
from tests.servers.provider import Answer, chat, chat_whole, claude, failing
from tests.wings.agent.rig import Rig

pytestmark = pytest.mark.anyio


def call(id_: str, tool: str, **arguments: Any) -> tuple[str, str, str]:
    return id_, tool, json.dumps(arguments)


async def test_a_model_that_answers_ends_the_run(rig: Rig) -> None:
    rig.script(chat_whole("There are two pets."))
    found = await rig.ask("How many pets are there?")
    assert (found["answer"], found["state"], found["iterations"]) == (
        "There are two pets.",
        "completed",
        1,
    )
    assert (found["tokens"], found["money"]) == (18, 18e-6)


async def test_calls_go_through_the_gateway_and_their_results_back(rig: Rig) -> None:
    rig.script(
        chat_whole("Let me look.", [call("a1", "listPets", limit=3), call("a2", "getPet", id=7)]),
        chat_whole("", [call("b1", "call_tool", name="getPet", arguments={"id": 404})]),
        chat_whole("Done."),
    )
    found = await rig.ask("Which pets are there?")
    assert found["answer"] == "Done."
    assert sorted(rig.service_calls) == ["GET /pets", "GET /pets/404", "GET /pets/7"]
    assert [(one["tool"], one["is_error"]) for one in found["calls"]] == [
        ("listPets", False),
        ("getPet", False),
        ("call_tool", True),
    ]
    last = rig.sent_messages(2)
    assert [one["role"] for one in last[-6:]] == [
        "user", "assistant", "tool", "tool", "assistant", "tool",
    ]  # fmt: skip
    assert [one.get("tool_call_id") for one in last[-4:]] == ["a1", "a2", None, "b1"]
    assert re.match(r'<data-[0-9a-f]{16} source="listPets" trusted="no">', last[-4]["content"])


async def test_failed_calls_are_reported_to_the_model(rig: Rig) -> None:
    rig.script(
        chat_whole(
            "",
            [
                call("a1", "noSuchTool"),
                call("a2", "getPet", id="seven"),
                ("a3", "getPet", '{"id": 1'),
                call("a4", "getPet"),
                call("a5", "call_tool", name="call_tool", arguments={}),
            ],
        ),
        chat_whole("Sorry."),
    )
    found = await rig.ask("Do it.")
    assert (found["answer"], rig.service_calls) == ("Sorry.", [])
    assert all(one["is_error"] for one in found["calls"])
    texts = [one["result"] for one in found["calls"]]
    assert "noSuchTool" in texts[0]
    assert "id" in texts[1]
    assert "not one JSON object" in texts[2]


async def test_offered_tools_come_from_search_and_never_the_whole_catalog(rig: Rig) -> None:
    rig.script(chat_whole("Hm.", [call("a1", "listPets")]), chat_whole("Yes."))
    await rig.ask("Please list the pets")
    first, second = (one.body["tools"] for one in rig.provider.requests)
    names = [one["function"]["name"] for one in first]
    assert names[:3] == ["search_tools", "describe_tools", "call_tool"]
    assert "listPets" in names
    sent = [json.dumps(one, separators=(",", ":"), ensure_ascii=False) for one in first]
    assert sum(map(tokens, sent)) <= 800
    assert second[: len(first)] == first
    told = rig.sent_messages(0)[1]
    assert told["role"] == "user"
    assert "Tools that may help" in told["content"]


async def test_a_conversation_goes_on(rig: Rig) -> None:
    rig.script(chat_whole("One."), chat_whole("Two."))
    first = await rig.ask("First?")
    second = await rig.ask("Second?", conversation=first["conversation"])
    assert second["conversation"] == first["conversation"]
    texts = [
        one["content"] for one in rig.sent_messages(1) if not one["content"].startswith("<data")
    ]
    assert texts[1:] == ["First?", "One.", "Second?"]
    _, shown = await rig.get(f"/conversations/{first['conversation']}")
    assert [one["text"] for one in shown["messages"]] == ["First?", "One.", "Second?", "Two."]
    assert shown["conversation"]["title"] == "First?"
    _, listed = await rig.get("/conversations")
    assert listed["conversations"][0]["id"] == first["conversation"]
    assert await rig.delete(f"/conversations/{first['conversation']}") == 204
    assert (await rig.get(f"/conversations/{first['conversation']}"))[0] == 404


async def test_iterations_end_with_a_request_without_tools(rig: Rig) -> None:
    calls = [chat_whole("", [call(f"c{n}", "getPet", id=n)]) for n in range(10)]
    rig.script(*calls, chat_whole("I give up."))
    found = await rig.ask("Find it.")
    assert (found["state"], found["stopped"], found["answer"]) == (
        "exhausted",
        "max_iterations",
        "I give up.",
    )
    assert [one.body.get("tool_choice") for one in rig.provider.requests][-2:] == [None, "none"]


async def test_a_call_without_progress_ends_the_run(rig: Rig) -> None:
    rig.script(lambda _: chat_whole("", [call(f"c{len(rig.provider.requests)}", "getPet", id=404)]))
    found = await rig.ask("Find it.")
    assert (found["state"], found["stopped"], len(rig.service_calls)) == (
        "exhausted",
        "no_progress",
        5,
    )
    results = [one["result"] for one in found["calls"]]
    assert ["same result as before" in one for one in results] == [False, False, True, True, True]


@pytest.mark.parametrize("tools", [("getPet", "listPets"), ("search_tools",)])
async def test_calls_that_alternate_and_searches_without_end_are_no_progress(
    rig: Rig, tools: Sequence[str]
) -> None:
    given = {"getPet": {"id": 404}, "search_tools": {"query": "pets"}}

    def answer_model(_: Any) -> Answer:
        asked = len(rig.provider.requests)
        tool = tools[asked % len(tools)]
        return chat_whole("", [call(f"c{asked}", tool, **given.get(tool, {}))])

    rig.script(answer_model)
    found = await rig.ask("Find it.")
    assert (found["state"], found["stopped"]) == ("exhausted", "no_progress")
    assert len(found["calls"]) <= 5 * len(tools)


async def test_an_empty_answer_is_asked_for_again_once(rig: Rig) -> None:
    rig.script(chat_whole(""), chat_whole("Here."))
    assert (await rig.ask("Hello?"))["answer"] == "Here."
    rig.script(chat_whole(""))
    found = await rig.ask("Hello?")
    assert (found["state"], found["error"]) == ("failed", "empty_answer")
    assert len(rig.provider.requests) == 2


@pytest.mark.parametrize(
    ("answer", "error"),
    [(failing(401), "provider_auth"), (failing(400), "provider_refused")],
)
async def test_failures_of_the_provider_are_told(rig: Rig, answer: Answer, error: str) -> None:
    rig.script(answer)
    found = await rig.ask("Hello?")
    assert (found["state"], found["error"]) == ("failed", error)


async def test_a_context_that_is_too_long_is_compacted(rig: Rig) -> None:
    rig.script(chat_whole("One."))
    first = await rig.ask("First?")
    rig.script(failing(400, "maximum context length is 9 tokens"), failing(413), chat_whole("Two."))
    found = await rig.ask("Second?", conversation=first["conversation"])
    assert found["answer"] == "Two."
    assert len(rig.sent_messages(2)) < len(rig.sent_messages(0))
    assert await rig.steps(found["run"]) == [
        "context",
        "asked",
        "compacted",
        "compacted",
        "replied",
    ]


async def test_thinking_blocks_are_sent_back_unaltered_in_later_turns(rig: Rig) -> None:
    """The provider refuses a conversation whose signature or redacted block was altered."""
    thought = claude("Hm.", [call("a1", "getPet", id=1)], thinking="cats \u00fc", redacted="SEALED")
    rig.script(thought, claude("Done."), claude("Again."))
    first = await rig.ask("Look.", strategy="clever", stream=True)
    second = await rig.ask(
        "And now?", strategy="clever", stream=True, conversation=first["conversation"]
    )
    assert (first["answer"], second["answer"]) == ("Done.", "Again.")
    for request in rig.provider.requests[1:]:
        blocks = next(one for one in request.body["messages"] if one["role"] == "assistant")
        assert blocks["content"][:2] == [
            {"type": "thinking", "thinking": "cats \u00fc", "signature": "sig-cats \u00fc"},
            {"type": "redacted_thinking", "data": "SEALED"},
        ]
    altered = second["conversation"]
    pool = rig.client.gateway._handle.pool()
    assert pool is not None
    async with borrow(pool) as connection:
        await connection.execute(
            "UPDATE agent_step_t SET data = convert_to(replace(convert_from(data, 'UTF8'),"
            " 'cats ', 'dogs '), 'UTF8') WHERE run_id = %s AND kind = 'replied'",
            [first["run"]],
        )
    third = await rig.ask("Hm?", strategy="clever", stream=True, conversation=altered)
    assert third["error"] == "provider_refused"


async def test_a_turn_that_the_provider_pauses_goes_on(rig: Rig) -> None:
    rig.script(
        claude("Let me think", reason="pause_turn"), claude(" a little.", reason="pause_turn"),
        claude("Done."),
    )  # fmt: skip
    found = await rig.ask("Think.", strategy="clever", stream=True)
    assert (found["answer"], found["state"], found["iterations"]) == ("Done.", "completed", 3)
    last = rig.provider.requests[2].body["messages"][-1]
    assert last["role"] == "assistant"
    assert [one["text"] for one in last["content"]] == ["Let me think", " a little."]


async def test_two_messages_at_once_are_one_run(rig: Rig) -> None:
    id_ = await rig.conversation()
    rig.script(Answer(silent=True))
    status, run = await rig.post(f"/conversations/{id_}/messages", {"content": "1", "wait": False})
    assert (status, run["state"]) == (200, "running")
    status, problem = await rig.post(f"/conversations/{id_}/messages", {"content": "2"})
    assert status == 409
    assert run["run"] in problem["detail"]
    with anyio.fail_after(30):
        await rig.provider.asked.wait()
        status, ended = await rig.post(f"/runs/{run['run']}/cancel")
        assert (status, ended["state"]) == (200, "cancelled")
        await rig.provider.hung_up[0].wait()
    rig.script(chat_whole("Fine."))
    found = await rig.ask("3", conversation=id_)
    assert found["answer"] == "Fine."


async def test_a_cancelled_call_leaves_a_conversation_that_goes_on(rig: Rig) -> None:
    id_ = await rig.conversation()
    rig.script(chat_whole("", [call("a1", "slow")]))
    _, run = await rig.post(f"/conversations/{id_}/messages", {"content": "1", "wait": False})
    with anyio.fail_after(30):
        await rig.service.arrived.wait()
        _, ended = await rig.post(f"/runs/{run['run']}/cancel")
        await rig.service.gone.wait()
    assert ended["state"] == "cancelled"
    rig.script(chat_whole("Fine."))
    assert (await rig.ask("2", conversation=id_))["answer"] == "Fine."
    assert (
        "not made" in next(one for one in rig.sent_messages(0) if one["role"] == "tool")["content"]
    )


@pytest.mark.parametrize("content", ["", "  ", "x" * 200_001])
async def test_messages_that_cannot_be_sent_are_refused(rig: Rig, content: str) -> None:
    id_ = await rig.conversation()
    status, problem = await rig.post(f"/conversations/{id_}/messages", {"content": content})
    assert (status, problem["type"]) == (422, "problems/invalid")


async def test_a_strategy_that_there_is_not_is_a_mistake_of_the_request(rig: Rig) -> None:
    id_ = await rig.conversation()
    for path, body in (
        ("/ask", {"message": "Hi", "strategy": "other"}),
        ("/conversations", {"strategy": "other"}),
        (f"/conversations/{id_}/messages", {"content": "Hi", "strategy": "other"}),
    ):
        status, problem = await rig.post(path, body)
        assert (status, problem["type"]) == (422, "problems/invalid"), path
        assert problem["detail"] == "There is no strategy 'other', only scripted, clever."
    assert (await rig.get("/conversations"))[1]["conversations"][0]["id"] == id_


async def test_roles_cannot_be_smuggled_in(rig: Rig) -> None:
    id_ = await rig.conversation()
    body = {"content": "x", "role": "system"}
    status, problem = await rig.post(f"/conversations/{id_}/messages", body)
    assert status == 422
    assert "role" in str(problem)


async def test_missing_conversations_and_runs_are_not_found(rig: Rig) -> None:
    other = "00000000-0000-4000-8000-000000000000"
    assert (await rig.get(f"/conversations/{other}"))[0] == 404
    assert (await rig.get(f"/runs/{other}"))[0] == 404
    assert (await rig.post(f"/runs/{other}/cancel"))[0] == 404
    assert (await rig.post("/ask", {"message": "Hi", "conversation": other}))[0] == 404


WORDS = ("It", "is", "there", "不在", "🐈", "\n", "{", '"', "```", "")
CALLS: Sequence[tuple[str, dict[str, Any]]] = (
    ("getPet", {"id": 1}),
    ("getPet", {"id": 404}),
    ("getPet", {"wrong": 1}),
    ("createPet", {"name": "Rex"}),
    ("createPet", {"name": 7}),
    ("nothing", {}),
)
# The service says what it heard; each run has its own, and so has its digest.
KEY = re.compile(r"idempotency-key[^,]+|data-[0-9a-f]{16}")


def _answers(random: Random) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """Texts and calls of the model in one run; only the last one has no call."""

    def one(round_: int, calls: int) -> tuple[str, list[tuple[str, str, str]]]:
        text = " ".join(random.choices(WORDS, k=random.randrange(6)))
        chosen = random.choices(CALLS, k=calls)
        return text, [
            call(f"a{round_}-{at}", name, **given) for at, (name, given) in enumerate(chosen)
        ]

    rounds = [one(at, random.randint(1, 4)) for at in range(random.randrange(4))]
    return [*rounds, (f"Done {random.random()}.", [])]


@pytest.mark.parametrize("seed", seeds(20))
async def test_progressive_and_final_runs_have_equal_transcripts(rig: Rig, seed: int) -> None:
    """Progressive and final runs have equal transcripts (A07)."""
    answers, found = _answers(Random(seed)), []
    for make, stream in ((chat, True), (chat_whole, False)):
        rig.script(*(make(text, calls) for text, calls in answers))
        id_ = await rig.conversation()
        body = {"content": "Look.", "stream": stream}
        _, run = await rig.post(f"/conversations/{id_}/messages", body)
        assert run["state"] in ("completed", "exhausted"), run
        _, shown = await rig.get(f"/conversations/{id_}")
        sent = [one.body["messages"] for one in rig.provider.requests]
        all_ = [shown["messages"], await rig.steps(run["run"]), sent, sorted(rig.service_calls)]
        found.append(KEY.sub("", json.dumps(all_)))
        assert rig.provider.requests[0].body.get("stream", False) is stream
    assert found[0] == found[1]


async def test_read_only_calls_run_concurrently(rig: Rig) -> None:
    """Read-only calls run concurrently (A17)."""
    rig.service.release.clear()
    calls = [call(f"s{at}", "slow") for at in range(3)]
    rig.script(chat("", [*calls, call("g1", "getPet", id=7)]), chat("Done."))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(rig.ask, "Look at all.")
        await polling.until(
            lambda: len(rig.service_calls) == 4
        )  # though none of the first has answered
        rig.service.release.set()
    told = [one["tool_call_id"] for one in rig.sent_messages(1) if one["role"] == "tool"]
    assert told == ["s0", "s1", "s2", "g1"]


async def test_calls_beside_a_writing_call_run_in_turn(rig: Rig) -> None:
    """Calls beside a writing call run in turn (A17)."""
    calls = [
        call("g1", "getPet", id=1),
        call("c1", "createPet", name="Rex"),
        call("g2", "getPet", id=2),
    ]
    rig.script(chat("", calls), chat("Done."))
    await rig.ask("Do it.")
    assert rig.service_calls == ["GET /pets/1", "POST /pets", "GET /pets/2"]


async def test_fifty_calls_of_one_answer_are_made_and_told_in_their_order(rig: Rig) -> None:
    calls = [call(f"g{at}", "getPet", id=at) for at in range(1, 51)]
    rig.script(chat("", calls), chat("Done."))
    answer = await rig.ask("Look at fifty.")
    assert answer["state"] == "completed"
    told = [one["tool_call_id"] for one in rig.sent_messages(1) if one["role"] == "tool"]
    assert told == [f"g{at}" for at in range(1, 51)]
    assert sorted(rig.service_calls) == sorted(f"GET /pets/{at}" for at in range(1, 51))


async def test_health_has_the_last_outcome_of_the_provider(rig: Rig) -> None:
    """Health has the last outcome of the provider (A04)."""
    rig.script(chat("Fine."), failing(401))
    for outcome in ("ok", "auth"):
        await rig.ask("How are you?")
        _, health = await rig.get("/health")
        assert (health["last_outcome"], health["last_s"] < 60) == (outcome, True)


async def test_the_health_names_the_model(rig: Rig) -> None:
    _, health = await rig.get("/health")
    assert (health["strategy"], health["state"]) == ("scripted", "ok")
    _, tools = await rig.get("/tools?query=remove%20a%20pet")
    names = [one["name"] for one in tools["tools"]]
    assert names[0] == "search_tools"
    assert "deletePet" in names


async def test_traffic_is_kept_as_a_transcript(rig: Rig) -> None:
    rig.script(chat_whole("Yes."))
    found = await rig.ask("Hello?")
    _, kept = await rig.get(f"/runs/{found['run']}/transcript")
    [exchange] = kept["exchanges"]
    assert exchange["path"] == "/chat/completions"
    assert exchange["request"]["messages"][-1] == {"role": "user", "content": "Hello?"}


async def test_a_denied_tool_looks_like_a_missing_tool(rig: Rig) -> None:
    calls = [call("a1", "more_0000"), call("a2", "more_9999")]
    rig.script(chat_whole("", calls), chat_whole("Sorry."))
    found = await rig.ask("Do it.")
    denied, absent = (one["result"] for one in found["calls"])
    assert denied.replace("0000", "9999") == absent
    _, tools = await rig.get("/tools?query=one%20more")
    assert "more_0000" not in [one["name"] for one in tools["tools"]]


async def test_a_foreign_conversation_is_not_there(rig: Rig) -> None:
    id_ = await rig.conversation()
    pool = rig.client.gateway._handle.pool()
    assert pool is not None
    conversations = Conversations(pool)
    assert await conversations.get(HOST, "anonymous", id_) is not None
    assert await conversations.get(HOST, "bob", id_) is None
    assert await conversations.all(HOST, "bob", None, 10) == []
    assert not await conversations.delete(HOST, "bob", id_)
    other = "00000000-0000-4000-8000-00000000beef"
    assert await conversations.get(other, "anonymous", id_) is None


async def test_nul_characters_are_removed_from_a_stored_answer(rig: Rig) -> None:
    rig.script(chat_whole("A\0 cat."))
    found = await rig.ask("Which pet?")
    assert (found["state"], found["answer"]) == ("completed", "A cat.")


async def test_long_conversations_and_transcripts_are_paged(rig: Rig) -> None:
    id_ = await rig.conversation()
    for number in range(3):
        rig.script(
            chat_whole("", [call("a1", "getPet", id=number)]), chat_whole(f"Answer {number}.")
        )
        run = await rig.ask(f"Question {number}?", conversation=id_)
    found, place = [], ""
    while True:
        _, page = await rig.get(f"/conversations/{id_}?limit=1{place}")
        found.append([one["text"] for one in page["messages"] if one["text"]])
        if not page.get("before"):
            break
        place = f"&before={page['before']}"
    assert found == [[f"Question {n}?", f"Answer {n}."] for n in (2, 1, 0)]
    _, first = await rig.get(f"/runs/{run['run']}/transcript?limit=1")
    _, rest = await rig.get(f"/runs/{run['run']}/transcript?after={first['after']}")
    assert (len(first["exchanges"]), len(rest["exchanges"])) == (1, 1)
    assert first["exchanges"] != rest["exchanges"]
