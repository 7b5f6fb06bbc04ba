"""The wing of a gateway, on every front, and LightRAG's contract: clients of its server only change
their base URL."""

import json
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import anyio
import pytest
from msgspec.structs import replace

from config.settings import DatabaseSettings, Settings
from gateway.audit.queries import AuditQuery, search
from gateway.wings.knowledge import lightrag
from gateway.wings.knowledge.requests_and_views import KnowledgeFound, NameView
from registry.access.api_keys import ApiKeys
from tests import polling
from tests.fixtures_database import TEMPLATE, Cluster, own_database
from tests.fixtures_gateway import DEADLINE_S, Client, running, wordless
from tests.gateway.admin.client import KEY, bearer
from tests.gateway.guards.signing import by_jwks
from tests.wings.memory.test_wing import call_tool
from tests.wings.test_toy import got, rpc

pytestmark = pytest.mark.anyio

BASE = "/lightrag/bot"
EXCHANGE = (
    "Date: 2026-02-07 14:30\nSkill: devops\n"
    "User: Deploy using Docker Compose with health checks\n"
    "Assistant: Here's a docker-compose.yml with healthcheck for Redis on port 6380."
)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # with one event loop for the module


@pytest.fixture(scope="module")
async def client(cluster: Cluster) -> AsyncIterator[Client]:
    for database in own_database(cluster, TEMPLATE):
        async with running(knowing(database)) as client:
            yield client


def knowing(database: DatabaseSettings) -> Settings:
    settings = wordless()
    knowledge = replace(settings.knowledge, enabled=True, upload_bytes=100_000)
    return replace(settings, database=database, knowledge=knowledge)


@dataclass(frozen=True)
class Bot:
    """A client of LightRAG, with a collection of its own."""

    client: Client
    base: str

    async def post(self, path: str, body: Any) -> Any:
        status, answer, _ = await self.client.post(self.base + path, body)
        assert status == 200, answer
        return answer

    async def get(self, path: str) -> Any:
        status, answer, _ = await got(self.client, self.base + path)
        assert status == 200, answer
        return answer


@pytest.fixture
def bot(client: Client) -> Bot:
    return Bot(client, f"/lightrag/bot-{uuid4()}")


async def test_every_front_serves_the_same_documents(client: Client) -> None:
    body = {"collection": "notes", "text": "The heron nests in reeds.", "path": "heron.md"}
    status, added, _ = await client.post("/knowledge/v1/documents", body)
    assert (status, added["chunks"]) == (201, 1)
    found = await call_tool(client, "knowledge_query", {"query": "heron nest"})
    assert [one["lines"] for one in found["evidence"]] == [[1, 1]]
    answer = await client.rpc(rpc("knowledge_query", {"query": "reeds"}))
    assert answer["result"]["references"] == [
        {"reference": 1, "collection": "notes", "path": "heron.md"}
    ]
    status, listed, _ = await got(client, "/knowledge/v1/documents?collection=notes")
    assert [(one["path"], one["status"]) for one in listed["items"]] == [("heron.md", "processed")]
    status, one, _ = await got(client, "/knowledge/v1/collections/notes")
    assert (one["owner"], one["statuses"]) == ("user:local", {"processed": 1})
    status, _, _ = await got(client, "/knowledge/v1/collections/other")
    assert status == 404


async def test_documents_are_resources_with_lines(client: Client) -> None:
    session = await client.session()
    body = {"collection": "lines", "text": "one\ntwo\nthree\n", "path": "lines.md"}
    _, added, _ = await client.post("/knowledge/v1/documents", body)

    async def read(place: str) -> Any:
        answer = await session.call("resources/read", {"uri": f"knowledge://documents/{place}"})
        return answer["result"]["contents"][0]["text"] if "result" in answer else None

    assert await read(added["document"]) == "one\ntwo\nthree\n"
    assert await read(f"{added['document']}#L2-L3") == "two\nthree\n"
    assert await read(f"{added['document']}#L2") == "two\n"
    for place in (str(uuid4()), "lines.md", "-" * 36, f"{added['document']}#L0"):
        assert await read(place) is None, place


