"""Webhooks of tasks."""

import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from config.settings import DatabaseSettings
from gateway.http_client.webhooks import WebhookSender
from gateway.wings.a2a.task_store import A2ATasks
from gateway.wings.a2a.task_webhooks import OF_OWNER, OF_TENANT, DueWebhook, Webhooks
from registry.access.secrets import Keys
from registry.database.postgres import Database, borrow
from tests.fixtures_database import HOST
from tests.fixtures_servers import serving
from tests.wings.a2a.rig import Rig, open_rig, text_message
from tests.wings.events.drafts import OTHER

pytestmark = pytest.mark.anyio

TOKEN = "token-of-the-client"


@dataclass
class Receiver:
    """Takes what is sent, after so many failures."""

    failures: int = 0
    url: str = ""
    bodies: list[Any] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    arrived: anyio.Event = field(default_factory=anyio.Event)

    async def take(self, request: Request) -> Response:
        if self.failures:
            self.failures -= 1
            return Response(status_code=503)
        self.bodies.append(json.loads(await request.body()))
        self.headers.append(dict(request.headers))
        self.arrived.set()
        return Response()

    async def until(self, count: int) -> None:
        with anyio.fail_after(60):
            while len(self.bodies) < count:
                self.arrived = anyio.Event()
                await self.arrived.wait()


@asynccontextmanager
async def receiving(failures: int = 0) -> AsyncIterator[Receiver]:
    receiver = Receiver(failures)
    app = Starlette(routes=[Route("/hook", receiver.take, methods=["POST"])])
    async with serving(app) as url:
        receiver.url = f"{url}/hook"
        yield receiver


async def send_with(rig: Rig, config: Any, name: str = "tck-stream-001", by: str = "ann") -> Any:
    params = {
        "message": text_message("go", f"{name}-{uuid4()}"),
        "configuration": {"taskPushNotificationConfig": config},
    }
    return await rig.rpc("SendMessage", params, agent="tck", by=by)


