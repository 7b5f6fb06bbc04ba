"""Settings that open a gateway to others than its machine need authentication."""

from pathlib import Path

import pytest

from config.load import SettingsError, load

OPENINGS = [
    ("public_url: https://pets.example.org", "public_url"),
    ("allowed_hosts: [localhost, pets.example.org]", "allowed_hosts"),
    ("allowed_hosts: [192.0.2.7]", "allowed_hosts"),
    ("trusted_proxies: [10.1.0.0/16]", "trusted_proxies"),
]
SECRET = "abcdefghijklmnopqrstuvwxyz012345"


def problems(folder: Path, auth: str, server: str) -> list[str]:
    file = folder / "toolgate.yaml"
    file.write_text(f"auth: {{{auth}}}\nserver: {{{server}}}\n")
    try:
        load(str(file), {})
    except SettingsError as error:
        return [str(problem) for problem in error.problems]
    return []


@pytest.mark.parametrize(("server", "key"), OPENINGS)
def test_an_exposed_gateway_requires_authentication(tmp_path: Path, server: str, key: str) -> None:
    """A public name, foreign hosts or trusted proxies without authentication are a mistake, which
    names both ways out (mending 3)."""
    (problem,) = problems(tmp_path, "mode: none", server)
    assert problem.startswith(f"{tmp_path / 'toolgate.yaml'}:2: server.{key}: expected auth.mode")
    assert "auth.allow_public: true" in problem


@pytest.mark.parametrize(("server", "key"), OPENINGS[1:])
def test_a_secret_of_development_is_no_authentication_there(
    tmp_path: Path, server: str, key: str
) -> None:
    """Its holders can make tokens for everything (mending 3)."""
    (problem,) = problems(tmp_path, f"mode: jwt, development_secret: {SECRET}", server)
    assert f"server.{key}: expected no auth.development_secret" in problem


@pytest.mark.parametrize("auth", ["mode: keys", "mode: none, allow_public: true"])
@pytest.mark.parametrize("server", [server for server, _ in OPENINGS])
def test_authentication_or_a_clear_word_is_enough(tmp_path: Path, auth: str, server: str) -> None:
    assert problems(tmp_path, auth, server) == []


@pytest.mark.parametrize(
    "server", ["public_url: 'http://127.0.0.1:8765'", "allowed_hosts: ['127.0.0.1', localhost]"]
)
def test_names_of_this_machine_need_none(tmp_path: Path, server: str) -> None:
    assert problems(tmp_path, "mode: none", server) == []