async def test_metrics_count_documents_and_query_results(bot: Bot) -> None:
    """Metrics count documents and what queries return (K26)."""

    async def count_metrics() -> dict[str, float]:
        async with bot.client.http.get(f"{bot.client.url}/metrics") as response:
            lines = (await response.text()).splitlines()
        rows = [one.rsplit(" ", 1) for one in lines if one.startswith("toolgate_knowledge_")]
        return {name: float(value) for name, value in rows}

    before = await count_metrics()
    for text in ("Herons eat fish.", "Herons eat fish.", "Herons sleep."):
        await bot.post("/documents/text", {"text": text, "file_source": "heron"})
    collection = bot.base.rpartition("/")[2]
    options = {"kind": "conversation", "skip_trivial": True}
    async with bot.client.http.put(
        f"{bot.client.url}/knowledge/v1/collections/{collection}", json=options
    ) as response:
        assert response.status == 200
    skipped = await bot.post("/documents/text", {"text": "User: hi\nAssistant: Hello!"})
    assert (skipped["status"], "Skipped" in skipped["message"]) == ("success", True)
    url = f"{bot.client.url}/knowledge/files/{collection}/heron.pdf"
    async with bot.client.http.put(url, data=b"%PDF-1.7 broken") as response:
        assert response.status == 422
    answer = await bot.post("/query", {"query": "what do herons eat", "mode": "naive"})
    after = await count_metrics()
    grown = {name: value - before.get(name, 0.0) for name, value in after.items()}
    outcomes = "toolgate_knowledge_documents_total{outcome=%s}"
    assert grown[outcomes % '"stored"'] == 2
    for outcome in ("unchanged", "skipped", "failed"):
        assert grown[outcomes % f'"{outcome}"'] == 1, outcome
    characters = "toolgate_knowledge_context_characters_%s{mode=%s}"
    assert grown[characters % ("count", '"naive"')] == 1
    assert grown[characters % ("sum", '"naive"')] == len(answer["response"])


