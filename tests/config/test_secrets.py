"""What is configured in confidence is shown nowhere."""

from pathlib import Path

import pytest

from config.load import SettingsError, load, masked


@pytest.fixture(autouse=True)
def _empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def written(directory: Path, text: str) -> str:
    file = directory / "settings.yaml"
    file.write_text(text, encoding="utf-8")
    return str(file)


SECRETS = """
database: {url: "postgresql://me:hunter2@db.example/tools?sslmode=require"}
sources:
  pets:
    openapi: https://me:hunter2@a.example/openapi.json?token=hunter2
    headers: {Authorization: Bearer hunter2, X-Trace: hunter2}
"""


def test_masked_settings_hold_no_secret(tmp_path: Path) -> None:
    settings = load(written(tmp_path, SECRETS), {})
    shown = masked(settings)
    assert "hunter2" not in str(shown)
    assert shown["database"]["url"] == "postgresql://me:***@db.example/tools?sslmode=require"
    assert shown["sources"]["pets"]["headers"] == {"Authorization": "***", "X-Trace": "***"}
    assert shown["sources"]["pets"]["openapi"] == "https://***@a.example/openapi.json?***"
    assert settings.sources["pets"].headers["X-Trace"] == "hunter2"


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
    assert masked(settings)["database"]["url"] == shown


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
    ],
)
def test_no_error_message_shows_a_secret(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(written(tmp_path, text), {})
    assert "hunter2" not in str(caught.value)
