"""Pages of wings in the browser: the chat with a scripted model, memories, events, knowledge."""

import pytest
from playwright.async_api import Browser, expect

from tests.browser.conftest import WAIT_MS, House, Watched, picture, seed_good, watch_page
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
    async with watch_page(browser, house.url, locale="en-GB") as visitor:
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
        await expect(call.locator("summary")).to_contain_text("getPet")
        await call.locator("summary").click()
        await expect(call).to_contain_text("heard")
        await visitor.check("chat")
        await page.screenshot(path=picture("chat-2-done"), full_page=True)
        await expect(page.locator(".conversations li").first).to_contain_text("Remove the pet 7")
        assert await page.locator("main img").count() == 0


async def test_words_of_an_answer_are_shown_while_streaming(house: House, browser: Browser) -> None:
    whole = chat("One two three.")
    script(house, Answer(pieces=whole.pieces[:3], end="hang"))
    async with watch_page(browser, house.url, locale="en-GB") as visitor:
        page = visitor.page
        await visitor.open("chat")
        await send(visitor, "Count.")
        await expect(page.locator("[data-run] .text")).to_contain_text("One")
        await page.get_by_role("button", name="Stop").click()
        await expect(page.locator("#messages")).to_contain_text("cancelled")


async def test_a_chat_works_without_scripts(house: House, browser: Browser) -> None:
    script(house, chat("Nine o'clock."))
    async with watch_page(browser, house.url, java_script_enabled=False) as visitor:
        page = visitor.page
        await visitor.open("chat")
        await send(visitor, "When does the shop open?")
        answered = page.get_by_text("Nine o'clock.")
        for _ in range(200):
            if await answered.count():
                break
            await page.get_by_role("link", name="Refresh").or_(answered).first.click()
        await expect(answered).to_be_visible()


async def test_a_memory_has_a_history_and_is_forgotten(house: House, browser: Browser) -> None:
    await seed_good(house)
    async with watch_page(browser, house.url, locale="en-GB") as visitor:
        page = visitor.page
        await visitor.open("memory")
        await page.get_by_role("link", name="It opens at ten.").click()
        await expect(page.locator("main")).to_contain_text("It opens at nine.")
        await visitor.check("memory/1")
        await page.screenshot(path=picture("memory-entry"), full_page=True)
        await page.get_by_role("link", name="Forget").click()
        await page.get_by_role("button", name="Forget").click()
        await expect(page.locator("#confirm-error")).to_be_visible()
        await page.get_by_label("This cannot be undone.").check()
        await page.get_by_role("button", name="Forget").click()
        await visitor.open("memory")
        await expect(page.get_by_role("link", name="It opens at ten.")).to_have_count(0)


async def test_a_failed_invocation_is_found_and_redriven(house: House, browser: Browser) -> None:
    await seed_good(house)
    async with watch_page(browser, house.url, locale="en-GB") as visitor:
        page = visitor.page
        for _ in range(200):
            await visitor.open("events?status=%22FAILED%22")
            if await page.locator("tbody a").count():
                break
        await visitor.check("events")
        await page.screenshot(path=picture("events-failed"), full_page=True)
        await page.locator("tbody a").first.click()
        await expect(page.locator("main")).to_contain_text("failed")
        await visitor.check("events/1")
        await page.screenshot(path=picture("events-entry"), full_page=True)
        await page.get_by_role("link", name="Redrive").click()
        await page.get_by_role("button", name="Redrive").click()
        await expect(page.locator("main")).to_contain_text("Done.")


async def test_documents_answer_with_their_place_and_names_have_a_picture(
    house: House, browser: Browser
) -> None:
    await seed_good(house)
    async with watch_page(browser, house.url, locale="en-GB") as visitor:
        page = visitor.page
        await visitor.open("ask")
        await page.get_by_label("Question").fill("when does the shop open")
        await page.get_by_role("button", name="Ask").click()
        await expect(page.locator("blockquote").first).to_contain_text("opens at nine")
        await page.get_by_role("link", name="Pet Shop of Anna Miller").click()
        await expect(page.locator(".graph .node.first")).to_have_count(1)
        await page.locator(".graph a").last.click()
        await visitor.check("names")
        await visitor.open("collections/handbook")
        await expect(page.locator("main")).to_contain_text("hours.md")
        await visitor.check("collections/handbook")
        await visitor.open("documents?collection=handbook")
        await page.get_by_role("link", name="hours.md").click()
        await expect(page.locator("main")).to_contain_text("opens at nine")


async def test_a_program_is_tried_fails_and_waits_for_an_approval(
    house: House, browser: Browser
) -> None:
    async with watch_page(browser, house.url, locale="en-GB") as visitor:
        page = visitor.page
        await visitor.open("programs")
        await visitor.check("programs")

        async def run(code: str) -> None:
            await page.get_by_label("Code").fill(code)
            await page.get_by_role("button", name="Run", exact=True).click()
            await visitor.check("programs, posted")

        await run("print('one')\n[tools.getPet(id=i)['heard']['path'] for i in (1, 2)]")
        await expect(page.locator("#result-text")).to_contain_text("/pets/2")
        await expect(page.locator("#output-text")).to_contain_text("one")
        await expect(page.get_by_role("row", name="getPet 2")).to_be_visible()
        await page.screenshot(path=picture("programs-1-completed"), full_page=True)
        await run("tools.getPet(id=1)\n1 / 0")
        await expect(page.locator("#error-text")).to_contain_text("ZeroDivisionError")
        await page.get_by_label("It may call tools that change something").check()
        await run("tools.deletePet(id=1)\n'gone'")
        await expect(page.locator("#answer")).to_contain_text("waits for approval")
        await page.set_viewport_size({"width": 320, "height": 700})
        await visitor.check("programs, paused, narrow")
        await page.screenshot(path=picture("programs-2-paused"), full_page=True)
        [pending] = (await house.desk.items("listApprovals"))[-1:]
        await house.does("decide", {"approval": pending["id"]}, approve=True)
        await page.get_by_role("button", name="Look again").click()
        await expect(page.locator("#result-text")).to_contain_text("gone")


async def test_agents_their_cards_and_tasks_are_shown(house: House, browser: Browser) -> None:
    part = {"data": {"tool": "getPet", "arguments": {"id": 7}}}
    message = {"messageId": "m1", "role": "ROLE_USER", "parts": [part]}
    task = await house.does("a2a_send_message", {"agent": "desk"}, message=message)
    async with watch_page(browser, house.url, locale="en-GB") as visitor:
        page = visitor.page
        await visitor.open("a2a")
        await page.get_by_role("link", name="desk").click()
        await expect(page.locator("main")).to_contain_text("Keeps the pets.")
        await expect(page.locator("main")).to_contain_text("JSONRPC")
        await visitor.check("a2a/desk")
        await visitor.open("a2a-tasks")
        await page.locator("a.first").and_(page.get_by_title(task["task"])).click()
        await expect(page.locator("main")).to_contain_text("/pets/7")
        await expect(page.get_by_role("link", name="Cancel")).to_be_visible()
        await visitor.check("a2a-tasks/1")
        await page.screenshot(path=picture("a2a-task"), full_page=True)
