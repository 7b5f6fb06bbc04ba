"""Credentials of sources, as they are written."""

from pathlib import Path

import pytest

from config.load import SettingsError, load
from config.sources import SchemeSettings


def load_credentials(directory: Path, credentials: str, **env: str) -> dict[str, SchemeSettings]:
    file = directory / "settings.yaml"
    file.write_text(f"sources: {{a: {{openapi: b.yaml, credentials: {credentials}}}}}")
    return dict(load(str(file), env).sources["a"].credentials)


def test_each_way_to_satisfy_a_scheme_is_taken(tmp_path: Path) -> None:
    assert load_credentials(
        tmp_path,
        """{
            key: {value: 7}, Basic Auth: {username: me, password: 0123}, bearer: {token: "${T}"},
            oauth-2.0: {client_id: me, client_secret: s, token_url: https://id.example/t,
                scopes: [read, write], client_auth: body}, unused: }""",
        T="t",
    ) == {
        "key": SchemeSettings(value="7"),
        "Basic Auth": SchemeSettings(username="me", password="0123"),
        "bearer": SchemeSettings(token="t"),
        "oauth-2.0": SchemeSettings(
            client_id="me",
            client_secret="s",
            token_url="https://id.example/t",
            scopes=("read", "write"),
            client_auth="body",
        ),
        "unused": SchemeSettings(),
    }


def test_a_variable_changes_an_entry_of_the_file_and_adds_an_entry(tmp_path: Path) -> None:
    found = load_credentials(
        tmp_path,
        "{appKey: {value: old}}",
        TOOLGATE_SOURCES__A__CREDENTIALS__APPKEY__VALUE="new",
        TOOLGATE_SOURCES__A__CREDENTIALS__OTHER__TOKEN="t",
    )
    assert found == {"appKey": SchemeSettings(value="new"), "other": SchemeSettings(token="t")}


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("{value: a, token: b}", "expected one of value, token, username, client_id, found value"),
        ("{username: a, token: b}", "found token and username"),
        ("{password: a}", "expected username beside password"),
        ("{value: a, password: b}", "expected username beside password"),
        ("{scopes: [a]}", "expected client_id beside scopes"),
        ("{token: a, token_url: http://b}", "expected client_id beside token_url"),
        ("{client_id: a}", "expected client_secret and token_url beside client_id"),
        ("{client_id: a, client_secret: b}", "expected client_secret and token_url beside"),
        ("{client_id: a, token_url: http://b}", "expected client_secret and token_url beside"),
        ('{value: "a\\nb"}', "expected the value of an HTTP header, on one line"),
        ("{client_auth: query}", "expected one of "),
        ("{secret: a}", "there is no such setting"),
    ],
)
def test_conflicting_credentials_are_refused(tmp_path: Path, entry: str, expected: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_credentials(tmp_path, f"{{key: {entry}}}")
    [problem] = caught.value.problems
    assert problem.path == "sources.a.credentials.key" or entry.startswith(
        ('{value: "', "{client_auth")
    )
    assert expected in problem.text


@pytest.mark.parametrize("kind", ["mcp: http://a", "command: [a]", "python: a.b"])
def test_only_a_description_has_schemes(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(f"sources: {{a: {{{kind}, credentials: {{k: {{value: v}}}}}}}}")
    with pytest.raises(SettingsError, match="expected no such key beside"):
        load(str(file), {})
