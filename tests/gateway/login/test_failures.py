"""Failures of the login: pages for people, with a number and a way out, and JSON for programs."""

import re
from html import unescape

import anyio
import pytest

from config.settings import DatabaseSettings
from tests.gateway.login.company import Browser, Company, browsing, company

pytestmark = pytest.mark.anyio

NUMBER = re.compile(r"<code>([0-9a-f-]+)</code>")
PAGES = ("/authorize?client_id=x", "/login?next=/login/sessions", "/login/sessions")
JSON = ("/token", "/register", "/revoke")


def lose_database(made: Company) -> None:
    server = made.gateway.login._server  # type: ignore[union-attr]
    assert server is not None
    server._opened = lambda: None


async def check_page(browser: Browser, url: str, status: int, words: str) -> None:
    page = await browser.get(url)
    assert (page.status, page.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert words in page.text
    number = NUMBER.search(page.text)
    assert number is not None
    assert number[1] == page.headers["x-request-id"]
    path = url.partition("//")[2].partition("/")[2]
    assert f'href="/{path}">Try again' in unescape(page.text)


@pytest.mark.parametrize("path", [*PAGES, "/login/callback/corp?state=x&code=y"])
async def test_too_many_requests_of_a_browser_get_a_page(
    database_settings: DatabaseSettings, path: str
) -> None:
    """LOG-17."""
    async with company(database_settings, requests=1) as made, browsing() as browser:
        await browser.get(made.url + path)
        await check_page(browser, made.url + path, 429, "Too many requests came")
        page = await browser.get(made.url + path)
        assert f"Try again in {page.headers['retry-after']} seconds" in page.text
        sent = await browser.post(made.url + "/login", {"choice": "at:corp"})
        assert (sent.status, "Try again</a>" in sent.text) == (429, False)


@pytest.mark.parametrize("path", PAGES)
async def test_a_browser_without_a_database_gets_a_page(
    database_settings: DatabaseSettings, path: str
) -> None:
    async with company(database_settings) as made, browsing() as browser:
        lose_database(made)
        browser.http.cookie_jar.update_cookies({"toolgate": "x.y"})
        await check_page(browser, made.url + path, 503, "cannot log anybody in")


async def test_forms_that_are_too_large_get_a_page(database_settings: DatabaseSettings) -> None:
    async with company(database_settings) as made, browsing() as browser:
        page = await browser.post(f"{made.url}/login", {"next": "x" * 20_000})
        assert page.status == 413
        assert "What was sent is too large." in page.text


async def test_programs_are_told_of_failures_in_json(database_settings: DatabaseSettings) -> None:
    async with company(database_settings, requests=1) as made:
        for path in (*JSON, *JSON):
            async with made.http.post(made.url + path, data={"client_id": "x"}) as answer:
                told = await answer.json()
                assert answer.headers["access-control-allow-origin"] == "*"
        assert (answer.status, told["error"]) == (429, "temporarily_unavailable")
        assert int(answer.headers["retry-after"]) > 0
        async with made.http.get(f"{made.url}/.well-known/jwks.json") as answer:
            assert (answer.status, answer.content_type) == (429, "application/json")
    async with company(database_settings) as made:
        lose_database(made)
        with anyio.fail_after(5):
            status, told = await made.token(grant_type="refresh_token", client_id="x")
        assert (status, told["error"]) == (503, "temporarily_unavailable")


async def test_pages_of_failures_are_translated(database_settings: DatabaseSettings) -> None:
    async with company(database_settings, requests=1) as made:
        for _ in range(2):
            headers = {"Accept-Language": "zh-CN"}
            async with made.http.get(f"{made.url}/login", headers=headers) as answer:
                text = await answer.text()
        assert "来自您地址的请求过多。" in text
        assert "Try again" not in text
