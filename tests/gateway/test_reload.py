"""A gateway that takes other sources while it runs."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from config.settings import Settings
from config.sources import SourceSettings
from gateway.app import Gateway, load_services
from schemas.errors import ToolgateError
from tests.fixtures_gateway import Client, running
from tests.gateway.portal import COMMAND, DATA, Portal, legacy, portal, service, with_rules
from tests.servers import rules

pytestmark = pytest.mark.anyio


def written(folder: Path, answer: str, name: str = "more.py") -> SourceSettings:
    """A service with one action, which gives `answer`."""
    path = folder / name
    path.write_text(
        "from gateway import hybrid\n"
        f"@hybrid.action({service('more')!r})\n"
        f"def more(data):\n    return {answer!r}\n"
    )
    return SourceSettings(python=str(path))


def adding(settings: Settings, **sources: SourceSettings) -> Settings:
    return replace(settings, sources={**settings.sources, **sources})


async def more(client: Client) -> Any:
    return (await Portal(client).post(COMMAND, legacy("more"))).brief


async def test_a_service_is_added_and_its_tools_with_it(settings: Settings, tmp_path: Path) -> None:
    async with running(settings) as client:
        assert (await more(client))[0] == 400
        session = await client.session()
        await client.gateway.reconfigure(adding(settings, more=written(tmp_path, "added")))
        with anyio.fail_after(30):
            while (await more(client))[0] == 400:  # the catalog follows the notice of the database
                await anyio.wait_all_tasks_blocked()
        assert await more(client) == (200, "added")
        listed = (await session.call("tools/list"))["result"]["tools"]
        assert "rule_more" in [tool["name"] for tool in listed]
        called = await session.call("tools/call", {"name": "rule_more", "arguments": {}})
        assert called["result"]["content"][0]["text"] == "added"


async def test_a_service_that_cannot_be_loaded_changes_nothing(
    settings: Settings, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("1/0")
    wanted = adding(
        settings,
        more=written(tmp_path, "added"),
        broken=SourceSettings(python=str(broken)),
    )
    async with portal(settings) as to:
        before = to.client.gateway.settings
        with pytest.raises(ToolgateError, match=r"sources\.broken\.python: .*ZeroDivisionError"):
            await to.client.gateway.reconfigure(wanted)
        assert to.client.gateway.settings is before
        assert (await to.post(COMMAND, legacy("deleteRule", data=DATA))).brief == (200, "OK")
        assert (await more(to.client))[0] == 400


async def test_what_is_loaded_stays_as_it_is(settings: Settings, tmp_path: Path) -> None:
    """Its module may hold state; new code takes a restart."""
    wanted = adding(settings, more=written(tmp_path, "first"))
    async with running(wanted) as client:
        written(tmp_path, "second")
        await client.gateway.reconfigure(wanted)
        assert await more(client) == (200, "first")
        moved = adding(settings, more=written(tmp_path, "third", "moved.py"))
        await client.gateway.reconfigure(moved)
        assert await more(client) == (200, "third")


async def test_a_service_that_is_taken_away_is_not_called_any_more(settings: Settings) -> None:
    rules.state = rules.State()
    async with running(with_rules(settings)) as client:
        await client.gateway.reconfigure(settings)
        found = await Portal(client).post(COMMAND, legacy("deleteRule", data=DATA))
    assert found.brief == (502, "ERR18502 502")
    assert rules.state.done == []


async def test_every_source_that_cannot_be_loaded_is_named(settings: Settings) -> None:
    nowhere = SourceSettings(python="/nowhere/rules.py")
    wanted = adding(settings, nowhere=nowhere, json=SourceSettings(python="json"))
    text = (
        r"^sources\.nowhere\.python: /nowhere/rules\.py: there is no such file\n"
        r"  sources\.json\.python: json has no actions: "
    )
    with pytest.raises(ToolgateError, match=text):
        Gateway(wanted)
    assert load_services(settings.sources) == {}
