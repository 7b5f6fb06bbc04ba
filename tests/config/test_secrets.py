"""What is configured in confidence is shown nowhere."""

from pathlib import Path

import pytest

from config.load import SettingsError, load, mask_secrets


@pytest.fixture(autouse=True)
def _empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write_settings(directory: Path, text: str) -> str:
    file = directory / "settings.yaml"
    file.write_text(text, encoding="utf-8")
    return str(file)


SECRETS = """
database: {url: "postgresql://me:hunter2@db.example/tools?sslmode=require"}
sources:
  pets:
    openapi: https://me:hunter2@a.example/openapi.json?token=hunter2
    headers: {X-Key: Bearer hunter2, X-Trace: hunter2}
    credentials:
      key: {value: hunter2}
      basic: {username: hunter2, password: hunter2}
      bearer: {token: hunter2}
      oauth: {client_id: me, client_secret: hunter2, token_url: https://id.example/t}
  graph:
    graphql: https://me:hunter2@b.example/schema.graphql?token=hunter2
    base_url: https://b.example/graphql
    overlay: https://me:hunter2@b.example/overlay.yaml
  hosted: {mcp: "https://d.example/mcp?read_only=true&key=hunter2"}
  files:
    command: [files-server, /srv]
    env: {API_KEY: hunter2}
state:
  backend: redis
  redis_url: redis://me:hunter2@cache.example/1
  secret: hunter2-hunter2-hunter2
embedding:
  provider: openai-compatible
  model: small
  url: https://c.example/v1
  api_key: hunter2
"""


def test_masked_settings_hold_no_secret(tmp_path: Path) -> None:
    settings = load(write_settings(tmp_path, SECRETS), {})
    shown = mask_secrets(settings)
    assert "hunter2" not in str(shown)
    assert shown["database"]["url"] == "postgresql://me:***@db.example/tools?sslmode=require"
    assert shown["sources"]["pets"]["headers"] == {"X-Key": "***", "X-Trace": "***"}
    assert shown["sources"]["pets"]["credentials"]["basic"]["password"] == "***"
    assert shown["sources"]["pets"]["credentials"]["oauth"]["client_id"] == "me"
    assert shown["sources"]["pets"]["credentials"]["oauth"]["value"] is None
    assert shown["sources"]["pets"]["openapi"] == "https://***@a.example/openapi.json?***"
    assert shown["sources"]["hosted"]["mcp"] == "https://d.example/mcp?***"
    assert shown["sources"]["files"]["env"] == {"API_KEY": "***"}
    assert shown["state"]["redis_url"] == "redis://me:***@cache.example/1"
    assert shown["state"]["secret"] == "***"
    assert shown["embedding"]["api_key"] == "***"
    assert settings.sources["pets"].headers["X-Trace"] == "hunter2"
    assert settings.sources["files"].env["API_KEY"] == "hunter2"


def test_a_secret_that_is_not_set_is_not_masked_either() -> None:
    shown = mask_secrets(load(None, {}))
    assert shown["state"]["secret"] == shown["embedding"]["api_key"] == ""


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://cache.example:6379/0", "redis://cache.example:6379/0"),
        ("redis://:hunter2@cache.example", "redis://:***@cache.example"),
        ("rediss://me:hun%40ter2@cache.example", "rediss://me:***@cache.example"),
        ("redis://cache.example?password=hunter2&db=1", "redis://cache.example?password=***&db=1"),
        ("unix://me:hunter2@/run/redis.sock", "unix://me:***@/run/redis.sock"),
    ],
)
def test_the_password_of_redis_is_masked(url: str, shown: str) -> None:
    settings = load(None, {"TOOLGATE_STATE__BACKEND": "redis", "TOOLGATE_STATE__REDIS_URL": url})
    assert mask_secrets(settings)["state"]["redis_url"] == shown


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("embedded", "embedded"),
        ("postgresql://db.example:5432/tools", "postgresql://db.example:5432/tools"),
        ("postgres://me@db.example/tools", "postgres://me@db.example/tools"),
        ("postgresql://me:hunter2@h1,h2:5433/tools", "postgresql://me:***@h1,h2:5433/tools"),
        ("postgresql://me:hun/ter@2@db.example", "postgresql://me:***@db.example"),
        (
            "postgresql://db.example/?password=hunter2&user=me",
            "postgresql://db.example/?password=***&user=me",
        ),
        ("postgresql:///t?user=me&sslpassword=hunter2", "postgresql:///t?user=me&sslpassword=***"),
    ],
)
def test_the_password_of_the_database_is_masked(url: str, shown: str) -> None:
    settings = load(None, {"TOOLGATE_DATABASE__URL": url})
    assert mask_secrets(settings)["database"]["url"] == shown


@pytest.mark.parametrize(
    "text",
    [
        "database: {url: 'mysql://me:hunter2@db'}",
        "database: {url: [hunter2]}",
        "sources: {a: {headers: hunter2}}",
        "sources: {a: {headers: {'Authorization:hunter2'}}}",
        'sources: {a: {headers: {Authorization: "hunter2\\n"}}}',
        "sources: {a: {headers: {Authorization: [hunter2]}}}",
        "sources: {a: {base_url: 'https://me:hunter2@a.example'}}",
        "sources: hunter2",
        "sources: {a: {headers: {Authorization: '${X:-hunter2${Y}}'}}}",
        "sources: {a: {headers: {Authorization: 'hunter2}}}",
        "sources: {a: {env: hunter2}}",
        "sources: {a: {env: {'TOKEN:hunter2'}}}",
        "sources: {a: {env: {TOKEN: [hunter2]}}}",
        'sources: {a: {env: {TOKEN: "hunter2\\0"}}}',
        "sources: {a: {credentials: hunter2}}",
        "sources: {a: {credentials: {k: hunter2}}}",
        "sources: {a: {credentials: {'k:hunter2'}}}",
        "sources: {a: {credentials: {k: {'value:hunter2'}}}}",
        "sources: {a: {credentials: {k: {hunter2: 1}}}}",
        "sources: {a: {credentials: {k: {value: [hunter2]}}}}",
        'sources: {a: {credentials: {k: {token: "hunter2\\n"}}}}',
        "sources: {a: {credentials: {k: {token_url: 'https://me:hunter2@a.example'}}}}",
        "sources: {a: {credentials: {k: {token: hunter2, value: hunter2}}}}",
        "sources: {a: {credentials: {k: {password: hunter2}}}}",
        "sources: {a: {credentials: {k: {client_id: hunter2}}}}",
        "sources: {a: {hybrid: b, base_url: 'http://c', credentials: {k: {value: hunter2}}}}",
        "sources: {a: {mcp: 'https://me:hunter2@a.example/mcp'}}",
        "state: {secret: hunter2}",
        "state: {redis_url: 'http://me:hunter2@cache'}",
        "state: {redis_url: [hunter2]}",
        "state: {backend: redis, redis_url: 'redis://me:hunter2/@cache'}",
        "state: {redis_url: 'redis://me:hunter2@cache'}",
    ],
)
def test_no_error_message_shows_a_secret(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(write_settings(tmp_path, text), {})
    assert "hunter2" not in str(caught.value)