async def test_a_webhook_gets_the_changes_of_its_task_in_their_order(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    async with (
        open_rig(database_settings, tmp_path, push_private=True) as rig,
        receiving(failures=2) as receiver,
    ):
        config = {
            "url": receiver.url,
            "token": TOKEN,
            "authentication": {"scheme": "Bearer", "credentials": "secret-of-the-client"},
        }
        task = (await send_with(rig, config))["result"]["task"]
        await receiver.until(3)
        kinds = [next(iter(body)) for body in receiver.bodies]
        assert kinds == ["statusUpdate", "artifactUpdate", "statusUpdate"]
        states = [body["statusUpdate"]["status"]["state"] for body in receiver.bodies[::2]]
        assert states == ["TASK_STATE_WORKING", "TASK_STATE_COMPLETED"]
        assert receiver.headers[0]["authorization"] == "Bearer secret-of-the-client"
        assert receiver.headers[0]["x-a2a-notification-token"] == TOKEN
        assert receiver.headers[0]["content-type"] == "application/a2a+json"
        async with borrow(rig.pool) as connection:
            rows = await connection.execute("SELECT config FROM a2a_push_t")
            assert all(TOKEN.encode() not in config for (config,) in await rows.fetchall())
        await check_configs(rig, task["id"], receiver.url)


NEW_EVENT = (
    (
        "INSERT INTO a2a_event_t (host_id, task_id, number, data)"
        " SELECT host_id, task_id, number + 1, data FROM a2a_event_t ORDER BY number DESC LIMIT 1"
    ),
    "UPDATE a2a_push_t SET due_ts = coalesce(due_ts, now())",
)
WAITING = (
    "SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)


async def test_an_event_that_is_stored_while_its_webhook_is_settled_is_sent(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    async with (
        open_rig(database_settings, tmp_path, push_private=True) as rig,
        receiving() as receiver,
        WebhookSender() as sender,
    ):
        task = (await send_with(rig, {"url": receiver.url}))["result"]["task"]["id"]
        await receiver.until(3)
        webhooks = Webhooks(
            rig.pool,
            rig.client.gateway.settings.a2a,
            keys=Keys(),
            tasks=A2ATasks(rig.pool, "a", 60.0),
            sender=sender,
        )

        async def settle() -> None:
            async with borrow(rig.pool) as connection:
                rows = await connection.execute("SELECT config_id, fence FROM a2a_push_t")
                [(config, fence)] = await rows.fetchall()
            due = DueWebhook(HOST, task, config, "1.0", b"", 3, 0, fence, 0.0)
            assert await webhooks._settle(due, 3, "", 0.0)

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group, borrow(rig.pool) as writer:
                for statement in NEW_EVENT:
                    await writer.execute(statement)
                group.start_soon(settle)
                while True:
                    async with borrow(rig.pool) as connection:
                        if (await connection.execute(WAITING)).rowcount:
                            break
                    await anyio.sleep(0.02)
        await receiver.until(4)


async def check_configs(rig: Rig, task: str, url: str) -> None:
    """The webhooks of a task are listed, changed and deleted, by its owner."""
    asked = {"taskId": task}
    listed = await rig.rpc("ListTaskPushNotificationConfigs", asked, agent="tck")
    [config] = listed["result"]["configs"]
    assert (config["url"], config["taskId"]) == (url, task)
    for place in range(9):
        more = {**asked, "url": url, "id": f"c{place}"}
        assert "result" in await rig.rpc("CreateTaskPushNotificationConfig", more, agent="tck")
    full = await rig.rpc(
        "CreateTaskPushNotificationConfig", {**asked, "url": url, "id": "c9"}, agent="tck"
    )
    assert full["error"]["code"] == -32602
    named = {**asked, "id": "c0"}
    assert (await rig.rpc("GetTaskPushNotificationConfig", named, agent="tck"))["result"]["url"]
    assert (await rig.rpc("DeleteTaskPushNotificationConfig", named, agent="tck"))["result"] == {}
    gone = await rig.rpc("GetTaskPushNotificationConfig", named, agent="tck")
    assert gone["error"]["code"] == -32001


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/hook",
        "https://127.0.0.1/hook",
        "https://[::1]/hook",
        "https://169.254.169.254/latest",
        "https://2130706433/hook",
        "file:///etc/passwd",
        "",
        "https://",
        "https://:8443/hook",
        "https://example.com:0/hook",
        "https://example.com:99999/hook",
        "https://example.com/a hook",
        "https://example.com/hook\n",
        "https://[x]@/hook",
    ],
)
async def test_webhooks_of_private_addresses_are_refused(rig: Rig, url: str) -> None:
    answer = await send_with(rig, {"url": url})
    assert answer["error"]["code"] == -32602


async def test_webhooks_are_listed_for_people_without_their_credentials(rig: Rig) -> None:
    config = {
        "url": "https://localhost/hook",
        "token": TOKEN,
        "authentication": {"scheme": "Bearer", "credentials": "secret-of-the-client"},
    }
    task = (await send_with(rig, config))["result"]["task"]["id"]
    url = f"{rig.client.url}/a2a-api/v1/tasks/{task}/webhooks"
    async with rig.client.http.get(url, headers=rig.headers("ann")) as response:
        [shown] = (await response.json())["configs"]
    assert (shown["token"], shown["authentication"]["credentials"]) == ("***", "***")
    listed = await rig.rpc("ListTaskPushNotificationConfigs", {"taskId": task}, agent="tck")
    [own] = listed["result"]["configs"]
    assert own == {**config, "id": shown["id"], "taskId": task}
    made = await rig.rpc(
        "CreateTaskPushNotificationConfig", {**config, "taskId": task, "id": "x"}, agent="tck"
    )
    assert made["result"] == {**own, "id": "x"}


async def test_header_injection_by_credentials_is_refused(rig: Rig) -> None:
    config = {"url": "https://example.com/", "token": "a\r\nX-Admin: 1"}
    assert (await send_with(rig, config))["error"]["code"] == -32602


async def test_names_that_lead_inside_get_nothing(rig: Rig) -> None:
    """The address is public by its name alone; what it resolves to is judged when it is sent."""
    answer = await send_with(rig, {"url": "https://localhost/hook"})
    id_ = answer["result"]["task"]["id"]
    with anyio.fail_after(60):
        while True:
            async with borrow(rig.pool) as connection:
                rows = await connection.execute(
                    "SELECT error, sent FROM a2a_push_t WHERE task_id = %s", [id_]
                )
                [(error, sent)] = await rows.fetchall()
            if error:
                break
            await anyio.sleep(0.02)
    assert (error, sent) == ("its address is not public", 0)


async def test_an_unreadable_webhook_fails_alone(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    async with (
        open_rig(database_settings, tmp_path, push_private=True) as rig,
        receiving(failures=1) as receiver,
    ):
        task = (await rig.task(text_message("go", f"tck-stream-001-{uuid4()}"), agent="tck"))["id"]
        async with borrow(rig.pool) as connection:
            for version, config in (("9.9", b"{}"), ("1.0", b"\xff"), ("1.0", b'{"url": 7}')):
                await connection.execute(
                    "INSERT INTO a2a_push_t (host_id, task_id, config_id, version, config, sent,"
                    " due_ts) VALUES (%s, %s, %s, %s, %s, 0, now() - interval '1 day')",
                    [HOST, task, uuid4().hex, version, config],
                )
        await send_with(rig, {"url": receiver.url})
        await receiver.until(3)
        async with borrow(rig.pool) as connection:
            rows = await connection.execute(
                "SELECT count(*) FROM a2a_push_t WHERE error <> '' AND attempt > 0"
            )
            assert await rows.fetchone() == (3,)
            await connection.execute(
                "UPDATE a2a_push_t SET since_ts = now() - interval '2 days', due_ts = now(),"
                " lease_ts = NULL WHERE error <> ''"
            )
        with anyio.fail_after(30):
            while await count_given_up(rig) < 3:  # noqa: ASYNC110 - no event
                await anyio.sleep(0.02)
        listed = await rig.rpc("ListTaskPushNotificationConfigs", {"taskId": task}, agent="tck")
        configs = listed["result"]["configs"]  # without addresses, but they can be deleted
        assert [config.get("url", "") for config in configs] == ["", "", ""]


async def count_given_up(rig: Rig) -> int:
    async with borrow(rig.pool) as connection:
        rows = await connection.execute(
            "SELECT count(*) FROM a2a_push_t WHERE error = 'Internal error' AND due_ts IS NULL"
        )
        return int(((await rows.fetchone()) or (0,))[0])


async def test_webhooks_of_one_person_leave_places_to_other_people(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    held = most_held = 0

    async def hang(request: Request) -> Response:
        """Answer nothing, however often deliveries are given up on a slow machine."""
        nonlocal held, most_held
        held += 1
        most_held = max(most_held, held)
        while (await request.receive())["type"] != "http.disconnect":
            pass
        held -= 1
        return Response()

    app = Starlette(routes=[Route("/", hang, methods=["POST"])])
    async with (
        open_rig(database_settings, tmp_path, push_private=True) as rig,
        receiving() as receiver,
        serving(app) as url,
    ):
        for _ in range(3):
            task = (await send_with(rig, {"url": url}))["result"]["task"]["id"]
            for _ in range(9):
                more = {"taskId": task, "url": url}
                await rig.rpc("CreateTaskPushNotificationConfig", more, agent="tck")
        await send_with(rig, {"url": receiver.url}, by="bob")
        await receiver.until(3)
        assert 0 < most_held <= OF_OWNER


async def test_a_gateway_without_push_says_so(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    async with open_rig(database_settings, tmp_path, push=False) as rig:
        answer = await send_with(rig, {"url": "https://example.com/"})
        assert answer["error"]["code"] == -32003
        listed = await rig.rpc("ListTaskPushNotificationConfigs", {"taskId": "x"})
        assert listed["error"]["code"] == -32003


async def test_webhooks_of_one_tenant_leave_places_to_other_tenants(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    async with open_rig(database_settings, tmp_path) as rig:
        settings = rig.client.gateway.settings.a2a
    async with (
        Database.open(database_settings, wait=False, migrate=False) as database,
        WebhookSender() as sender,
    ):
        async with borrow(database.pool) as connection:
            for tenant, owners in ((HOST, 30), (OTHER, 1)):
                await connection.execute(
                    "WITH tasks AS (INSERT INTO a2a_task_t (host_id, agent, owner, context_id,"
                    " message_key, caller, work, state, task, status_ts)"
                    " SELECT %s, 'tck', 'owner ' || n, '', '', '{}', 'ended', '', '', now()"
                    " FROM generate_series(1, %s) AS n RETURNING host_id, task_id)"
                    " INSERT INTO a2a_push_t (host_id, task_id, config_id, version, config, sent,"
                    " due_ts) SELECT host_id, task_id, 'a', '1.0', '', 0, clock_timestamp()"
                    " FROM tasks",
                    [tenant, owners],
                )
        tasks = A2ATasks(database.pool, "a", 60.0)
        webhooks = Webhooks(database.pool, settings, keys=Keys(), tasks=tasks, sender=sender)
        claimed = Counter(due.host_id for due in await webhooks._claim(100))
        assert claimed == {HOST: OF_TENANT, OTHER: 1}
        webhooks._sending.update({HOST: OF_TENANT - 1})
        assert [due.host_id for due in await webhooks._claim(100)] == [HOST]
