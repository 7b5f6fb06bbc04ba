"""`toolgate doctor` and `toolgate config check` compare the settings with what exists."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from config.settings import DatabaseSettings
from tests.fixtures_database import Cluster
from tests.fixtures_gateway import pets
from tests.fixtures_redis import RedisServer
from tests.gateway.cli.conftest import Toolgate, answering


def check_lines(toolgate: Toolgate, status: str) -> list[str]:
    checks = toolgate("doctor", "--json").json
    return [f"{one['name']}: {one['detail']}" for one in checks if one["status"] == status]


def test_a_file_that_is_not_there_is_named_with_its_setting(
    toolgate: Toolgate, folder: Path
) -> None:
    (folder / "toolgate.yaml").write_text(
        "sources: {pets: {openapi: gone.yaml, base_url: 'http://127.0.0.1:9'}}"
    )
    text = f"sources.pets.openapi: {folder / 'gone.yaml'} does not exist"
    assert f"source: {text}" in check_lines(toolgate, "failed")
    checked = toolgate("config", "check")
    assert checked.code == 0
    assert f"warning: {text}" in checked.err
    assert "pets: in the settings, but not imported yet" in checked.err


def test_a_description_that_its_url_does_not_give_is_told(toolgate: Toolgate, folder: Path) -> None:
    with answering({"/pets.json": json.dumps(pets()).encode()}) as port:
        at = f"http://127.0.0.1:{port}"
        (folder / "toolgate.yaml").write_text(
            "sources:\n"
            f"  pets: {{openapi: '{at}/pets.json', base_url: '{at}'}}\n"
            f"  gone: {{openapi: '{at}/gone.json', base_url: '{at}'}}\n"
            "  dead: {mcp: 'http://127.0.0.1:9/mcp'}\n"
        )
        found = [one for one in check_lines(toolgate, "warning") if one.startswith("address: ")]
        warned = toolgate("config", "check").err
    assert len(found) == 2, found
    gone = next(one for one in found if "sources.gone.openapi" in one)
    assert "404" in gone
    assert "address: sources.dead.mcp: 127.0.0.1 cannot be reached: connection refused" in found
    assert "warning: sources.dead.mcp: 127.0.0.1 cannot be reached" in warned


def test_a_redis_that_is_away_is_told(
    toolgate: Toolgate, folder: Path, redis_server: RedisServer
) -> None:
    file = folder / "toolgate.yaml"
    file.write_text(f"state: {{backend: redis, redis_url: '{redis_server.url}'}}")
    assert "redis: answers (state.redis_url)" in check_lines(toolgate, "ok")
    file.write_text("state: {backend: redis, redis_url: 'redis://:very-secret@127.0.0.1:9'}")
    [away] = [one for one in check_lines(toolgate, "failed") if one.startswith("redis")]
    assert "state.redis_url does not answer" in away
    warned = toolgate("config", "check").err
    assert "state.redis_url does not answer" in warned
    assert "very-secret" not in away + warned


@pytest.fixture
def newcomer(cluster: Cluster, empty_settings: DatabaseSettings) -> Iterator[str]:
    """The URL of an empty database, for a user who may create nothing in it."""
    cluster.execute("CREATE ROLE newcomer LOGIN")
    yield empty_settings.url.replace("//toolgate@", "//newcomer@")
    cluster.execute("DROP ROLE newcomer")


def test_a_right_that_is_missing_is_told_before_anything_is_migrated(
    bare: Toolgate, newcomer: str
) -> None:
    ran = bare("doctor", "--json", TOOLGATE_DATABASE__URL=newcomer)
    failed = [one["detail"] for one in ran.json if one["status"] == "failed"]
    extension, tables = failed
    assert extension.startswith("newcomer may not create the extension vector; an administrator")
    assert "CREATE EXTENSION vector" in extension
    assert tables.startswith("newcomer may not create tables in ")


def test_settings_that_lead_somewhere_are_warned_of_nothing(
    toolgate: Toolgate, description: Path, folder: Path
) -> None:
    with answering({}) as port:
        (folder / "toolgate.yaml").write_text(
            f"sources: {{pets: {{openapi: pets.json, base_url: 'http://127.0.0.1:{port}'}}}}"
        )
        assert toolgate("sources", "refresh", "pets").code == 0
        checked = toolgate("config", "check")
    assert (checked.code, checked.err) == (0, "")
