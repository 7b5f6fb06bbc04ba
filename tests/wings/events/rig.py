"""Gateways with the wing of events, and requests to them."""

from typing import Any

import anyio
import msgspec
from msgspec.structs import replace

from config.events import EventSkill
from config.settings import Settings
from tests.fixtures_gateway import DEADLINE_S, Client

EXTENSION = "io.modelcontextprotocol/tasks"
ROOT = "/events/v1/invocations"
EVENT = {
    "specversion": "1.0",
    "id": "e-1",
    "source": "/shop",
    "type": "dev.toolgate.skill.invocation.v1",
    "data": {"skillName": "getPet", "arguments": {"id": 7}},
}
STRUCTURED = "application/cloudevents+json"


def with_events(settings: Settings, **changes: Any) -> Settings:
    """The settings with the wing, which looks often."""
    values = {
        "enabled": True,
        "poll_s": 0.05,
        "sweep_s": 0.05,
        "backoff_s": 0.01,
        "approval_poll_s": 0.05,
        "drain_s": 5.0,
        "skills": {"report": EventSkill()},
        **changes,
    }
    return replace(settings, events=msgspec.structs.replace(settings.events, **values))


async def got(client: Client, path: str, **headers: str) -> tuple[int, Any]:
    async with client.http.get(client.url + path, headers=headers) as response:
        text = await response.read()
        return response.status, msgspec.json.decode(text) if text else None


async def invoke_skill(client: Client, skill: str, arguments: Any = None, **more: Any) -> Any:
    body = {"skillName": skill, "arguments": arguments or {}, **more}
    status, answer, headers = await client.post(ROOT, body)
    assert status == 202, answer
    assert headers["location"] == f"{ROOT}/{answer['id']}"
    return answer


async def wait_for_end(client: Client, id_: str) -> Any:
    """The invocation, once it has ended."""
    with anyio.fail_after(DEADLINE_S):
        while True:
            status, answer = await got(client, f"{ROOT}/{id_}?waitS=5")
            assert status == 200, answer
            if answer["status"] in ("ACKED", "FAILED"):
                return answer
