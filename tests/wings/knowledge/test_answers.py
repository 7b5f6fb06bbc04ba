"""Answers of a chat model from the passages found: cited words stand there, and what a bad model or
a hostile document does costs an answer, never a query."""

import json
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from config.access import Guardrail
from config.load import load
from config.models import Strategy
from config.settings import DatabaseSettings, Settings
from gateway.wings.document_library import Passage, PassageView
from gateway.wings.knowledge import lightrag
from gateway.wings.knowledge.cited_answers import _cited_sentences
from gateway.wings.knowledge.requests_and_views import Evidence, evidence
from tests.fixtures_database import TEMPLATE, Cluster, own_database
from tests.fixtures_gateway import Client, running
from tests.gateway.admin.client import KEY, bearer
from tests.gateway.guards.signing import by_jwks
from tests.servers.provider import Answer, Provider, chat, chat_whole, providing, sse
from tests.wings.knowledge.test_lightrag import knowing
from tests.wings.memory.test_wing import call_tool
from tests.wings.test_toy import got

pytestmark = pytest.mark.anyio

TEXT = "The gateway listens on port 8080.\nRedis has port 6380 and keeps sessions."
QUERY = {"query": "Which port has Redis?"}


def line(text: str, quote: str, passage: int = 1) -> str:
    return json.dumps({"text": text, "quotes": [{"passage": passage, "quote": quote}]}) + "\n"


GOOD = line("Redis has port 6380 [7].", "Redis has port 6380")
INVENTED = line("Redis belongs to Ann.", "Redis belongs to Ann")


@dataclass
class AnswerRig:
    client: Client
    provider: Provider

    def script(self, *answers: Answer) -> None:
        self.provider.answers[:] = answers
        self.provider.requests.clear()

    async def ask(self, **more: Any) -> Any:
        return await call_tool(self.client, "knowledge_query", {**QUERY, "answer": True, **more})

    async def post(self, path: str, body: Any) -> Any:
        status, answer, _ = await self.client.post(f"/lightrag/notes{path}", body)
        assert status == 200, answer
        return answer

    async def lines(self, **more: Any) -> list[Any]:
        url = f"{self.client.url}/lightrag/notes/query/stream"
        async with self.client.http.post(url, json={**QUERY, **more}) as response:
            assert response.status == 200
            return [json.loads(one) for one in (await response.text()).splitlines()]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # with one event loop for the module


def answering(database: DatabaseSettings, provider: Provider) -> Settings:
    settings = knowing(database)
    scripted = Strategy(url=provider.url, needs_key=False, model="m")
    models = replace(settings.models, strategy="m", strategies={"m": scripted}, retries=0)
    answers = replace(settings.knowledge.answers, deadline_s=60.0)
    never = replace(settings.knowledge.extraction, schedule="0 0 30 2 *")
    knowledge = replace(settings.knowledge, model="auto", answers=answers, extraction=never)
    return replace(settings, models=models, knowledge=knowledge)


@pytest.fixture(scope="module")
async def rig(cluster: Cluster) -> AsyncIterator[AnswerRig]:
    for database in own_database(cluster, TEMPLATE):
        async with (
            providing(chat(GOOD)) as provider,
            running(answering(database, provider)) as client,
        ):
            given = {"collection": "notes", "path": "ports.md", "text": TEXT}
            await call_tool(client, "knowledge_add", given)
            yield AnswerRig(client, provider)


