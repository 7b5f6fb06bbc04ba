"""The window: which messages of a conversation a model is sent. Pure.

It is cut between turns alone, because an assistant's calls and their results stay or go together.
The instructions, the first message of the user and the newest turn always stay.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from gateway.wings.agent.run_steps import AgentTurn
from gateway.wings.models.messages import ChatMessage
from registry.display.token_budgets import tokens

KEPT_RESULTS = 3  # newest ones of tools that compaction leaves
STUB_CHARACTERS = 200  # shorter results are not replaced


def size(message: ChatMessage) -> int:
    """Estimated tokens of a message."""
    calls = sum(tokens(call.name + call.arguments) + 8 for call in message.calls)
    state = message.provider_state
    provider_tokens = 0 if state is None else tokens(bytes(state.data))
    return tokens(message.text) + calls + provider_tokens + 4


def window(
    instructions: str, turns: Sequence[AgentTurn], *, messages: int, limit_tokens: int
) -> list[ChatMessage]:
    """`turns`: all, oldest first; the last one is under way. Its `level` says how far to compact:
    1 replaces old results of tools, 2 leaves out all older turns, too."""
    level = turns[-1].level
    parts = [turn.messages for turn in turns]
    if level:
        parts = _stub_results(parts)
    recent = [parts.pop()]
    count = len(recent[0])
    used = tokens(instructions) + sum(map(size, recent[0]))
    while parts and level < 2:
        part = parts[-1]
        cost = sum(map(size, part))
        if count + len(part) > messages or used + cost > limit_tokens:
            break
        recent.insert(0, parts.pop())
        count, used = count + len(part), used + cost
    pinned = [ChatMessage("user", turns[0].content)] if parts else []
    system = [ChatMessage("system", instructions)] if instructions else []
    return [*system, *pinned, *(message for part in recent for message in part)]


def _stub_results(parts: Sequence[list[ChatMessage]]) -> list[list[ChatMessage]]:
    """Replace all but the newest long results of tools. Errors stay."""
    results_left = KEPT_RESULTS
    stubbed: list[list[ChatMessage]] = []
    for part in reversed(parts):
        messages = []
        for message in reversed(part):
            long = message.role == "tool" and len(message.text) > STUB_CHARACTERS
            if long and not message.is_error and (results_left := results_left - 1) < 0:
                text = f"[cleared, {len(message.text):,} characters; call again if needed]"
                message = replace(message, text=text)
            messages.append(message)
        stubbed.append(messages[::-1])
    return stubbed[::-1]
