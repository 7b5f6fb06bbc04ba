"""Settings of `auth`: what goes together, and where key files are."""

from pathlib import Path

import pytest

from config.load import SettingsError, load, mask_secrets


def problem(folder: Path, text: str) -> str:
    """The one thing that is wrong with a settings file."""
    file = folder / "toolgate.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load(str(file), {})
    (found,) = caught.value.problems
    return str(found).removeprefix(f"{file}:")


def test_authentication_is_off_by_default() -> None:
    auth = load(None, {}).auth
    assert (auth.mode, auth.key_file, auth.jwks_file) == ("none", "", "")


@pytest.mark.parametrize("setting", ["key_file", "jwks_file"])
def test_key_files_are_relative_to_the_settings_file(tmp_path: Path, setting: str) -> None:
    file = tmp_path / "toolgate.yaml"
    file.write_text(f"auth: {{mode: jwt, {setting}: keys/a}}")
    assert getattr(load(str(file), {}).auth, setting) == str(tmp_path / "keys" / "a")


ISSUER = "{issuer: 'https://a', key_file: a}"
SECRET = "0123456789abcdef0123456789abcdef"
URL = "server: {public_url: 'https://gw'}\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "auth:\n  mode: jwt",
            (
                "2: auth.mode: expected auth.key_file, auth.jwks_file, auth.jwks_url, "
                "auth.issuers, login.enabled or auth.development_secret with it, found none of them"
            ),
        ),
        (
            "auth:\n  {mode: jwt, key_file: a, jwks_file: b}",
            (
                "2: auth.mode: expected one of auth.key_file, auth.jwks_file, auth.jwks_url with "
                "it, found auth.key_file and auth.jwks_file"
            ),
        ),
        (
            "auth: {mode: keys, api_keys: false}",
            "1: auth.mode: expected auth.api_keys with it, or no caller could authenticate",
        ),
        (
            f"auth: {{mode: jwt, issuer: 'https://b', issuers: {{a: {ISSUER}}}}}",
            (
                "1: auth.issuer: expected one of auth.key_file, auth.jwks_file, auth.jwks_url "
                "beside it: the key of its tokens"
            ),
        ),
        (
            f"auth: {{mode: jwt, key_file: a, issuers: {{a: {ISSUER}}}}}",
            "1: auth.issuer: expected the `iss` of its tokens: there are several issuers",
        ),
        (
            "auth: {mode: jwt, issuers: {a: {issuer: '', key_file: b}}}",
            "1: auth.issuers.a.issuer: expected the `iss` of its tokens: there are several issuers",
        ),
        (
            "auth: {mode: jwt, issuers: {a: {issuer: b}}}",
            "1: auth.issuers.a: expected one of key_file, jwks_file, jwks_url, found none of them",
        ),
        (
            "auth: {mode: jwt, issuers: {a: {issuer: b, key_file: a, jwks_url: 'https://b'}}}",
            (
                "1: auth.issuers.a: expected one of key_file, jwks_file, jwks_url, found key_file "
                "and jwks_url"
            ),
        ),
        (
            f"auth: {{mode: jwt, issuers: {{a: {ISSUER}, b: {ISSUER}}}}}",
            "1: auth.issuers.b.issuer: expected one that is not that of auth.issuers.a",
        ),
        (
            "auth: {mode: jwt, issuer: 'toolgate:development', key_file: a}",
            "1: auth.issuer: expected one that is not that of `toolgate token mint`",
        ),
        (
            f"auth: {{mode: jwt, issuers: {{key: {ISSUER}}}}}",
            "1: auth.issuers.key: expected another name: key:NAME is the principal of an API key",
        ),
        (
            "auth: {mode: jwt, jwks_url: 'http://id.example/jwks'}",
            (
                "1: auth.jwks_url: expected an https:// URL, but for a server on loopback, found "
                "http://id.example/jwks"
            ),
        ),
        (
            "auth: {mode: jwt, key_file: a, tenants: {a: 01964b05-0000-7000-8000-000000000001}}",
            "1: auth.tenants: expected tenant_claim beside it, whose values these are",
        ),
        (
            (
                "auth: {mode: jwt, issuers: {a: {issuer: b, key_file: a, tenant_claim: c, tenant: "
                "01964b05-0000-7000-8000-000000000001}}}"
            ),
            "1: auth.issuers.a.tenant: expected tenant or tenant_claim, found both",
        ),
        (
            "auth: {mode: jwt, key_file: a, bind_audience: server}",
            "1: auth.bind_audience: expected server.public_url with it, which tokens have to name",
        ),
        (
            URL + "auth: {mode: jwt, key_file: a, bind_audience: endpoint, audience: b}",
            (
                "2: auth.audience: expected none with auth.bind_audience: endpoint, which "
                "determines `aud`"
            ),
        ),
        (
            "auth: {mode: jwt, key_file: a, jwks_stale_s: 60}",
            (
                "1: auth.jwks_stale_s: expected at least auth.jwks_ttl_s (600), after which keys "
                "are fetched again, found 60"
            ),
        ),
        (
            "auth: {mode: jwt, development_secret: short}",
            (
                "1: auth.development_secret: expected at least 32 characters, or nothing, found a "
                "value that is not shown"
            ),
        ),
    ],
    ids=str,
)
def test_conflicting_auth_settings_are_refused(tmp_path: Path, text: str, found: str) -> None:
    assert problem(tmp_path, text) == found


