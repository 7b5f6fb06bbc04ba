"""The page "Connect": configurations of MCP clients in the console."""

import html
import re

import pytest
from msgspec.structs import replace

from config.mcp_clients import client_values, read_clients
from config.settings import Settings, Toolset
from tests.gateway.console.visiting import console

pytestmark = pytest.mark.anyio


async def test_the_page_has_the_configurations_of_the_command(settings: Settings) -> None:
    changed = replace(
        settings,
        toolsets={"small": Toolset(include=("getPet",))},
        server=replace(settings.server, public_url="https://tools.example.com/gw/"),
    )
    async with console(changed) as (_, browser):
        for toolset, with_key in (("", False), ("small", True)):
            access = "key" if with_key else "login"
            status, text = await browser.get(f"connect?toolset={toolset}&access={access}")
            assert status == 200
            boxes = re.findall(r'<pre id="client-\d+" tabindex="0">(.*?)</pre>', text, re.DOTALL)
            values = client_values(changed, toolset or "toolgate", toolset or None)
            assert values["url"] == "https://tools.example.com/gw/mcp" + (f"/{toolset}" * with_key)
            for client, box in zip(read_clients().values(), boxes, strict=True):
                assert html.unescape(box) == client.text(values, with_key).rstrip()
            links = [html.unescape(link) for link in re.findall(r'href="((?!/)[^"]+)"', text)]
            assert [link for link in links if link.startswith("cursor://")] == [
                read_clients()["cursor"].deep_link(values, with_key)
            ]
            assert any(link.startswith("lmstudio:") for link in links) is not with_key
        assert (await browser.get("connect?toolset=none"))[0] == 404
