"""A foreign MCP server that lists the names of tools that schedules and hooks call."""

import base64
import json
import time
from typing import Any

import pytest
from msgspec.structs import replace

from config.events import EventInbound, EventSchedule
from config.settings import Settings
from config.sources import SourceSettings
from gateway.http_client.webhooks import sign
from registry.database.postgres import Database
from registry.sources.tool_store import ToolStore
from tests.fixtures_database import HOST
from tests.fixtures_gateway import Client, Recorder, running
from tests.fixtures_servers import serving
from tests.polling import until
from tests.wings.agent.test_squatters import Squatter
from tests.wings.events.rig import ROOT, got, wait_for_end, with_events

pytestmark = pytest.mark.anyio

SECRET = f"whsec_{base64.b64encode(b's' * 32).decode()}"


async def send_webhook(client: Client, name: str) -> tuple[int, Any]:
    """Status and body of the answer to a webhook."""
    body = json.dumps({"id": 7}).encode()
    headers = sign(f"to-{name}", int(time.time()), body, (SECRET,))
    url = f"{client.url}/events/hooks/{name}"
    async with client.http.post(url, data=body, headers=headers) as response:
        return response.status, json.loads(await response.read())


def hook_to(skill: str) -> EventInbound:
    return EventInbound(skill=skill, secret=SECRET, principal="shop")


async def test_a_hook_calls_the_tool_of_its_source_alone(
    settings: Settings, service: Recorder, database: Database
) -> None:
    """A server that lists the name of another one's tool hears nothing, also while that one is
    away; it is called by its own name (mending 1)."""
    squatter = Squatter("getPet", "notes")
    skills = {"pet": "pets.getPet", "note": "helpful.notes", "lost": "pets.notes"}
    skills["gone"] = "pets.getPet"
    inbound = {name: hook_to(skill) for name, skill in skills.items()}
    async with serving(squatter) as url:
        foreign = {"helpful": SourceSettings(mcp=f"{url}/mcp")}
        both = replace(settings, sources={**settings.sources, **foreign})
        async with running(with_events(both, inbound=inbound)) as client:
            for name in ("pet", "note"):
                status, answer = await send_webhook(client, name)
                assert (status, answer["skillName"]) == (202, skills[name]), answer
                assert (await wait_for_end(client, answer["id"]))["status"] == "ACKED"
            status, answer = await send_webhook(client, "lost")
            assert (status, answer["detail"]) == (422, "Unknown tool: pets.notes")
        assert service.requests[0]["path"] == "/pets/7"
        assert [call["name"] for call in squatter.calls] == ["notes"]
        await ToolStore(database.pool).remove(HOST, "pets")
        alone = replace(settings, sources={"other": foreign["helpful"]})
        async with running(with_events(alone, inbound=inbound)) as client:
            status, answer = await send_webhook(client, "gone")
            assert (status, answer["detail"]) == (422, "Unknown tool: pets.getPet")
    assert [call["name"] for call in squatter.calls] == ["notes"]


async def test_a_waiting_call_runs_only_the_accepted_tool(
    settings: Settings, service: Recorder, database: Database
) -> None:
    """A server that takes the name meanwhile does not get it (mending 1)."""
    schedule = EventSchedule(
        cron="0 5 1 1 *", skill="pets.getPet", principal="clock", arguments={"id": 7}
    )
    busy = with_events(settings, schedules={"yearly": schedule}, concurrency=0)
    async with running(busy) as client:
        async with client.http.post(f"{client.url}/events/v1/schedules/yearly") as response:
            assert response.status == 202, await response.text()
        accepted = await until(lambda: invocations(client))
    await ToolStore(database.pool).remove(HOST, "pets")
    squatter = Squatter("getPet")
    async with serving(squatter) as url:
        alone = replace(settings, sources={"helpful": SourceSettings(mcp=f"{url}/mcp")})
        async with running(with_events(alone)) as client:
            row = await wait_for_end(client, accepted[0]["id"])
            assert (row["status"], row["reason"]) == ("FAILED", "rejected")
    assert (service.requests, squatter.calls) == ([], [])


async def invocations(client: Client) -> Any:
    return (await got(client, f"{ROOT}?everyone=true"))[1]["items"]
