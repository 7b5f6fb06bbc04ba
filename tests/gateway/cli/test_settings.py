"""`toolgate init` and `toolgate config`, and what every command says about wrong settings."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from config.load import load
from gateway.cli.installation import STARTER
from tests.gateway.cli.conftest import Toolgate


def test_init_writes_a_file_that_is_valid_and_changes_nothing(bare: Toolgate, folder: Path) -> None:
    ran = bare("init")
    assert ran.code == 0
    assert "toolgate serve\n" in ran.out
    assert load("toolgate.yaml", {}) == load(None, {}) == load("/dev/null", {})


def test_commented_out_settings_of_init_are_valid(folder: Path) -> None:
    lines = STARTER.replace("sources: {}", "sources:").splitlines()
    prose = ("# Toolgate", "# ${NAME}", '# "embedded"', "# APIs")
    text = "\n".join(
        line[1:].removeprefix(" ") if line.startswith("# ") else line.replace("#  ", "  ", 1)
        for line in lines
        if not line.startswith(prose)
    )
    (folder / "toolgate.yaml").write_text(text)
    settings = load(None, {"DB_PASSWORD": "x", "PETSHOP_KEY": "y"})
    assert settings.sources["petshop"].credentials["api_key"].value == "y"
    assert settings.sources["petshop"].headers == {"X-Client": "toolgate"}
    assert settings.database.url == "postgresql://toolgate:x@db.example.com/toolgate"


def test_init_keeps_an_existing_file_unless_forced(bare: Toolgate, folder: Path) -> None:
    (folder / "mine.yaml").write_text("server: {port: 1}")
    ran = bare("init", "mine.yaml")
    assert (ran.code, ran.err) == (
        1,
        "toolgate: mine.yaml exists already; use --force to overwrite it\n",
    )
    assert (folder / "mine.yaml").read_text() == "server: {port: 1}"
    ran = bare("init", "mine.yaml", "--force")
    assert ran.code == 0
    assert "toolgate serve -c mine.yaml" in ran.out
    assert (folder / "mine.yaml").read_text() == STARTER


def test_init_reports_an_unwritable_path(bare: Toolgate, folder: Path) -> None:
    ran = bare("init", "nowhere/toolgate.yaml")
    assert ran.code == 1
    assert ran.err == (
        "toolgate: nowhere/toolgate.yaml cannot be written: no such file or directory\n"
    )


def test_config_show_is_yaml_without_secrets_that_names_its_origin(
    bare: Toolgate, folder: Path
) -> None:
    (folder / "toolgate.yaml").write_text("database: {url: postgresql://me:hunter2@db/x}")
    ran = bare("config", "show", TOOLGATE_SERVER__PORT="1234")
    assert ran.out.startswith("# toolgate.yaml over the defaults\n")
    shown = yaml.safe_load(ran.out)
    assert shown["database"]["url"] == "postgresql://me:***@db/x"
    assert shown["server"]["port"] == 1234
    assert "hunter2" not in ran.out
    assert bare("config", "show", "--json", TOOLGATE_SERVER__PORT="1234").json == shown


def test_config_check_names_the_file_and_counts_the_sources(bare: Toolgate, folder: Path) -> None:
    assert bare("config", "check").out == (
        "Valid: the defaults; there is no settings file; 0 sources.\n"
    )
    (folder / "mine.yaml").write_text("sources: {pets: {openapi: pets.json}}")
    expected = "Valid: mine.yaml over the defaults; 1 source.\n"
    assert bare("config", "check", "-c", "mine.yaml").out == expected
    assert bare("config", "check", TOOLGATE_CONFIG="mine.yaml").out == expected


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ("server: {host: 0.0.0.0}", "auth.mode is none, so whoever reaches it could call"),
        (
            f"server: {{host: 192.0.2.1}}\nauth: {{mode: jwt, development_secret: {'s' * 32}}}",
            "auth.development_secret is set, and whoever knows it",
        ),
    ],
)
def test_config_check_refuses_an_address_as_serve_does(
    bare: Toolgate, folder: Path, settings: str, reason: str
) -> None:
    (folder / "toolgate.yaml").write_text(settings)
    checked = bare("config", "check")
    assert (checked.code, checked.out) == (2, "")
    assert reason in checked.err
    assert checked == bare("serve")


def test_config_check_accepts_any_address_with_authentication(bare: Toolgate, folder: Path) -> None:
    (folder / "toolgate.yaml").write_text(
        "server: {host: 0.0.0.0}\nauth: {mode: keys, api_keys: true}"
    )
    assert bare("config", "check").code == 0


def test_config_schema_validates_the_output_of_config_show(bare: Toolgate, folder: Path) -> None:
    schema = bare("config", "schema").json
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(bare("config", "show", "--json").json)


@pytest.mark.parametrize(
    "command",
    [
        ["config", "check"],
        ["serve"],
        ["tools", "list"],
        ["sources", "list"],
        ["migrate"],
        ["import", "openapi", "pets.json", "--name", "pets"],
    ],
)
def test_every_command_lists_all_that_is_wrong_with_the_settings(
    bare: Toolgate, folder: Path, command: list[str]
) -> None:
    (folder / "toolgate.yaml").write_text("server:\n  port: many\n  hots: x\n")
    ran = bare(*command)
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err == (
        "toolgate: 2 problems in the settings:\n"
        "  toolgate.yaml:3: server.hots: there is no such setting; did you mean server.host?\n"
        '  toolgate.yaml:2: server.port: expected a TCP port from 0 to 65535, found "many"\n'
    )


def test_a_settings_file_that_is_not_there_is_named(bare: Toolgate, folder: Path) -> None:
    ran = bare("config", "check", "-c", "nowhere.yaml")
    assert ran.code == 2
    assert "nowhere.yaml: the settings file: no such file or directory" in ran.err


def test_the_source_of_a_list_stays_readable_for_machines(bare: Toolgate, folder: Path) -> None:
    assert json.loads(bare("config", "show", "--json").out)["sources"] == {}


SOURCES = """
sources:
  mail: {openapi: mail.json, exchange: {token_url: "https://sso.example/token", client_id: gw}}
  files: {openapi: files.json, forward_token: true}
  pets: {openapi: pets.json}
"""
LOGIN = """
server: {public_url: "https://gw.example", allowed_hosts: [gw.example]}
auth: {mode: jwt}
login: {enabled: true, users: true}
"""
PROVIDER = 'providers: {corp: {issuer: "https://sso.example", client_id: gw}}'


@pytest.mark.parametrize(
    ("login", "named"),
    [
        (LOGIN, {"mail.exchange", "files.forward_token"}),
        (LOGIN.replace("users: true", PROVIDER), {"files.forward_token"}),
        ('auth: {mode: jwt, jwks_url: "https://sso.example/keys"}', set()),
    ],
)
def test_config_check_names_sources_broken_by_the_login(
    bare: Toolgate, folder: Path, login: str, named: set[str]
) -> None:
    """LOG-11: there is nothing to exchange but the gateway's own token, and a provider's."""
    (folder / "toolgate.yaml").write_text(login + SOURCES)
    for name in ("mail", "files", "pets"):
        (folder / f"{name}.json").write_text("{}")
    key = "a2V5IG9mIHRoaXJ0eS10d28gYnl0ZXMsIG1vc3RseS4="
    checked = bare("config", "check", TOOLGATE_SECRETS__KEY=key)
    said = {
        name
        for name in ("mail.exchange", "files.forward_token", "pets.exchange")
        if f"sources.{name}: people who log in" in checked.out + checked.err
    }
    assert said == named, checked
    assert checked.code == 0
