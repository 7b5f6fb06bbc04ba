"""Trying a tool: its request before it is sent, and what was sent and answered, without secrets."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from config.access import Guardrail
from config.settings import Settings
from config.sources import SchemeSettings, SourceSettings
from tests import polling
from tests.fixtures_gateway import Client, Recorder
from tests.fixtures_servers import serving
from tests.gateway.console.visiting import Browser, console
from tests.servers.named import named_app

pytestmark = pytest.mark.anyio

SECRETS = ("k-header-4711", "k query/4711", "k-configured")


def shop() -> dict[str, Any]:
    """An API with a key in a header and one in the query."""

    def keyed_operation(id_: str, scheme: str, **more: Any) -> dict[str, Any]:
        trace = {"name": "X-Trace", "in": "header", "schema": {"type": "string"}}
        return {
            "operationId": id_,
            "summary": id_,
            "parameters": [{"name": "q", "in": "query", "schema": {"type": "string"}}, trace],
            "security": [{scheme: []}],
            **more,
        }

    schemes = {
        "head": {"type": "apiKey", "in": "header", "name": "X-Shop-Key"},
        "query": {"type": "apiKey", "in": "query", "name": "key"},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Shop", "version": "1"},
        "components": {"securitySchemes": schemes},
        "paths": {
            "/a": {
                "get": keyed_operation("byHeader", "head"),
                "delete": keyed_operation("remove", "query"),
            },
            "/b": {"get": keyed_operation("inspectedCall", "head")},
        },
    }


@asynccontextmanager
async def shops(
    settings: Settings, service: Recorder, folder: Path
) -> AsyncIterator[tuple[Client, Browser]]:
    file = folder / "shop.json"
    file.write_text(json.dumps(shop()))
    credentials = {
        "head": SchemeSettings(value=SECRETS[0]),
        "query": SchemeSettings(value=SECRETS[1]),
    }
    source = SourceSettings(
        openapi=str(file),
        base_url=service.url,
        headers={"X-Configured": SECRETS[2]},
        credentials=credentials,
    )
    hides = Guardrail("result", "redact", tools=("inspectedCall",), pattern="q=a%20b")
    audit = replace(settings.audit, mode="always", spool_dir=str(folder / "audit"))
    app, entered = named_app("tower")
    async with entered, serving(app) as far:
        changed = replace(
            settings,
            audit=audit,
            sources={"shop": source, "far": SourceSettings(mcp=f"{far}/mcp")},
            guardrails=replace(settings.guardrails, rules={"hides": hides}),
        )
        async with console(changed) as found:
            yield found


async def test_a_trial_shows_request_and_answer_and_no_secret(
    settings: Settings, service: Recorder, tmp_path: Path
) -> None:
    async with shops(settings, service, tmp_path) as (_, browser):

        async def try_tool(tool: str, act: str, **fields: str) -> str:
            await browser.get(f"tools/{tool}/try")
            status, text = await browser.post(f"tools/{tool}/try", {"act": act, **fields})
            assert status == 200
            text = unescape(text)
            assert [one for one in SECRETS if one in text] == []
            return text

        values = {"view": "form", "/q": "a b", "/X-Trace": "t-1"}
        text = await try_tool("byHeader", "preview", **values)
        assert service.requests == []
        assert f"GET {service.url}/a?q=a%20b" in text
        assert "X-Shop-Key: ***" in text
        assert "X-Configured: ***" in text
        assert "X-Trace: t-1" in text  # the visitor's own value
        assert "curl -s" in text
        text = await try_tool("byHeader", "preview", **{**values, "/q": "a\u200fb"})
        assert text.count("a\\u200fb") == 3  # as JSON-RPC, curl and Python, which can be copied
        text = await try_tool("byHeader", "call", **values)
        assert len(service.requests) == 1
        assert service.requests[0]["headers"]["x-shop-key"] == SECRETS[0]  # which it echoes
        assert "200 OK" in text
        assert text.count('"x-shop-key": "***"') == 2  # in the result, and in the answer
        text = await try_tool("remove", "preview", **values)  # unconfirmed: nothing is called
        assert f"DELETE {service.url}/a?q=a%20b&key=***" in text
        text = await try_tool("remove", "call", **values)
        assert "confirm-error" in text
        assert len(service.requests) == 1
        text = await try_tool("inspectedCall", "call", **values)
        assert '"query": "q=a%20b"' not in text  # a guardrail hides it from all callers
        assert "200 OK" in text
        _, text = await browser.get("sources/shop")  # which credentials its tools want
        for scheme in ("head", "query"):
            assert f'<bdi>{scheme}</bdi></code> <span class="muted">apiKey</span>' in text
        assert ">wanted<" not in text
        await polling.until(partial(is_there, browser, "tools/whoami"))
        for act, answered in (("preview", False), ("call", True)):
            text = await try_tool("whoami", act)
            assert '"method": "tools/call"' in text
            assert ("What it answered" in text) is answered


async def is_there(browser: Browser, page: str) -> bool:
    return (await browser.get(page))[0] == 200
