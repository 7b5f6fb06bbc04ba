"""Golden files of requests (A11): a strategy is stateless, so equal messages give equal bytes.

`python -m tests.wings.models.test_golden` writes them anew, for a change that is wanted.
"""

import asyncio
from pathlib import Path

import pytest
from msgspec import Raw
from msgspec.structs import replace

from gateway.wings.models.configured_models import ConfiguredModels
from gateway.wings.models.messages import ChatMessage, ModelCall, ProviderState, RequestOptions
from tests.servers.provider import chat, claude, providing, responses
from tests.wings.models.asking import PETS, SETTINGS, collect_events

GOLDEN = Path(__file__).parent / "golden"
STRATEGIES = tuple(SETTINGS.strategies)
ANSWERS = {"chat-completions": chat, "anthropic": claude, "openai-responses": responses}
KEPT = {
    "chat-completions": b'{"reasoning_content":"because"}',
    "anthropic": b'[{"type":"thinking","thinking":"because","signature":"sig-because"},'
    b'{"type":"tool_use","id":"a1","name":"find_pets","input":{"kind":"cat"}}]',
    "openai-responses": b'[{"type":"reasoning","id":"rs_1","encrypted_content":"XYZ","summary":[]},'
    b'{"type":"function_call","id":"fc_1","call_id":"a1","name":"find_pets",'
    b'"arguments":"{\\"kind\\":\\"cat\\"}"}]',
}


def conversation(strategy: str) -> list[ChatMessage]:
    """Two turns: one with two calls, as this strategy made them or as another one did."""
    dialect = SETTINGS.strategies[strategy].dialect
    own = ProviderState(strategy, Raw(KEPT[dialect]))
    other = ProviderState("other", Raw(b'{"reasoning_content":"secret"}'))
    first = ModelCall("a1", "find_pets", '{"kind":"cat"}')
    second, broken = ModelCall("b1", "find_pets", "{}"), ModelCall("b2", "find_pets", '{"kind":')
    return [
        ChatMessage("system", "Be kind."),
        ChatMessage("user", 'Which cats are there? \u00fc\u4e2d "quoted" \\ \n'),
        ChatMessage("assistant", "", (first,), provider_state=own),
        ChatMessage("tool", "Tom", call_id="a1"),
        ChatMessage("assistant", "Two more.", (second, broken), provider_state=other),
        ChatMessage("tool", "none", call_id="b1", is_error=True),
        ChatMessage("tool", "not JSON", call_id="b2", is_error=True),
        ChatMessage("assistant", "One cat."),
        ChatMessage("user", "And dogs?"),
    ]


async def requests(strategy: str) -> bytes:
    """Three requests of a strategy, one on each line."""
    dialect = SETTINGS.strategies[strategy].dialect
    async with providing(ANSWERS[dialect]("Yes.")) as provider:
        provider.issued.signatures["sig-because"] = "because"
        provider.issued.encrypted.add("XYZ")
        provider.issued.reasoning |= {"a1": "because"}
        found = SETTINGS.strategies[strategy]
        asked = replace(found, url=provider.url, api_key="k", model=found.model or "m")
        models = ConfiguredModels(replace(SETTINGS, strategies={strategy: asked}))
        try:
            model, messages = models.of(strategy), conversation(strategy)
            await collect_events(model, messages, [PETS])
            await collect_events(model, messages, [PETS], RequestOptions(tool_choice="none"))
            await model.complete(messages[:2], (), RequestOptions(json=True, max_tokens=5))
        finally:
            await models.close()
        return b"".join(one.raw + b"\n" for one in provider.requests)


@pytest.mark.anyio
@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_requests_match_the_golden_files_byte_for_byte(strategy: str) -> None:
    assert await requests(strategy) == (GOLDEN / f"{strategy}.jsonl").read_bytes()


async def write() -> None:
    for strategy in STRATEGIES:
        (GOLDEN / f"{strategy}.jsonl").write_bytes(await requests(strategy))


if __name__ == "__main__":
    asyncio.run(write())
