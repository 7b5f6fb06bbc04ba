"""`toolgate clients setup`: configurations of MCP clients."""

import base64
import json
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
import yaml

from config.mcp_clients import read_clients
from gateway.cli.running.client_setup import place_of_key
from tests.gateway.cli.conftest import Toolgate

URL = "http://127.0.0.1:8765/mcp"
READ: Any = {"json": json.loads, "toml": tomllib.loads, "yaml": yaml.safe_load}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("with_key", [False, True])
@pytest.mark.parametrize("name", read_clients())
def test_a_printed_configuration_is_a_file_of_the_client(
    bare: Toolgate, name: str, with_key: bool
) -> None:
    client = read_clients()[name]
    ran = bare("clients", "setup", name, *(["--key"] if with_key else []))
    assert ran.code == 0
    assert URL in json.dumps(READ[client.format](ran.out))
    assert ("KEY" in ran.out or "key" in ran.out) is with_key
    assert client.source.startswith("https://")


def test_a_desktop_program_is_named_by_its_path(bare: Toolgate) -> None:
    """Programs of a desktop do not know the PATH of a shell (issue 42, try of the twenty tasks)."""
    server = json.loads(bare("clients", "setup", "claude-desktop").out)["mcpServers"]["toolgate"]
    assert (Path(server["command"]).is_absolute(), Path(server["command"]).name) == (
        True,
        "toolgate",
    )


@pytest.mark.parametrize(
    ("url", "toolset", "endpoint"),
    [
        ("https://tools.example.com", (), "https://tools.example.com/mcp"),
        ("https://tools.example.com/", (), "https://tools.example.com/mcp"),
        ("http://10.0.0.7:8765/mcp", (), "http://10.0.0.7:8765/mcp"),
        ("https://example.com/tools", ("--toolset", "desk"), "https://example.com/tools/mcp/desk"),
    ],
)
def test_a_gateway_elsewhere_is_configured_by_its_url(
    bare: Toolgate, url: str, toolset: tuple[str, ...], endpoint: str
) -> None:
    ran = bare("clients", "setup", "cursor", "--url", url, *toolset)
    assert json.loads(ran.out)["mcpServers"]["toolgate"]["url"] == endpoint


@pytest.mark.parametrize(
    "url", ["", "tools", "ftp://a", "https://ada:secret@a", "https://a?b=c", "https://a b"]
)
def test_a_url_of_no_gateway_is_refused_with_an_example(bare: Toolgate, url: str) -> None:
    ran = bare("clients", "setup", "cursor", "--url", url)
    assert (ran.code, "such as https://tools.example.com" in ran.err) == (1, True)


def test_configurations_of_a_stored_toolset_are_printed_whole(toolgate: Toolgate) -> None:
    assert toolgate("toolsets", "put", "desk", '{"include": ["list*"]}').code == 0
    ran = toolgate("toolsets", "clients", "desk")
    assert (ran.code, f'"url": "{URL}/desk"' in ran.out) == (0, True)


def test_links_carry_the_configuration() -> None:
    clients, values = read_clients(), {"url": URL, "name": "toolgate", "env": "K", "key_file": "k"}
    for name in ("cursor", "lm-studio"):
        query = parse_qs(urlsplit(clients[name].deep_link(values, with_key=False)).query)
        assert query["name"] == ["toolgate"]
        assert json.loads(base64.b64decode(query["config"][0])) == {"url": URL}
    _, _, packed = clients["vscode"].deep_link(values, with_key=False).partition("?")
    assert json.loads(unquote(packed)) == {"name": "toolgate", "type": "http", "url": URL}
    assert clients["lm-studio"].deep_link(values, with_key=True) == ""


@pytest.mark.parametrize(
    ("name", "file", "before"),
    [
        ("cursor", ".cursor/mcp.json", '{"mcpServers": {"own": {"url": "https://a"}}, "x": 1}'),
        (
            "codex",
            ".codex/config.toml",
            'model = "m" # mine\n[mcp_servers.own]\nurl = "https://a"\n',
        ),
        ("opencode", ".config/opencode/opencode.json", '{"theme": "dark"}'),
        ("vscode", ".vscode/mcp.json", '{"inputs": [{"id": "mine"}], "servers": {}}'),
        ("continue", ".continue/mcpServers/toolgate.yaml", ""),
    ],
)
def test_a_server_is_added_to_the_file_of_a_client(
    bare: Toolgate, home: Path, name: str, file: str, before: str
) -> None:
    path, read = home / file, READ[read_clients()[name].format]
    if before:
        path.parent.mkdir(parents=True)
        path.write_text(before)
        path.chmod(0o640)
    ran = bare("clients", "setup", name, "--key", "--write")
    assert (ran.code, ran.err) == (0, ran.err)
    after = read(path.read_text())
    assert URL in json.dumps(after)
    if before:
        assert path.with_name(f"{path.name}.bak").read_text() == before
        assert path.stat().st_mode & 0o777 == 0o640
        for key, value in read(before).items():
            if isinstance(value, dict):
                assert value.items() <= after[key].items()
            elif isinstance(value, list):
                assert all(item in after[key] for item in value)
            else:
                assert after[key] == value
    else:
        assert path.stat().st_mode & 0o777 == 0o600
    again = bare("clients", "setup", name, "--write")
    assert again.code == 1
    assert "has a server toolgate already" in " ".join(again.err.split())
    assert read(path.read_text()) == after


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("zed", "--key", "--write"), "reads no variables, and this writes no keys"),
        (("lm-studio", "--write"), "has no file"),
        (("cursor", "--name", "../up"), "expected letters, digits, - and _"),
        (("cursor", "--toolset", "none"), "toolgate toolsets clients none"),
        (("cusor",), "Did you mean cursor?"),
    ],
)
def test_impossible_setups_are_refused(
    bare: Toolgate, home: Path, arguments: tuple[str, ...], text: str
) -> None:
    ran = bare("clients", "setup", *arguments)
    assert ran.code == 1
    assert text in " ".join(ran.err.split())


def test_a_file_with_comments_stays_unchanged(bare: Toolgate, home: Path) -> None:
    file = home / ".config/zed/settings.json"
    file.parent.mkdir(parents=True)
    file.write_text('{ // mine\n"theme": "dark"}')
    ran = bare("clients", "setup", "zed", "--write")
    assert "is no plain JSON" in ran.err
    assert file.read_text() == '{ // mine\n"theme": "dark"}'


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("claude-desktop", "toolgate keys create toolgate > "),
        ("codex", "The environment variable MCP_KEY_TOOLGATE has the key"),
        ("zed", "Replace MCP_KEY_TOOLGATE by a key"),
    ],
)
def test_the_place_of_a_key_is_that_of_the_configuration(name: str, place: str) -> None:
    values = {"url": URL, "name": "toolgate", "env": "MCP_KEY_TOOLGATE", "key_file": "/h/t.key"}
    assert place in place_of_key(read_clients()[name], values)
