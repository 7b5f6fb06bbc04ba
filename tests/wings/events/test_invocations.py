"""Invocations through a gateway: accepted, run for their caller, read, cancelled, redriven."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar
from urllib.parse import quote

import anyio
import msgspec
import pytest
from msgspec.structs import replace
from psycopg import AsyncConnection

from config.access import Rule
from config.settings import Settings
from config.sources import SourceSettings
from gateway.operations.paging import cursor
from gateway.wings.events.invocation_journal import Journal
from tests.fixtures_database import HOST
from tests.fixtures_gateway import DEADLINE_S, Client, Recorder, running
from tests.fixtures_servers import serving
from tests.polling import until
from tests.wings.agent.test_squatters import Squatter
from tests.wings.events.rig import ROOT, got, invoke_skill, wait_for_end, with_events
from tests.wings.events.shared import anyio_backend, client, event_changes, service, shared_events

__all__ = ["anyio_backend", "client", "event_changes", "service", "shared_events"]

pytestmark = pytest.mark.anyio


async def test_a_tool_is_called_after_the_request(client: Client, service: Recorder) -> None:
    """A tool is called after the request (V01)."""
    one = await invoke_skill(client, "getPet", {"id": 7}, correlationId="pet-7")
    assert one["correlationId"] == "pet-7"
    over = await wait_for_end(client, "pet-7")
    assert (over["id"], over["status"], over["attempt"]) == (one["id"], "ACKED", 1)
    assert over["result"]["structuredContent"]["heard"]["path"] == "/pets/7"
    assert [one["path"] for one in service.requests] == ["/pets/7"]


async def test_an_answer_follows_the_commit(client: Client, shared_settings: Settings) -> None:
    """The process of the database that stores it is ended before it can commit (V01)."""
    answers: list[int] = []

    async def ask() -> None:
        answers.append((await client.post(ROOT, {"skillName": "report"}))[0])

    async with lock_journal(shared_settings), anyio.create_task_group() as group:
        group.start_soon(ask)
        await ended_while_it_waits(shared_settings, "INSERT INTO invocation_t")
    assert answers == [503]
    assert (await got(client, ROOT))[1] == {"items": []}
    await ask()
    assert answers == [503, 202]
    url = shared_settings.database.url
    async with await AsyncConnection.connect(url) as other:
        found = await other.execute("SELECT status FROM invocation_t")
        assert await found.fetchall() == [("PENDING",)]


async def test_a_claim_dropped_by_the_database_is_repeated(
    client: Client, shared_settings: Settings
) -> None:
    """A claim dropped by the database is repeated (row 29)."""
    one = await invoke_skill(client, "report")
    answers: list[tuple[int, Any]] = []

    async def claim() -> None:
        answers.append((await client.post("/events/v1/claims", {"skills": ["report"]}))[:2])

    async with lock_journal(shared_settings), anyio.create_task_group() as group:
        group.start_soon(claim)
        await ended_while_it_waits(shared_settings, "picked")
    await claim()
    assert [status for status, _ in answers] == [503, 200]
    [taken] = answers[1][1]["items"]
    assert (taken["id"], taken["fence"], taken["attempt"]) == (one["id"], 1, 1)


async def test_polling_finds_invocations_without_notifications(
    client: Client, service: Recorder
) -> None:
    """A pooler such as PgBouncer may swallow NOTIFY: the journal alone is changed (row 29)."""
    one = await invoke_skill(client, "getPet", {"id": 404})
    assert (await wait_for_end(client, one["id"]))["status"] == "FAILED"
    pool = client.gateway.feed.pool
    assert pool is not None
    assert await Journal(pool).redrive(HOST, [one["id"]]) == [one["id"]]
    await until(lambda: len(service.requests) == 2)
    assert (await wait_for_end(client, one["id"]))["redriven"] == 1


@pytest.mark.parametrize("hours", [-1, 1])
async def test_the_clock_of_the_database_decides(
    settings: Settings, service: Recorder, hours: int
) -> None:
    """A gateway whose clock is an hour behind, or ahead of, that of the database (row 29)."""
    url = settings.database.url
    async with await AsyncConnection.connect(url) as connection:
        await connection.execute("CREATE SCHEMA IF NOT EXISTS shifted")
        for clock in ("now", "clock_timestamp"):
            await connection.execute(
                f"CREATE OR REPLACE FUNCTION shifted.{clock}() RETURNS timestamptz LANGUAGE sql"
                f" AS $$ SELECT pg_catalog.{clock}() + interval '{hours} hours' $$"
            )
    path = quote("-csearch_path=shifted,public,pg_catalog")
    shifted = f"{url}{'&' if '?' in url else '?'}options={path}"
    database = msgspec.structs.replace(settings.database, url=shifted)
    async with running(with_events(msgspec.structs.replace(settings, database=database))) as client:
        slow = await invoke_skill(client, "slow", deadlineS=1800.0)
        with anyio.fail_after(DEADLINE_S):
            await service.arrived.wait()
        delayed = await invoke_skill(client, "getPet", {"id": 7}, delayS=0.1, deadlineS=1800.0)
        waits = await invoke_skill(client, "getPet", {"id": 8}, delayS=1800.0)
        over = await wait_for_end(client, delayed["id"])
        away = datetime.fromisoformat(over["due"]) - datetime.now(UTC)
        assert abs(away - timedelta(hours=hours)) < timedelta(minutes=20)
        service.release.set()
        for row in (over, await wait_for_end(client, slow["id"])):
            assert (row["status"], row["attempt"]) == ("ACKED", 1)
        assert (await got(client, f"{ROOT}/{waits['id']}"))[1]["status"] == "PENDING"


@asynccontextmanager
async def lock_journal(settings: Settings) -> AsyncIterator[None]:
    """While nothing can be written to the journal."""
    async with await AsyncConnection.connect(settings.database.url) as connection:
        await connection.execute("LOCK TABLE invocation_t IN SHARE ROW EXCLUSIVE MODE")
        yield


async def ended_while_it_waits(settings: Settings, statement: str) -> None:
    """End the process of the database in which a statement waits for a lock."""
    url = settings.database.url
    async with await AsyncConnection.connect(url, autocommit=True) as connection:

        async def terminate_backend() -> bool:
            found = await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND wait_event_type = 'Lock'"
                " AND strpos(query, %s) > 0 AND pid <> pg_backend_pid()",
                [statement],
            )
            return await found.fetchone() is not None

        await until(terminate_backend)


async def test_the_same_request_is_the_same_invocation(client: Client) -> None:
    """The same request is the same invocation (V05)."""
    one = await invoke_skill(client, "getPet", {"id": 7}, correlationId="pet-7")
    again = await invoke_skill(client, "getPet", {"id": 7}, correlationId="pet-7")
    assert again["id"] == one["id"]
    body = {"skillName": "getPet", "arguments": {"id": 8}, "correlationId": "pet-7"}
    status, problem, _ = await client.post(ROOT, body)
    assert (status, "correlationId" in problem["detail"]) == (409, True)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"skillName": "nowhere"}, "Unknown tool: nowhere"),
        ({"skillName": "getPet", "arguments": {"id": "x"}}, "Invalid arguments for getPet"),
        ({"skillName": "events_stats"}, "at once only"),
        ({"skillName": "search_tools", "arguments": {"query": "x"}}, "at once only"),
        ({"skillName": "listPets", "replyTo": "http://10.0.0.1/"}, "replyTo"),
        ({"skillName": "listPets", "replyTo": "session"}, "replyTo"),
        ({"skillName": "listPets", "topic": "else"}, "agent-commands"),
        ({"skillName": "listPets", "notBefore": "9999-12-31T23:59:59Z"}, "within a year"),
    ],
)
async def test_unacceptable_invocations_are_refused(
    client: Client, body: dict[str, Any], said: str
) -> None:
    """Unacceptable invocations are refused (V06)."""
    status, problem, _ = await client.post(ROOT, body)
    assert status == 422, problem
    assert said in problem["detail"]
    assert (await got(client, ROOT))[1] == {"items": []}


async def test_a_failure_of_the_service_is_final(client: Client, service: Recorder) -> None:
    """A failure of the service is final (V09)."""
    one = await invoke_skill(client, "getPet", {"id": 404})
    over = await wait_for_end(client, one["id"])
    assert (over["status"], over["reason"], over["error"]["status"]) == ("FAILED", "error", 404)
    assert over["result"]["isError"]
    assert len(service.requests) == 1


async def test_a_running_invocation_is_cancelled(client: Client, service: Recorder) -> None:
    """An invocation is cancelled while it runs (V22)."""
    one = await invoke_skill(client, "slow")
    await service.arrived.wait()
    async with client.http.delete(f"{client.url}{ROOT}/{one['id']}") as response:
        assert response.status == 200
    await service.gone.wait()
    assert (await wait_for_end(client, one["id"]))["reason"] == "cancelled"


async def test_invocations_are_listed_page_by_page(client: Client) -> None:
    ids = [(await invoke_skill(client, "report", delayS=3600))["id"] for _ in range(3)]
    status, page = await got(client, f"{ROOT}?limit=2&status=PENDING")
    assert (status, [one["id"] for one in page["items"]]) == (200, ids[:0:-1])
    _, rest = await got(client, f"{ROOT}?limit=2&after={page['next']}")
    assert [one["id"] for one in rest["items"]] == ids[:1]
    for foreign in ("AAAA", cursor("9" * 19)):
        assert (await got(client, f"{ROOT}?after={foreign}"))[0] == 422
    topic = "/events/v1/topics/agent-events"
    assert (await got(client, f"{topic}?after={'9' * 19}.{'9' * 18}"))[0] == 200
    assert (await got(client, f"{topic}?after={'9' * 20}.1"))[0] == 400
    assert (await got(client, f"{ROOT}/nowhere"))[0] == 404


class Framer(Squatter):
    """A server with an argument that clients know by another name."""

    schema: ClassVar[Any] = {
        "type": "object",
        "properties": {"sizes[]": {"type": "array"}, "glass": {"type": "string"}},
        "required": ["sizes[]"],
        "additionalProperties": False,
    }


async def test_named_arguments_in_lists_are_judged_like_arguments_of_a_call(
    settings: Settings,
) -> None:
    """Checked and decided by the names that the server knows (mending 21)."""
    framer = Framer("frame_cutter")
    large = Rule(effect="deny", tools=("frame_cutter",), when="size(arguments['sizes[]']) > 2")
    policy = replace(settings.policy, rules={**settings.policy.rules, "large": large})
    async with serving(framer) as url:
        sources = {**settings.sources, "frames": SourceSettings(mcp=f"{url}/mcp")}
        async with running(
            with_events(replace(settings, sources=sources, policy=policy))
        ) as client:
            over = await wait_for_end(
                client, (await invoke_skill(client, "frame_cutter", {"sizes": [1]}))["id"]
            )
            assert over["status"] == "ACKED", over
            assert [call["arguments"] for call in framer.calls] == [{"sizes[]": [1]}]
            body = {"skillName": "frame_cutter", "arguments": {"sizes": [1, 2, 3]}}
            status, refusal, _ = await client.post(ROOT, body)
            assert (status, "Unknown tool" in json.dumps(refusal)) == (422, True), refusal
            body = {"skillName": "frame_cutter", "arguments": {"sizes": 1}}
            status, refusal, _ = await client.post(ROOT, body)
            assert (status, "sizes" in json.dumps(refusal)) == (422, True), refusal


async def test_a_later_call_may_pass_null_for_absent_arguments(client: Client) -> None:
    """As a call at once may (mending 19)."""
    over = await wait_for_end(
        client, (await invoke_skill(client, "listPets", {"limit": None}))["id"]
    )
    assert over["status"] == "ACKED", over
