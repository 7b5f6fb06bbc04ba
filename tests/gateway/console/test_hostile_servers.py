"""The playground at a server whose lists and answers are not what MCP says."""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import quote

import pytest
from msgspec.structs import replace

from config.settings import Settings
from config.sources import SourceSettings
from tests import polling
from tests.fixtures_servers import serving
from tests.gateway.console.visiting import Browser, console
from tests.servers.everything_tools import PNG
from tests.servers.mcp_wire import Play, Scripted, Turn

pytestmark = pytest.mark.anyio

HTML = "<svg onload=alert(1)>\u202e"
URI = "hostile://page"
TEMPLATE = "hostile://{city}/{+rest}{?q*}"
SENT = {"act": "send", "view": "form"}
CONTENTS: Mapping[str, Any] = {
    "a number": 5,
    "nothing": None,
    "a list": [],
    "no type": {},
    "a type that is no text": {"type": ["text"]},
    "a text that is none": {"type": "text", "text": {"a": 1}},
    "a resource without members": {"type": "resource", "resource": {}},
    "a resource that is none": {"type": "resource", "resource": [1]},
    "an image of an odd type": {"type": "image", "data": PNG, "mimeType": ["image/png"]},
    "an image without data": {"type": "image", "data": None, "mimeType": "image/png"},
    "an image with quotes": {"type": "image", "data": PNG, "mimeType": 'image/png" onerror="'},
    "a link": {"type": "resource_link", "uri": "javascript:alert(1)", "name": HTML},
}


def says(**members: Any) -> Play:
    async def play(turn: Turn) -> None:
        await turn.result(**members)

    return play


LISTED = {
    "tools/list": says(
        tools=[
            {
                "name": "work",
                "inputSchema": {"type": "object"},
                "execution": {"taskSupport": "optional"},
            }
        ]
    ),
    "prompts/list": says(
        prompts=[
            {"name": "plain", "title": 5, "description": ["x"], "arguments": [{"name": ""}]},
            {"name": "odd", "arguments": [{"name": "a", "description": 5, "required": "yes"}] * 3},
            {"name": HTML, "description": HTML},
        ]
    ),
    "resources/list": says(
        resources=[
            {"uri": URI, "name": "page", "mimeType": ["x"], "description": 7, "title": {}},
            {"uri": "javascript:alert(1)", "name": HTML},
            {"uri": "data:text/html,<script>alert(1)</script>", "name": HTML},
        ]
    ),
    "resources/templates/list": says(
        resourceTemplates=[{"uriTemplate": TEMPLATE, "name": HTML, "description": 5}]
    ),
}
OFFERED: Mapping[str, Any] = {
    "tools": {},
    "prompts": {},
    "resources": {},
    "completions": {},
    "tasks": {"cancel": {}, "requests": {"tools": {"call": {}}}},
}


@asynccontextmanager
async def visiting(settings: Settings) -> AsyncIterator[tuple[Browser, dict[str, Play]]]:
    """A visitor, and what the server plays."""
    plays = dict(LISTED)
    async with serving(Scripted(plays, capabilities=OFFERED)) as url:
        changed = replace(settings, sources={"hostile": SourceSettings(mcp=url)})
        async with console(changed) as (_, browser):
            await polling.until(partial(lists, browser, "plain"))
            yield browser, plays


async def lists(browser: Browser, text: str) -> bool:
    return text in (await browser.get("prompts?format=json"))[1]


async def test_pages_show_members_of_any_type_as_text(settings: Settings) -> None:
    async with visiting(settings) as (browser, plays):
        await lists_and_forms_open(browser)
        await answers_are_shown(browser, plays)
        await values_that_are_no_texts_are_not_offered(browser, plays)
        await tasks_are_shown(browser, plays)


def check_shown(answer: tuple[int, str]) -> None:
    status, page = answer
    assert status == 200, page
    assert "<svg onload" not in page
    assert "\u202e" not in page


async def lists_and_forms_open(browser: Browser) -> None:
    uris = (URI, "javascript:alert(1)", "data:text/html,<script>alert(1)</script>")
    pages = [
        "prompts", "resources", "resources?kind=template", "prompts/plain", "prompts/odd",
        f"resources/read?template={quote(TEMPLATE, safe='')}",
        *(f"resources/read?uri={quote(uri, safe='')}" for uri in uris),
    ]  # fmt: skip
    for page in pages:
        check_shown(await browser.get(page))


async def answers_are_shown(browser: Browser, plays: dict[str, Play]) -> None:
    contents = [
        *CONTENTS.values(),
        {"blob": PNG, "mimeType": {}},
        {"text": 1, "mimeType": "x/json"},
    ]
    plays["resources/read"] = says(contents=contents)
    check_shown(await browser.post(f"resources/read?uri={quote(URI)}", SENT))
    messages = [{"role": "user", "content": content} for content in CONTENTS.values()]
    odd = [5, {}, [], {"role": [], "content": {"type": "text", "text": HTML}}]
    plays["prompts/get"] = says(messages=[*messages, *odd], description=4)
    check_shown(await browser.post("prompts/plain", SENT))


async def values_that_are_no_texts_are_not_offered(
    browser: Browser, plays: dict[str, Play]
) -> None:
    plays["completion/complete"] = says(completion={"values": [1, None, {}, "<b>", ["x"]]})
    _, options = await browser.post("completions?prompt=plain&argument=a", {"/a": "x"})
    assert options == '<option value="&lt;b&gt;"></option>'


async def tasks_are_shown(browser: Browser, plays: dict[str, Play]) -> None:
    state: dict[str, Any] = {"taskId": "1", "status": "working", "createdAt": "now", "ttl": 1}
    plays["tools/call"] = says(task=state)
    plays["tasks/get"] = plays["tasks/cancel"] = says(**state)
    await browser.get("tools/work/try")
    begun = {"act": "task", "view": "json", "json": "{}"}
    _, page = await browser.post("tools/work/try", begun)
    task = re.search(r'<p class="wrap small"><code>([^<]+)</code>', page)
    assert task, page[-4000:]
    odd = {"status": {}, "createdAt": 5, "lastUpdatedAt": [], "ttl": "x", "statusMessage": [HTML]}
    plays["tasks/get"] = says(taskId="1", **odd)
    check_shown(await browser.get(f"tasks/{task[1]}"))
    plays["tasks/cancel"] = says(taskId="1", **odd)
    check_shown(await browser.post(f"tasks/{task[1]}", {"act": "cancel"}))
    plays["tasks/get"] = says(taskId="1", status="completed")
    plays["tasks/result"] = says(content=5, structuredContent=[HTML])
    check_shown(await browser.post(f"tasks/{task[1]}", {"act": "result"}))
