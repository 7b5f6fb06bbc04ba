"""What operators see and erase of a person, over the admin API."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from config.settings import Settings
from tests.fixtures_gateway import Client, running
from tests.gateway.admin.client import KEY, bearer
from tests.gateway.guards.signing import by_jwks
from tests.polling import until
from tests.wings.test_toy import got

pytestmark = pytest.mark.anyio

ANN = bearer("ann", scope="memory:read memory:write")
PATH = "/admin/v1/subjects/ann/memories"


@pytest.fixture
async def client(settings: Settings, tmp_path: Path) -> AsyncIterator[Client]:
    audit = replace(settings.audit, mode="always", flush_s=0.05)
    on = replace(settings, audit=audit, memory=replace(settings.memory, enabled=True))
    async with running(replace(on, auth=by_jwks(tmp_path, [KEY.jwk()]))) as client:
        yield client


async def add_memory(client: Client, content: str, who: dict[str, str] = ANN, **more: Any) -> None:
    body = {"content": content, "scope": "user", **more}
    assert (await client.post("/memory/v1/memories", body, who))[0] == 201


async def test_operators_list_export_and_erase_a_person(client: Client) -> None:
    """Operators list export and erase a person (M26, M28, M29)."""
    bob = bearer("bob", scope="memory:read memory:write")
    await add_memory(client, "Ann lives in Bern", slot="home")
    await add_memory(client, "Ann lives in Chur", slot="home")
    await add_memory(client, "Ann is new here", scope="session", session="first-day")
    await add_memory(client, "Bob lives in Basel", bob)
    reader, eraser = bearer(scope="admin:memory"), bearer(scope="admin:memory:erase")
    assert (await got(client, PATH, **bearer("ann", scope="memory:read memory:erase")))[0] == 403
    overview = bearer("ops", scope="admin:read")
    assert (await got(client, PATH, **overview))[0] == 403
    _, page, _ = await got(client, PATH, **reader)
    assert [one["content"] for one in page["items"]] == ["Ann lives in Chur", "Ann is new here"]
    _, page, _ = await got(client, f"{PATH}?history=true&limit=2", **reader)
    _, rest, _ = await got(client, f"{PATH}?history=true&limit=2&after={page['next']}", **reader)
    assert (len(page["items"]), len(rest["items"]), "next" in rest) == (2, 1, False)
    _, exported, _ = await got(client, f"{PATH}/export", **reader)
    assert {one["owner"] == "ann" for one in exported["items"]} == {True, False}
    await until(lambda: is_audited(client, overview))
    assert len(exported["items"]) == 3
    for query, status, count in (("dry_run=true", 200, 3), ("expect=2", 409, None), ("", 200, 3)):
        answer = await send_delete(client, f"{PATH}?{query}", eraser)
        assert (answer[0], answer[1].get("memories")) == (status, count)
    assert (await got(client, PATH, **reader))[1]["items"] == []
    assert (await send_delete(client, PATH, reader))[0] == 403
    strange = "/admin/v1/subjects/https%3A%2F%2Fid.example%2Fa%7Cb/memories"
    assert await send_delete(client, strange, eraser) == (200, {"memories": 0})
    _, bobs, _ = await got(client, "/memory/v1/memories", **bob)
    assert len(bobs["items"]) == 1
    _, restored, _ = await client.post("/memory/v1/import", {"items": exported["items"][:1]}, ANN)
    assert (restored["stored"], restored["erased"]) == (0, 1)


async def is_audited(client: Client, headers: dict[str, str]) -> bool:
    """Whether the audit log has who read whose memories."""
    _, page, _ = await got(client, "/admin/v1/audit?limit=100", **headers)
    entries = [one["entry"] for one in page["items"]]
    readers = {one["method"] for one in entries if one.get("subject") == "ann"}
    return {"listMemoriesOfSubject", "exportSubject"} <= readers


async def send_delete(client: Client, path: str, headers: dict[str, str]) -> tuple[int, Any]:
    async with client.http.delete(client.url + path, headers=headers) as response:
        return response.status, await response.json()
