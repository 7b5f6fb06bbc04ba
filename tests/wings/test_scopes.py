"""Scopes of wings, as `toolgate keys create` and the reference know them."""

import pytest
from msgspec.structs import replace

from config.settings import Settings
from gateway.admin.scopes import OWN
from tests.documentation.pages import ROOT
from tests.gateway.console.visiting import console
from tests.polling import until

pytestmark = pytest.mark.anyio

WINGS = ("a2a", "agent", "code", "events", "knowledge", "librarian", "memory", "notifications")


async def test_scopes_of_wings_are_known_while_the_wings_are_off(settings: Settings) -> None:
    enabled = {name: replace(getattr(settings, name), enabled=True) for name in WINGS}
    page = (ROOT / "docs/reference/scopes.md").read_text()
    async with console(settings, **enabled) as (client, _):
        assert client.gateway.console is not None
        parts = client.gateway.console._parts

        async def are_open() -> bool:
            return set(WINGS) <= parts.offers.keys()

        await until(are_open)
        operations = [each for offer in parts.offers.values() for each in offer.operations]
    scopes = {operation.scope for operation in operations if operation.scope}
    assert {"a2a:read", "events:work", "memory:write"} <= scopes
    assert sorted(scopes - set(OWN)) == []
    assert [scope for scope in sorted(scopes) if f"| `{scope}` |" not in page] == []