async def test_a_text_is_stored_before_any_model_is_asked(
    database_settings: DatabaseSettings,
) -> None:
    """Neither the model that embeds texts nor the one that reads them answers (K01)."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        scripted = Strategy(url=url, needs_key=False, model="m")
        settings = knowing(database_settings)
        models = replace(settings.models, strategy="m", strategies={"m": scripted})
        silent = replace(settings.embedding, provider="openai-compatible", model="m", url=url)
        settings = replace(settings, models=models, embedding=silent)
        knowledge = replace(settings.knowledge, model="auto")
        async with running(replace(settings, knowledge=knowledge)) as client:
            body = {"text": TEXT * 150, "file_source": "conv_20260207_143000.txt"}
            status, answer, _ = await client.post("/lightrag/bot/documents/text", body)
            track_id = answer.pop("track_id")
            assert (status, answer) == (200, {"status": "success", "message": "Text stored."})
            assert track_id.startswith("insert_")
            _, tracked, _ = await got(client, f"/lightrag/bot/documents/track_status/{track_id}")
            assert tracked["status_summary"] == {"processed": 1}
            asked = {"query": "port of redis", "only_need_context": True}
            _, found, _ = await client.post("/lightrag/bot/query", asked)
            assert "Redis has port 6380" in found["response"]
            listening.close()  # so that those who wait for it end


async def test_each_query_mode_answers_and_unknown_modes_are_refused(rig: AnswerRig) -> None:
    """Each query mode answers and unknown modes are refused (K02)."""
    rig.script(chat_whole("Hello!"))
    for mode in ("naive", "local", "global", "hybrid", "mix", "bypass"):
        found = await rig.post("/query", {**QUERY, "mode": mode, "only_need_context": True})
        assert isinstance(found["response"], str)
        assert (TEXT in found["response"]) == (mode != "bypass"), mode
    default = await rig.post("/query/data", QUERY)
    assert default["metadata"]["query_mode"] == "mix"
    status, answer, _ = await rig.client.post("/lightrag/notes/query", {**QUERY, "mode": "all"})
    assert (status, answer["detail"][0]["loc"]) == (422, ["body", "mode"])


async def test_an_answer_has_verified_references(rig: AnswerRig) -> None:
    rig.script(chat(GOOD + INVENTED + "So it is.\n"))
    found = await rig.ask()
    assert found["answer"]["text"] == "Redis has port 6380. [1]"
    [citation] = found["answer"]["citations"]
    assert (citation["path"], citation["lines"]) == ("ports.md", [2, 2])
    assert citation["quote"] == "Redis has port 6380"
    sent = rig.provider.requests[0].body["messages"][-1]["content"]
    assert json.loads(sent.splitlines()[0])["text"] == TEXT, sent


async def test_clients_of_lightrag_get_model_answers(rig: AnswerRig) -> None:
    rig.script(chat(GOOD))
    history = [{"role": "assistant", "content": "Earlier."}]
    more = {"conversation_history": history, "user_prompt": "As a haiku."}
    found = await rig.post("/query", {**QUERY, **more})
    assert (found["response"], found["llm_generated"]) == ("Redis has port 6380. [1]", True)
    sent = rig.provider.requests[0].body["messages"]
    assert "As a haiku." in sent[0]["content"]
    assert sent[1] == {"role": "assistant", "content": "Earlier."}
    assert [list(one) for one in await rig.lines()] == [["references"], ["response"]]
    [whole] = await rig.lines(stream=False)
    assert (whole["llm_generated"], len(whole["references"])) == (True, 1)
    told = await rig.lines(include_progress=True)
    assert ("progress" in told[0], "response_time" in told[-1]) == (True, True)
    rig.script(chat_whole("Hello!"))
    assert (await rig.post("/query", {"query": "Hi", "mode": "bypass"}))["response"] == "Hello!"
    rig.script()
    only = await rig.post("/query", {**QUERY, "only_need_context": True})
    assert (only["llm_generated"], TEXT in only["response"]) == (False, True)


async def test_asking_only_the_model_requires_query_access(
    database_settings: DatabaseSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with providing(chat_whole("Hello!")) as provider:
        settings = answering(database_settings, provider)
        clearing = replace(settings.knowledge.lightrag, allow_clear=True)
        knowledge = replace(settings.knowledge, lightrag=clearing)
        auth = by_jwks(tmp_path, [KEY.jwk()])
        async with running(replace(settings, knowledge=knowledge, auth=auth)) as client:
            asked = {"query": "Hi", "mode": "bypass"}
            reader, other = bearer(scope="knowledge:read"), bearer(scope="other:read")
            for path in ("/query", "/query/stream"):
                assert (await client.post(f"/lightrag/notes{path}", asked, other))[0] == 403
            assert provider.requests == []
            status, answer, _ = await client.post("/lightrag/notes/query", asked, reader)
            assert (status, answer["response"]) == (200, "Hello!")
            writer = bearer(scope="knowledge:read knowledge:write")
            for number in range(3):
                text = {"text": f"Text {number}."}
                await client.post("/lightrag/notes/documents/text", text, writer)
            monkeypatch.setattr(lightrag, "DELETE_LIMIT", 1)
            url = f"{client.url}/lightrag/notes/documents"
            async with client.http.delete(url, headers=writer) as response:
                assert "Deleted 3 files" in await response.text()


HALF = Answer(pieces=[*chat(GOOD).pieces[:-3], sse("{half")], end="cut")
BAD = {
    "500": Answer(status=500, pieces=[b"no"], kind="text/plain"),
    "429": Answer(status=429, pieces=[b"{}"], kind="application/json"),
    "invalid": Answer(pieces=[b"data: {nothing\n\n"]),
    "empty": chat(""),
    "prose": chat("Redis has port 6380, I think."),
    "invented": chat(INVENTED * 3),
    "deep": chat('{"text":' * 5000),
}


@pytest.mark.parametrize("kind", BAD)
async def test_passages_are_returned_without_an_answer(rig: AnswerRig, kind: str) -> None:
    """Passages are returned without an answer (F1.22)."""
    rig.script(BAD[kind])
    found = await rig.ask()
    assert "answer" not in found
    assert found["note"].startswith("No answer: ")
    assert found["evidence"][0]["text"] == TEXT
    lines = await rig.lines()
    assert lines[-1]["llm_generated"] is False
    assert TEXT in lines[-1]["response"]


@pytest.mark.parametrize("kind", ["500", "429", "invalid"])
async def test_a_failing_model_without_passages_is_unavailable(rig: AnswerRig, kind: str) -> None:
    """A failing model without passages is unavailable (F1.22)."""
    rig.script(BAD[kind])
    asked = {**QUERY, "mode": "bypass"}
    for path in ("/query", "/query/stream"):
        status, answer, _ = await rig.client.post(f"/lightrag/notes{path}", asked)
        assert (status, answer["detail"][:10]) == (503, "No answer:"), answer


async def test_secrets_reach_neither_the_model_nor_the_reader(
    database_settings: DatabaseSettings,
) -> None:
    """Also where the model has seen one elsewhere, and quotes it (F1.32)."""
    rule = Guardrail("result", "redact", tools=("knowledge_query",), pattern="sk-[a-z]+")
    told = line("The key of Redis is sk-abc.", "Redis has port 6380") + line("Hm.", "is sk-abc")
    async with providing(chat(told)) as provider:
        settings = answering(database_settings, provider)
        rails = replace(settings.guardrails, rules={"keys": rule})
        async with running(replace(settings, guardrails=rails)) as client:
            text = f"{TEXT} Its key is sk-abc, and that of the lake is sk-def."
            given = {"collection": "notes", "path": "keys.md", "text": text}
            await call_tool(client, "knowledge_add", given)
            shown = [
                await call_tool(client, "knowledge_query", {**QUERY, "answer": asked})
                for asked in (True, False)
            ]
            for path in ("/query", "/query/data"):
                more = {"include_chunk_content": True}
                _, answer, _ = await client.post(f"/lightrag/notes{path}", {**QUERY, **more})
                shown.append(answer)
            url = f"{client.url}/lightrag/notes/query/stream"
            for more in ({}, {"only_need_context": True}):
                async with client.http.post(url, json={**QUERY, **more}) as response:
                    shown.append(await response.text())
            assert "Redis has port 6380" in str(shown[0])
            for one in (*shown, *(asked.body for asked in provider.requests)):
                assert "sk-" not in str(one), one
    assert len(provider.requests) == 3


async def test_text_before_the_end_of_a_stream_is_kept(rig: AnswerRig) -> None:
    """Text before the end of a stream is kept (F1.22)."""
    for answer in (HALF, chat(GOOD + '{"text": "And', finish="length")):
        rig.script(answer)
        found = (await rig.ask())["answer"]
        assert (found["text"], bool(found["incomplete"])) == ("Redis has port 6380. [1]", True)
        lines = await rig.lines()
        assert [list(one) for one in lines] == [["references"], ["response"], ["error"]]


async def test_a_silent_model_is_awaited_until_the_deadline(rig: AnswerRig) -> None:
    """A silent model is awaited until the deadline (K07)."""
    rig.script(Answer(silent=True))
    [wing] = [one for one in rig.client.gateway.wings._served if one.name == "knowledge"]  # type: ignore[union-attr]
    mounted = wing._apps["/lightrag"].routes[2].endpoint.__self__  # type: ignore[attr-defined]
    answerer = mounted._model.answerer
    kept = answerer._settings
    assert load(None, {}).knowledge.answers.deadline_s < 10  # clients of LightRAG wait so long
    answerer._settings = replace(kept, deadline_s=0.2)
    try:
        assert "0.2 s" in (await rig.ask())["note"]
        assert (await rig.lines())[-1]["llm_generated"] is False
    finally:
        answerer._settings = kept


def evidence_of(text: str, lines: tuple[int, int], reference: int) -> Evidence:
    return Evidence(
        "notes", "a.md", 1, lines, text,
        reference=reference, document="d", score=1.0, chunk="c", kind="text",
    )  # fmt: skip


def test_an_answer_is_plain_text_with_places_of_its_own() -> None:
    one = evidence_of("First.\nRedis has\nport 6380.", lines=(10, 12), reference=3)
    hostile = "![x](http://evil/?q=1) \x1b[31mred\u200b [2]"
    [found] = _cited_sentences(line(hostile, "'Redis has port 6380.'", passage=9), [one])
    assert found.text == "[x](http://evil/?q=1) [31mred [3]"
    assert found.citations[0].lines == (11, 12)
    for hostile in ("!![x](http://evil)", "! [1][x](http://evil)", "[[1]1][x](http://evil)"):
        [found] = _cited_sentences(line(hostile, "Redis has port 6380."), [one])
        assert found.text == "[x](http://evil) [3]", hostile
    assert list(_cited_sentences(line("", "Redis has port"), [one])) == []
    assert list(_cited_sentences('{"text": "x", "quotes": []}', [one])) == []


def test_a_line_has_few_quotes() -> None:
    """Each is sought in all passages, in the event loop."""
    one = evidence_of("Redis has port 6380.", lines=(1, 1), reference=1)
    quotes = [{"quote": "nothing of the kind"}] * 8 + [{"quote": "Redis has port"}]
    assert list(_cited_sentences(json.dumps({"text": "x", "quotes": quotes}), [one])) == []


def test_evidence_is_the_passage_of_a_chunk_with_its_number() -> None:
    """One view serves the knowledge and the librarian; only explained searches show parts."""
    chunk = Passage(
        collection="notes",
        path="a.md",
        version=3,
        lines=(4, 9),
        text="t",
        chunk="i",
        header="h",
        symbol="s",
        document="d",
        page=2,
        score=0.5,
        words=0.25,
    )
    explained = evidence(chunk, 7, explain=True)
    assert isinstance(explained, PassageView)
    assert (explained.reference, explained.chunk, explained.lines) == (7, "i", (4, 9))
    assert explained.parts == {"words": 0.25, "meaning": 0.0}
    assert evidence(chunk, 7, explain=False) == replace(explained, parts=None)
