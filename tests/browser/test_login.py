"""The login in Chromium: two people in two browsers, at every width and in every language."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Browser, expect

from config.settings import DatabaseSettings
from tests.browser.conftest import WAIT_MS, Watched, picture, watch_page
from tests.fixtures_servers import serving
from tests.gateway.login.company import Company, company, query_of
from tests.servers.identity import Identity

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]
expect.set_options(timeout=WAIT_MS)

NARROW = {"width": 320, "height": 700}


class App:
    """A client on loopback, to which browsers come back."""

    def __init__(self) -> None:
        self.asked: list[dict[str, str]] = []

    async def __call__(self, scope, receive, send) -> None:  # type: ignore[no-untyped-def]
        if scope["path"] == "/callback":
            self.asked.append(query_of(f"?{scope['query_string'].decode()}"))
        headers = [(b"content-type", b"text/html")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"<title>back</title>Done."})


@asynccontextmanager
async def desk(database: DatabaseSettings) -> AsyncIterator[tuple[Company, App, str]]:
    """A company, a client and the redirect URI of the client."""
    app = App()
    async with company(database) as made, serving(app) as url:
        yield made, app, f"{url}/callback"


@asynccontextmanager
async def visitor(browser: Browser, made: Company, **options: object) -> AsyncIterator[Watched]:
    """A browser, which may leave for the provider and the client."""
    async with watch_page(browser, made.url, reduced_motion="reduce", **options) as site:
        yield site
        site.problems[:] = [text for text in site.problems if not text.startswith("a request to")]
        assert not site.problems


async def look(site: Watched, name: str) -> None:
    """The page in the window is accessible and no wider than it."""
    elsewhere = [text for text in site.problems if not text.startswith("a request to")]
    site.problems[:] = elsewhere
    await site.page.screenshot(path=picture(f"login-{name}"), full_page=True)
    await site.check(name)


@pytest.mark.parametrize("language", ["en", "zh-CN"])
@pytest.mark.parametrize("viewport", [NARROW, {"width": 1280, "height": 860}], ids=["320", "1280"])
async def test_pages_of_the_login_are_accessible(
    database_settings: DatabaseSettings, browser: Browser, language: str, viewport: dict[str, int]
) -> None:
    """Chooser, consent before and after a login, problem, and the own logins."""
    kind = f"{language}-{viewport['width']}"
    async with (
        desk(database_settings) as (made, _, redirect),
        visitor(browser, made, locale=language, viewport=viewport) as site,
    ):
        page = site.page
        made.identity.person["name"] = "Ann " + "x" * 60
        name = "A program with a very long name " + "y" * 60
        client = (await made.register(redirect, client_name=name))["client_id"]
        url = made.authorize(client, redirect_uri=redirect, scope="tools:read")
        await page.goto(f"{made.url}/login")
        await look(site, f"chooser-{kind}")
        await page.goto(url)
        await look(site, f"consent-{kind}")
        if language != "en":
            assert "Allow access" not in await page.inner_text("main")
        await page.goto(made.authorize("nobody"))
        await look(site, f"problem-{kind}")
        await page.goto(f"{made.url}/login")
        await page.locator("button[value='at:corp']").click()
        await page.wait_for_url("**/login/sessions")
        await look(site, f"logins-{kind}")
        await page.goto(url)
        await expect(page.locator("button[value='allow']")).to_be_visible()
        await look(site, f"consent-again-{kind}")
        made.identity.refuses = "access_denied"
        await page.locator("button[value='at:corp']").click()
        await expect(page.locator(".notice.bad")).to_be_visible()
        await look(site, f"refused-{kind}")


async def test_two_people_log_in_with_two_browsers(
    database_settings: DatabaseSettings, browser: Browser
) -> None:
    """Neither's page, form or way back counts in the other's browser (LT1)."""
    async with (
        desk(database_settings) as (made, app, redirect),
        visitor(browser, made) as ann,
        visitor(browser, made) as bob,
    ):
        identity: Identity = made.identity
        client = (await made.register(redirect))["client_id"]
        url = made.authorize(client, redirect_uri=redirect)
        for site in (ann, bob):
            await site.page.goto(url)
            await site.page.goto(url)  # loaded twice: another rendering
        identity.person = {"sub": "ann", "name": "Ann"}
        await ann.page.locator("button[value='at:corp']").click()
        await ann.page.wait_for_url(f"{redirect}?**")
        identity.person = {"sub": "bob", "name": "Bob"}
        await bob.page.locator("button[value='at:corp']").click()
        await bob.page.wait_for_url(f"{redirect}?**")
        people = []
        for asked in app.asked:
            status, tokens = await made.take_code(client, asked["code"], redirect_uri=redirect)
            assert status == 200, tokens
            assert await made.status(tokens["access_token"]) == 200
        for site in (ann, bob):
            await site.page.goto(f"{made.url}/login/sessions")
            people.append(await site.page.locator("bdi").first.inner_text())
        assert people == ["Ann", "Bob"]

        count = len(app.asked)
        await ann.page.goto(url)  # a form that another browser was given
        foreign = await ann.page.locator("input[name=_csrf]").get_attribute("value")
        await bob.page.goto(url)
        await bob.page.locator("input[name=_csrf]").evaluate(
            "(field, value) => { field.value = value }", foreign
        )
        await bob.page.locator("button[value='allow']").click()
        await expect(bob.page.locator(".notice").first).to_be_visible()
        assert len(app.asked) == count
        await bob.page.locator("button[value='allow']").click()
        await bob.page.wait_for_url(f"{redirect}?**")
        assert len(app.asked) == count + 1


async def test_a_page_elsewhere_cannot_post_the_consent(
    database_settings: DatabaseSettings, browser: Browser
) -> None:
    """Chromium says that the form is foreign, whatever the form has."""
    async with (
        desk(database_settings) as (made, app, redirect),
        visitor(browser, made) as site,
    ):
        page = site.page
        client = (await made.register(redirect))["client_id"]
        url = made.authorize(client, redirect_uri=redirect)
        await page.goto(url)
        await page.locator("button[value='at:corp']").click()
        await page.wait_for_url(f"{redirect}?**")
        await page.goto(url)
        token = await page.locator("input[name=_csrf]").get_attribute("value")
        evil = redirect.replace("127.0.0.1", "localhost").replace("/callback", "/evil")
        await page.goto(evil)
        count = len(app.asked)
        await page.evaluate(
            "([url, token]) => { document.body.innerHTML ="
            " `<form method=post><input name=_csrf><input name=choice value=allow></form>`;"
            " document.forms[0].action = url; document.forms[0]._csrf.value = token;"
            " document.forms[0].submit() }",
            [url, token],
        )
        await expect(page.locator(".notice.bad")).to_be_visible()
        assert len(app.asked) == count


@pytest.mark.parametrize("language", ["en", "zh-CN"])
async def test_pages_of_one_time_codes_are_accessible(
    database_settings: DatabaseSettings, browser: Browser, language: str
) -> None:
    """The long address for an app makes no page wider, and each text has a translation."""
    async with (
        company(database_settings, users=True) as made,
        visitor(browser, made, locale=language, viewport=NARROW) as site,
    ):
        page = site.page
        await page.goto(f"{made.url}/login")
        await look(site, f"chooser-of-users-{language}")
        await page.locator("a[href='/login/totp']").click()
        await look(site, f"totp-{language}")
        if language != "en":
            assert "authenticator" not in await page.inner_text("main")
        await page.fill("#name", "ann")
        await page.fill("#password", "no user has this password")
        await page.fill("#code", "123456")
        await page.locator("button").click()
        await expect(page.locator(".notice.bad")).to_be_visible()
        await look(site, f"totp-refused-{language}")
