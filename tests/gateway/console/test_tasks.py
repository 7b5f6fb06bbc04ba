"""Tasks in the console: begun, listed to their owner, looked at, cancelled, and their results."""

import json
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from config.settings import Settings
from registry.access.api_keys import ApiKeys
from tests import polling
from tests.fixtures_database import HOST
from tests.fixtures_gateway import Recorder
from tests.gateway.console.visiting import Browser, console
from tests.wings.events.rig import with_events

pytestmark = pytest.mark.anyio

LINK = re.compile(r'href="/console/(tasks/[\w-]{40,})"')


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    audit = replace(settings.audit, mode="always", spool_dir=str(tmp_path / "audit"))
    keyed = replace(settings.auth, mode="keys", api_keys=True)
    return replace(with_events(settings), audit=audit, auth=keyed)


async def test_owner_begins_cancels_and_reads_tasks(settings: Settings, service: Recorder) -> None:
    async with console(settings) as (client, browser):
        database = client.gateway._handle.opened
        assert database is not None
        keys = ApiKeys(database.pool, HOST)
        await log_in(browser, keys, "ada")
        await polling.until(lambda: offers_tasks(browser))
        _, page = await browser.get("tasks")
        assert "No tasks yet" in page

        slow = await begin_task(browser, "slow")
        _, page = await browser.get(slow)
        assert ("working" in page, 'hx-trigger="every 2s"' in page) == (True, True)
        _, page = await browser.post(slow, {"act": "result"})  # it has none yet, and nobody waits
        assert 'id="answer"' not in page
        _, page = await browser.post(slow, {"act": "cancel"})
        assert "cancelled" in page
        assert "every 2s" not in page

        made = await begin_task(browser, "createPet", **{"/name": "Rex"})
        await polling.until(lambda: has_state(browser, made, "completed"))
        _, page = await browser.post(made, {"act": "result"})
        assert "&#34;heard&#34;" in page
        _, answer = await browser.post(f"{made}?format=json", {"act": "result"})
        exchange = json.loads(answer)
        assert exchange["request"]["method"] == "tasks/result"
        assert "isError" not in exchange["answer"]["result"]
        await polling.until(lambda: has_state(browser, "audit", "tasks/result"))

        _, page = await browser.get("tasks")
        assert LINK.findall(page) == [made, slow]
        await browser.post("logout", {})
        await log_in(browser, keys, "ben")
        _, page = await browser.get("tasks")
        assert LINK.findall(page) == []
        assert (await browser.get(made))[0] == 404
        status, text = await browser.get(f"{made}?format=json")
        assert (status, json.loads(text)["status"]) == (404, 404)
        part = {"HX-Request": "true", "HX-Target": "form#task"}
        async with browser._http.get(f"{client.url}/console/{made}", headers=part) as answer:
            assert (answer.status, answer.headers["HX-Refresh"]) == (404, "true")


async def test_a_task_of_a_destructive_tool_needs_its_name(
    settings: Settings, service: Recorder
) -> None:
    open_to_all = replace(settings.auth, mode="none")
    async with console(settings, auth=open_to_all) as (_, browser):
        await polling.until(lambda: offers_tasks(browser))
        sent = {"view": "form", "act": "task", "/id": "1"}
        _, page = await browser.post("tools/deletePet/try", sent)
        assert "confirm-error" in page
        assert service.requests == []
        _, page = await browser.post("tools/deletePet/try", {**sent, "confirmed": "deletePet"})
        assert ("taskId" in page, "tasks/get" in page) == (True, True)
        _, page = await browser.get("tasks")
        assert "Tasks are not listed here" in page


async def begin_task(browser: Browser, tool: str, **fields: str) -> str:
    """The page of a new task."""
    await browser.get(f"tools/{tool}/try")
    status, page = await browser.post(
        f"tools/{tool}/try", {"view": "form", "act": "task", **fields}
    )
    assert status == 200
    found = re.search(r'<p class="wrap small"><code>([\w-]+)</code>', page)
    assert found, page[-2000:]
    return f"tasks/{found[1]}"


async def offers_tasks(browser: Browser) -> bool:
    return 'value="task"' in (await browser.get("tools/createPet/try"))[1]


async def has_state(browser: Browser, page: str, state: str) -> bool:
    return state in (await browser.get(page))[1]


async def log_in(browser: Browser, keys: ApiKeys, name: str) -> None:
    _, secret = await keys.create(name, None, ["admin"], [])

    async def is_in() -> bool:
        await browser.get("login")
        return (await browser.post("login", {"key": secret}))[0] == 200

    await polling.until(is_in)
