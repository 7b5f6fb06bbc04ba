"""`toolgate admin`, `status` and `sessions`, which call a running gateway."""

import json
import socket
import ssl
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from config.settings import Settings
from gateway.cli.common.failure import CommandFailure
from gateway.cli.running.client import OperationRow, RunningGateway
from gateway.cli.running.http_requests import post_form
from tests.fixtures_gateway import running
from tests.gateway.admin.client import KEY, bearer, key_file, open_admin
from tests.gateway.cli.conftest import Toolgate, answering
from tests.gateway.cli.processes import command
from tests.gateway.guards.signing import by_jwks
from tests.servers.tls import Authority, https

pytestmark = pytest.mark.anyio

OPENING = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


async def test_sessions_are_listed_and_ended(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    key = key_file(tmp_path)
    async with running(replace(settings, auth=by_jwks(tmp_path, [KEY.jwk()]))) as client:
        at = ("--url", client.url, "--key-file", str(key))
        assert json.loads((await command("status", "--json", *at))[1])["ready"] is True
        await client.post("/mcp", OPENING, bearer("ada"))
        (found,) = json.loads((await command("sessions", "list", "--json", *at))[1])
        assert (found["principal"], found["client"]) == ("ada", "test 1")
        assert (await command("sessions", "list", "--principal", "bob", "--json", *at))[1] == "[]\n"
        assert (await command("sessions", "end", found["id"], "--yes", *at))[0] == 0
        code, _, told = await command("sessions", "end", found["id"], "--yes", *at)
        assert (code, "404 There is no session" in told) == (1, True)
        key_file(tmp_path, scope="pets")
        code, _, told = await command("sessions", "list", *at)
        assert (code, "403 Required scope: admin:sessions:read" in told) == (1, True)
        assert "toolgate keys create NAME --scope admin:sessions:read > FILE" in told


async def test_sources_of_a_gateway_that_tells_no_failures_are_listed(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older gateway has no such operation."""
    monkeypatch.chdir(tmp_path)
    operations = RunningGateway.operations

    async def older_operations(gateway: RunningGateway) -> Mapping[str, OperationRow]:
        rows = await operations(gateway)
        return {name: row for name, row in rows.items() if name != "listImportFailures"}

    monkeypatch.setattr(RunningGateway, "operations", older_operations)
    async with running(replace(settings, auth=by_jwks(tmp_path, [KEY.jwk()]))) as client:
        at = ("--url", client.url, "--key-file", str(key_file(tmp_path)))
        assert (await command("sources", "list", *at))[::2] == (0, "")


async def test_local_settings_name_no_sources_of_another_gateway(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toolgate.yaml").write_text("sources: {elsewhere: {openapi: x.json}}")
    async with running(replace(settings, auth=by_jwks(tmp_path, [KEY.jwk()]))) as client:
        at = ("--url", client.url, "--key-file", str(key_file(tmp_path)))
        code, out, err = await command("sources", "list", *at)
        assert (code, "elsewhere" in out + err) == (0, False), out + err
        code, _, err = await command("sources", "show", "elsewhere", *at)
        assert (code, "in the settings" in err) == (1, False)


async def test_tools_of_a_running_gateway_are_listed_shown_and_searched(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands that print by hand call the operations of the gateway that is named (point 1)."""
    monkeypatch.chdir(tmp_path)
    async with running(replace(settings, auth=by_jwks(tmp_path, [KEY.jwk()]))) as client:
        at = ("--url", client.url, "--key-file", str(key_file(tmp_path)))

        async def output_of(*args: str) -> str:
            code, out, told = await command(*args, *at)
            assert code == 0, told
            return out

        listed = (await output_of("tools", "list", "--source", "pets")).splitlines()
        assert listed[0] == "createPet  pets  Add a pet"
        costs = json.loads(await output_of("tools", "list", "--tokens", "--json"))
        assert {"createPet", "listPets"} <= {cost["tool"] for cost in costs}
        shown = await output_of("tools", "show", "deletePet")
        assert "toolgate tools call deletePet" in shown
        found = await output_of("tools", "search", "--words", "remove", "pet")
        assert found.startswith("deletePet  pets")
        explained = await output_of("search", "try", "--mode", "lexical", "remove a pet")
        assert "by words alone" in explained
        code, _, told = await command("tools", "list", "--source", "pest", *at)
        assert (code, "There is no source 'pest'. Did you mean pets?" in told) == (1, True)


async def test_operations_are_listed_and_called_by_name(settings: Settings, tmp_path: Path) -> None:
    async with running(replace(settings, auth=by_jwks(tmp_path, [KEY.jwk()]))) as client:
        api = await open_admin(client.url, client.http)
        at = ("--url", client.url, "--key-file", str(key_file(tmp_path)))

        async def call_admin(*args: str) -> tuple[int, str, str]:
            return await command("admin", *args, *at)

        rows = [line.split()[:2] for line in (await call_admin())[1].splitlines()]
        assert ["listKeys", "admin:keys:read"] in rows
        page = (await api("GET", "/sources?limit=2")).json
        assert json.loads((await call_admin("listSources", "limit=2"))[1]) == page
        rule = ("--args", '{"effect": "deny", "tools": ["slow"]}', "if_none_match=*")
        assert json.loads((await call_admin("putRule", "rule=mine", *rule))[1])["name"] == "mine"
        code, out, told = await call_admin("putRule", "rule=mine", *rule)
        assert (code, out, ": 412 " in told) == (1, "", True)
        bearing = {"Authorization": f"Bearer {key_file(tmp_path).read_text().strip()}"}
        async with client.http.get(f"{client.url}/admin/v1/tool", headers=bearing) as response:
            assert "no resource 'tool'. Did you mean tools?" in await response.text()
        code, out, told = await call_admin("getTool", "tool=nothing")
        assert (code, out, "There is no tool 'nothing'" in told) == (1, "", True)
        assert (await call_admin("deleteRule", "rule=mine", "if_match=*"))[:2] == (0, "")


async def test_invalid_calls_are_refused_before_sending(settings: Settings, tmp_path: Path) -> None:
    async with running(replace(settings, auth=by_jwks(tmp_path, [KEY.jwk()]))) as client:
        at = ("--url", client.url, "--key-file", str(key_file(tmp_path)))
        for args, expected in (
            (["listTool"], "no operation 'listTool'. Did you mean listTools or"),
            (["getTool"], "getTool: expected tool=..."),
            (["getTool", "tool=pets", "toll=pets"], "getTool takes no argument toll"),
        ):
            code, _, told = await command("admin", *args, *at)
            assert (code, expected in told) == (2, True), told


async def test_an_answer_that_is_no_gateways_names_the_reason(
    settings: Settings, tmp_path: Path
) -> None:
    async with running(replace(settings, auth=by_jwks(tmp_path, [KEY.jwk()]))) as client:
        key, secure = str(key_file(tmp_path)), client.url.replace("http:", "https:")
        wrong = tmp_path / "wrong"
        wrong.write_text("tgk_wrong")
        for words, expected in (
            (("status", "--url", f"{client.url}/mcp"), "has nothing at /admin/v1: expected the"),
            (("status", "--url", secure), "it does not speak TLS; expected http://"),
            (("agent", "chat", "--url", client.url), "is agent.enabled true in the settings"),
            (("keys", "list", "--url", client.url, "--key-file", str(wrong)), "Is the key of this"),
        ):
            given = () if "--key-file" in words else ("--key-file", key)
            code, _, told = await command(*words, *given)
            assert (code, expected in told) == (1, True), told


@pytest.mark.parametrize(
    ("is_trusted", "changes", "reason"),
    [
        (False, {}, "; the variable SSL_CERT_FILE names a file with its issuer"),
        (True, {"until": timedelta(-1)}, "not accepted (certificate has expired)"),
        (True, {"host": "127.0.0.2"}, "certificate is not valid for '127.0.0.1'.)"),
    ],
)
async def test_a_refused_certificate_names_its_reason(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_trusted: bool,
    changes: dict[str, Any],
    reason: str,
) -> None:
    """A file with its issuer helps against an unknown issuer alone."""
    authority, key = Authority(tmp_path), str(key_file(tmp_path))
    if is_trusted:
        trusting = ssl.create_default_context(cafile=str(authority.file))
        monkeypatch.setattr("aiohttp.connector._SSL_CONTEXT_VERIFIED", trusting)
    async with https(authority.sign("gateway", **changes)) as (url, _):
        code, _, told = await command("status", "--url", url, "--key-file", key)
        with pytest.raises(CommandFailure) as failure:
            await post_form(url, {})
    assert (code, told.endswith(f"{reason}\n")) == (1, True), told
    assert str(failure.value).endswith(reason)


def test_another_server_is_not_taken_for_a_gateway(bare: Toolgate, folder: Path) -> None:
    (folder / "key").write_text("k")
    paths = ("/admin/v1/openapi.json", "/ready", "/metrics")
    with answering(dict.fromkeys(paths, b"[]")) as port:
        url = f"http://127.0.0.1:{port}"
        for words in (
            ("status", "--url", url, "--key-file", "key"),
            ("health", "--url", url),
            ("top", "--once", "--target", url),
        ):
            mistaken = bare(*words)
            assert mistaken.code == 1
            assert f"{url} answers, but not as a gateway: expected the address" in mistaken.err


def test_no_gateway_and_no_key_are_told(bare: Toolgate, folder: Path) -> None:
    (folder / "key").write_text("k")
    away = bare("status", "--url", "http://127.0.0.1:9", "--key-file", "key")
    assert (away.code, "no gateway answers at http://127.0.0.1:9" in away.err) == (1, True)
    assert bare("status", "--url", "ftp://x", "--key-file", "key").code == 2
    assert bare("status", "--key-file", "-", stdin="").code == 2
    empty = bare("status", "--url", "http://127.0.0.1:9", "--key-file", "-", stdin="")
    assert (empty.code, "--key-file: " in empty.err and "is empty" in empty.err) == (2, True), (
        empty.err
    )


def test_a_gateway_without_an_answer_is_told_from_none(
    bare: Toolgate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.cli.running.health.TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        ran = bare("health", "--url", url)
    assert (ran.code, f"{url}/ready gave no answer within 0.2 s" in ran.err) == (1, True), ran.err


@pytest.mark.parametrize("command", [("status",), ("jobs", "list"), ("sessions", "list")])
def test_a_gateway_that_lets_everybody_in_has_no_admin_api(
    bare: Toolgate, command: tuple[str, ...]
) -> None:
    """A command says at once why there is nothing to ask, and what there is (mending 42)."""
    refused = bare(*command)
    assert refused.code == 2
    assert "while auth.mode is none" in refused.err
    assert "toolgate keys create ops" in refused.err
    keyless = bare(*command, TOOLGATE_AUTH__MODE="keys")
    assert keyless.code == 2
    assert "expected --key-file FILE" in keyless.err
