"""A wing that no module of the product names, served by every front."""

import io
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest
from mcp import ClientSession
from mcp.client.sse import sse_client
from msgspec.structs import replace

from config.access import Guardrail, Rule
from config.load import load
from config.settings import DatabaseSettings, Settings, WingsSettings
from gateway.audit.queries import AuditQuery, search
from gateway.wings import table
from gateway.wings.table import WingRow
from registry.database.postgres import Database
from registry.sources.tool_store import ToolStore
from schemas.binding import WingBinding
from schemas.mcp.revisions import STREAMABLE
from tests.fixtures_database import HOST, Cluster, lend_database
from tests.fixtures_gateway import DEADLINE_S, MODERN, Client, running
from tests.gateway.admin.client import KEY, bearer
from tests.gateway.disclosing import call_for_structure
from tests.gateway.guards.signing import by_jwks
from tests.kinds.test_parrot import ask_gateway
from tests.polling import until
from tests.recycling import Recycling
from tests.wings.rig import ROWS, wings, with_toy
from tests.wings.toy.wing import LIFE

pytestmark = pytest.mark.anyio

OTHER = "00000000-0000-4000-8000-00000000beef"
ADD = {"name": "toy_add", "arguments": {"text": "milk"}}
JOB_PATHS = {"/copies", "/count", "/jobs", "/jobs/{job}"}
PATHS = {"/notes", "/notes/{number}", "/search", "/calls", *JOB_PATHS}
OF_JOBS = {"toy_list_jobs", "toy_get_job", "toy_cancel_job"}
NAMES = {"toy_add", "toy_list", "toy_get", "toy_search", "toy_call", "toy_copy", "greet", *OF_JOBS}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # with one event loop for the module


@pytest.fixture(scope="module")
def shared_database(cluster: Cluster, with_notes: Recycling) -> Iterator[DatabaseSettings]:
    yield from lend_database(cluster, with_notes)


@pytest.fixture
def database_settings(cluster: Cluster, with_notes: Recycling) -> Iterator[DatabaseSettings]:
    yield from lend_database(cluster, with_notes)


@pytest.fixture(autouse=True)
def with_row() -> Iterator[None]:
    with wings():
        yield


@pytest.fixture
def toy_settings(settings: Settings) -> Settings:
    return with_toy(settings, enabled=True)


@pytest.fixture(scope="module")
async def shared_toy(shared_settings: Settings) -> AsyncIterator[Client]:
    with wings():
        async with running(with_toy(shared_settings, enabled=True)) as client:
            yield client


@pytest.fixture
def client(shared_toy: Client, shared_settings: Settings) -> Client:
    """The gateway of all tests that leave it as it was, without the notes of the test before."""
    with psycopg.connect(shared_settings.database.url, autocommit=True) as connection:
        connection.execute("DELETE FROM toy_note_t")
    return shared_toy


