"""People connect keys of their own in the middle of a call."""

from pathlib import Path

import pytest

from config.settings import DatabaseSettings
from tests.gateway.connections.services import connect, link_of, office, token_of
from tests.gateway.login.company import browsing

pytestmark = pytest.mark.anyio


async def test_a_call_asks_for_the_account_and_succeeds_once_that_is_connected(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    async with office(database_settings, tmp_path) as made, browsing() as browser:
        token = await token_of(made, browser)
        link = link_of(await made.call(token))
        assert made.notes.seen == []
        assert link.startswith(f"{made.url}/connect/")
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
        stranger = await bob.get(f"{made.url}/connect/{'x' * 43}")
        assert stranger.status == 404
