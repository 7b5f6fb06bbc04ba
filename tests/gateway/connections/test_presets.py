"""Every preset, on the way of a person to a service that stands in for its provider."""

import json
from pathlib import Path
from typing import Any

import pytest

from config.presets import Preset, read_presets
from config.settings import DatabaseSettings
from tests.fixtures_servers import serving
from tests.gateway.connections.oauth_service import Drive
from tests.gateway.connections.services import Notes, Office, description, token_of
from tests.gateway.connections.test_oauth import authorize
from tests.gateway.login.company import browsing, company, fields

pytestmark = pytest.mark.anyio


def place_of(name: str) -> str:
    return name.replace("-", "_")


def settings_of_preset(name: str, preset: Preset, drive: Drive) -> dict[str, Any]:
    """`connect` of a preset, whose addresses are those of `drive`."""
    own = {key: f"{drive.url}/{key}" for key in preset.connect if key.endswith("_url")}
    if own:
        own |= {"authorization_url": f"{drive.url}/authorize", "token_url": f"{drive.url}/token"}
    else:
        own = {"issuer": drive.url}
    return {"preset": name, "client": {"id": name, "secret": f"{name}-secret"}, **own}


async def test_every_preset_leads_to_an_account(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    """CON-24: the words that a provider needs stand in the request, its client authenticates as it
    wants."""
    drive = Drive()
    async with serving(drive.app) as drive.url, browsing() as browser:
        path, env = tmp_path / "service.json", {}
        bearer = {"type": "http", "scheme": "bearer"}
        path.write_text(json.dumps(description(drive.url, {"login": []}, login=bearer)))
        for name, preset in read_presets().items():
            at = f"TOOLGATE_SOURCES__{place_of(name).upper()}__"
            env[at + "OPENAPI"], env[at + "BASE_URL"] = str(path), drive.url
            env[at + "CONNECT"] = json.dumps(settings_of_preset(name, preset, drive))
        async with company(database_settings, env=env) as made:
            await token_of(Office(made, Notes()), browser)
            for name, preset in read_presets().items():
                drive.token_type = "user" if name == "slack" else "Bearer"
                own = await browser.get(f"{made.url}/connect")
                form = {**fields(own.text), "connect": place_of(name)}
                link = (await browser.post(f"{made.url}/connect", form)).location
                done = await authorize(browser, link)
                assert done.status == 200, done.text
                assert preset.title in done.text
                asked, scopes = drive.asked[-1], next(iter(preset.tasks.values()))
                assert asked.items() >= preset.connect.get("authorize", {}).items()
                assert asked.get("scope", "").split() == [*scopes]
                assert asked["client_id"] == name
                assert asked["redirect_uri"] == f"{made.url}/connect/{place_of(name)}/callback"
                assert "resource" not in asked
                method = preset.connect.get("client", {}).get("auth", "basic")
                assert drive.clients[-1] == (method, f"{name}-secret")
