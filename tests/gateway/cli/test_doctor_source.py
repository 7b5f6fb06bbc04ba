"""`toolgate doctor SOURCE`: the way to an account, at a service that is wrong in one thing."""

import json
from pathlib import Path
from typing import Any

import pytest

from config.load import load
from config.settings import DatabaseSettings
from registry.database.postgres import Database
from registry.sources.import_specs import ImportSpec
from registry.sources.imports import Sources
from registry.sources.tool_store import ToolStore
from tests.fixtures_database import HOST
from tests.fixtures_servers import serving
from tests.gateway.cli.processes import command
from tests.gateway.cli.test_import_connect import LOGIN
from tests.gateway.connections.oauth_service import Drive
from tests.gateway.connections.services import description

pytestmark = pytest.mark.anyio

CLIENT = {"id": "gateway", "secret": "gateway-secret"}
BEARER = {"type": "http", "scheme": "bearer"}
KEY = {"type": "apiKey", "in": "header", "name": "X-Key"}
ELSEWHERE = {"type": "openIdConnect", "openIdConnectUrl": "https://elsewhere.example"}


async def walk(
    database: DatabaseSettings,
    folder: Path,
    drive: Drive,
    connect: dict[str, Any] | None,
    *,
    scheme: Any = None,
    name: str = "drive",
    **env: str,
) -> tuple[int, list[dict[str, str]]]:
    """Exit code and checks for `name`, where `drive` is imported if it has a description."""
    if scheme is not None:
        path = folder / "drive.json"
        path.write_text(json.dumps(description(drive.url, {"login": []}, login=scheme)))
        async with Database.open(database) as opened:
            sources = Sources(ToolStore(opened.pool), HOST, load(None, {}).imports)
            await sources.import_(ImportSpec("drive", str(path), drive.url))
    if connect is not None:
        env["TOOLGATE_SOURCES__DRIVE__CONNECT"] = json.dumps({"mode": "user", **connect})
    env |= {**LOGIN, "TOOLGATE_DATABASE__URL": database.url}
    await command("migrate", **env)
    code, out, err = await command("doctor", name, "--json", **env)
    assert out, err
    checks: list[dict[str, str]] = json.loads(out)
    return code, checks


async def test_a_whole_way_is_well(database_settings: DatabaseSettings, tmp_path: Path) -> None:
    """CON-23: all that needs no person is tried."""
    drive = Drive(secret=CLIENT["secret"])
    async with serving(drive.app) as drive.url:
        connect = {"issuer": drive.url, "client": CLIENT}
        code, checks = await walk(database_settings, tmp_path, drive, connect, scheme=BEARER)
        assert (code, {check["status"] for check in checks}) == (0, {"ok"}), checks[-1]
        names = [check["name"] for check in checks]
        assert names == [
            *("source", "schemes", "server metadata", "PKCE", "server", "resource", "callback"),
            *("client", "token"),
        ]
        assert checks[6]["detail"] == "https://gateway.example.com/connect/drive/callback"
        assert "gateway-secret" not in json.dumps(checks)


@pytest.mark.parametrize(
    ("connect", "metadata", "step", "words"),
    [
        ({}, {"issuer": "https://x.example"}, "issuer", "name the former as connect.issuer"),
        ({}, {"code_challenge_methods_supported": ["plain"]}, "PKCE", "expected S256"),
        ({}, {"token_endpoint": "http://10.0.0.1/"}, "server metadata", "https://"),
        (
            {"client": {**CLIENT, "auth": "basic"}},
            {"token_endpoint_auth_methods_supported": ["client_secret_post"]},
            "client",
            "sources.drive.connect.client.auth: expected one of client_secret_post",
        ),
        (
            {"client": {"id": "gateway", "secret": "wrong"}},
            {},
            "token",
            "is sources.drive.connect.client right?",
        ),
        (
            {"client": None},
            {"registration_endpoint": None},
            "client",
            "https://gateway.example.com/connect/drive/callback, and set sources.drive.connect",
        ),
    ],
)
async def test_the_first_wrong_step_is_named_with_its_setting(
    database_settings: DatabaseSettings,
    tmp_path: Path,
    connect: dict[str, Any],
    metadata: dict[str, Any],
    step: str,
    words: str,
) -> None:
    drive = Drive(secret=CLIENT["secret"], changes=metadata)
    async with serving(drive.app) as drive.url:
        wanted = {"issuer": drive.url, "client": CLIENT, **connect}
        code, checks = await walk(database_settings, tmp_path, drive, wanted, scheme=BEARER)
        assert (code, checks[-1]["name"], checks[-1]["status"]) == (1, step, "failed"), checks
        assert words in checks[-1]["detail"]
        assert {check["status"] for check in checks[:-1]} <= {"ok"}


async def test_an_mcp_server_is_examined_before_its_import(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    drive = Drive()
    async with serving(drive.app) as drive.url:
        mcp = {"TOOLGATE_SOURCES__DRIVE__MCP": f"{drive.url}/mcp"}
        code, checks = await walk(database_settings, tmp_path, drive, {}, **mcp)
        assert code == 0, checks[-1]
        assert checks[-1]["detail"] == f"the gateway registers itself at {drive.url}/register"
        assert not drive.requests  # which the doctor leaves to the first connection


async def test_sources_of_identity_assertions_need_no_connecting(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    connect = {"mode": "id_jag", "issuer": "https://login.example", "client": CLIENT}
    mcp = {"TOOLGATE_SOURCES__DRIVE__MCP": "https://drive.example/mcp"}
    code, checks = await walk(database_settings, tmp_path, Drive(), connect, **mcp)
    assert code == 0
    assert "sources.drive.connect is id_jag" in checks[-1]["detail"]


@pytest.mark.parametrize(
    ("connect", "scheme", "words"),
    [
        ({"client": {"id": "gateway"}}, ELSEWHERE, "set sources.drive.connect.issuer"),
        ({}, KEY, "people type"),
        ({}, ELSEWHERE, "the login at https://elsewhere.example is that of the description alone"),
        (None, KEY, "sources.drive.connect is off"),
        ({"schemes": ["other"]}, KEY, "see sources.drive.connect.schemes"),
        ({}, None, "drive: it is not imported"),
    ],
)
async def test_ways_without_a_login_are_told(
    database_settings: DatabaseSettings, tmp_path: Path, connect: Any, scheme: Any, words: str
) -> None:
    drive = Drive(url="http://127.0.0.1:1")
    _, checks = await walk(database_settings, tmp_path, drive, connect, scheme=scheme)
    assert words in checks[-1]["detail"]


async def test_a_near_name_is_suggested_for_an_unknown_source(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    drive = Drive(url="http://127.0.0.1:1")
    code, checks = await walk(database_settings, tmp_path, drive, None, scheme=KEY, name="dirve")
    assert (code, checks[-1]["detail"]) == (1, "dirve: it is not imported. Did you mean drive?")
