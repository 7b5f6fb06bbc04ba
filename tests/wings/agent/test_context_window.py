"""The window is cut between turns, and providers never see a call without its result."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.wings.agent.context_window import size, window
from gateway.wings.agent.run_steps import AgentTurn, FoundContext, Result, Round
from gateway.wings.models.messages import ChatMessage, ModelCall, ModelReply
from gateway.wings.models.usage import TokenUsage

words = st.text("ab ", min_size=1, max_size=400)


@st.composite
def turns(draw: st.DrawFn) -> list[AgentTurn]:
    found = []
    for place in range(draw(st.integers(1, 6))):
        turn = AgentTurn(f"question {place} {draw(words)}", context=FoundContext("<data/>"))
        for number in range(draw(st.integers(0, 3))):
            count = draw(st.integers(0, 50 if number == 0 else 3))
            calls = tuple(ModelCall(f"{place}-{number}-{n}", "f", "{}") for n in range(count))
            finish = "calls" if calls else "stop"
            reply = ModelReply(draw(words), calls, "", finish, TokenUsage(), None, "m")
            known = draw(st.lists(st.sampled_from(calls), unique=True)) if calls else []
            results = {one.id: Result(one.id, draw(words)) for one in known}
            turn.rounds.append(Round(reply, results=results))
        found.append(turn)
    found[-1].level = draw(st.integers(0, 2))
    return found


@given(turns(), st.integers(1, 40), st.integers(10, 3000))
def test_calls_and_results_stay_or_go_together(
    found: list[AgentTurn], messages: int, tokens: int
) -> None:
    sent = window("Be kind.", found, messages=messages, limit_tokens=tokens)
    assert sent[0] == ChatMessage("system", "Be kind.")
    assert sent[1].text in (found[0].content, "<data/>")
    assert found[-1].content in [one.text for one in sent]
    open_: list[str] = []
    for message in sent:
        if message.role == "tool":
            assert message.call_id == open_.pop(0)
            continue
        assert not open_
        open_ = [call.id for call in message.calls]
    assert not open_
    newest = found[-1].messages
    older = [one for one in sent[1 : -len(newest)] if one.text != found[0].content]
    assert len(older) <= messages
    assert sum(map(size, older)) <= tokens


def test_a_result_longer_than_the_window_stays_in_its_turn() -> None:
    reply = ModelReply("", (ModelCall("a", "f", "{}"),), "", "calls", TokenUsage(), None, "m")
    turn = AgentTurn("q", rounds=[Round(reply, results={"a": Result("a", "x" * 10_000)})])
    sent = window("", [turn], messages=1, limit_tokens=10)
    assert [one.role for one in sent] == ["user", "assistant", "tool"]
