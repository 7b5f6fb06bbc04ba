"""What settings have from files, and what they must not hold themselves."""

import base64
from pathlib import Path

import pytest

from config.load import SettingsError, load, mask_secrets
from config.settings import Settings

KEY = base64.b64encode(bytes(32)).decode()


@pytest.fixture(autouse=True)
def _empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def load_text(text: str, **env: str) -> Settings:
    Path("toolgate.yaml").write_text(text, encoding="utf-8")
    return load(None, env)


def problem(text: str, **env: str) -> str:
    with pytest.raises(SettingsError) as caught:
        load_text(text, **env)
    [one] = caught.value.problems
    assert "hunter2" not in str(one)
    return str(one)


@pytest.mark.parametrize("content", ["hunter2", "hunter2\n", "hunter2\r\n"])
def test_a_file_reference_gives_the_content_of_the_file(tmp_path: Path, content: str) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "token").write_bytes(content.encode())
    text = "sources: {a: {headers: {A: 'Bearer ${file:token}', B: '${file:%s}'}}}"
    (tmp_path / "etc" / "t.yaml").write_text(text % (tmp_path / "etc" / "token"))
    headers = load("etc/t.yaml", {}).sources["a"].headers  # beside the file that names it
    assert headers == {"A": "Bearer hunter2", "B": "hunter2"}


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("missing", "the file missing: no such file or directory"),
        (".", "the file .: is a directory"),
        ("bytes", "the file bytes is not text in UTF-8"),
        ("long", "the file long is longer than 65536 bytes"),
    ],
)
def test_a_file_that_cannot_be_taken_is_named(tmp_path: Path, written: str, reason: str) -> None:
    (tmp_path / "bytes").write_bytes(b"hunter2 \xff")
    (tmp_path / "long").write_bytes(b"hunter2 " * 10_000)
    text = f"sources: {{a: {{headers: {{A: '${{file:{written}}}'}}}}}}"
    assert problem(text) == f"toolgate.yaml:1: sources.a.headers.A: {reason}"


def test_content_of_secret_files_is_not_quoted(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hunter2")
    found = problem("server: {port: '${file:secret}'}")
    assert found.endswith("expected a TCP port from 0 to 65535, found a value that is not shown")


@pytest.mark.parametrize(
    ("text", "env"),
    [
        ("secrets: {key: '${KEY}', old_keys: ['${KEY}']}", {"KEY": KEY}),
        ("secrets: {key: '${file:key}', old_keys: ['${file:key}']}", {}),
        ("", {"TOOLGATE_SECRETS__KEY": KEY, "TOOLGATE_SECRETS__OLD_KEYS": f'["{KEY}"]'}),
    ],
    ids=["variables", "files", "own variables"],
)
def test_the_key_of_secrets_comes_from_outside(
    tmp_path: Path, text: str, env: dict[str, str]
) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n")
    settings = load_text(text, **env)
    assert (settings.secrets.key, settings.secrets.old_keys) == (KEY, (KEY,))
    assert mask_secrets(settings)["secrets"] == {"key": "***", "old_keys": ["***"]}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"secrets: {{key: {KEY}}}", "secrets.key: expected ${NAME} or ${file:PATH}"),
        (f"secrets: {{key: '${{K}}', old_keys: [{KEY}]}}", "secrets.old_keys.0: expected ${NAME}"),
        ("secrets: {key: '${SHORT}'}", "expected 32 bytes in base64"),
        ("secrets: {old_keys: ['${K}']}", "secrets.old_keys: expected secrets.key beside it"),
    ],
)
def test_a_key_that_stands_here_or_is_none_is_refused(text: str, expected: str) -> None:
    found = problem(text, K=KEY, SHORT="hunter2")
    assert expected in found
    assert KEY not in found


KNOWN = "auth: {mode: jwt, key_file: k}\n"
EXCHANGE = "exchange: {token_url: 'https://i/t', client_id: a, client_secret: hunter2}"
ENTRA = "exchange: {profile: entra_obo, token_url: 'https://i/t', client_id: a"
FETCHED = "credentials: {k: {client_id: a, client_secret: b, token_url: 'https://i/t'}}"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (f"{EXCHANGE}, forward_token: true", "found exchange and forward_token"),
        (f"{EXCHANGE}, credentials: {{k: {{value: a}}}}", "found exchange and credentials"),
        (f"{EXCHANGE}, headers: {{authorization: hunter2}}", "found exchange and headers.Auth"),
        ("forward_token: true, headers: {Authorization: hunter2}", "forward_token and headers."),
        (f"{FETCHED}, headers: {{Authorization: hunter2}}", "found credentials and headers.Auth"),
        ("exchange: {token_url: 'https://i', client_id: a, actor: client}", "client_secret beside"),
        ("exchange: {token_url: 'https://i', client_id: a, resource: 'a#b'}", "not shown"),
        (
            "exchange: {token_url: 'http://i/t', client_id: a}",
            "token_url: expected an https:// URL",
        ),
        (f"{ENTRA}, audience: a}}", "expected client_secret or certificate beside profile"),
        (f"{ENTRA}, client_secret: a}}", "expected audience (the API's Application ID URI) or"),
        (f"{ENTRA}, audience: a, certificate: hunter2}}", "and its private key, in PEM"),
        (f"{ENTRA}, audience: a, client_secret: b, resource: 'https://c'}}", "resource: expected"),
        (f"{EXCHANGE[:-1]}, certificate: hunter2}}", "expected profile: entra_obo with it"),
        ("exchange: {'client_secret:hunter2': }", "there is no such setting"),
        ("headers: {Content-Length: '1'}", "expected no Content-Length in it"),
        ("headers: {HOST: hunter2}", "expected no HOST in it"),
        ("base_url: 'http://a', tls: {ca_file: b}", "expected an https:// address beside it"),
        ("tls: {key_file: b}", "expected cert_file beside it"),
    ],
)
def test_ways_to_call_a_source_that_do_not_go_together_are_refused(
    source: str, expected: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        load_text(f"{KNOWN}sources: {{one: {{{source}}}}}")
    found = [str(one) for one in caught.value.problems]
    assert any(expected in one and "sources.one" in one for one in found)
    assert "hunter2" not in str(found)


@pytest.mark.parametrize(
    "source",
    [
        f"openapi: a, {EXCHANGE}, headers: {{X-Key: a}}",
        f"mcp: 'https://a/mcp', {EXCHANGE}, headers: {{Authorization: lists}}",
        "graphql: 'https://a', forward_token: true, same_trust_domain: true",
        "openapi: a, credentials: {k: {value: a}, l: {token: b}}, headers: {Authorization: c}",
        "openapi: a, base_url: 'https://a', tls: {ca_file: a, cert_file: b}",
    ],
)
def test_one_way_is_enough(source: str) -> None:
    settings = load_text(f"{KNOWN}sources: {{one: {{{source}}}}}")
    assert "hunter2" not in str(mask_secrets(settings))


@pytest.mark.parametrize("mode", ["none", "keys"])
@pytest.mark.parametrize("source", ["forward_token: true", EXCHANGE])
def test_callers_have_to_be_known_where_their_tokens_are_used(source: str, mode: str) -> None:
    key = source.partition(":")[0]
    assert f"sources.one.{key}: expected auth.mode: jwt with it" in problem(
        f"auth: {{mode: {mode}}}\nsources: {{one: {{{source}}}}}"
    )
