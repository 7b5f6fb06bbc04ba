"""Mistakes in the settings of wings, before a gateway serves without them."""

import json
from pathlib import Path
from typing import Any

import pytest

from config.settings import DatabaseSettings, WingName
from gateway.wings.table import WINGS
from tests.gateway.cli.conftest import Toolgate
from tests.gateway.cli.processes import ran, serving

SECRET = "whsec_" + "QUJD" * 10
HOOK = {"skill": "pets.listPets", "secret": SECRET, "principal": "shop"}
MISTAKES = [
    (
        {"events": {"enabled": True, "inbound": {"sold": {**HOOK, "when": "body.kind = 'sold'"}}}},
        "events.inbound.sold.when: ",
    ),
    (
        {
            "events": {
                "enabled": True,
                "webhooks": {"told": {"url": "http://192.0.2.9/x", "secret": SECRET}},
            }
        },
        "events.webhooks.told: expected https://",
    ),
    ({"events": {"enabled": True, "hook": "nowhere_at_all:hook"}}, "events.hook"),
    (
        {"memory": {"enabled": True, "masking": {"hook": "nowhere_at_all:hook"}}},
        "memory.masking.hook",
    ),
]


def write_settings(folder: Path, settings: dict[str, Any]) -> None:
    (folder / "toolgate.yaml").write_text(json.dumps(settings))


def test_the_settings_know_every_wing() -> None:
    assert set(WingName.__args__) == set(WINGS)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("settings", "told"), MISTAKES)
def test_a_mistake_in_the_settings_of_a_wing_fails_the_check(
    bare: Toolgate, folder: Path, settings: dict[str, Any], told: str
) -> None:
    """The check says what the wing would say each minute in the log (mending 37)."""
    write_settings(folder, settings)
    done = bare("config", "check")
    assert done.code == 2, done.out
    assert told in done.err


def test_the_mistake_of_a_wing_that_is_off_or_optional_is_none(
    bare: Toolgate, folder: Path
) -> None:
    settings, _ = MISTAKES[0]
    write_settings(folder, {"events": {**settings["events"], "enabled": False}})
    assert bare("config", "check").code == 0
    write_settings(folder, {**settings, "wings": {"optional": ["events"]}})
    done = bare("config", "check")
    assert done.code == 0
    assert "events.inbound.sold.when" in done.err  # a warning


def test_doctor_names_the_mistakes_and_unknown_skills_of_a_wing(
    with_pets: Toolgate, folder: Path
) -> None:
    """As `config check` does (mending 35, 37)."""
    settings, told = MISTAKES[0]
    write_settings(folder, settings)
    assert with_pets("migrate").code == 0
    done = with_pets("doctor", "--json")
    [check] = [check for check in done.json if check["name"] == "wing"]
    assert check["status"] == "failed"
    assert told in check["detail"]

    plans = {
        name: {"cron": "5 4 * * *", "skill": skill, "principal": "clock"}
        for name, skill in (("good", "pets.listPets"), ("bad", "pets.listPetz"))
    }
    write_settings(folder, {"events": {"enabled": True, "schedules": plans}})
    [check] = [check for check in with_pets("doctor", "--json").json if check["name"] == "wing"]
    assert check["status"] == "warning"
    assert "events.schedules.bad.skill" in check["detail"]
    assert "good" not in check["detail"]
    done = with_pets("config", "check")
    assert done.code == 0
    assert "events.schedules.bad.skill" in done.err


@pytest.mark.anyio
async def test_a_gateway_with_invalid_wing_settings_does_not_start(
    folder: Path, database_settings: DatabaseSettings
) -> None:
    """It would serve without the wing (mending 37)."""
    settings, told = MISTAKES[0]
    write_settings(folder, settings)
    code, out, err = await ran("serve", "--port", "0", TOOLGATE_DATABASE__URL=database_settings.url)
    assert (code, out) == (2, "")
    assert told in err
    write_settings(folder, {**settings, "wings": {"optional": ["events"]}})
    async with serving(TOOLGATE_DATABASE__URL=database_settings.url) as gateway:
        await gateway.ready()
        assert (await gateway.stop())[0] == 0