def rpc(method: str, params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


async def got(client: Client, path: str, **headers: str) -> tuple[int, Any, dict[str, str]]:
    async with client.http.get(client.url + path, headers=headers) as response:
        text = await response.read()
        found = {name.lower(): value for name, value in response.headers.items()}
        return response.status, json.loads(text) if text else None, found


@pytest.mark.parametrize("revision", [*STREAMABLE, MODERN])
async def test_every_revision_lists_and_calls_the_wing(client: Client, revision: str) -> None:
    listed = await ask_gateway(client, revision, "tools/list")
    tools = {tool["name"]: tool for tool in listed["tools"]}
    assert NAMES | {"listPets"} <= tools.keys()
    assert tools["toy_add"]["inputSchema"]["required"] == ["text"]
    called = await ask_gateway(client, revision, "tools/call", ADD)
    assert json.loads(called["content"][0]["text"]) == {"number": 1, "text": "milk"}
    refused = await ask_gateway(
        client, revision, "tools/call", {"name": "toy_get", "arguments": {"number": "7"}}
    )
    assert refused["isError"]


async def test_the_2024_transport_serves_the_wing(client: Client) -> None:
    async with sse_client(client.url + "/mcp/sse") as streams, ClientSession(*streams) as session:
        await session.initialize()
        assert {tool.name for tool in (await session.list_tools()).tools} >= NAMES
        await session.call_tool("toy_add", {"text": "milk"})
        called = await session.call_tool("toy_list", {"contains": "il"})
        assert "milk" in called.content[0].text  # type: ignore[union-attr]


async def test_json_rpc_serves_operations_by_name(client: Client) -> None:
    answer = await client.rpc(rpc("toy_add", {"text": "milk"}))
    assert answer["result"] == {"number": 1, "text": "milk"}
    answer = await client.rpc(rpc("toy_get", {"number": "1"}))
    assert answer["result"]["text"] == "milk"
    answer = await client.rpc(rpc("toy_add", {}))
    assert "text" in answer["error"]["message"]


async def test_rest_serves_operations_with_statuses_conditions_and_a_description(
    client: Client,
) -> None:
    status, note, headers = await client.post("/toy/v1/notes", {"text": "milk"})
    assert (status, note) == (201, {"number": 1, "text": "milk"})
    assert headers["location"] == "/toy/v1/notes/1"
    status, found, headers = await got(client, "/toy/v1/notes?contains=il")
    assert (status, found) == (200, {"notes": [note]})
    tag = {"If-None-Match": headers["etag"]}
    assert (await got(client, "/toy/v1/notes?contains=il", **tag))[0] == 304
    status, problem, _ = await got(client, "/toy/v1/notes/2")
    assert (status, problem["type"]) == (404, "problems/not-found")
    status, problem, _ = await client.post("/toy/v1/notes", {"text": 1})
    assert (status, problem["errors"][0]["pointer"]) == (422, "/text")
    assert (await got(client, "/toy/v1/notes/x"))[0] == 404
    assert (await got(client, "/toy/v1/else"))[0] == 404
    status, document, _ = await got(client, "/toy/v1/openapi.json")
    assert (status, document["info"]["title"]) == (200, "Toy notes")
    assert document["paths"].keys() == {*PATHS, "/openapi.json"}


async def test_the_index_of_the_gateway_has_its_paths(client: Client) -> None:
    """Whoever is told to "see /" finds the wings there (mending 43)."""
    _, index, _ = await got(client, "/")
    paths = {"toy": "/toy/v1", "toy-toy-app": "/toy-app", "toy-toy-uploads": "/toy-uploads"}
    assert paths.items() <= index["endpoints"].items()


async def test_a_tool_has_the_name_and_the_text_that_its_clients_expect(client: Client) -> None:
    call = {"name": "greet", "arguments": {"text": "Ann"}}
    for _ in range(2):
        result = (await client.rpc(rpc("tools/call", call)))["result"]
        assert result["content"] == [{"type": "text", "text": "Hello, Ann!"}]
        assert result["structuredContent"] == {"text": "Ann"}
    assert (await client.post("/toy/v1/greetings", {"text": "Ann"}))[0] == 404
    assert "error" in await client.rpc(rpc("toy_greet", {"text": "Ann"}))


@pytest.mark.parametrize("revision", [*STREAMABLE, MODERN])
async def test_resources_and_prompts_of_the_wing_are_served(client: Client, revision: str) -> None:
    await client.post("/toy/v1/notes", {"text": "milk"})
    listed = await ask_gateway(client, revision, "resources/list")
    assert "toy://note/1" in {one["uri"] for one in listed["resources"]}
    listed = await ask_gateway(client, revision, "resources/templates/list")
    assert "toy://note/{number}" in {one["uriTemplate"] for one in listed["resourceTemplates"]}
    found = await ask_gateway(client, revision, "resources/read", {"uri": "toy://note/1"})
    assert json.loads(found["contents"][0]["text"])["text"] == "milk"
    [prompt] = (await ask_gateway(client, revision, "prompts/list"))["prompts"]
    assert prompt["arguments"][0]["name"] == "what"
    given = {"name": "toy_ask", "arguments": {"what": "tea"}}
    found = await ask_gateway(client, revision, "prompts/get", given)
    assert found["messages"][0]["content"]["text"] == "anonymous wants tea"


async def test_invalid_resources_and_prompts_are_client_errors(client: Client) -> None:
    _, answer = await client.modern("resources/read", {"uri": "toy://note/7"})
    assert answer["error"]["message"] == "Resource not found"
    _, answer = await client.modern("prompts/get", {"name": "toy_ask", "arguments": {}})
    assert answer["error"]["message"] == "The prompt toy_ask takes the argument what, a text"


async def test_a_repeated_post_is_done_once(client: Client) -> None:
    key = {"Idempotency-Key": "one"}
    for _ in range(2):
        status, note, headers = await client.post("/toy/v1/notes", {"text": "milk"}, key)
        assert (status, note["number"]) == (201, 1)
    status, _, _ = await client.post("/toy/v1/notes", {"text": "tea"}, key)
    assert status == 422
    assert (await got(client, "/toy/v1/notes"))[1]["notes"] == [{"number": 1, "text": "milk"}]
    assert headers["location"] == "/toy/v1/notes/1"


async def test_a_search_finds_operations_of_the_wing(client: Client) -> None:
    found = await call_for_structure(client, "search_tools", query="write a note down")
    assert "toy_add" in json.dumps(found)


async def test_the_search_kind_of_the_wing_finds_own_notes(client: Client) -> None:
    for text in ("the milk is in the fridge", "the tea is on the shelf"):
        await client.post("/toy/v1/notes", {"text": text})
    status, found, _ = await got(client, "/toy/v1/search?text=fridge")
    assert (status, found) == (200, {"notes": [{"number": 1, "text": "the milk is in the fridge"}]})


async def test_its_texts_are_embedded_by_the_workers_of_the_gateway(toy_settings: Settings) -> None:
    settings = replace(toy_settings, embedding=load(None, {}).embedding)
    async with running(settings) as client:
        await client.post("/toy/v1/notes", {"text": "The invoice goes to the office in Bern."})
        found: list[Any] = []
        with anyio.fail_after(DEADLINE_S):
            while not found:
                found = (await got(client, "/toy/v1/search?text=bill"))[1]["notes"]
    assert found[0]["number"] == 1


async def test_policy_and_audit_cover_the_wing_on_every_front(
    toy_settings: Settings, tmp_path: Path
) -> None:
    policy = replace(toy_settings.policy, rules={"closed": Rule("deny", tools=("toy_add",))})
    audit = replace(toy_settings.audit, mode="always", spool_dir=str(tmp_path / "spool"))
    async with running(replace(toy_settings, policy=policy, audit=audit)) as client:
        status, problem, _ = await client.post("/toy/v1/notes", {"text": "milk"})
        assert (status, problem["type"]) == (404, "problems/not-found")
        denied = await client.rpc(rpc("toy_add", {"text": "milk"}))
        assert denied["error"]["code"] == -32601
        assert (await got(client, "/toy/v1/notes"))[1] == {"notes": []}
        await client.gateway.access.settle()
        assert client.gateway.feed.pool is not None
        page = await search(client.gateway.feed.pool, HOST, AuditQuery())
    found = [(one.entry.subject, one.entry.source, one.entry.outcome) for one in page.records]
    assert ("toy_list", "toy", "ok") in found
    assert [one.entry.rule for one in page.records].count("closed") == 2


async def test_results_over_rest_are_masked(toy_settings: Settings) -> None:
    redact = Guardrail("result", "redact", tools=("toy_get",), pattern="milk")
    guardrails = replace(toy_settings.guardrails, mask=True, rules={"drinks": redact})
    async with running(replace(toy_settings, guardrails=guardrails)) as client:
        await client.post("/toy/v1/notes", {"text": "buy milk"})
        status, note, headers = await got(client, "/toy/v1/notes/1")
    assert (status, note) == (200, {"number": 1, "text": "buy ***", "owner": "***"})
    assert headers["content-type"] == "application/json"


async def test_denied_and_missing_operations_answer_alike(
    toy_settings: Settings,
) -> None:
    one = Rule("deny", tools=("toy_get",), when="arguments.number == '1'")
    rules = {"by-arguments": one, "hidden": Rule("deny", tools=("toy_list",))}
    async with running(
        replace(toy_settings, policy=replace(toy_settings.policy, rules=rules))
    ) as client:
        await client.post("/toy/v1/notes", {"text": "milk"})
        for path in ("1", "%31", "1/"):
            status, problem, _ = await got(client, f"/toy/v1/notes/{path}")
            assert (status, problem["detail"]) == (404, "There is no operation toy_get here")
        status, problem, _ = await got(client, "/toy/v1/notes")
        assert (status, problem["detail"]) == (404, "There is no operation toy_list here")
        assert "operation" not in (await got(client, "/toy/v1/notes/2"))[1]["detail"]


async def test_limits_count_calls_over_rest(toy_settings: Settings) -> None:
    limits = replace(toy_settings.limits, tenant_daily=1)
    async with running(replace(toy_settings, limits=limits)) as client:
        assert (await got(client, "/toy/v1/notes"))[0] == 200
        status, problem, headers = await got(client, "/toy/v1/notes")
    assert (status, problem["type"]) == (429, "problems/too-many-requests")
    assert int(headers["retry-after"]) >= 1


async def test_callers_need_its_scopes(toy_settings: Settings, tmp_path: Path) -> None:
    """The challenge of MCP names the scope of a wing's tool, too (mending 22)."""
    settings = replace(toy_settings, auth=by_jwks(tmp_path, [KEY.jwk()]))
    reader, writer = bearer(scope="toy:read"), bearer(scope="toy:write")
    async with running(settings) as client:
        assert (await client.post("/toy/v1/notes", {"text": "milk"}))[0] == 401
        status, problem, _ = await client.post("/toy/v1/notes", {"text": "milk"}, reader)
        assert (status, problem["detail"]) == (403, "Required scope: toy:write.")
        _, problem, _ = await client.post("/toy/v1/notes", {"text": "milk"}, bearer(scope="admin"))
        assert problem["detail"].startswith("Required scope: toy:write. The scope admin is that of")
        assert (await client.post("/toy/v1/notes", {"text": "milk"}, writer))[0] == 201
        _, listed, _ = await client.post("/rpc", rpc("tools/list", {}), reader)
        assert {one["name"] for one in listed["result"]["tools"]} & NAMES == {
            "toy_list",
            "toy_get",
            "toy_search",
            "greet",
            *OF_JOBS,
        }
        _, answer, _ = await client.post("/rpc", rpc("toy_add", {"text": "milk"}), reader)
        assert "toy:write" in answer["error"]["data"]["description"]
        begin = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c"}}
        _, _, headers = await client.post("/mcp", rpc("initialize", begin), reader)
        session = {"Mcp-Session-Id": headers["mcp-session-id"]}
        call = rpc("tools/call", {"name": "toy_add", "arguments": {"text": "milk"}})
        status, _, headers = await client.post("/mcp", call, {**reader, **session})
        assert status == 403
        assert 'error="insufficient_scope", scope="toy:write"' in headers["www-authenticate"]


async def test_the_wing_calls_other_tools_with_the_rights_of_its_caller(
    toy_settings: Settings, service: Any
) -> None:
    policy = replace(toy_settings.policy, rules={"no": Rule("deny", tools=("deletePet",))})
    async with running(replace(toy_settings, policy=policy)) as client:
        for tool, said in (("listPets", "heard"), ("deletePet", "Unknown tool")):
            body = {"tool": tool, "arguments": {"id": 1} if tool == "deletePet" else {}}
            _, answer, _ = await client.post("/toy/v1/calls", body)
            assert said in json.dumps(answer)
    assert [one["method"] for one in service.requests] == ["GET"]


async def test_its_tools_are_rows_that_a_second_start_leaves_alone(
    toy_settings: Settings, store: ToolStore
) -> None:
    numbers = []
    for _ in range(2):
        async with running(toy_settings):
            tools = {one.name: one for one in await store.tools(HOST)}
            numbers.append([one.number for one in await store.sources(HOST) if one.name == "toy"])
    assert tools["toy_list"].binding == WingBinding("toy", "toy_list", "toy:read")
    assert tools["toy_list"].annotations.read_only_hint is True
    assert tools["toy_list"].source == "toy"
    assert numbers == [[1], [1]]


async def test_other_tenants_have_the_wing_too(
    toy_settings: Settings, database: Database, store: ToolStore
) -> None:
    async with database.pool.connection() as connection:
        await connection.execute("INSERT INTO host_t (host_id, name) VALUES (%s, %s)", [OTHER, "b"])
    async with running(toy_settings) as client:
        assert {one.name for one in await store.tools(OTHER)} == NAMES
        await store.remove(OTHER, "toy")  # as for a tenant that is new

        async def is_added() -> bool:
            loaded = client.gateway.catalogs.of(OTHER).sources
            return "toy" in loaded and bool(await store.tools(OTHER))

        await until(is_added)


async def test_a_catalog_that_is_loaded_while_the_gateway_stops_changes_nothing(
    toy_settings: Settings,
) -> None:
    """The reload of the feed may end after the tasks of the wings."""
    async with running(toy_settings) as client:
        events = client.gateway.events
    events.catalog_loaded.publish(OTHER)


@pytest.mark.parametrize("front", ["rest", "rpc", "list"])
async def test_a_new_tenant_has_the_wing_with_its_first_request(
    toy_settings: Settings, store: ToolStore, tmp_path: Path, front: str
) -> None:
    auth = by_jwks(tmp_path, [KEY.jwk()], tenant_claim="host")
    caller = bearer(scope="toy:read toy:write", host=OTHER)
    async with running(replace(toy_settings, auth=auth)) as client:
        assert (await client.post("/toy/v1/notes", {"text": "milk"}))[0] == 401
        assert await store.tenants() == [HOST]  # anonymous callers add none
        if front == "rest":
            assert (await client.post("/toy/v1/notes", {"text": "milk"}, caller))[0] == 201
        elif front == "rpc":
            _, answer, _ = await client.post("/rpc", rpc("toy_add", {"text": "milk"}), caller)
            assert answer["result"]["number"] == 1
        elif front == "list":
            _, answer, _ = await client.post("/rpc", rpc("tools/list", {}), caller)
            assert {one["name"] for one in answer["result"]["tools"]} & NAMES == NAMES
        assert await store.tenants() == [HOST, OTHER]


async def test_a_source_named_like_the_wing_stays_unchanged(
    toy_settings: Settings, store: ToolStore, caplog: pytest.LogCaptureFixture
) -> None:
    settings = replace(toy_settings, sources={"toy": toy_settings.sources["pets"]})
    async with running(replace(settings, toy=replace(settings.toy, enabled=False))):  # type: ignore[attr-defined]
        pass
    async with running(settings) as client:
        assert (await client.post("/toy/v1/notes", {"text": "milk"}))[0] == 503
        assert client.gateway.wings is not None
        assert client.gateway.wings.states == {"wing toy": "failed"}
        assert (await client.rpc(rpc("listPets", {})))["result"]
    assert {one.name for one in await store.tools(HOST)} & NAMES == set()
    assert "There is a source toy already." in str([one.__dict__ for one in caplog.records])


async def test_the_wing_mounts_applications_and_shows_metrics(client: Client) -> None:
    async with client.http.get(client.url + "/toy-app/any") as response:
        assert await response.text() == "raw"
    async with client.http.get(client.url + "/metrics") as response:
        assert "toy_sweeps 1.0" in await response.text()


@pytest.fixture
async def uploading(toy_settings: Settings, tmp_path: Path) -> AsyncIterator[Client]:
    """A gateway whose toy takes larger bodies than all else, from callers that are known."""
    server = replace(toy_settings.server, body_limit_bytes=200_000)
    settings = replace(toy_settings, server=server, auth=by_jwks(tmp_path, [KEY.jwk()]))
    async with running(settings) as client:
        yield client


async def parts(count: int) -> AsyncIterator[bytes]:
    """A body of 64 KB each, whose length is not declared."""
    for _ in range(count):
        yield b"x" * 65_536


async def uploads(client: Client, data: Any, **headers: str) -> tuple[int, str]:
    url = f"{client.url}/toy-uploads"
    body = io.BytesIO(data) if isinstance(data, bytes) else data
    async with client.http.post(url, data=body, headers=headers) as response:
        return response.status, await response.text()


async def test_a_path_of_its_own_takes_bodies_up_to_a_setting_of_the_wing(
    uploading: Client,
) -> None:
    known = bearer(scope="toy:write")
    assert await uploads(uploading, b"x" * 1_000_000, **known) == (200, "1000000")
    assert await uploads(uploading, parts(16), **known) == (200, "1048576")
    LIFE.clear()
    for data in (b"x" * 1_100_000, parts(17)):
        status, problem = await uploads(uploading, data, **known)
        detail = json.loads(problem)["detail"]
        assert status == 413
        assert "1048576" in detail
        assert "toy.upload_limit_bytes" in detail
    assert 0 < len(LIFE) <= 17  # of the second: the first declared its length
    assert (await uploading.post("/rpc", b"x" * 300_000, known))[0] == 413
    url = f"{uploading.url}/toy-app"
    async with uploading.http.post(url, data=io.BytesIO(b"x" * 300_000)) as response:
        assert response.status == 413


async def test_larger_bodies_are_read_from_known_callers_alone(uploading: Client) -> None:
    LIFE.clear()
    for data in (b"x" * 100, b"x" * 1_100_000, parts(2)):
        assert (await uploads(uploading, data))[0] == 401
    assert LIFE == []


async def test_bodies_of_the_own_path_of_a_wing_count_in_the_budget(
    toy_settings: Settings,
) -> None:
    limits = replace(
        toy_settings.limits, buffered_body_bytes=300_000, client_buffered_body_bytes=150_000
    )
    sent, going_on = anyio.Event(), anyio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b"x" * 150_000
        sent.set()
        await going_on.wait()

    async with (
        running(replace(toy_settings, limits=limits)) as client,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(uploads, client, slow())
        with anyio.fail_after(DEADLINE_S):
            await sent.wait()
            await until(lambda: client.gateway.access.bounds.bodies.held_bytes >= 150_000)
        assert (await uploads(client, b"x" * 100_000))[0] == 429
        status, problem = await uploads(client, parts(2))
        assert (status, json.loads(problem)["type"]) == (429, "problems/too-many-requests")
        going_on.set()


async def test_a_failing_wing_is_reported_and_opened_again(toy_settings: Settings) -> None:
    settings = replace(
        toy_settings,
        toy=replace(toy_settings.toy, fails=True),  # type: ignore[attr-defined]
        wings=WingsSettings(optional=("toy",)),  # type: ignore[arg-type]
    )
    async with running(settings) as client:
        _, ready, _ = await got(client, "/ready")
        assert (ready["status"], ready["wing toy"]) == ("degraded", "failed")
        status, problem, _ = await client.post("/toy/v1/notes", {"text": "milk"})
        assert (status, problem["detail"]) == (503, "The wing toy is unavailable; try again later.")
        assert (await got(client, "/toy-app"))[0] == 503
        LIFE.append("repaired")
        await until(lambda: client.gateway.wings.states == {"wing toy": "ok"})
        assert (await client.post("/toy/v1/notes", {"text": "milk"}))[0] == 201
    assert LIFE == ["repaired", "open", "closed"]


async def test_a_gateway_is_not_ready_before_its_wings_were_open(toy_settings: Settings) -> None:
    """Probes are told so; the other tools are served meanwhile, and a wing that fails later takes
    nothing back (mending 37)."""
    settings = replace(toy_settings, toy=replace(toy_settings.toy, fails=True))  # type: ignore[attr-defined]
    async with running(settings) as client:
        status, ready, _ = await got(client, "/ready")
        assert (status, ready["status"], ready["wing toy"]) == (503, "starting", "failed")
        assert (await client.rpc(rpc("listPets", {})))["result"]
        LIFE.append("repaired")
        with anyio.fail_after(DEADLINE_S):
            await client.gateway.wait_for_wings()
        assert (await got(client, "/ready"))[:1] == (200,)
    LIFE.clear()


async def test_switched_off_its_tools_go_and_its_table_stays(
    toy_settings: Settings, store: ToolStore, database: Database
) -> None:
    async with running(toy_settings) as client:
        await client.post("/toy/v1/notes", {"text": "milk"})
    async with running(with_toy(toy_settings, enabled=False)) as client:
        assert (await client.post("/toy/v1/notes", {"text": "milk"}))[0] == 404
        assert "wing toy" not in (await got(client, "/ready"))[1]
    assert {one.name for one in await store.tools(HOST)} & NAMES == set()
    async with database.pool.connection() as connection:
        found = await connection.execute("SELECT text FROM toy_note_t")
        assert await found.fetchall() == [("milk",)]
    assert set(ROWS) == {"toy"}


async def test_wings_fail_apart(
    toy_settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A second wing offers what it may not, and then has a task that fails."""
    for name, reason in (("BAD_NAME", "'list'"), ("BAD_PATH", "/else"), ("BAD_TASK", "gave up")):
        caplog.clear()
        rows = {**ROWS, "second": WingRow(f"tests.wings.toy.others:{name}", "Another.")}
        monkeypatch.setattr(table, "WINGS", rows)
        async with running(toy_settings) as client:
            await until(lambda: client.gateway.wings.states["wing second"] == "failed")
            assert (await client.post("/toy/v1/notes", {"text": "milk"}))[0] == 201
            assert (await client.post("/second/v1/notes", {"text": "milk"}))[0] == 503
        [failed, *_] = [one for one in caplog.records if one.message == "wing_failed"]
        told_of = failed.exc_info[1].exceptions[0] if failed.exc_info else failed.__dict__["reason"]
        assert reason in str(told_of)
