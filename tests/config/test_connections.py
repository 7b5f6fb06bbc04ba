"""Settings of `connections`."""

import pytest

from config.load import SettingsError, load


def test_a_request_ends_before_renewals_are_repeated() -> None:
    load(None, {"TOOLGATE_CONNECTIONS__REQUEST_S": "14"})
    with pytest.raises(SettingsError) as caught:
        load(None, {"TOOLGATE_CONNECTIONS__REQUEST_S": "15"})
    [problem] = caught.value.problems
    assert "connections.request_s: expected less than connections.renew_timeout_s" in str(problem)


@pytest.mark.parametrize(
    ("connect", "expected"),
    [
        ('{"title": "Notes"}', "connect: expected mode: user"),
        ('{"mode": "user"}', "connect: expected login.enabled"),
        ('{"mode": "user", "client": {"id": "a", "secret": "b"}}', "connect.client.secret"),
        ('{"mode": "user", "schemes": ["key"]}', "connect.schemes: expected none of mcp"),
        (
            '{"mode": "user", "token_url": "https://a.example/t"}',
            "connect: expected authorization_url",
        ),
        ('{"mode": "user", "issuer": "http://a.example"}', "connect.issuer: expected an https"),
        ('{"mode": "id_jag", "issuer": "https://a.example"}', "expected, with id_jag, mcp, and"),
        ('{"mode": "user", "header": "Host"}', "connect.header: expected another header"),
    ],
)
def test_unusable_settings_of_connect_are_named(connect: str, expected: str) -> None:
    env = {"TOOLGATE_SOURCES__A__MCP": "https://a.example", "TOOLGATE_SOURCES__A__CONNECT": connect}
    with pytest.raises(SettingsError) as caught:
        load(None, env)
    assert expected in "\n".join(map(str, caught.value.problems))
