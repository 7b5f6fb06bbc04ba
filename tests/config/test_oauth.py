"""Settings of `oauth`: what clients may be told."""

from pathlib import Path

import pytest

from config.load import SettingsError, load


def load_oauth(folder: Path, text: str) -> object:
    file = folder / "toolgate.yaml"
    file.write_text(f"oauth:\n  {text}")
    return load(str(file), {}).oauth


@pytest.mark.parametrize(
    "url",
    [
        "https://login.example",
        "https://login.example/tenant",
        "http://127.0.0.1:8770",
        "http://localhost",
        "http://[::1]:1",
    ],
)
def test_people_log_in_over_tls_or_at_their_own_machine(tmp_path: Path, url: str) -> None:
    assert load_oauth(tmp_path, f"authorization_servers: ['{url}']")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "authorization_servers: ['https://a', 'http://login.example']",
            "for servers on loopback, found http://login.example",
        ),
        (
            "authorization_servers: ['https://a?x=1']",
            "oauth.authorization_servers.0: expected an http:// or https:// URL",
        ),
        (
            "required_scopes: [read, offline_access]",
            "oauth.required_scopes: expected no offline_access",
        ),
        ("scopes_supported: [offline_access]", "oauth.scopes_supported: expected no"),
        ("required_scopes: ['a b']", "oauth.required_scopes.0: expected a scope"),
        ("metadata_bytes: 0", "oauth.metadata_bytes: expected a whole number of bytes"),
    ],
)
def test_nothing_is_told_that_clients_must_not_do(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_oauth(tmp_path, text)
    (problem,) = caught.value.problems
    assert expected in str(problem)
