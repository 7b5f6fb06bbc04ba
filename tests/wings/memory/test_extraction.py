"""Facts that a chat model finds in sessions."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from gateway.wings.memory.caller_owners import Reader, session_owner
from gateway.wings.models.messages import (
    NO_OPTIONS,
    ChatMessage,
    ChatModel,
    ModelEvent,
    ModelFailed,
    ModelReply,
    RequestOptions,
    ToolDefinition,
)
from gateway.wings.models.usage import TokenUsage
from registry.database.postgres import Database
from tests.fixtures_database import HOST
from tests.wings.memory.rig import Rig, memory_settings, open_rig
from tests.wings.memory.test_retention import past

pytestmark = pytest.mark.anyio

ONE = {"session": "talk-1"}


@dataclass
class Scripted:
    """Chat models of which the only one answers with `answer`; None: it fails."""

    answer: str | None = None
    asked: list[str] = field(default_factory=list)
    strategy: str = "scripted"
    context_tokens: int = 8000
    max_tokens: int = 1000
    configured: Sequence[str] = ("scripted",)

    def of(self, strategy: str = "") -> ChatModel:
        assert strategy == ""
        return self

    async def complete(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[ToolDefinition] = (),
        options: RequestOptions = NO_OPTIONS,
    ) -> ModelReply:
        assert not tools
        assert options.json
        self.asked.append(messages[-1].text)
        if self.answer is None:
            raise ModelFailed("scripted does not answer", "unreachable")
        return ModelReply(self.answer, (), "", "stop", TokenUsage(), None, "scripted")

    async def stream(self, *_: Any, **__: Any) -> AsyncGenerator[ModelEvent]:
        raise AssertionError("not asked")
        yield


@pytest.fixture
def models() -> Scripted:
    return Scripted()


@pytest.fixture
async def rig(database: Database, models: Scripted) -> AsyncIterator[Rig]:
    settings = memory_settings(extraction={"enabled": True})
    async with open_rig(database, settings, models=models) as rig:
        yield rig


def answer(*facts: dict[str, Any]) -> str:
    return "Here they are:\n```json\n" + json.dumps({"facts": facts}) + "\n```"


async def observe_talk(rig: Rig) -> None:
    turns = [
        {"content": "We moved to Basel in spring", "id": "t1"},
        {"content": "Noted: you live in Basel.", "role": "assistant"},
        {"content": "The dog is called Rex", "id": "t3"},
    ]
    await rig.caller("ann")("observe", turns=turns, **ONE)
    await past(rig, 3300)


async def test_facts_quote_turns_of_the_user(rig: Rig, models: Scripted) -> None:
    """Facts quote turns of the user (M19)."""
    await observe_talk(rig)
    models.answer = answer(
        {"content": "Ann lives in Basel", "turn": 1, "quote": "moved to  BASEL"},
        {"content": "Ann is rich", "turn": 1, "quote": "I am very rich"},  # nobody said so
        {"content": "Ann has a dog", "turn": 1, "quote": "The dog is called Rex"},  # another turn
        {"content": "Ann has a cat", "turn": 7, "quote": "whatever it says"},
        {"content": "", "turn": 1, "quote": "moved to Basel"},
        {"quote": "moved to Basel"},
        "nothing",  # type: ignore[arg-type]
    )
    assert (await rig.parts.retention.purge()).promoted == 0
    [fact] = (await rig.caller("ann")("list", scope="user")).items
    assert (fact.content, fact.trust, fact.confidence) == ("Ann lives in Basel", "inferred", 0.8)
    told = {name: fact.source[name] for name in ("turns", "quote")}
    assert told == {"turns": ["t1"], "quote": "moved to  BASEL"}
    [asked] = models.asked
    assert "Noted" not in asked
    await rig.parts.retention.purge()
    assert len(models.asked) == 1  # once for what was said


@pytest.mark.parametrize("said", [None, "", "I cannot.", "{}", '{"facts": 1}', '{"facts": [1]}'])
async def test_the_rules_promote_alone_without_a_valid_answer(
    rig: Rig, models: Scripted, said: str | None
) -> None:
    """The rules promote alone without a valid answer (M19)."""
    models.answer = said
    await rig.caller("ann").add("Ann prefers tea", "session", keep=True, **ONE)
    await observe_talk(rig)
    assert (await rig.parts.retention.purge()).promoted == 1


async def test_extraction_is_off_by_default(database: Database, models: Scripted) -> None:
    """Extraction is off by default (M19)."""
    async with open_rig(database, memory_settings(), models=models) as rig:
        await observe_talk(rig)
        await rig.parts.retention.purge()
    assert models.asked == []


async def test_memories_erased_during_extraction_do_not_return(rig: Rig, models: Scripted) -> None:
    """Memories erased during extraction do not return (M30)."""
    await observe_talk(rig)
    models.answer = answer({"content": "Ann lives in Basel", "turn": 1, "quote": "moved to Basel"})
    complete = models.complete

    class Erasing(Scripted):
        async def complete(self, *arguments: Any, **options: Any) -> ModelReply:
            await rig.caller("ann")("forget", subject="ann")
            return await complete(*arguments, **options)

    erasing = Erasing(models.answer)
    async with open_rig(rig.database, rig.settings, models=erasing) as other:
        await other.parts.retention.purge()
    assert await rig.rows("SELECT count(*) FROM memory_t WHERE host_id = %s", HOST) == [(0,)]


async def test_promoted_memories_are_masked_for_their_new_scope(database: Database) -> None:
    """Promoted memories are masked for their new scope (M37)."""
    settings = memory_settings(masking={"user": "mask"})
    async with open_rig(database, settings) as rig:
        ann = rig.caller("ann")
        await ann.add("Write to ann@example.org", "session", keep=True, **ONE)
        await ann("promote", **ONE)
        [kept] = (await ann("list", scope="user")).items
        assert (kept.content, kept.masked) == ("Write to [email]", ("email",))


async def test_memories_forgotten_during_extraction_are_not_stored(
    rig: Rig, models: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    await observe_talk(rig)
    models.answer = answer(
        {"content": "Ann lives in Basel", "turn": 1, "quote": "moved to Basel"},
        {"content": "Ann has a dog", "turn": 2, "quote": "called Rex"},
    )
    complete = models.complete

    async def forgetting(*given: Any) -> ModelReply:
        turns = (await rig.caller("ann")("list", scope="session", **ONE)).items
        gone = [one.id for one in turns if "Basel" in one.content]
        await rig.caller("ann")("forget", ids=gone, **ONE)
        return await complete(*given)

    monkeypatch.setattr(models, "complete", forgetting)
    await rig.parts.retention.purge()
    kept = (await rig.caller("ann")("list", scope="user")).items
    assert [one.content for one in kept] == ["Ann has a dog"]


async def test_memories_forgotten_during_promotion_are_not_promoted(rig: Rig) -> None:
    ann = rig.caller("ann")
    id_ = await ann.add("Ann prefers tea", "session", **ONE)
    sessions = (session_owner(HOST, "named", "ann", ONE["session"]),)
    read = await rig.parts.store.get(Reader(HOST, "ann", sessions=sessions), [id_])
    assert len(read) == 1
    await ann("forget", ids=[id_], **ONE)
    promoted = await rig.parts.promoter.promote(HOST, read)
    assert (promoted.ids, promoted.refused) == ((), (id_,))
