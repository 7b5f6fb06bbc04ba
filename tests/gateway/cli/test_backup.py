"""`toolgate backup` and the job of the schedule, on a folder."""

import json
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest
from msgspec.structs import replace

from config.settings import Settings
from gateway.cli.doctor.registry import backups
from registry.database.backup_places import place_of
from registry.database.scheduled_backups import Backups
from tests.fixtures_gateway import running
from tests.gateway.admin.client import KEY, bearer, open_admin
from tests.gateway.cli.processes import command
from tests.gateway.guards.signing import by_jwks

pytestmark = pytest.mark.anyio


@pytest.fixture
def backed_up(settings: Settings, tmp_path: Path) -> Settings:
    own = replace(settings.backups, enabled=True, to=str(tmp_path / "backups"), keep=2)
    jobs = replace(settings.jobs, poll_s=0.05)
    return replace(settings, backups=own, jobs=jobs, auth=by_jwks(tmp_path, [KEY.jwk()]))


@pytest.fixture
def environment(backed_up: Settings) -> dict[str, str]:
    """The settings of commands."""
    return {
        "TOOLGATE_DATABASE__URL": backed_up.database.url,
        "TOOLGATE_BACKUPS__TO": backed_up.backups.to,
    }


async def test_the_job_of_the_schedule_makes_a_backup_and_doctor_tells_its_age(
    backed_up: Settings,
) -> None:
    [check] = [check async for check in backups(backed_up)]
    assert (check.status, "there is none" in check.detail) == ("warning", True)
    async with running(backed_up) as client, aiohttp.ClientSession() as http:
        api = await open_admin(client.url, http)
        operator = bearer(roles=["operator"])
        job = await api.await_job(await api("POST", "/backups", **operator), **operator)
        assert job["state"] == "succeeded", job
        listed = (await api("GET", "/backups", **operator)).json["items"]
        assert [entry["name"] for entry in listed] == [job["result"]["name"]]
        assert (await api("GET", "/backups", **bearer())).status == 403
    [check] = [check async for check in backups(backed_up)]
    assert (check.status, "0.0 hours old" in check.detail) == ("ok", True)
    assert backed_up.backups.late_hours > timedelta(days=1) / timedelta(hours=1)


async def test_a_failed_backup_is_a_failed_job_with_its_reason(
    backed_up: Settings, tmp_path: Path
) -> None:
    tmp_path.joinpath("file").touch()
    own = replace(backed_up.backups, to=str(tmp_path / "file" / "backups"))
    async with (
        running(replace(backed_up, backups=own)) as client,
        aiohttp.ClientSession() as http,
    ):
        api = await open_admin(client.url, http)
        operator = bearer(roles=["operator"])
        job = await api.await_job(await api("POST", "/backups", **operator), **operator)
        assert (job["state"], "Not a directory" in job["problem"]["detail"]) == ("failed", True)


async def test_backups_are_made_listed_verified_and_fetched(
    backed_up: Settings, environment: dict[str, str], tmp_path: Path
) -> None:
    assert (await command("migrate", **environment))[0] == 0
    code, out, err = await command("backup", "run", **environment)
    assert (code, "rows" in out) == (0, True), err
    [stored] = await Backups(place_of(backed_up.backups), 2).all()
    code, out, err = await command("backup", "list", "--json", **environment)
    assert [entry["name"] for entry in json.loads(out)] == [stored.name], err
    code, out, err = await command("backup", "verify", "--restore", **environment)
    assert (code, "is whole" in out) == (0, True), err
    file = tmp_path / "copy.backup"
    assert (await command("backup", "fetch", stored.name, str(file), **environment))[0] == 0
    assert file.stat().st_size == stored.bytes
    assert file.stat().st_mode & 0o777 == 0o600
    place_of(backed_up.backups).put(f"{stored.name}.backup", Path(__file__))
    code, _, err = await command("backup", "verify", stored.name, **environment)
    assert (code, "is broken" in err) == (1, True)


@pytest.mark.parametrize("words", [("list",), ("run",), ("verify",), ("fetch", "x", "y")])
async def test_commands_name_the_setting_of_the_place(
    environment: dict[str, str], words: tuple[str, ...]
) -> None:
    code, _, err = await command("backup", *words, **{**environment, "TOOLGATE_BACKUPS__TO": ""})
    assert (code, err.splitlines()) == (
        1,
        ["toolgate: backups.to: expected a folder, or s3://BUCKET/PREFIX"],
    )


async def test_a_backup_to_a_file_stays_the_default_command(environment: dict[str, str]) -> None:
    """Of the embedded database alone: another one is refused, by its own reason."""
    code, _, err = await command("backup", "x.backup", **environment)
    assert (code != 0, "only the embedded database" in err) == (True, True)
