"""The live view of calls: what it shows, of which nodes, to whom, for how long and to how many."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace

from config.settings import Settings
from gateway.console.live_views import LiveViews
from gateway.console.pages.live import _reach
from gateway.context import Principal
from gateway.operations.problems import ProblemDetails
from registry.access.api_keys import ApiKeys
from tests import polling
from tests.fixtures_database import HOST
from tests.fixtures_gateway import Client, pets, running, wordless
from tests.gateway.console.visiting import Browser, console

pytestmark = pytest.mark.anyio

EVENTS = "console/live/events"


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    described = pets()
    body = described["paths"]["/pets"]["post"]["requestBody"]["content"]["application/json"]
    body["schema"]["properties"]["token"] = {"type": "string"}
    (tmp_path / "pets.json").write_text(json.dumps(described))
    folder = str(tmp_path / "audit")
    audit = replace(settings.audit, mode="always", arguments="masked", spool_dir=folder)
    limits = replace(settings.console, live_s=120, live_views_per_person=1)
    return replace(settings, audit=audit, console=limits)


class Watcher:
    """A reader of the stream of a live view."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer
        self.html = ""
        self.ended = False

    async def read_until(self, text: str) -> None:
        """Read events until rows have this text."""
        async with asyncio.timeout(30):
            while text not in self.html and not self.ended:
                await self._read_event()
        assert text in self.html

    async def read_to_end(self) -> None:
        async with asyncio.timeout(30):
            while not self.ended:
                await self._read_event()

    async def _read_event(self) -> None:
        name = ""
        while line := (await self._answer.content.readline()).decode().strip():
            field, _, value = line.partition(": ")
            if field == "event":
                name = value
            elif field == "data" and name == "calls":
                self.html = json.loads(value)["html"] + self.html
        self.ended = self.ended or name == "end" or self._answer.content.at_eof()


@asynccontextmanager
async def watching(
    http: aiohttp.ClientSession, url: str, query: str = ""
) -> AsyncIterator[Watcher]:
    async with http.get(f"{url}/{EVENTS}?{query}") as answer:
        assert answer.status == 200
        assert answer.content_type == "text/event-stream"
        yield Watcher(answer)


async def call(client: Client, tool: str, **arguments: Any) -> None:
    answer = await client.rpc({"jsonrpc": "2.0", "id": 1, "method": tool, "params": arguments})
    assert "result" in answer, answer


async def test_view_shows_calls_of_all_nodes_and_hides_secrets(settings: Settings) -> None:
    async with console(settings) as (client, browser), running(settings) as other:
        async with watching(client.http, client.url, "subject=createPet") as watcher:
            await call(client, "listPets")
            await call(client, "createPet", name="Rex", token="t-4711")
            await watcher.read_until("Rex")
            await call(other, "createPet", name="Bello")
            await watcher.read_until("Bello")
            assert watcher.html.count("<tr>") == 2  # each once, though the log is read repeatedly
            assert "listPets" not in watcher.html
            assert "t-4711" not in watcher.html
            assert "***" in watcher.html
            await a_second_view_of_a_person_is_refused(client)
        await polling.until(lambda: has_room(client))
        _, page = await browser.get("live?subject=createPet")
        assert "Bello" in page
        assert 'data-live="/console/live/events?subject=createPet"' in page
        status, text = await browser.get("live/events?subject=a%00")
        assert (status, text.partition(": ")[0]) == (400, "A parameter is not as expected. subject")
        _, answer = await browser.get("live?outcome=tool_error&format=json")
        assert json.loads(answer)["items"] == []


async def a_second_view_of_a_person_is_refused(client: Client) -> None:
    async with client.http.get(f"{client.url}/{EVENTS}") as answer:
        assert answer.status == 429
        assert "console.live_views_per_person" in await answer.text()


async def has_room(client: Client) -> bool:
    """Whether the view was closed with its tab."""
    async with client.http.get(f"{client.url}/{EVENTS}") as answer:
        return answer.status == 200


async def test_views_are_bounded_by_tenant_and_person() -> None:
    limits = replace(wordless().console, live_views_per_tenant=2, live_views_per_person=1)
    views, (ada, ben, eve) = LiveViews(), (Principal(name, "t1") for name in ("ada", "ben", "eve"))
    with views.open(ada, limits), views.open(Principal("ada", "t2"), limits):
        with pytest.raises(ProblemDetails, match="live_views_per_person"):
            views.check_room(ada, limits)
        with views.open(ben, limits), pytest.raises(ProblemDetails, match="per_tenant"):
            views.check_room(eve, limits)
        views.check_room(eve, limits)
    views.check_room(ada, limits)


def test_a_view_reads_back_to_records_that_are_stored_late() -> None:
    audit = wordless().audit
    assert _reach(audit) == timedelta(seconds=10)
    assert _reach(replace(audit, flush_s=30)) == timedelta(seconds=60)


async def test_view_stops_by_itself(settings: Settings) -> None:
    limits = replace(settings.console, live_s=1)
    async with (
        console(replace(settings, console=limits)) as (client, _),
        watching(client.http, client.url) as watcher,
    ):
        await watcher.read_to_end()


async def test_view_needs_the_scope_of_the_audit_log_and_ends_with_its_key(
    settings: Settings,
) -> None:
    keyed = replace(settings.auth, mode="keys", api_keys=True)
    async with console(settings, auth=keyed) as (client, browser):
        database = client.gateway._handle.opened
        assert database is not None
        keys = ApiKeys(database.pool, HOST)
        reader = await log_in(browser, keys, "admin:registry:read")
        for page in ("live", "live/events"):
            assert (await browser.get(page))[0] == 403
        assert "/console/live" not in (await browser.get("tools"))[1]
        await browser.get("tools")
        await browser.post("logout", {})
        auditor = await log_in(browser, keys, "admin:audit:read")
        assert auditor != reader
        assert (await browser.get("live"))[0] == 200
        async with watching(browser._http, client.url) as watcher:
            await keys.revoke(auditor)
            await watcher.read_to_end()


async def log_in(browser: Browser, keys: ApiKeys, scope: str) -> str:
    """The id of a new key with this scope, with which the visitor has logged in."""
    key, secret = await keys.create(scope, None, [scope], [])

    async def is_in() -> bool:
        await browser.get("login")
        status, page = await browser.post("login", {"key": secret})
        return status != 401 and 'name="key"' not in page

    await polling.until(is_in)
    return key.id
