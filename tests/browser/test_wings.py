"""Pages of wings in the browser: the chat with a scripted model, memories, events, knowledge."""

import pytest
from playwright.async_api import Browser, expect

from tests.browser.conftest import WAIT_MS, House, Watched, picture, watched
from tests.servers.provider import Answer, Say, chat

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]
expect.set_options(timeout=WAIT_MS)

FIND = ("c1", "call_tool", '{"name": "getPet", "arguments": {"id": 7}}')
DELETE = ("c2", "call_tool", '{"name": "deletePet", "arguments": {"id": 7}}')


def script(house: House, *answers: Answer | Say) -> None:
    """What the model says from now on."""
    house.provider.answers[:] = answers
    house.provider.requests.clear()


async def send(visitor: Watched, text: str) -> None:
    await visitor.page.get_by_label("Message").fill(text)
    await visitor.page.get_by_role("button", name="Send").click()


async def test_an_agent_answers_calls_tools_and_waits_for_an_approval(
    house: House, browser: Browser
) -> None:
    script(
        house,
        chat("Let me look.", [FIND]),
        chat("It is there; I remove it.", [DELETE]),
        chat("It is gone. <img src=x onerror=document.title=1>"),
    )
    async with watched(browser, house.url, locale="en-GB") as visitor:
        page = visitor.page
        await visitor.open("chat")
        await send(visitor, "Remove the pet 7, please.")
        await expect(page.locator("main")).to_contain_text("needs an approval")
        await visitor.check("chat")
        await page.screenshot(path=picture("chat-1-waits"), full_page=True)
        await page.get_by_role("button", name="Approve deletePet").click()
        await expect(page.locator("#messages")).to_contain_text("It is gone.")
        await expect(page.locator("#messages")).to_contain_text("Tokens")
        call = page.locator("details.call").first
        await call.locator("summary").click()
        await expect(call).to_contain_text("getPet")
        await expect(call).to_contain_text("heard")
        await visitor.check("chat")
        await page.screenshot(path=picture("chat-2-done"), full_page=True)
        await expect(page.locator(".conversations li").first).to_contain_text("Remove the pet 7")
        assert await page.locator("main img").count() == 0


async def test_words_are_shown_as_they_come(house: House, browser: Browser) -> None:
    whole = chat("One two three.")
    script(house, Answer(pieces=whole.pieces[:3], end="hang"))
    async with watched(browser, house.url, locale="en-GB") as visitor:
        page = visitor.page
        await visitor.open("chat")
        await send(visitor, "Count.")
        await expect(page.locator("[data-run] .text")).to_contain_text("One")
        await page.get_by_role("button", name="Stop").click()
        await expect(page.locator("#messages")).to_contain_text("cancelled")


async def test_a_chat_works_without_scripts(house: House, browser: Browser) -> None:
    script(house, chat("Nine o'clock."))
    async with watched(browser, house.url, java_script_enabled=False) as visitor:
        page = visitor.page
        await visitor.open("chat")
        await send(visitor, "When does the shop open?")
        answered = page.get_by_text("Nine o'clock.")
        for _ in range(200):
            if await answered.count():
                break
            await page.get_by_role("link", name="Look again").or_(answered).first.click()
        await expect(answered).to_be_visible()
