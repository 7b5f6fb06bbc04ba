"""Pages of connections in Chromium: two people, one of them with the link of the other."""

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from config.settings import DatabaseSettings
from tests.browser.conftest import WAIT_MS, Watched, picture
from tests.browser.test_login import NARROW, visitor
from tests.gateway.connections.services import Office, link_of, office, token_of
from tests.gateway.login.company import browsing

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]
expect.set_options(timeout=WAIT_MS)


async def look(site: Watched, name: str) -> None:
    """The page in the window is accessible and no wider than it."""
    site.problems[:] = [text for text in site.problems if not text.startswith("a request to")]
    await site.page.screenshot(path=picture(f"connections-{name}"), full_page=True)
    await site.check(name)


async def log_in(site: Watched, made: Office, subject: str) -> None:
    made.company.identity.person["sub"] = subject
    await site.page.goto(f"{made.url}/login")
    await site.page.locator("button[value='at:corp']").click()
    await site.page.wait_for_url("**/login/sessions")


async def link(made: Office, subject: str = "ann") -> str:
    """The link that a person's program was given."""
    async with browsing() as program:
        return link_of(await made.call(await token_of(made, program, subject)))


@pytest.mark.parametrize("language", ["en", "zh-CN"])
@pytest.mark.parametrize("viewport", [NARROW, {"width": 1280, "height": 860}], ids=["320", "1280"])
async def test_a_person_connects_and_disconnects_a_key(
    database_settings: DatabaseSettings,
    tmp_path: Path,
    browser: Browser,
    language: str,
    viewport: dict[str, int],
) -> None:
    kind = f"{language}-{viewport['width']}"
    title = "The notes of our company " + "x" * 40
    settings = {
        "mode": "user",
        "title": title,
        "help": "https://notes.example/keys",
        "absent": "allow",
        "check": "list_notes",
    }
    async with (
        office(database_settings, tmp_path, connect=settings) as made,
        visitor(browser, made.company, locale=language, viewport=viewport) as site,
    ):
        page = site.page
        await log_in(site, made, "ann")
        await page.goto(f"{made.url}/connect")
        await look(site, f"none-{kind}")
        await page.goto(await link(made))
        await look(site, f"asked-{kind}")
        if language != "en":
            assert "Connect" not in await page.inner_text("main")
        await page.locator("input[type=password]").fill("a-wrong-key-123456")
        await page.locator("button[value='save']").click()
        await expect(page.locator(".notice.bad")).to_be_visible()
        await look(site, f"refused-{kind}")
        await page.locator("input[type=password]").fill("ann-key-123456")
        await page.locator("input[name=away]").check()
        await page.locator("button[value='save']").click()
        await page.locator("main a[href$='/connect']").wait_for()
        await look(site, f"connected-{kind}")
        await page.locator("main a[href$='/connect']").click()
        await expect(page.locator("button[name=end]")).to_have_count(1)
        await look(site, f"one-{kind}")
        assert "ann-key-123456" not in await page.content()
        await page.locator("button[name=away]").click()
        await expect(page.locator("input[name=allowed]")).to_have_value("yes")
        await page.locator("button[name=end]").click()
        await expect(page.locator("button[name=end]")).to_have_count(0)
        async with browsing() as program:
            link_of(await made.call(await token_of(made, program)))


async def test_a_link_opened_by_somebody_else_is_refused_in_their_browser(
    database_settings: DatabaseSettings, tmp_path: Path, browser: Browser
) -> None:
    """Bob opens Ann's link: 403, without her name, and without a field to type in (CT1)."""
    async with (
        office(database_settings, tmp_path) as made,
        visitor(browser, made.company, viewport=NARROW) as bob,
        visitor(browser, made.company) as ann,
    ):
        await log_in(ann, made, "ann")
        await log_in(bob, made, "bob")
        url = await link(made)
        answer = await bob.page.goto(url)
        assert answer is not None
        assert answer.status == 403
        text = await bob.page.inner_text("main")
        assert "ann" not in text.lower().split()
        assert "notes" not in text
        await expect(bob.page.locator("main input")).to_have_count(0)
        await look(bob, "foreign")
        await ann.page.goto(url)
        await ann.page.locator("input[type=password]").fill("ann-key-123456")
        await ann.page.locator("button[value='save']").click()
        await ann.page.locator("main a[href$='/connect']").wait_for()
        await bob.page.goto(f"{made.url}/connect")
        await expect(bob.page.locator("button[name=end]")).to_have_count(0)
