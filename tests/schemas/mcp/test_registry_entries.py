"""server.json of others, read; the members are those of the published schema of 2025-12-11."""

from typing import Any

import msgspec
import pytest

from schemas.mcp.registry_entries import SCHEMA, ServerDetail, ServerList, schema_version

SERVER: dict[str, Any] = {
    "$schema": SCHEMA,
    "name": "io.github.ada/weather",
    "description": "Weather of tomorrow.",
    "version": "1.2.0-rc.1",
}
PACKAGE: dict[str, Any] = {
    "registryType": "npm",
    "identifier": "@ada/weather",
    "version": "1.2.0",
    "runtimeHint": "npx",
    "transport": {"type": "stdio"},
    "packageArguments": [
        {"type": "positional", "valueHint": "city", "isRequired": True},
        {"type": "named", "name": "--units", "choices": ["metric", "imperial"]},
    ],
    "environmentVariables": [{"name": "API_KEY", "isSecret": True, "isRequired": True}],
}
REMOTE: dict[str, Any] = {
    "type": "streamable-http",
    "url": "https://{tenant}.weather.example/mcp",
    "variables": {"tenant": {"isRequired": True}},
    "headers": [
        {"name": "X-Key", "value": "k {key}", "variables": {"key": {"isSecret": True}}},
    ],
}


def _read(document: dict[str, Any]) -> ServerDetail:
    return msgspec.convert(document, ServerDetail)


def test_server_survives_a_round_trip() -> None:
    document = {**SERVER, "packages": [PACKAGE], "remotes": [REMOTE], "_meta": {"a": {"b": 1}}}
    assert msgspec.json.decode(msgspec.json.encode(_read(document))) == document


def test_unknown_members_are_ignored() -> None:
    assert _read({**SERVER, "later": 1}).namespace == "io.github.ada"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"name": "weather"}, "name"),
        ({"name": "io.github.ada/weather\n"}, "name"),
        ({"description": "x" * 101}, "description"),
        ({"version": "^1.2.0"}, "found the range"),
        ({"version": "1.x"}, "found the range"),
        ({"version": "latest"}, "found the range"),
        ({"packages": [{**PACKAGE, "version": ">=1"}]}, "found the range"),
        ({"packages": [{**PACKAGE, "fileSha256": "A" * 64}]}, "fileSha256"),
        ({"packages": [{**PACKAGE, "packageArguments": [{"type": "positional"}]}]}, "valueHint"),
        ({"packages": [{**PACKAGE, "transport": {"type": "sse"}}]}, "url"),
        ({"remotes": [{**REMOTE, "type": "stdio"}]}, "type"),
        ({"remotes": [{**REMOTE, "url": "file:///etc/passwd"}]}, "url"),
    ],
)
def test_server_outside_the_schema_is_refused(change: dict[str, Any], text: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=text):
        _read({**SERVER, **change})


def test_page_of_a_list_has_its_cursor() -> None:
    page = {"servers": [{"server": SERVER}], "metadata": {"nextCursor": "n", "count": 1}}
    assert msgspec.convert(page, ServerList).metadata.next_cursor == "n"


@pytest.mark.parametrize(("url", "version"), [(SCHEMA, "2025-12-11"), ("https://x/", "https://x/")])
def test_schema_version_is_that_of_the_url(url: str, version: str) -> None:
    assert schema_version(url) == version
