"""Presets of `connect`: what the settings make of a service that they name."""

import json
from typing import Any, get_args
from urllib.parse import urlsplit

import pytest

from config.load import load
from config.presets import ENDPOINTS, read_presets
from config.sources import Connect, PresetName
from config.yaml_document import SettingsError

CLIENT = {"id": "gateway", "secret": "a secret"}
LOGIN = {
    "TOOLGATE_LOGIN__ENABLED": "true",
    "TOOLGATE_LOGIN__USERS": "true",
    "TOOLGATE_AUTH__MODE": "jwt",
    "TOOLGATE_SERVER__PUBLIC_URL": "https://gateway.example.com",
    "TOOLGATE_SECRETS__KEY": "A" * 43 + "=",
}


def connect_of(source: dict[str, Any]) -> Connect:
    env = {**LOGIN, "TOOLGATE_SOURCES": json.dumps({"service": source})}
    return load(None, env).sources["service"].connect


def test_every_preset_has_a_name_in_the_settings() -> None:
    assert get_args(PresetName) == (*read_presets(),)


@pytest.mark.parametrize("name", get_args(PresetName))
def test_a_preset_needs_a_client_only(name: str) -> None:
    preset = read_presets()[name]
    connect = connect_of({"connect": {"preset": name, "client": CLIENT}})
    assert (connect.mode, connect.title) == ("user", preset.title)
    assert connect.issuer or (connect.authorization_url and connect.token_url)
    assert connect.scopes == next(iter(preset.tasks.values()))
    assert connect.client is not None
    assert (connect.client.id, connect.client.secret) == tuple(CLIENT.values())
    for url in (preset.register, preset.mcp):
        assert not url or urlsplit(url).scheme == "https"
    for task in preset.tasks:
        named = connect_of({"connect": {"preset": name, "tasks": [task], "client": CLIENT}})
        assert named.scopes == preset.tasks[task]


@pytest.mark.parametrize("name", [name for name, each in read_presets().items() if each.own_login])
def test_an_mcp_server_that_announces_its_login_needs_no_client(name: str) -> None:
    preset = read_presets()[name]
    connect = connect_of({"mcp": preset.mcp, "connect": {"preset": name}})
    assert connect == Connect("user", preset=connect.preset, title=preset.title)


def test_members_of_the_settings_replace_members_of_the_preset() -> None:
    google = {"preset": "google", "client": {**CLIENT, "auth": "basic"}}
    own = {"scopes": ["a"], "authorize": {"prompt": "none"}, "title": "Drive"}
    connect = connect_of({"connect": {**google, **own}})
    assert (connect.scopes, connect.title) == (("a",), "Drive")
    assert connect.authorize == {"access_type": "offline", "prompt": "none"}
    assert connect.client is not None
    assert connect.client.auth == "basic"


def test_keys_of_people_need_no_client() -> None:
    connect = connect_of({"connect": {"preset": "github", "oauth": False}})
    assert (connect.title, connect.client) == ("GitHub", None)


def test_an_own_server_replaces_all_addresses_of_the_preset() -> None:
    issuer = "https://login.microsoftonline.com/tenant/v2.0"
    graph = {"preset": "microsoft-graph", "issuer": issuer, "client": CLIENT}
    connect = connect_of({"connect": graph})
    assert {key: getattr(connect, key) for key in ENDPOINTS if getattr(connect, key)} == {
        "issuer": issuer
    }


@pytest.mark.parametrize(
    ("connect", "expected"),
    [
        ({"preset": "github", "tasks": ["fly"]}, "expected tasks among read, write, workflows"),
        ({"preset": "gitbub"}, "expected one of github, google"),
        ({"preset": "github"}, "expected client, with the id and secret that you get at https://g"),
        ({"preset": "linear"}, "or mcp: https://mcp.linear.app/mcp beside connect"),
        ({"mode": "user", "tasks": ["read"]}, "connect.tasks: expected preset beside it"),
    ],
)
def test_an_unknown_preset_or_task_is_refused(connect: dict[str, Any], expected: str) -> None:
    with pytest.raises(SettingsError, match=expected):
        connect_of({"connect": connect})


def test_no_presets_are_read_where_none_is_named() -> None:
    read_presets.cache_clear()
    connect_of({"connect": {"mode": "user"}})
    assert read_presets.cache_info().currsize == 0