async def test_queries_and_writes_are_audited(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    """Queries and writes are audited (K26)."""
    settings = replace(knowing(database_settings), auth=by_jwks(tmp_path, [KEY.jwk()]))
    ann = bearer("ann", scope="knowledge:read knowledge:write")
    async with running(settings) as client:
        text = {"text": "Herons eat fish.", "file_source": "heron"}
        await client.post(BASE + "/documents/text", text, ann)
        await client.post(BASE + "/query", {"query": "herons"}, ann)
        streamed = {"query": "herons", "stream": False}
        await client.post(BASE + "/query/stream", streamed, ann)
        _, added, _ = await client.post(
            "/knowledge/v1/documents", {"collection": "bot", "text": "Fish."}, ann
        )
        await client.post("/knowledge/v1/query", {"query": "fish"}, ann)
        gone = {"collection": "bot", "documents": [added["document"]]}
        await client.post("/knowledge/v1/documents/delete", gone, ann)
        await client.gateway.access.settle()
        assert client.gateway.feed.pool is not None
        page = await search(
            client.gateway.feed.pool, settings.tenant.host_id, AuditQuery(principal="ann")
        )
    assert Counter((one.entry.subject, one.entry.outcome) for one in page.records) == {
        ("knowledge_query", "ok"): 3,
        ("knowledge_add", "ok"): 2,
        ("knowledge_delete", "ok"): 1,
    }


async def test_files_are_uploaded_with_a_limit_of_their_own(client: Client) -> None:
    url = f"{client.url}/knowledge/files/files/birds/heron.html"
    page = b"<html><h1>Heron</h1><p>It nests in reeds.</p></html>"
    async with client.http.put(url, data=page) as response:
        assert (response.status, (await response.json())["added"]) == (200, 1)
    found = await call_tool(client, "knowledge_query", {"query": "reeds", "collections": ["files"]})
    assert [one["path"] for one in found["evidence"]] == ["birds/heron.html"]
    async with client.http.put(url, data=b"%PDF-1.7 no") as response:
        assert (response.status, response.content_type) == (422, "application/problem+json")
    async with client.http.put(url, data=b"x" * 200_000) as response:
        assert response.status == 413
    forged = {"collection": "files", "path": "x", "upload": "guessed"}
    status, _, _ = await client.post("/knowledge/v1/files", forged)
    assert status == 422


async def test_sources_are_read_as_jobs(client: Client) -> None:
    body = {"collection": "files", "type": "url", "location": "http://127.0.0.1:1/x"}
    headers = {"Prefer": "respond-async"}
    status, job, _ = await client.post("/knowledge/v1/sources", body, headers)
    assert status == 202
    with anyio.fail_after(DEADLINE_S):
        while job["state"] not in ("failed", "succeeded"):
            _, job, _ = await got(client, f"/knowledge/v1/jobs/{job['job']}")
    assert (job["state"], job["problem"]["status"]) == ("failed", 422)


async def test_lightrag_calls_of_the_bot_pass_unchanged(bot: Bot) -> None:
    """LightRAG calls of the bot pass unchanged (K04)."""
    assert (await bot.get("/health"))["status"] == "healthy"
    query = {"query": "How did we configure health checks", "mode": "hybrid"}
    empty = await bot.post("/query", query)  # before there is anything
    assert empty["response"] == ""
    text = {"text": EXCHANGE, "file_source": "conv_20260207_143000.txt"}
    stored = await bot.post("/documents/text", text)
    assert (stored["status"], stored["track_id"][:7]) == ("success", "insert_")
    again = await bot.post("/documents/text", text)
    assert again["track_id"] == stored["track_id"]
    found = await bot.post("/query", query)
    assert EXCHANGE in found["response"]
    assert found["llm_generated"] is False
    assert found["references"] == [
        {"reference_id": "1", "file_path": "conv_20260207_143000.txt", "content": None}
    ]


async def test_answer_context_and_references_come_at_once(bot: Bot) -> None:
    """Answer context and references come at once (K17)."""
    names = ["one.txt", "two.txt"]
    texts = {"texts": ["Redis has port 6380.", "Redis is a store."], "file_sources": names}
    stored = await bot.post("/documents/texts", texts)
    query = {"query": "redis", "mode": "naive", "include_chunk_content": True, "unknown": 1}
    found = await bot.post("/query", query)
    assert {one["file_path"]: one["content"] for one in found["references"]} == {
        "one.txt": ["Redis has port 6380."], "two.txt": ["Redis is a store."],
    }  # fmt: skip
    without = await bot.post("/query", {"query": "redis", "include_references": False})
    assert without["references"] is None
    data = await bot.post("/query/data", {"query": "redis"})
    assert data["status"] == "success"
    assert {one["file_path"] for one in data["data"]["chunks"]} == set(names)
    url = bot.client.url + bot.base + "/query/stream"
    async with bot.client.http.post(url, json=query) as response:
        lines = [json.loads(line) for line in (await response.text()).splitlines()]
    assert (list(lines[0]), lines[-1]["response"]) == (["references"], found["response"])
    tracked = await bot.get(f"/documents/track_status/{stored['track_id']}")
    assert sorted(one["file_path"] for one in tracked["documents"]) == names
    ids = [one["id"] for one in tracked["documents"] if one["file_path"] == "two.txt"]
    narrowed = await bot.post("/query", {"query": "redis", "ids": ids})
    assert [one["file_path"] for one in narrowed["references"]] == ["two.txt"]
    page = await bot.post("/documents/paginated", {"page_size": 10, "sort_field": "file_path"})
    assert [one["file_path"] for one in page["documents"]] == sorted(names, reverse=True)
    assert (page["pagination"]["total_count"], page["status_counts"]["processed"]) == (2, 2)
    counts = (await bot.get("/documents/status_counts"))["status_counts"]
    assert (counts["processed"], counts["failed"], counts["all"]) == (2, 0, 2)


async def test_pages_count_documents_beyond_their_reach(
    bot: Bot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages count documents beyond their reach (F1.31)."""
    monkeypatch.setattr(lightrag, "DOCUMENTS", 1)
    monkeypatch.setattr(lightrag, "DOCUMENTS_LISTED", 10)
    texts = [f"Text {number}." for number in range(25)]
    await bot.post("/documents/texts", {"texts": texts, "file_sources": texts})
    page = await bot.post("/documents/paginated", {"page_size": 10})
    told = page["pagination"]
    assert (len(page["documents"]), told["total_count"], told["total_pages"]) == (10, 25, 3)
    failed = await bot.post("/documents/paginated", {"status_filter": "failed"})
    assert (failed["documents"], failed["pagination"]["total_count"]) == ([], 0)


async def test_top_k_limits_names_and_chunk_top_k_passages(bot: Bot) -> None:
    people = ["Ines Okafor", "Bela Kovacs", "Mira Lindt", "Jonas Weller"]
    for one in people:
        text = {"text": f"{one} worked at Lake Tarn.", "file_source": f"{one}.txt"}
        await bot.post("/documents/text", text)
    query = {"query": "Who worked at Lake Tarn?"}

    async def count_results(**limits: int) -> tuple[int, int, int]:
        data = (await bot.post("/query/data", {**query, **limits}))["data"]
        return len(data["chunks"]), len(data["entities"]), len(data["relationships"])

    assert await count_results() == (4, 5, 4)
    assert await count_results(top_k=2) == (4, 2, 1)
    assert await count_results(top_k=3, chunk_top_k=2) == (2, 3, 2)
    assert await count_results(chunk_top_k=1) == (1, 2, 1)
    answer = await bot.post("/query", {**query, "top_k": 1})
    assert len(answer["references"]) == 4


async def test_relationships_of_many_names_are_found_without_comparing_all_pairs() -> None:
    """They are made in the event loop, of up to a thousand names."""
    compared = 0

    class Id(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

    ids = [Id(f"c{number}") for number in range(200)]
    names = tuple(
        NameView(f"n{number}", "name", (ids[number], ids[number - 1]), (ids[number],))
        for number in range(len(ids))
    )
    found = list(
        lightrag._relationships(KnowledgeFound((), (), names=names), dict.fromkeys(ids, "a.md"))
    )
    assert [(one["src_id"], one["tgt_id"]) for one in found[:2]] == [("n0", "n1"), ("n1", "n2")]
    assert len(found) == len(ids)
    assert compared < 10 * len(ids)


async def test_the_graph_has_only_readable_documents(bot: Bot) -> None:
    text = {"text": "Ines Okafor worked at Lake Tarn.", "file_source": "Ines Okafor.txt"}
    await bot.post("/documents/text", text)
    data = (await bot.post("/query/data", {"query": "Where did Ines work?"}))["data"]
    assert {one["entity_name"] for one in data["entities"]} == {"Ines Okafor", "Lake Tarn"}
    [related] = data["relationships"]
    assert (related["src_id"], related["tgt_id"]) == ("Ines Okafor", "Lake Tarn")
    assert related["source_id"] == data["chunks"][0]["chunk_id"]
    assert await bot.get("/graph/label/list") == ["Ines Okafor", "Lake Tarn"]
    assert await bot.get("/graph/label/search?q=lake&limit=5") == ["Lake Tarn"]
    graph = await bot.get("/graphs?label=Lake%20Tarn")
    assert [one["id"] for one in graph["nodes"]] == ["Lake Tarn", "Ines Okafor"]
    for name, exists in (("lake tarn", True), ("Nobody", False)):
        assert (await bot.get(f"/graph/entity/exists?name={name}")) == {"exists": exists}
    other = Bot(bot.client, "/lightrag/another")
    assert await other.get("/graph/label/list") == []
    ids = [one["id"] for one in (await bot.post("/documents/paginated", {}))["documents"]]
    url = bot.client.url + bot.base + "/documents/delete_document"
    async with bot.client.http.delete(url, json={"doc_ids": ids}) as response:
        assert response.status == 200
    assert await bot.get("/graph/label/popular") == []
    assert (await bot.get("/documents/pipeline_status"))["busy"] is False


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/query", {"query": "x"}, 422),
        ("/query", {"query": "  "}, 422),
        ("/query", {"query": "redis", "mode": "HYBRID"}, 422),
        ("/query", {"query": "redis", "mode": "bypass"}, 503),
        ("/query", {"query": "redis", "top_k": 0}, 422),
        ("/query", {"query": "redis", "ids": ["no id"]}, 422),
        ("/query", {"query": "a" * 70_000}, 422),
        ("/query", {}, 422),
        ("/query", [], 422),
        ("/query", {"query": "端口"}, 200),
        ("/query", {"query": "a & b | !(c) <-> d:* ' \" \\ ; DROP TABLE x --"}, 200),
        ("/documents/text", {"text": "  "}, 422),
        ("/documents/text", {"text": "a\0b"}, 422),
        ("/documents/text", {"text": 1}, 422),
        ("/documents/text", {"text": "Passwords.", "file_source": "../../etc/passwd"}, 200),
        ("/documents/text", {"text": "Unnamed."}, 200),
        ("/documents/text", {"text": "x", "file_source": "a\nb"}, 422),
        ("/documents/texts", {"texts": []}, 422),
        ("/documents/texts", {"texts": ["a"], "file_sources": []}, 200),
        ("/documents/texts", {"texts": ["a"], "file_sources": ["a", "b"]}, 400),
    ],
)
async def test_bad_requests_get_errors_in_the_format_of_fastapi(
    client: Client, path: str, body: Any, status: int
) -> None:
    found, answer, _ = await client.post(BASE + path, body)
    assert (found, "detail" in answer) == (status, status != 200), answer
    if status == 422:
        assert answer["detail"][0]["loc"][0] == "body", answer
    if path == "/query" and status == 422 and "ids" not in body:
        short = isinstance(body, dict) and 0 < len(body.get("query", "long").strip()) < 3
        field = next(reversed(body)) if isinstance(body, dict) and body else "query"
        place = [] if body == [] or short else [field]
        assert answer["detail"][0]["loc"] == ["body", *place], answer


async def test_errors_show_small_bodies_alone(client: Client) -> None:
    url = f"{client.url}{BASE}/query"
    for body, kind, shown in (
        (b'{"query": 7, "more": "\\ud800"}', "json_invalid", {}),
        (b'{"query": 7, "more', "json_invalid", {}),
        (b'{"query": [7], "more": 1}', "string_type", [7]),
        (b'{"query": [7], "more": "' + b"x" * 70_000 + b'"}', "string_type", None),
    ):
        async with client.http.post(url, data=body) as response:
            [told] = (await response.json())["detail"]
            assert (response.status, told["type"], told["input"]) == (422, kind, shown)


@pytest.mark.parametrize("limit", ["0", "1001", "x", "\u0663", "000000001" + "0" * 5000])
async def test_limits_that_are_none(client: Client, limit: str) -> None:
    url = f"{client.url}{BASE}/graph/label/search"
    async with client.http.get(url, params={"q": "a", "limit": limit}) as response:
        assert response.status == 422
        assert "limit" in await response.text()


async def test_anonymous_callers_read_only_the_health_status(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    """Anonymous callers read-only the health status (K03)."""
    settings = replace(knowing(database_settings), auth=by_jwks(tmp_path, [KEY.jwk()]))
    async with running(settings) as client:
        for collection in ("bot", "none"):
            for headers in ({}, {"X-API-Key": "wrong"}, {"LIGHTRAG-WORKSPACE": "other"}):
                status, told, _ = await got(client, f"/lightrag/{collection}/health", **headers)
                assert (status, told) == (
                    200, {"status": "healthy", "auth_mode": "enabled", "pipeline_busy": False},
                )  # fmt: skip


async def test_api_keys_are_accepted_in_either_header(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    """API keys are accepted in either header (K05)."""
    allowed = bearer(scope="knowledge:read knowledge:write")
    reader = bearer(scope="knowledge:read")
    settings = replace(knowing(database_settings), auth=by_jwks(tmp_path, [KEY.jwk()]))
    knowledge = replace(settings.knowledge, upload_bytes=4 * 2**20)
    async with running(replace(settings, knowledge=knowledge)) as client:
        assert (await got(client, BASE + "/health"))[0] == 200
        large = {"query": "redis", "conversation_history": [{"content": "x" * 2**20}]}
        assert (await client.post(BASE + "/query", large, reader))[0] == 413
        body = {"text": "Redis has port 6380."}
        for wrong, refused in (
            ({}, (403, "API Key required")),
            ({"X-API-Key": "wrong"}, (403, "Invalid API Key")),
            ({"Authorization": "Bearer wrong"}, (401, None)),
        ):
            for path in ("/documents/text", "/documents/upload", "/query"):
                status, told, _ = await client.post(BASE + path, body, wrong)
                assert (status, refused[1] or told["detail"]) == (refused[0], told["detail"])
        assert (await client.post(BASE + "/documents/text", body, reader))[0] == 403
        assert (await client.post(BASE + "/documents/text", body, allowed))[0] == 200
        for who, count in ((allowed, 1), (bearer("eve", scope="knowledge:read"), 0)):
            status, found, _ = await client.post(BASE + "/query", {"query": "redis"}, who)
            assert (status, len(found["references"])) == (200, count)


async def test_files_of_forms_are_stored(bot: Bot) -> None:
    url = bot.client.url + bot.base + "/documents/upload"
    form = aiohttp.FormData(quote_fields=False)
    form.add_field("file", b"# Redis\n\nIt has port 6380.", filename="../redis.md")
    async with bot.client.http.post(url, data=form) as response:
        answer = await response.json()
        assert (response.status, answer["status"]) == (200, "success")
    tracked = await bot.get(f"/documents/track_status/{answer['track_id']}")
    assert [one["file_path"] for one in tracked["documents"]] == ["../redis.md"]
    found = await bot.post("/query", {"query": "port of redis"})
    assert found["references"][0]["file_path"] == "../redis.md"
    for name, field, status in (("x.exe", "file", 400), ("x.md", "other", 422)):
        form = aiohttp.FormData(quote_fields=False)
        form.add_field(field, b"MZ", filename=name)
        async with bot.client.http.post(url, data=form) as response:
            assert response.status == status, await response.text()
    async with bot.client.http.post(url, data=b"no form") as response:
        assert response.status == 422


async def test_a_graph_is_edited_by_documents(bot: Bot) -> None:
    def entity(name: str, **data: Any) -> dict[str, Any]:
        return {"entity_name": name, "entity_data": {"description": "A car maker.", **data}}

    await bot.post("/documents/text", {"text": "# Redis\n\nA store.", "file_source": "r.md"})
    made = await bot.post("/graph/entity/create", entity("Tesla", entity_type="company"))
    assert made["data"]["graph_data"]["entity_type"] == "company"
    status, answer, _ = await bot.client.post(bot.base + "/graph/entity/create", entity("Tesla"))
    assert (status, answer) == (400, {"detail": "Entity 'Tesla' already exists"})
    found = await bot.post("/query", {"query": "who makes cars?"})
    assert found["references"][0]["file_path"] == "graph/Tesla.md"
    relation = {"source_entity": "Tesla", "target_entity": "Redis"}
    data = {"description": "Tesla runs Redis.", "keywords": "runs"}
    await bot.post("/graph/relation/create", {**relation, "relation_data": data})
    edited = {"source_id": "Tesla", "target_id": "Redis", "updated_data": data}
    await bot.post("/graph/relation/edit", edited)
    rename = {"entity_name": "Tesla", "updated_data": {"entity_name": "Tesla Inc"}}
    status, _, _ = await bot.client.post(bot.base + "/graph/entity/edit", rename)
    assert status == 400
    renamed = await bot.post("/graph/entity/edit", {**rename, "allow_rename": True})
    assert renamed["operation_summary"]["final_entity"] == "Tesla Inc"
    graph = await bot.get("/graphs?label=Tesla%20Inc")
    assert "Redis" in [one["id"] for one in graph["nodes"]]
    into = {"entities_to_change": ["Redis"], "entity_to_change_into": "Tesla Inc"}
    await bot.post("/graph/entities/merge", into)
    for missing in ("/graph/entity/edit", "/graph/relation/edit"):
        body = {"entity_name": "No", "source_id": "No", "target_id": "Redis", "updated_data": {}}
        status, answer, _ = await bot.client.post(bot.base + missing, body)
        assert (status, "does not exist" in answer["detail"]) == (400, True)


async def test_upkeep_of_documents(bot: Bot) -> None:
    await bot.post("/documents/text", {"text": "Redis.", "file_source": "a.txt"})
    assert (await bot.get("/auth-status"))["auth_configured"] is False
    assert ".md" in (await bot.get("/documents/supported_file_types"))["supported_extensions"]
    assert (await bot.post("/documents/reprocess_failed", {}))["status"] == "reprocessing_started"
    assert (await bot.post("/documents/clear_cache", {}))["status"] == "success"
    assert (await bot.post("/documents/cancel_pipeline", {}))["status"] == "not_busy"
    async with bot.client.http.delete(bot.client.url + bot.base + "/documents") as response:
        assert response.status == 403
        assert "knowledge.lightrag.allow_clear" in await response.text()


async def test_a_header_names_another_collection_that_may_be_read(bot: Bot) -> None:
    await bot.post("/documents/text", {"text": "Redis has port 6380.", "file_source": "a.txt"})
    url, query = f"{bot.client.url}/lightrag/elsewhere/query", {"query": "port of redis"}
    for name, status in ((bot.base.rpartition("/")[2], 200), ("hidden", 404)):
        headers = {"LIGHTRAG-WORKSPACE": name}
        async with bot.client.http.post(url, json=query, headers=headers) as response:
            assert response.status == status
            answer = await response.json()
    assert "detail" in answer


async def send_delete(bot: Bot, path: str, **body: Any) -> tuple[int, Any]:
    url = bot.client.url + bot.base + path
    async with bot.client.http.delete(url, json=body) as response:
        return response.status, await response.json()


async def test_the_graph_of_all_names_has_their_edges(bot: Bot) -> None:
    """`/graphs?label=*` has the names of all documents and what joins them (mending 31)."""
    names = ["conv_1", "conv_2"]
    texts = ["Ines Okafor met Bela Kovacs.", "Mira Lindt met Bela Kovacs."]
    await bot.post("/documents/texts", {"texts": texts, "file_sources": names})
    graph = await bot.get("/graphs?label=*&max_depth=9&max_nodes=9000")
    people = {"Ines Okafor", "Bela Kovacs", "Mira Lindt"}
    assert people <= {one["id"] for one in graph["nodes"]}
    edges = {frozenset((one["source"], one["target"])) for one in graph["edges"]}
    assert {frozenset(("Ines Okafor", "Bela Kovacs")), frozenset(("Mira Lindt", "Bela Kovacs"))} \
        <= edges  # fmt: skip
    assert frozenset(("Ines Okafor", "Mira Lindt")) not in edges
    assert graph["is_truncated"] is False
    cut = await bot.get("/graphs?label=*&max_nodes=1")
    assert (len(cut["nodes"]), cut["edges"], cut["is_truncated"]) == (1, [], True)
    assert await bot.get("/graphs?label=*&max_nodes=2") != cut


async def test_texts_of_one_request_have_one_track_id(bot: Bot) -> None:
    """The id that `/documents/texts` answers tracks each of its texts, with the beginning of each
    (mending 31)."""
    long = "Herons eat fish. " * 40
    body = {"texts": [long, "Voles dig."], "file_sources": ["heron", "vole"]}
    stored = await bot.post("/documents/texts", body)
    tracked = await bot.get(f"/documents/track_status/{stored['track_id']}")
    summaries = {one["file_path"]: one["content_summary"] for one in tracked["documents"]}
    assert summaries == {"heron": f"{long[:250]}...", "vole": "Voles dig."}
    again = await bot.post("/documents/texts", body)
    assert again["track_id"] == stored["track_id"]
    more = await bot.post("/documents/texts", {**body, "texts": [long, "Voles rest."]})
    assert "1 texts stored. 1 were there already" in more["message"]
    tracked = await bot.get(f"/documents/track_status/{more['track_id']}")
    assert [one["file_path"] for one in tracked["documents"]] == ["vole"]


async def test_names_and_relations_are_deleted_from_the_graph(bot: Bot) -> None:
    """Names and relations can be deleted, with the documents of edits that state them; other
    documents stay (mending 31)."""
    await bot.post("/documents/text", {"text": "Ines Okafor met Bela Kovacs.", "file_source": "a"})
    made = {"entity_name": "Lake Tarn", "entity_data": {"description": "A lake."}}
    await bot.post("/graph/entity/create", made)
    ends = {"source_entity": "Lake Tarn", "target_entity": "Ines Okafor"}
    data = {"description": "She swims there.", "keywords": "swims"}
    await bot.post("/graph/relation/create", {**ends, "relation_data": data})
    status, told = await send_delete(bot, "/graph/relation/delete", **ends)
    assert (status, told["status"], told["doc_id"]) == (200, "success", "")
    status, told = await send_delete(bot, "/graph/relation/delete", **ends)
    assert (status, "does not exist" in told["detail"]) == (404, True)
    for name in ("Lake Tarn", "Bela Kovacs"):
        assert (await send_delete(bot, "/graph/entity/delete", entity_name=name))[0] == 200
        assert (await bot.get(f"/graph/entity/exists?name={name}")) == {"exists": False}
        status, told = await send_delete(bot, "/graph/entity/delete", entity_name=name)
        assert (status, told) == (404, {"detail": f"Entity '{name}' not found."})
    page = await bot.post("/documents/paginated", {})
    assert [one["file_path"] for one in page["documents"]] == ["a"]
    graph = await bot.get("/graphs?label=*")
    assert "Ines Okafor" in {one["id"] for one in graph["nodes"]}
    assert not {"Bela Kovacs", "Lake Tarn"} & {one["id"] for one in graph["nodes"]}


async def test_names_of_other_collections_stay(bot: Bot) -> None:
    """Deleting a name deletes it in one collection (mending 31)."""
    other = Bot(bot.client, f"{bot.base}-2")
    for one in (bot, other):
        await one.post("/documents/text", {"text": "Ines Okafor sang.", "file_source": "a"})
    await send_delete(bot, "/graph/entity/delete", entity_name="Ines Okafor")
    assert await other.get("/graph/entity/exists?name=Ines%20Okafor") == {"exists": True}


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"top_k": "7"}, 200),
        ({"top_k": 7.0}, 200),
        ({"top_k": 7.5}, 422),
        ({"top_k": "seven"}, 422),
        ({"include_references": "yes"}, 200),
        ({"include_references": 0.0}, 200),
        ({"include_references": "perhaps"}, 422),
        ({"only_need_context": "off", "chunk_top_k": " +3 "}, 200),
        ({"response_type": ""}, 422),
        ({"max_total_tokens": 1_000_001}, 422),
        ({"ll_keywords": "x"}, 422),
        ({"conversation_history": [{"content": "no role"}]}, 422),
    ],
)
async def test_scalars_of_another_json_type_are_read(
    client: Client, options: Any, status: int
) -> None:
    """Numbers and truth values come as texts, too, as pydantic reads them (mending 31)."""
    body = {"query": "Who was there?", **options}
    found, answer, _ = await client.post(f"{BASE}/query", body)
    assert found == status, answer


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/documents/paginated", {"page": "1", "page_size": 10.0}, 200),
        ("POST", "/documents/paginated", {"status_filter": "done"}, 422),
        ("POST", "/documents/paginated", {"status_filters": ["failed", "done"]}, 422),
        ("POST", "/documents/scan", None, 200),
        ("GET", "/documents/track_status/%20", None, 400),
        ("GET", "/graphs?label=*&max_depth=0", None, 422),
        ("GET", "/graph/label/popular?limit=5.0", None, 200),
        ("GET", "/graph/label/search?q=", None, 200),
        ("GET", "/graph/entity/exists?name=", None, 200),
        ("POST", "/graph/entity/edit", {"entity_name": " ", "updated_data": {}}, 422),
        ("POST", "/graph/entity/edit", {"entity_name": "A", "updated_data": {"b": "c"}}, 400),
        ("POST", "/graph/entity/edit",
         {"entity_name": "A", "updated_data": {"description": 7}}, 400),
        ("DELETE", "/graph/relation/delete", {"source_entity": "A"}, 422),
        ("DELETE", "/documents/delete_document", {"doc_ids": ["a", "a "]}, 422),
        ("DELETE", "/documents/delete_document", {"doc_ids": [" "]}, 422),
    ],
)  # fmt: skip
async def test_requests_get_the_status_of_lightrag(
    bot: Bot, method: str, path: str, body: Any, status: int
) -> None:
    """Requests are refused, and taken, as LightRAG's own server does (mending 31)."""
    url = bot.client.url + bot.base + path
    async with bot.client.http.request(method, url, json=body) as response:
        assert response.status == status, await response.text()


async def test_deletions_are_counted(bot: Bot) -> None:
    """A deletion tells how many documents there were (mending 31)."""
    stored = await bot.post("/documents/text", {"text": "Redis.", "file_source": "a"})
    tracked = await bot.get(f"/documents/track_status/{stored['track_id']}")
    ids = [tracked["documents"][0]["id"], str(uuid4()), "doc-x"]
    status, told = await send_delete(bot, "/documents/delete_document", doc_ids=ids)
    assert (status, told["status"]) == (200, "deletion_started")
    assert told["message"] == "1 documents deleted. 2 of the ids name none."


async def test_the_first_text_of_a_workspace_creates_the_workspace(bot: Bot) -> None:
    """A header may name a workspace that does not exist yet, for what is stored (mending 31)."""
    name = f"new-{uuid4()}"
    headers = {"LIGHTRAG-WORKSPACE": name}
    url = f"{bot.client.url}{bot.base}/documents/text"
    text = {"text": "Redis has port 6380.", "file_source": "a.txt"}
    async with bot.client.http.post(url, json=text, headers=headers) as response:
        assert response.status == 200, await response.text()
    found = await Bot(bot.client, f"/lightrag/{name}").post("/query", {"query": "port of redis"})
    assert found["references"][0]["file_path"] == "a.txt"
    assert (await bot.get("/documents/status_counts"))["status_counts"]["all"] == 0


async def test_a_guest_is_a_caller_without_a_key(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    """The token that `/auth-status` gives to LightRAG's web interface has no rights: requests with
    it are refused as those without a key, and those with a key are taken (mending 31)."""
    auth = replace(by_jwks(tmp_path, [KEY.jwk()]), api_keys=True)
    async with running(replace(knowing(database_settings), auth=auth)) as client:
        assert client.gateway.feed.pool is not None
        keys = ApiKeys(client.gateway.feed.pool, knowing(database_settings).tenant.host_id)
        _, key = await keys.create("ui", "ada", ["knowledge:read"])

        async def is_known() -> bool:
            return (await got(client, f"{BASE}/auth/verify", **{"X-API-Key": key}))[0] == 200

        await polling.until(is_known)
        _, told, _ = await got(client, f"{BASE}/auth-status")
        assert (told["auth_configured"], told["token_type"]) == (False, "bearer")
        guest = {"Authorization": f"Bearer {told['access_token']}"}
        for path in ("/auth/verify", "/graph/label/list"):
            for headers, status in (
                ({}, 403), (guest, 403), ({**guest, "X-API-Key": "wrong"}, 403),
                ({"Authorization": "Bearer x"}, 401), ({**guest, "X-API-Key": key}, 200),
                ({"X-API-Key": key}, 200),
            ):  # fmt: skip
                answer = await got(client, BASE + path, **headers)
                assert answer[0] == status, (path, headers, answer)
        status, told, _ = await got(client, f"{BASE}/ui/customization")
        assert (status, told["customized"]) == (200, False)
