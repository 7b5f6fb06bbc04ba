"""`toolgate import --connect` and `toolgate connections presets`."""

import json
from pathlib import Path

import pytest

from config.load import load
from tests.fixtures_gateway import pets
from tests.gateway.cli.conftest import Toolgate

LOGIN = {
    "TOOLGATE_LOGIN__ENABLED": "true",
    "TOOLGATE_LOGIN__USERS": "true",
    "TOOLGATE_AUTH__MODE": "jwt",
    "TOOLGATE_SERVER__PUBLIC_URL": "https://gateway.example.com",
    "TOOLGATE_SECRETS__KEY": "A" * 43 + "=",
}
CALLBACK = "https://gateway.example.com/connect/github/callback"
IMPORT = ("import", "openapi", "github.json", "--name", "github", "--dry-run")


@pytest.fixture
def github(folder: Path) -> Path:
    """`github.json` in the working directory, and a secret beside it."""
    (folder / "github.secret").write_text("a secret\n")
    (folder / "github.json").write_text(json.dumps(pets()))
    return folder


def test_printed_settings_of_a_preset_let_people_connect(toolgate: Toolgate, github: Path) -> None:
    """CON-23: what is printed is all that is left to do."""
    secret = ("--client-secret-file", "github.secret")
    ran = toolgate(*IMPORT, "--connect", "github", "--client-id", "ID", *secret, **LOGIN)
    assert ran.code == 0, ran.err
    assert f"Redirect URI of github, for OAuth: {CALLBACK}" in ran.out
    assert "https://github.com/settings/developers" in ran.out
    (github / "toolgate.yaml").write_text(ran.out[ran.out.index("sources:") :])
    connect = load(str(github / "toolgate.yaml"), LOGIN).sources["github"].connect
    assert connect.client is not None
    assert (connect.mode, connect.preset) == ("user", "github")
    assert (connect.client.id, connect.client.secret) == ("ID", "a secret")


def test_an_import_names_the_callback_of_a_source_with_accounts(
    toolgate: Toolgate, github: Path
) -> None:
    connect = {"TOOLGATE_SOURCES__GITHUB__CONNECT": '{"mode": "user"}'}
    ran = toolgate(*IMPORT, **LOGIN, **connect)
    assert ran.out.rstrip().endswith(CALLBACK)
    assert "connect" not in toolgate(*IMPORT, **LOGIN).out
    as_json = toolgate(*IMPORT, "--json", **LOGIN, **connect).out
    assert json.loads(as_json)["source"] == "github"


def test_an_mcp_server_of_a_preset_needs_no_url(toolgate: Toolgate) -> None:
    """The settings are printed although the server cannot be read from here."""
    limits = {"TOOLGATE_UPSTREAM__CONNECT_TIMEOUT_S": "0.001"}
    ran = toolgate(
        "import", "mcp", "--name", "linear", "--connect", "linear", "--dry-run", **limits
    )
    assert ran.code != 0
    assert "mcp: https://mcp.linear.app/mcp" in ran.err
    assert "preset: linear" in ran.err
    assert "The gateway registers itself" in ran.err
    assert "login.enabled" in ran.err


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ((*IMPORT, "--client-id", "x"), "belong to --connect"),
        ((*IMPORT, "--connect", "gitbub"), "gitbub"),
        (
            ("import", "mcp", "--name", "a", "--connect", "linear", "--stdio", "x"),
            "servers at a URL",
        ),
    ],
)
def test_options_that_do_not_fit_are_refused(
    toolgate: Toolgate, github: Path, args: tuple[str, ...], expected: str
) -> None:
    assert github.exists()
    ran = toolgate(*args)
    assert (ran.code, expected in ran.err) == (2, True)


def test_presets_are_listed_with_their_scopes_and_marks(toolgate: Toolgate) -> None:
    rows = toolgate("connections", "presets").out
    assert "documentation" in rows
    assert "calendar.readonly" in rows
    known = json.loads(toolgate("connections", "presets", "--json").out)
    assert known["github"]["checked"]["how"] == "documentation"
