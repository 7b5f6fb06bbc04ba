"""The console as its visitors see it: pages in variants, links, forms, and a walk."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import pytest
from msgspec.structs import replace
from playwright.async_api import Browser, expect

from config.settings import DatabaseSettings
from config.sources import SourceSettings
from registry.access.api_keys import ApiKeys
from tests.browser.conftest import (
    WAIT_MS,
    WINGS,
    House,
    Watched,
    house_settings,
    picture,
    seed_good,
    watch_page,
)
from tests.fixtures_database import HOST
from tests.fixtures_gateway import Client, pets, running
from tests.fixtures_servers import serving
from tests.servers.atlas import atlas

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]
expect.set_options(timeout=WAIT_MS)

SCREENS = (
    *("", "tools", "tools?q=add+a+pet", "tools/createPet", "tools/createPet/try", "sources"),
    *("sources/shop", "sources/new", "policy", "approvals", "audit", "keys", "do/putRule"),
    *("health", "limits", "skills", "skills/sell-a-pet", "agents", "agents/clerk", "sessions"),
    "costs",
    *(
        "embeddings",
        "design",
        "tools/evil0",
        "tools/evil0/try",
        "toolsets",
        "revocations",
        "toolsets/new",
        "toolsets/small",
    ),
    *(
        "secrets",
        "jobs",
        "nowhere",
        "connect?access=key",
        "catalog?search=a",
        "catalog/io.github.ada%2Fweather",
        "catalog/io.github.ada%2Fclock",
        "chat",
        "agent",
        "memory",
        "events",
        "collections",
    ),
    *(
        "documents",
        "librarian",
        "librarian-sources",
        "do/deleteSkill?name.skill=sell-a-pet",
        "skills/sell-a-pet/edit",
        "webhooks",
    ),
    *(
        "ask?q=when+does+the+shop+open",
        "names/Pet%20Shop%20of%20Anna%20Miller",
        "collections/handbook",
    ),
    *(
        "search",
        "search/compare?q=add+a+pet",
        "events?status=%22FAILED%22",
        "memory?scope=%22user%22",
        "do/memory_add",
        "programs",
    ),
    *("prompts", "prompts/remember", "resources", "resources?kind=template"),
    *("resources/read?uri=memory%3A%2F%2Fcontext", "live", "tasks"),
)
ZOOMED = (
    *("", "search/compare?q=add+a+pet", "tools/createPet/try", "collections/handbook", "memory"),
    *(
        "events",
        "chat",
        "programs",
        "ask?q=when+does+the+shop+open",
        "skills/sell-a-pet",
        "policy",
        "audit",
    ),
    *("prompts/remember", "resources"),
)
WIDTHS = ((1280, 860), (320, 700))
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
LANGUAGES = ("en", "zh")
DEEP_LINKS = {"cursor", "vscode", "lmstudio"}  # which open a client
LINKS = "[...document.links].map((one) => one.href)"
LIKE = 3  # pages of one kind that the crawler opens


@pytest.mark.parametrize("path", SCREENS)
async def test_a_screen_is_accessible_and_keeps_its_policy(still: Watched, path: str) -> None:
    """In English and Chinese, wide and narrow, light and dark; loaded once for each language."""
    for language in LANGUAGES:
        cookie = {"name": "language", "value": language, "url": still.base}
        await still.page.context.add_cookies([cookie])
        await still.open(path)
        for width, height in WIDTHS:
            await still.page.set_viewport_size({"width": width, "height": height})
            for scheme in SCHEMES:
                await still.page.emulate_media(color_scheme=scheme)
                name = picture(f"{path}-{scheme}-{language}-{width}")
                await still.page.screenshot(path=name, animations="disabled", full_page=True)
                await still.check(f"{path}, {scheme}, {language}, {width}")


@pytest.mark.parametrize("path", ZOOMED)
async def test_a_screen_bears_a_zoom_of_200_per_cent_and_forced_colours(
    house: House, browser: Browser, path: str
) -> None:
    """A window of 1280 pixels has half as many at 200 %; colours are those of the system."""
    zoomed = {"width": 640, "height": 430}
    async with watch_page(browser, house.url, viewport=zoomed, device_scale_factor=2) as visitor:
        await visitor.open(path)
        await visitor.page.screenshot(path=picture(f"zoom-{path}"), full_page=True)
        await visitor.check(f"{path}, zoomed", accessible=False)
        await visitor.page.emulate_media(forced_colors="active", color_scheme="dark")
        await visitor.page.screenshot(path=picture(f"forced-{path}"), full_page=True)
        await visitor.check(f"{path}, in forced colours")


async def test_a_new_visitor_gets_from_an_import_to_the_audit_log(
    site: Client, browser: Browser, tmp_path: Path
) -> None:
    described = pets() | {"servers": [{"url": "http://127.0.0.1:9"}]}
    described["paths"] = {
        "/animals": {"post": {"operationId": "adopt", "summary": "Adopt an animal"}}
    }
    file = tmp_path / "animals.json"
    file.write_text(json.dumps(described))
    async with watch_page(browser, f"{site.url}/console", locale="en-GB") as visitor:
        page = visitor.page
        await visitor.open("")
        await page.get_by_role("link", name="Sources", exact=True).click()
        await page.get_by_role("link", name="Import a source").click()
        await page.get_by_label("A file of this machine, instead of a URL").set_input_files(file)
        await expect(page.locator('[name="/document"]')).to_have_value(re.compile("animals"))
        await page.get_by_label("name", exact=False).first.fill("zoo")
        await page.get_by_role("button", name="Preview the import").click()
        await expect(page.get_by_text("Every operation becomes a tool")).to_be_visible()
        await visitor.check("sources/new")
        await page.screenshot(path=picture("walk-1-import"), full_page=True)
        await page.get_by_role("button", name="Import", exact=True).first.click()
        await expect(page.get_by_text("Imported. Its tools are served now.")).to_be_visible()
        await page.screenshot(path=picture("walk-2-imported"), full_page=True)

        await page.get_by_label("Find a tool").fill("adopt animal")
        await page.keyboard.press("Enter")
        await (
            page.get_by_role("link", name="createPet")
            .or_(page.get_by_role("link", name="adopt", exact=True))
            .first.wait_for()
        )
        await page.screenshot(path=picture("walk-3-found"), full_page=True)
        await a_rule_is_made(visitor)
        await a_call_waits_is_approved_and_made(visitor)
        await page.get_by_role("link", name="Audit log", exact=True).click()
        await page.get_by_label("Tool", exact=True).fill("createPet")
        await page.get_by_role("button", name="Search").click()
        await expect(page.locator("tbody tr").first).to_contain_text("createPet")
        await page.screenshot(path=picture("walk-6-audit"), full_page=True)
        await visitor.check("audit")


async def a_rule_is_made(visitor: Watched) -> None:
    page = visitor.page
    await page.get_by_role("link", name="Policy", exact=True).click()
    await page.get_by_role("link", name="New rule").click()
    await page.locator('[name="name.rule"]').fill("ask-first")
    await page.locator('[name="/effect"]').select_option(label="approve")
    await page.locator('[name="/tools"]').first.press_sequentially("createP")
    await expect(page.locator("datalist option[value='createPet']")).to_be_attached()
    await page.locator('[name="/tools"]').first.fill("createPet")
    await expect(page.locator('[name="/tools"]')).to_have_count(2)  # with an empty one behind it
    await expect(page.locator("#matches")).to_contain_text("1 of")
    await page.screenshot(path=picture("walk-4-rule"), full_page=True)
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("cell", name="ask-first").first).to_be_visible()


async def a_call_waits_is_approved_and_made(visitor: Watched) -> None:
    """The rule reaches the calls a moment after it was written."""
    page = visitor.page
    for _ in range(200):
        await visitor.open("tools/createPet/try")
        await page.locator('[name="/name"]').fill("Rex")
        await page.get_by_role("button", name="Call the tool").click()
        await page.locator("#answer").wait_for()
        if await page.get_by_text("waits for approval").count():
            break
    await page.screenshot(path=picture("walk-5-waits"), full_page=True)
    await page.get_by_role("link", name="Open the approvals").click()
    await visitor.check("approvals")
    await page.screenshot(path=picture("walk-5-approvals"), full_page=True)
    await page.get_by_role("button", name="Approve createPet").first.click()
    await expect(page.get_by_text("Approved: the caller may now repeat the call.")).to_be_visible()
    await visitor.open("tools/createPet/try")
    await page.locator('[name="/name"]').fill("Rex")
    await page.get_by_role("button", name="Call the tool").click()
    await expect(page.locator("#answer")).to_contain_text("heard")
    await page.screenshot(path=picture("walk-5-called"), full_page=True)
    await visitor.check("tools/createPet/try")


async def test_every_link_answers_and_every_form_posts(house: House, browser: Browser) -> None:
    base = f"{house.client.url}/console"
    async with watch_page(browser, base, locale="en-GB") as visitor:
        waiting, seen, forms = [""], {""}, set[str]()
        kinds: Counter[str] = Counter()
        while waiting:
            path = waiting.pop(0)
            await visitor.open(path)
            await visitor.check(path, accessible=False)
            for link in await visitor.page.evaluate(LINKS):
                found = urlsplit(link)
                if path.startswith(("connect", "toolsets/")) and found.scheme in DEEP_LINKS:
                    continue
                assert link.startswith(base), link
                below = found.path.removeprefix("/console").strip("/")
                if below in seen or below.endswith("/export") or kinds[kind_of(below)] == LIKE:
                    continue
                seen.add(below)
                kinds[kind_of(below)] += 1
                waiting.append(below + (f"?{found.query}" if found.query else ""))
            await every_form_is_posted(visitor, path, forms)
        assert len(kinds) > 40
        assert len(forms) > 20
    await seed_good(house)


def kind_of(path: str) -> str:
    """Pages of one kind differ in the entry that they show."""
    first, *rest = path.split("/")
    if first == "do" or not rest:
        return path
    return "/".join([first, "X", *rest[1:]])


async def every_form_is_posted(visitor: Watched, path: str, done: set[str]) -> None:
    """Each form of the page, once, as it is: what is missing is told, and nothing crashes."""
    page = visitor.page
    count = await page.locator('form[method="post"]').count()
    for at in range(count):
        form = page.locator('form[method="post"]').nth(at)
        where = await form.evaluate("(one) => one.getAttribute('action') ?? location.pathname")
        kind = kind_of(where.removeprefix("/console/"))
        if kind in done:
            continue
        done.add(kind)
        async with page.expect_navigation() as navigation:
            await form.evaluate(
                "(one) => { one.noValidate = true; one.requestSubmit("
                "one.querySelector('.button.primary, .button.danger')); }"
            )
        answer = await navigation.value
        assert answer is not None
        assert answer.status < 500, (path, where)
        await visitor.check(path, accessible=False)
        await visitor.open(path)


async def test_a_tool_shows_its_request_before_the_call(site: Client, browser: Browser) -> None:
    async with watch_page(browser, f"{site.url}/console", locale="en-GB") as visitor:
        page = visitor.page
        await visitor.open("tools/createPet/try")
        await page.locator('[name="/name"]').fill("Rex")
        await page.get_by_role("button", name="Only show the request").click()
        await expect(page.locator("#sent-1")).to_contain_text("/pets")
        await expect(page.locator("#sent-1")).to_contain_text('"name": "Rex"')
        await visitor.check("tools/createPet/try")
        await page.screenshot(path=picture("try-preview"), full_page=True)


async def test_prompt_arguments_are_completed_on_typing(
    database_settings: DatabaseSettings, tmp_path: Path, browser: Browser
) -> None:
    app, entered = atlas()
    async with entered, serving(app) as url:
        settings = house_settings(database_settings, url, url, tmp_path)
        off = {name: replace(getattr(settings, name), enabled=False) for name in WINGS}
        sources = {"atlas": SourceSettings(mcp=f"{url}/mcp")}
        async with running(replace(settings, sources=sources, **off)) as client:
            base = f"{client.url}/console"
            async with watch_page(browser, base, locale="en-GB") as visitor:
                page = visitor.page
                await visitor.open("prompts")
                while not await page.get_by_role("link", name="visit_city").count():
                    await visitor.open("prompts")
                await page.get_by_role("link", name="visit_city").click()
                await page.locator('[name="/country"]').fill("france")
                await page.locator('[name="/city"]').press_sequentially("pa")
                # the server offers cities for a country, too
                cities = page.locator("#f-2f-city-list")
                await expect(cities.locator("option[value='pau']")).to_be_attached()
                await expect(cities.locator("option[value='prague']")).to_have_count(0)
                await page.locator('[name="/city"]').fill("paris")
                await page.get_by_role("button", name="Get the prompt").click()
                await expect(page.locator("#content-1")).to_contain_text("a visit of paris, france")
                await visitor.check("prompts/visit_city")
                await page.screenshot(path=picture("prompt-answer"), full_page=True)
                await visitor.open("resources/read?uri=atlas%3A%2F%2Fmap")
                await page.get_by_role("button", name="Read it").click()
                await expect(page.locator("img.picture")).to_be_visible()
                await visitor.check("resources/read")
                await page.screenshot(path=picture("resource-picture"), full_page=True)


async def test_live_view_shows_calls_and_stops(house: House, browser: Browser) -> None:
    async with watch_page(browser, house.url, locale="en-GB") as visitor:
        page = visitor.page
        await visitor.open("live?subject=more_0003")
        rows = page.locator("tbody tr")
        await expect(rows).to_have_count(0)
        await house.desk.call("more_0003", {})
        await expect(rows).to_have_count(1)
        await expect(rows.first).to_contain_text("more_0003")
        await page.get_by_role("button", name="Stop").click()
        await expect(page.get_by_text("It has stopped.")).to_be_visible()
        await visitor.check("live")
        await page.screenshot(path=picture("live-stopped"), full_page=True)


async def test_task_is_begun_and_its_result_is_shown(site: Client, browser: Browser) -> None:
    async with watch_page(browser, f"{site.url}/console", locale="en-GB") as visitor:
        page = visitor.page
        await visitor.open("tools/more_0004/try")
        await page.get_by_role("button", name="Begin a task").click()
        await expect(page.locator("#task")).to_contain_text("completed")
        await visitor.check("tasks/X")
        await page.get_by_role("button", name="Show the result").click()
        await expect(page.locator("#content-1")).to_contain_text("heard")
        await visitor.check("tasks/X with its result")
        await page.set_viewport_size({"width": 320, "height": 700})
        await visitor.check("tasks/X, narrow")
        await page.screenshot(path=picture("task-result"), full_page=True)


async def test_concurrent_edits_of_a_rule_are_shown_side_by_side(
    site: Client, browser: Browser
) -> None:
    base = f"{site.url}/console"
    async with (
        watch_page(browser, base, locale="en-GB") as first,
        watch_page(browser, base, locale="en-GB") as second,
    ):
        await first.open("do/putRule?name.rule=edited-by-two")
        await first.page.locator('[name="/effect"]').select_option(label="deny")
        await first.page.locator('[name="/tools"]').fill("more_0003")
        await first.page.get_by_role("button", name="Save").click()
        await expect(first.page.get_by_role("cell", name="edited-by-two").first).to_be_visible()
        for one in (first, second):
            await one.open("do/putRule?name.rule=edited-by-two")
        await first.page.locator('[name="/reason"]').fill("Too costly.")
        await first.page.get_by_role("button", name="Save").click()
        await expect(first.page.get_by_text("Too costly.")).to_be_visible()
        await second.page.locator('[name="/effect"]').select_option(label="allow")
        await second.page.get_by_role("button", name="Save").click()
        await expect(second.page.locator("#conflict")).to_contain_text("Too costly.")
        await expect(second.page.locator("#conflict tbody tr")).to_have_count(2)
        await second.page.screenshot(path=picture("conflict"), full_page=True)
        await expect(second.page.get_by_role("alert")).to_be_focused()
        await second.check("do/putRule")


async def test_own_requests_are_evaluated_with_plots(site: Client, browser: Browser) -> None:
    async with watch_page(browser, f"{site.url}/console", locale="en-GB") as visitor:
        page = visitor.page
        await visitor.open("search")
        await page.get_by_label("Requests").fill("add a pet => createPet\nremove it => deletePet")
        await page.get_by_role("button", name="Evaluate", exact=True).click()
        await expect(page.locator(".plot").first).to_be_visible()
        await visitor.check("search/X")
        await page.screenshot(path=picture("search-evaluation"), full_page=True)
        await page.set_viewport_size({"width": 640, "height": 430})
        await page.emulate_media(forced_colors="active")
        await visitor.check("search/X, zoomed and in forced colours")
        await page.screenshot(path=picture("forced-search-evaluation"), full_page=True)


async def test_texts_of_services_are_text(site: Client, browser: Browser) -> None:
    async with watch_page(browser, f"{site.url}/console", locale="en-GB") as visitor:
        pages = ["tools?source=evil", "sources", "sources/evil", "tools?q=img+onerror"]
        for at in range(8):
            pages += [f"tools/evil{at}", f"tools/evil{at}/try"]
        for path in pages:
            await visitor.open(path)
            assert "owned" not in (await visitor.page.title()).replace("'owned'", "")
            assert await visitor.page.locator("main img").count() == 0
            assert await visitor.page.locator("main script").count() == 0
            await visitor.check(path, accessible=False)


async def test_pages_work_without_scripts(site: Client, browser: Browser) -> None:
    base = f"{site.url}/console"
    async with watch_page(browser, base, locale="en-GB", java_script_enabled=False) as visitor:
        page = visitor.page
        await visitor.open("tools")
        await page.locator("#q").fill("pet")
        await page.get_by_role("button", name="Search").click()
        await expect(page.get_by_role("link", name="getPet")).to_be_visible()
        await visitor.open("tools/getPet/try")
        await page.locator('[name="/id"]').fill("1")
        await page.get_by_role("button", name="Call the tool").click()
        await expect(page.locator("#answer")).to_contain_text("heard")


async def test_the_keyboard_reaches_all_controls_of_the_mouse(
    site: Client, browser: Browser
) -> None:
    async with watch_page(browser, f"{site.url}/console", locale="en-GB") as visitor:
        await visitor.open("")
        await visitor.page.keyboard.press("Tab")
        focused = "document.activeElement.className"
        assert await visitor.page.evaluate(focused) == "skip"
        await visitor.page.keyboard.press("Enter")
        assert await visitor.page.evaluate("location.hash") == "#content"
        await visitor.page.keyboard.press("?")
        await expect(visitor.page.get_by_role("dialog")).to_be_visible()
        await visitor.check("help")
        await visitor.page.keyboard.press("Escape")
        await expect(visitor.page.get_by_role("dialog")).to_have_count(0)
        await visitor.page.keyboard.press("/")
        assert await visitor.page.evaluate("document.activeElement.id") == "find"
        menu = visitor.page.locator("details.menu > summary")
        await menu.press("Enter")
        await visitor.page.keyboard.press("Tab")
        await visitor.page.keyboard.press("Escape")
        await expect(menu).to_be_focused()
        await expect(visitor.page.locator("details.menu[open]")).to_have_count(0)


async def test_enter_sends_a_form_and_its_first_mistake_has_the_focus(
    site: Client, browser: Browser
) -> None:
    async with watch_page(browser, f"{site.url}/console", locale="en-GB") as visitor:
        page = visitor.page
        await visitor.open("sources/new")
        await page.locator('[name="/name"]').fill("Not a name")
        await page.locator('[name="/url"]').press("Enter")
        await expect(page.locator('[name="/name"]')).to_be_focused()
        await expect(page.locator('[name="/name"]')).to_have_attribute("aria-invalid", "true")
        await page.locator('[name="/name"]').fill("nothing-there")
        await page.locator('[name="/url"]').fill(f"{site.url}/nothing.json")
        await page.locator('[name="/url"]').press("Enter")
        await expect(page.get_by_role("alert")).to_be_focused()


@pytest.mark.parametrize("locale", ["en-GB", "zh-CN"])
async def test_a_reader_logs_in_with_a_key_and_sees_no_button_that_would_be_refused(
    house: House, database_settings: DatabaseSettings, browser: Browser, locale: str
) -> None:
    settings = replace(
        house.settings,
        auth=replace(house.settings.auth, mode="keys"),
        database=database_settings,
        **{name: replace(getattr(house.settings, name), enabled=False) for name in WINGS},
    )
    async with (
        running(settings) as site,
        watch_page(browser, f"{site.url}/console", locale=locale) as visitor,
    ):
        page, pool = visitor.page, site.gateway._handle.pool()
        assert pool is not None
        scopes = ["admin:registry:read"]
        _, secret = await ApiKeys(pool, HOST).create("reader", None, scopes, [])
        await visitor.open("tools")
        await visitor.check("login")
        await page.screenshot(path=picture(f"login-{locale[:2]}"), full_page=True)
        for _ in range(200):  # the gateway hears of the key a moment later
            await page.locator("#key").fill(secret)
            async with page.expect_navigation():
                await page.keyboard.press("Enter")
            if not await page.locator("#key").count():
                break
        await page.locator("main h1").wait_for()
        await page.screenshot(path=picture(f"reader-{locale[:2]}"), full_page=True)
        await visitor.check("tools")
        assert await page.locator('main a[href*="/do/"]').count() == 0
        assert await page.locator('nav a[href$="/keys"]').count() == 0
