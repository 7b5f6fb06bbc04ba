"""Prompts and resources in the console: lists, arguments with completion, reads, as of a client."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from html import unescape
from pathlib import Path

import pytest
from msgspec.structs import replace

from config.access import Rule
from config.settings import Settings
from config.sources import SourceSettings
from tests import polling
from tests.fixtures_servers import serving
from tests.gateway.console.visiting import Browser, console
from tests.servers.atlas import HTML, atlas
from tests.servers.everything_tools import PNG
from tests.servers.named import named_app

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def playing(settings: Settings, folder: Path) -> AsyncIterator[Browser]:
    audit = replace(
        settings.audit, mode="always", arguments="masked", spool_dir=str(folder), flush_s=0.05
    )
    first, entered = atlas()
    second, entered_too = named_app("closed")
    async with entered, entered_too, serving(first) as url, serving(second) as hidden:
        sources = {
            "atlas": SourceSettings(mcp=f"{url}/mcp"),
            "closed": SourceSettings(mcp=f"{hidden}/mcp"),
        }
        policy = replace(
            settings.policy, rules={"closed": Rule(effect="deny", sources=("closed",))}
        )
        changed = replace(settings, sources=sources, audit=audit, policy=policy)
        async with console(changed) as (_, browser):
            await polling.until(partial(lists, browser, "prompts", "visit_city"))
            yield browser


async def lists(browser: Browser, page: str, text: str) -> bool:
    return text in (await browser.get(page))[1]


def code(page: str, id_: str) -> str:
    """The text of a box of code."""
    found = re.search(rf'<pre id="{id_}" tabindex="0">(.*?)</pre>', page, re.DOTALL)
    assert found, id_
    return unescape(found[1])


async def test_visitor_gets_prompts_and_resources_as_a_client_does(
    settings: Settings, tmp_path: Path
) -> None:
    async with playing(settings, tmp_path) as browser:
        await a_prompt_is_completed_and_got(browser)
        await resources_are_read_and_never_run(browser)
        await what_a_rule_hides_is_not_there(browser)
        await the_shown_commands_give_the_same_answer(browser)


async def a_prompt_is_completed_and_got(browser: Browser) -> None:
    _, page = await browser.get("prompts/visit_city")
    assert 'hx-post="/console/completions?prompt=visit_city&amp;argument=city"' in page
    at = "completions?prompt=visit_city&argument=city"
    _, options = await browser.post(at, {"/city": "pa"})
    assert re.findall(r'value="(\w+)"', options) == ["paris", "pau"]
    _, options = await browser.post(at, {"/city": "p", "/country": "france"})
    assert re.findall(r'value="(\w+)"', options) == ["paris", "pau"]
    _, options = await browser.post(at, {"/city": "p", "/country": "nowhere"})
    assert options == ""
    assert await browser.post("completions?prompt=none&argument=x", {}) == (200, "")

    sent = {"view": "form", "act": "send"}
    _, page = await browser.post("prompts/visit_city", {**sent, "/country": "france"})
    assert "This is needed." in page
    assert 'id="answer"' not in page
    _, page = await browser.post("prompts/visit_city", {**sent, "/city": "paris"})
    assert code(page, "content-1") == f"Plan a visit of paris, . {HTML}"
    assert HTML not in page
    _, answer = await browser.post("prompts/visit_city?format=json", {**sent, "/city": "pau"})
    exchange = json.loads(answer)
    assert exchange["request"] == {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "prompts/get",
        "params": {"name": "visit_city", "arguments": {"city": "pau"}},
    }
    assert "Plan a visit of pau" in exchange["answer"]["result"]["messages"][0]["content"]["text"]
    await polling.until(partial(lists, browser, "audit?subject=visit_city", "prompts/get"))
    assert (await browser.get("prompts/no-such-prompt"))[0] == 404


async def resources_are_read_and_never_run(browser: Browser) -> None:
    async def read(uri: str) -> str:
        path = f"resources/read?uri={uri}"
        assert (await browser.get(path))[0] == 200
        status, page = await browser.post(path, {"act": "send", "view": "form"})
        assert status == 200
        assert HTML not in page
        return page

    assert code(await read("atlas://page"), "content-1") == HTML
    assert f'src="data:image/png;base64,{PNG}"' in await read("atlas://map")
    page = await read("atlas://drawing")  # a picture that may run code
    assert "<img" not in page
    assert "24 bytes, which are not shown." in page
    assert (await browser.get("resources/read?uri=atlas://none"))[0] == 404

    _, page = await browser.get("resources?kind=template")
    assert "resources/read?template=atlas%3A%2F%2F%7Bcity%7D%2Ffacts" in page
    path = "resources/read?template=atlas%3A%2F%2F%7Bcity%7D%2Ffacts"
    _, page = await browser.get(path)
    assert "hx-post=" in page
    at = "completions?template=atlas%3A%2F%2F%7Bcity%7D%2Ffacts&argument=city"
    _, options = await browser.post(at, {"/city": "pr"})
    assert re.findall(r'value="(\w+)"', options) == ["prague"]
    _, page = await browser.post(path, {"act": "send", "view": "form", "/city": "prague"})
    assert code(page, "content-1") == '{\n  "city": "prague"\n}'


async def what_a_rule_hides_is_not_there(browser: Browser) -> None:
    for page in ("prompts", "resources", "resources?kind=template"):
        status, answer = await browser.get(f"{page}{'&' if '?' in page else '?'}format=json")
        assert status == 200
        assert "atlas" in answer or "visit_city" in answer
        assert "closed" not in answer
    assert (await browser.get("prompts/only_closed"))[0] == 404


async def the_shown_commands_give_the_same_answer(browser: Browser) -> None:
    sent = {"view": "form", "act": "send", "/city": "l'Isle $HOME"}
    _, page = await browser.post("prompts/visit_city", sent)
    compile(code(page, "as-python"), "example", "exec")
    shell = await asyncio.create_subprocess_exec(
        "bash", "-c", code(page, "as-curl"), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await shell.communicate()
    assert b"Plan a visit of l'Isle $HOME, ." in output


async def test_pages_say_that_there_is_nothing_or_that_a_limit_is_reached(
    settings: Settings,
) -> None:
    limits = replace(settings.limits, tenant_calls=2, per_s=3600)
    async with console(settings, limits=limits) as (_, browser):
        for page, text in (("prompts", "No source has prompts"), ("resources", "No source has")):
            status, answer = await browser.get(page)
            assert (status, text in answer) == (200, True)
        for page in ("prompts", "prompts/any", "resources/read?uri=any:one"):
            assert (await browser.get(page))[0] == 429