@pytest.mark.parametrize(
    "text",
    [
        "{mode: keys}",
        "{mode: jwt, jwks_url: 'http://127.0.0.1:1/jwks'}",
        "{mode: jwt, jwks_url: 'http://localhost/jwks'}",
        "{mode: jwt, jwks_url: 'http://[::1]/jwks'}",
        "{mode: jwt, jwks_url: 'https://id.example/jwks'}",
        f"{{mode: jwt, development_secret: {SECRET}}}",
        f"{{mode: jwt, development_secret: {SECRET}, key_file: a}}",
        f"{{mode: jwt, issuers: {{a: {ISSUER}}}}}",
        f"{{mode: jwt, key_file: a, issuer: b, issuers: {{a: {ISSUER}}}}}",
        "{mode: none, issuers: {a: {issuer: b}}, bind_audience: server}",
    ],
)
def test_consistent_auth_settings_are_accepted(tmp_path: Path, text: str) -> None:
    file = tmp_path / "toolgate.yaml"
    file.write_text(f"auth: {text}")
    assert load(str(file), {}).auth.mode in text


def test_key_files_of_issuers_are_relative_to_the_settings_file(tmp_path: Path) -> None:
    file = tmp_path / "toolgate.yaml"
    file.write_text(f"auth: {{mode: jwt, issuers: {{a: {ISSUER}}}}}")
    assert load(str(file), {}).auth.issuers["a"].key_file == str(tmp_path / "a")


def test_the_secret_of_development_is_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "toolgate.yaml"
    file.write_text(f"auth: {{development_secret: {SECRET}}}")
    assert SECRET not in str(mask_secrets(load(str(file), {})))


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("mode", "jvt", 'one of none, jwt, keys, found "jvt"'),
        ("leeway_s", "-1", "a number of seconds from 0 to 600, found -1"),
        ("leeway_s", "601", "a number of seconds from 0 to 600, found 601"),
        ("cached_tokens", "0", "a whole number of at least 1, found 0"),
        ("token_limit_bytes", "0", "a whole number of bytes, at least 1, found 0"),
    ],
)
def test_a_mistake_is_reported_with_the_expected_value(
    tmp_path: Path, key: str, value: str, expected: str
) -> None:
    assert problem(tmp_path, f"auth: {{{key}: {value}}}") == f"1: auth.{key}: expected {expected}"


@pytest.mark.parametrize("algorithm", ["HS256", "none", "RS1"])
def test_only_signatures_by_a_private_key_can_be_accepted(tmp_path: Path, algorithm: str) -> None:
    found = problem(tmp_path, f"auth: {{algorithms: [RS256, {algorithm}]}}")
    assert found.startswith("1: auth.algorithms.1: expected one of RS256, ")
    assert found.endswith(f'found "{algorithm}"')


def test_keys_that_nobody_uses_do_no_harm(tmp_path: Path) -> None:
    file = tmp_path / "toolgate.yaml"
    file.write_text("auth: {key_file: a, jwks_file: b}")
    assert load(str(file), {}).auth.mode == "none"
