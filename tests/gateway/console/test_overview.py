"""The overview: a place to begin, and to return to (issue 42)."""

import html
import re

import pytest
from msgspec.structs import replace

from config.access import Guardrail, Rate, Rule
from config.settings import Settings
from config.sources import SourceSettings
from tests import polling
from tests.gateway.console.visiting import console

Json = dict[str, object]
pytestmark = pytest.mark.anyio


async def test_an_empty_gateway_shows_three_steps(settings: Settings) -> None:
    memory = replace(settings.memory, enabled=True)
    async with console(settings, sources={}, memory=memory) as (_, browser):

        async def is_open() -> bool:
            return (await browser.get("memory"))[0] == 200

        await polling.until(is_open)  # it has called a tool of the gateway's own
        _, text = await browser.get("")
    assert "0 of 3 done" in text
    for step in ("1. Add a source", "2. Connect a client", "3. Call a tool"):
        assert step in text
    assert "toolgate import openapi" in text
    assert 'id="attention"' not in text
    assert "Calls by source" not in text


async def test_a_source_that_cannot_be_imported_needs_attention(settings: Settings) -> None:
    sources = {"gone": SourceSettings(mcp="http://127.0.0.1:9/mcp")}
    async with console(settings, sources=sources) as (_, browser):

        async def has_failed() -> bool:
            return "import failed" in (await browser.get(""))[1]

        await polling.until(has_failed)
        _, text = await browser.get("sources")
    assert "In the settings, but not imported yet:" in text
    assert "<bdi>gone</bdi>" in text
    assert "gone could not be reached: the connection was refused" in text


async def test_page_of_limits_names_their_settings(settings: Settings) -> None:
    limits = replace(settings.limits, tools={"delete*": Rate(calls=3, per="caller")})
    rules = {"no-cards": Guardrail("result", "redact", pattern="[0-9]{16}")}
    guardrails = replace(settings.guardrails, rules=rules)
    async with console(settings, limits=limits, guardrails=guardrails) as (_, browser):
        _, text = await browser.get("limits")
    assert "Calls of one caller at the same time" in text
    assert "limits.principal_concurrent" in text
    assert "3 in 60 s" in text
    assert "no-cards" in text
    assert "guardrails:\n  rules:" in html.unescape(text)
    assert "Nothing was refused." in text


async def test_a_busy_gateway_shows_calls_failures_and_approvals(settings: Settings) -> None:
    rules = {
        "no-deletes": Rule("deny", tools=("deletePet",)),
        "ask": Rule("approve", tools=("createPet",)),
    }
    policy = replace(settings.policy, rules=rules)
    audit = replace(settings.audit, mode="always")
    async with console(replace(settings, audit=audit), policy=policy) as (client, browser):
        assert "2. Connect a client" in (await browser.get(""))[1]
        calls: list[tuple[str, Json]] = [("listPets", {})] * 3 + [
            ("deletePet", {"id": 1}),
            ("createPet", {"name": "Rex"}),
            ("getPet", {"nothing": 1}),
        ]
        for name, arguments in calls:
            await client.rpc({"jsonrpc": "2.0", "id": 1, "method": name, "params": arguments})

        async def has_calls() -> bool:
            return "Invalid arguments" in (await browser.get(""))[1]

        await polling.until(has_calls)
        _, text = await browser.get("")
    assert "Begin here" not in text
    sources = re.search(r"Calls by source.*?</table>", text, re.DOTALL)
    assert sources is not None
    assert re.search(r'data-label="Calls">[45]<', sources[0])
    failures = re.search(r"Recent failures.*?</table>", text, re.DOTALL)
    assert failures is not None
    assert "Denied by a rule. <code><bdi>no-deletes</bdi></code>" in failures[0]
    assert "Invalid arguments, or no such tool." in failures[0]
    assert "Needs attention" in text
    assert "createPet" in text
