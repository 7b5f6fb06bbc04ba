"""Incidents: one message for each, one when it is over, from several gateways."""

from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest

from config.settings import Settings
from registry.access.approvals import Approvals
from registry.database.postgres import borrow
from tests.fixtures_database import HOST
from tests.fixtures_gateway import Client, running
from tests.fixtures_servers import serving
from tests.polling import until
from tests.wings.notifications.rig import (
    INCIDENTS,
    OTHER,
    TARGETS,
    Receiver,
    ask_for_approval,
    caller,
    items,
    put,
    with_notifications,
)

pytestmark = pytest.mark.anyio

NIGHTLY = "events_schedule_nightly"


async def decide(client: Client) -> None:
    for approval in await items(client, "/admin/v1/approvals"):
        path = f"/admin/v1/approvals/{approval['id']}/decision"
        await client.post(path, {"approve": True}, caller("boss"))


async def test_several_gateways_send_one_message_for_begin_and_end(
    settings: Settings, tmp_path: Path
) -> None:
    receiver, on = Receiver(503), with_notifications(settings, tmp_path)
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(serving(receiver))
        client, other = [await stack.enter_async_context(running(on)) for _ in range(2)]
        await other.gateway.wait_for_wings()
        await put(client, "crm", kind="webhook", url=url)
        await put(client, "else", kind="webhook", url=url, subjects=["sources"])
        await ask_for_approval(client)
        [begun, again] = await until(lambda: receiver.events if len(receiver.events) > 1 else [])
        assert begun == again, "what a target did not take is sent again"
        assert (begun["state"], begun["subject"]) == ("begun", "approvals")
        assert "createPet waits for an approval" in begun["title"]
        assert begun["link"] == "http://127.0.0.1:8765/console/approvals"
        assert '"name"' not in begun["detail"], "arguments stay in the console"
        await anyio.sleep(0.5)  # some checks of both gateways
        assert len(receiver.events) == 2
        await decide(client)
        await until(lambda: len(receiver.events) > 2)
        assert receiver.events[-1]["state"] == "ended"
        [incident] = await items(client, f"{INCIDENTS}?state=ended")
        assert incident["sent"] == ["crm"]
        await anyio.sleep(0.5)
        assert Counter(event["state"] for event in receiver.events) == {"begun": 2, "ended": 1}


async def test_a_target_gets_only_so_many_messages_in_an_hour(
    settings: Settings, tmp_path: Path
) -> None:
    """Those that would be late are not sent once their incident is over."""
    receiver, on = Receiver(), with_notifications(settings, tmp_path, target_hourly=2)
    async with serving(receiver) as url, running(on) as client:
        await client.gateway.wait_for_wings()
        await put(client, "crm", kind="webhook", url=url)
        for who in ("ann", "bob", "eve", "joe"):
            await ask_for_approval(client, who)
        await until(lambda: len(receiver.events) == 2)
        await anyio.sleep(0.3)
        [target] = await items(client, TARGETS)
        assert (len(receiver.events), target["waiting"]) == (2, 2)
        await decide(client)

        async def is_over() -> bool:
            return len(await items(client, f"{INCIDENTS}?state=ended")) == 4

        await until(is_over)
        [target] = await items(client, TARGETS)
        assert target["waiting"] == 2, "the ends of those that were sent"


async def test_incidents_of_tenants_are_apart(settings: Settings, tmp_path: Path) -> None:
    own, theirs = Receiver(), Receiver()
    other = caller("eve", host=OTHER)
    on = with_notifications(settings, tmp_path)
    async with serving(own) as url, serving(theirs) as their_url, running(on) as client:
        await client.gateway.wait_for_wings()
        await put(client, "crm", kind="webhook", url=url)
        await put(client, "crm", other, kind="webhook", url=their_url)
        await ask_for_approval(client)
        await until(lambda: own.events)
        await anyio.sleep(0.3)
        assert theirs.events == []
        assert await items(client, INCIDENTS, other) == []


async def test_failed_jobs_and_schedules_and_a_source_that_is_down(
    settings: Settings, tmp_path: Path
) -> None:
    receiver, on = Receiver(), with_notifications(settings, tmp_path)
    async with serving(receiver) as url, running(on) as client:
        await client.gateway.wait_for_wings()
        await put(client, "crm", kind="webhook", url=url)
        pool = client.gateway._handle.pool()
        assert pool is not None
        async with borrow(pool) as connection:
            for who, operation in (
                ("schedule", "events_schedule_nightly"),
                ("ann", "importSource"),
            ):
                await connection.execute(
                    "INSERT INTO job_t (host_id, operation, principal_id, principal, request,"
                    " state, problem, ended_ts)"
                    " VALUES (%s, %s, %s, '{}', 'null', 'failed', %s, now())",
                    [HOST, operation, who, '{"detail": "the service said no"}'],
                )
        client.gateway.feed.state.sources["pets"] = "failed"
        await until(lambda: len(receiver.events) == 3)
        by_subject = {event["subject"]: event for event in receiver.events}
        assert by_subject["schedules"]["title"] == "The schedule nightly failed"
        incidents = await items(client, f"{INCIDENTS}?state=open")
        assert {"text": "The schedule {name} failed", "values": {"name": "nightly"}} in [
            incident["sentences"]["title"] for incident in incidents
        ]
        assert by_subject["jobs"]["detail"] == "the service said no"
        assert by_subject["sources"]["link"].endswith("/console/sources/pets")
        client.gateway.feed.state.sources["pets"] = "ok"
        async with borrow(pool) as connection:
            await connection.execute(
                "INSERT INTO job_t (host_id, operation, principal_id, principal, request, state,"
                " ended_ts) VALUES (%s, 'events_schedule_nightly', 'schedule', '{}', 'null',"
                " 'succeeded', now())",
                [HOST],
            )
        await until(lambda: len(receiver.events) == 5)
        ended = {event["subject"] for event in receiver.events if event["state"] == "ended"}
        assert ended == {"schedules", "sources"}
        assert await Approvals(pool, HOST).waiting() == []
