"""People connect keys of their own in the middle of a call."""

from pathlib import Path

import pytest

from config.settings import DatabaseSettings
from registry.access.api_keys import ApiKeys
from tests.gateway.connections.services import connect, link_of, office, token_of
from tests.gateway.login.company import browsing, fields

pytestmark = pytest.mark.anyio


async def test_a_call_asks_for_the_account_and_succeeds_once_that_is_connected(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    async with office(database_settings, tmp_path) as made, browsing() as browser:
        token = await token_of(made, browser)
        link = link_of(await made.call(token))
        assert made.notes.seen == []
        assert link.startswith(f"{made.url}/connect?ticket=")
        done = await connect(browser, link, "ann-key-123456")
        assert done.status == 200, done.text
        assert "Connected to notes" in done.text
        answer = await made.call(token)
        assert answer["result"]["structuredContent"] == {"owner": "ann"}, answer
        assert made.notes.seen[-1]["x-key"] == "ann-key-123456"
        assert "authorization" not in made.notes.seen[-1]
        assert (await browser.get(link)).status == 404


async def test_a_link_of_somebody_else_is_refused_and_names_nobody(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    async with office(database_settings, tmp_path) as made, browsing() as ann, browsing() as bob:
        link = link_of(await made.call(await token_of(made, ann)))
        await token_of(made, bob, "bob")
        for answer in (
            await bob.get(link),
            await bob.post(link, {"scheme-0": "bob-key-123456", "choice": "save"}),
        ):
            assert answer.status == 403
            assert "corp:" not in answer.text
            assert "notes" not in answer.text.lower()
        stranger = await bob.get(f"{made.url}/connect?ticket={'x' * 43}")
        assert stranger.status == 404


async def test_a_caller_with_an_api_key_connects_by_a_program(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    """Callers with keys of this gateway have no browser."""
    env = {"TOOLGATE_AUTH__API_KEYS": "true"}
    async with office(database_settings, tmp_path, env=env) as made:
        pool = made.company.gateway._handle.pool()
        assert pool is not None
        keys = ApiKeys(pool, made.company.gateway.principal.tenant)
        _, key = await keys.create("bot")
        await made.company.gateway.access.reload("keys")
        link = link_of(await made.call(key))
        headers = {"Authorization": f"Bearer {key}"}
        async with made.company.http.get(link, headers=headers) as asked:
            assert await asked.json() == {
                "source": "notes",
                "schemes": [{"name": "key", "kind": "apiKey"}],
            }
        for body, status, text in (
            ({"schemes": {}}, 422, "expected key"),
            ({"schemes": {"key": {"value": "a\nb"}}}, 400, "value"),
            ({"schemes": {"key": {"client_id": "a"}}}, 422, "expected"),
            ({"scheme": {}}, 400, "scheme"),
        ):
            async with made.company.http.post(link, json=body, headers=headers) as refused:
                assert refused.status == status
                assert text in (await refused.json())["detail"]
        body = {"schemes": {"key": {"value": "bob-key-123456"}}}
        _, other = await keys.create("other")
        await made.company.gateway.access.reload("keys")
        foreign = {"Authorization": f"Bearer {other}"}
        async with made.company.http.post(link, json=body, headers=foreign) as refused:
            assert refused.status == 403
        _, ann = await keys.create("ann", "corp:ann")
        await made.company.gateway.access.reload("keys")
        own, of_ann = {"Authorization": f"Bearer {ann}"}, link_of(await made.call(ann))
        async with made.company.http.post(of_ann, json=body, headers=own) as refused:
            assert refused.status == 403  # people decide themselves, in a browser
        async with made.company.http.post(link, json=body, headers=headers) as done:
            assert done.status == 200, await done.text()
        assert (await made.call(key))["result"]["structuredContent"] == {"owner": "bob"}
        link_of(await made.call(other))


async def test_connecting_and_disconnecting_are_audited_by_the_connection(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    async with office(database_settings, tmp_path) as made, browsing() as browser:
        token = await token_of(made, browser)
        await connect(browser, link_of(await made.call(token)), "ann-key-123456")
        page = await browser.get(f"{made.url}/connect")
        (id_,) = [part.split('"')[0] for part in page.text.split('name="end" value="')[1:]]
        await browser.post(f"{made.url}/connect", {**fields(page.text), "end": id_})
        await made.company.gateway.access.settle()
        pool = made.company.gateway._handle.pool()
        assert pool is not None
        async with pool.connection() as connection:
            rows = await connection.execute(
                "SELECT method, subject, principal FROM audit_t WHERE front = 'connection'"
                " ORDER BY recorded_ts, method"
            )
            acts = await rows.fetchall()
        assert acts == [
            ("connect", f"notes/{id_}", "corp:ann"),
            ("disconnect", f"notes/{id_}", "corp:ann"),
        ]
