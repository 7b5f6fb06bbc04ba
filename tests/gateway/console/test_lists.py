"""Lists of the console: what an empty one says, and its buttons."""

import re

import pytest
from msgspec.structs import replace

from config.events import EventWebhook
from config.settings import Settings
from gateway.admin.resource_views import VIEWS
from gateway.console.pages.lists_and_entries import acts_of
from gateway.console.pages.operation_buttons import TITLES
from gateway.wings.a2a.wing import PAGES as A2A
from gateway.wings.agent.wing import PAGES as AGENT
from gateway.wings.events.wing import PAGES as EVENTS
from gateway.wings.knowledge.wing import PAGES as KNOWLEDGE
from gateway.wings.librarian.wing import PAGES as LIBRARIAN
from gateway.wings.memory.wing import PAGE as MEMORY
from registry.database.postgres import borrow
from tests import polling
from tests.fixtures_database import HOST
from tests.gateway.console.visiting import console
from tests.wings.events.rig import with_events


@pytest.mark.anyio
async def test_an_empty_list_has_its_first_act_and_no_filters(settings: Settings) -> None:
    async with console(settings, sources={}) as (_, browser):
        _, agents = await browser.get("agents")
        _, erasures = await browser.get("erasures")
        _, filtered = await browser.get("sessions?principal=ada")
        status, _ = await browser.get("do/previewImport")
    assert agents.count("An agent is a caller to whom skills are granted.") == 1
    assert agents.count("New agent") == 2  # in the head, and where the entries would be
    assert 'class="button primary"' in agents
    assert "People whose data was erased" in erasures
    assert "Nobody was erased yet." in erasures
    assert "Nothing is like that" in filtered
    assert "Show all" in filtered
    assert status == 200  # its body is one of many kinds


@pytest.mark.anyio
async def test_an_entry_has_titles_of_its_list_and_no_vain_act(settings: Settings) -> None:
    """A revoked key is neither rotated nor revoked; a disabled user is only enabled."""
    async with console(settings) as (_, browser):
        await browser.get("do/createKey")
        await browser.post("do/createKey", {"view": "form", "act": "do", "/name": "ci"})
        _, keys = await browser.get("keys")
        found = re.search(r'/console/keys/([^"]+)"', keys)
        assert found is not None
        key = found[1]
        _, valid = await browser.get(f"keys/{key}")
        form = {"view": "form", "act": "do", "name.key": key, "confirmed": key}
        status, _ = await browser.post("do/revokeKey", form)
        _, revoked = await browser.get(f"keys/{key}")
    assert "<dt>Caller</dt>" in valid
    assert "<dt>Ends</dt>" in valid
    assert "do/rotateKey" in valid
    assert status < 400
    assert "do/rotateKey" not in revoked
    user = VIEWS["users"]
    assert "enableUser" not in acts_of(user, {"disabled": None})
    assert "disableUser" not in acts_of(user, {"disabled": "2026-01-01T00:00:00Z"})


@pytest.mark.anyio
async def test_deliveries_of_a_webhook_have_pages_and_filters(settings: Settings) -> None:
    webhooks = {"crm": EventWebhook("http://127.0.0.1:9/", f"whsec_{'c2Vj' * 8}", private=True)}
    async with console(with_events(settings, webhooks=webhooks)) as (client, browser):
        pool = client.gateway.feed.pool
        assert pool is not None
        _, empty = await browser.get("webhooks/crm/events_deliveries")
        async with borrow(pool) as connection:
            await connection.execute(
                "INSERT INTO outbox_t (host_id, invocation_id, kind, target, status, error,"
                " finished_ts) SELECT %s, gen_random_uuid(), 'webhook', 'crm',"
                " CASE n WHEN 1 THEN 'FAILED' ELSE 'ACKED' END,"
                " CASE n WHEN 1 THEN 'status 410' END, now() FROM generate_series(1, 52) AS n",
                [HOST],
            )
        _, entry = await browser.get("webhooks/crm")
        _, first = await browser.get("webhooks/crm/events_deliveries")
        after = re.search(r"events_deliveries\?after=([^\"]+)", first)
        assert after is not None
        _, rest = await browser.get(f"webhooks/crm/events_deliveries?after={after[1]}")
        _, failed = await browser.get("webhooks/crm/events_deliveries?status=FAILED")
        _, none = await browser.get("webhooks/crm/events_deliveries?status=PENDING")
        refused, _ = await browser.get("webhooks/crm/events_deliveries?status=LATE")
        absent, _ = await browser.get("webhooks/crm/events_list")
        unknown, _ = await browser.get("webhooks/other/events_deliveries")
    assert 'href="/console/webhooks/crm/events_deliveries"' in entry
    assert ("Nothing here yet" in empty, 'name="status"' in first) == (True, True)
    assert [page.count("ACKED</") for page in (first, rest)] == [50, 1]
    assert "status 410" in rest
    assert (failed.count("status 410"), "Nothing is like that" in none) == (1, True)
    assert (refused, absent, unknown) == (400, 404, 404)


@pytest.mark.anyio
async def test_a_form_names_its_mistakes_at_their_fields(settings: Settings) -> None:
    memory = replace(settings.memory, enabled=True)
    async with console(settings, memory=memory) as (_, browser):

        async def is_open() -> bool:
            return (await browser.get("do/memory_add"))[0] == 200

        await polling.until(is_open)
        empty = {"view": "form", "act": "do"}
        _, nothing = await browser.post("do/memory_add", empty)
        wrong = {"/scope": '"user"', "/content": "x", "/importance": "7"}
        _, beyond = await browser.post("do/memory_add", empty | wrong)
        _, erasure = await browser.get("do/erasePerson")
        erased = empty | {"/person": "corp:ann"}
        _, once = await browser.post("do/erasePerson", erased)
        status, _ = await browser.post("do/erasePerson", erased | {"confirmed": "corp:ann"})
        _, erasures = await browser.get("erasures")
        _, catalog = await browser.get("catalog")
    assert "Some fields need another value." in nothing
    assert re.search(r'id="f-2f-scope-error">This is needed.<', nothing)
    assert re.search(r'id="f-2f-importance-error">[^<]*1', beyond)
    assert "Invalid arguments" not in nothing + beyond
    assert "Type the name once more" in erasure
    assert "<code><bdi>erasePerson" not in erasure
    assert "Confirm that you mean corp:ann." in once
    assert status == 200
    assert "Nobody was erased yet." not in erasures
    assert "<h1>Registries</h1>" in catalog
    assert "name one in the settings" in catalog


def test_each_button_of_a_list_has_a_short_name() -> None:
    views = (*VIEWS.values(), *A2A, *AGENT, *EVENTS, *KNOWLEDGE, *LIBRARIAN, MEMORY)
    ids = {id_ for view in views for id_ in (*view.acts, *view.adds)}
    assert not ids - TITLES.keys()
