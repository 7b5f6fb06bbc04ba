"""Toolsets in the console: made by search, seen before they are saved, changed and deleted."""

import pytest

from config.settings import Settings
from tests.gateway.console.visiting import console

pytestmark = pytest.mark.anyio


async def test_toolset_is_made_by_search_and_changed(settings: Settings) -> None:
    async with console(settings) as (_, browser):
        status, page = await browser.get("toolsets")
        assert (status, 'href="/console/toolsets/new"' in page) == (200, True)
        await browser.get("toolsets/new")
        form = {"act": "search", "q": "list pets"}
        status, page = await browser.post("toolsets/new", form)
        assert 'name="tool" value="listPets"' in page
        form |= {"act": "add"}
        status, page = await browser.post("toolsets/new", form, also=[("tool", "listPets")])
        assert (status, "1 of 5 tools" in page) == (200, True)
        assert "<code>openai</code>" in page  # the tokens of each dialect, before it is saved

        status, page = await browser.post("toolsets/new", {"act": "save", "include": "listPets"})
        assert (status, "Give the toolset a name." in page) == (422, True)
        saved = {"act": "save", "include": "listPets", "name": "Bad Name"}
        status, page = await browser.post("toolsets/new", saved)
        assert (status, "No toolset can have this name." in page) == (422, True)
        saved |= {"name": "reading", "roles": "staff\nada"}
        status, page = await browser.post("toolsets/new", saved)
        assert (status, "/mcp/reading" in page) == (200, True)
        assert "listPets" in page

        _, page = await browser.get("connect?toolset=reading")
        assert "/mcp/reading" in page
        await browser.get("toolsets/reading/edit")
        changed = {"act": "save", "include": "create*\nnothing*", "if_match": "*"}
        status, page = await browser.post("toolsets/reading/edit", changed)
        assert (status, "createPet" in page, "nothing*" in page) == (200, True, True)
        stale = {**changed, "if_match": '"1"'}
        assert (await browser.post("toolsets/reading/edit", stale))[0] == 412

        await browser.get("do/deleteToolset?name.toolset=reading")
        gone = {"act": "do", "name.toolset": "reading", "confirmed": "reading", "if_match": "*"}
        await browser.post("do/deleteToolset", gone)
        assert (await browser.get("toolsets/reading"))[0] in {200, 404}
