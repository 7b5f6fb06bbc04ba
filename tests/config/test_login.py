"""Settings of `login`: what has to be there with it, and what its entries must not be."""

from pathlib import Path

import pytest

from config.load import SettingsError, load, mask_secrets

KEY = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
ENV = {"TOOLGATE_SECRETS__KEY": KEY}
BASE = """\
server: {public_url: 'https://gw.example', allowed_hosts: [gw.example]}
auth: {mode: jwt}
"""
CORP = "corp: {issuer: 'https://id.example', client_id: a}"


def problems(folder: Path, text: str, env: dict[str, str] = ENV) -> str:
    file = folder / "toolgate.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load(str(file), env)
    return "\n".join(map(str, caught.value.problems))


def test_one_block_and_a_key_are_enough(tmp_path: Path) -> None:
    file = tmp_path / "toolgate.yaml"
    file.write_text(f"{BASE}login: {{enabled: true, providers: {{{CORP}}}}}")
    assert load(str(file), ENV).login.providers["corp"].client_id == "a"


@pytest.mark.parametrize(
    ("text", "env", "expected"),
    [
        ("login: {enabled: true}", ENV, "auth.mode: jwt"),
        ("login: {enabled: true}", ENV, "server.public_url"),
        (f"{BASE}login: {{enabled: true, providers: {{{CORP}}}}}", {}, "secrets.key"),
        (f"{BASE}login: {{enabled: true}}", ENV, "login.providers"),
        (
            BASE.replace("https:", "http:") + f"login: {{enabled: true, providers: {{{CORP}}}}}",
            ENV,
            "https://",
        ),
        (
            f"{BASE}login: {{enabled: true, providers: {{{CORP}}}, access_s: 90000}}",
            ENV,
            "login.access_s: expected at most 82800",
        ),
        (
            f"{BASE}mcp: {{path: /login}}\nlogin: {{enabled: true, providers: {{{CORP}}}}}",
            ENV,
            "/login",
        ),
    ],
    ids=["mode", "url", "key", "provider", "http", "lifetime", "path"],
)
def test_missing_settings_of_the_login_are_named(
    tmp_path: Path, text: str, env: dict[str, str], expected: str
) -> None:
    assert expected in problems(tmp_path, text, env)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("user: {issuer: 'https://id.example', client_id: a}", "another name"),
        ("key: {issuer: 'https://id.example', client_id: a}", "another name"),
        ("corp: {issuer: 'http://id.example', client_id: a}", "issuer: expected an https"),
        (f"{CORP[:-1]}, scopes: [profile]}}", "scopes: expected openid"),
        (f"{CORP[:-1]}, tenants: {{a: 01964b05-0000-7000-8000-000000000001}}}}", "tenant_claim"),
        ("corp: {client_id: a}", "issuer"),
    ],
)
def test_a_provider_that_is_not_as_expected_is_named(
    tmp_path: Path, entry: str, expected: str
) -> None:
    text = f"{BASE}login: {{enabled: true, providers: {{{entry}}}}}"
    assert expected in problems(tmp_path, text)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("{}", "redirect_uris"),
        ("{grants: [client_credentials]}", "secret or jwks_uri"),
        ("{redirect_uris: ['https://a.example/cb#x']}", "redirect"),
        ("{redirect_uris: ['https://a.example/cb'], access_s: 90000}", "at most 82800"),
    ],
)
def test_a_client_that_is_not_as_expected_is_named(
    tmp_path: Path, entry: str, expected: str
) -> None:
    text = f"{BASE}login: {{enabled: true, providers: {{{CORP}}}, clients: {{web: {entry}}}}}"
    assert expected in problems(tmp_path, text)


def test_secrets_of_providers_and_clients_are_masked(tmp_path: Path) -> None:
    file = tmp_path / "toolgate.yaml"
    entry = "{grants: [client_credentials], secret: hunter2-of-web}"
    corp = f"{CORP[:-1]}, client_secret: hunter2-of-corp}}"
    file.write_text(
        f"{BASE}login: {{enabled: true, providers: {{{corp}}}, clients: {{web: {entry}}}}}"
    )
    assert "hunter2" not in str(mask_secrets(load(str(file), ENV)))
