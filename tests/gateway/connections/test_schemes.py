"""All ways in which descriptions ask for credentials, with accounts of people."""

import json
from pathlib import Path
from typing import Any

import pytest

from config.settings import DatabaseSettings
from tests.gateway.connections.services import (
    Office,
    connect,
    description,
    link_of,
    office,
    token_of,
)
from tests.gateway.login.company import Browser, browsing, fields

pytestmark = pytest.mark.anyio

APP = {"type": "apiKey", "in": "header", "name": "X-App"}
KEY = {"type": "apiKey", "in": "header", "name": "X-Key"}
OPERATOR = {"value": "operator-secret"}


async def connect_all(made: Office, browser: Browser, **form: str) -> dict[str, str]:
    """The headers of a call after its person has filled the page."""
    token = await token_of(made, browser)
    link = link_of(await made.call(token))
    page = await browser.get(link)
    done = await browser.post(link, {**fields(page.text), "choice": "save", **form})
    assert done.status == 200, done.text
    await made.call(token)
    (seen,) = made.notes.seen
    return seen


async def test_the_operators_key_goes_beside_the_persons_own(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    def spec(url: str) -> Any:
        return description(url, {"app": [], "key": []}, app=APP, key=KEY)

    env = {"TOOLGATE_SOURCES__NOTES__CREDENTIALS": json.dumps({"app": OPERATOR, "key": OPERATOR})}
    connect_settings = {"mode": "user", "schemes": ["key"]}
    async with (
        office(database_settings, tmp_path, connect=connect_settings, spec=spec, env=env) as made,
        browsing() as browser,
    ):
        seen = await connect_all(made, browser, **{"scheme-0": "ann-key-123456"})
        assert (seen["x-app"], seen["x-key"]) == ("operator-secret", "ann-key-123456")


async def test_a_tool_that_needs_the_operators_key_alone_asks_nobody(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    def spec(url: str) -> Any:
        return description(url, {"app": []}, app=APP, key=KEY)

    env = {"TOOLGATE_SOURCES__NOTES__CREDENTIALS": json.dumps({"app": OPERATOR})}
    connect_settings = {"mode": "user", "schemes": ["key"]}
    async with (
        office(database_settings, tmp_path, connect=connect_settings, spec=spec, env=env) as made,
        browsing() as browser,
    ):
        await made.call(await token_of(made, browser))
        assert made.notes.seen[0]["x-app"] == "operator-secret"


async def test_credentials_of_the_operator_stand_in_for_no_person(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    """Neither credentials nor headers of the settings, with or without an account."""
    headers = {"Authorization": "Bearer operator", "X-Key": "operator", "X-Tenant": "t"}
    env = {
        "TOOLGATE_SOURCES__NOTES__CREDENTIALS": json.dumps({"key": OPERATOR}),
        "TOOLGATE_SOURCES__NOTES__HEADERS": json.dumps(headers),
    }
    async with office(database_settings, tmp_path, env=env) as made, browsing() as browser:
        seen = await connect_all(made, browser, **{"scheme-0": "ann-key-123456"})
        assert seen["x-key"] == "ann-key-123456"
        assert seen["x-tenant"] == "t"
        assert "authorization" not in seen
        made.notes.keys.clear()
        refused = await made.call(await token_of(made, browser))
        assert refused["result"]["_meta"]["toolgate/connect"]["reason"] == "refused"
        assert {seen["x-key"] for seen in made.notes.seen} == {"ann-key-123456"}


@pytest.mark.parametrize(
    ("scheme", "form", "header", "value"),
    [
        ({"type": "http", "scheme": "basic"}, {"scheme-0-user": "ann"}, "authorization",
         "Basic YW5uOmFubi1rZXktMTIzNDU2"),
        ({"type": "http", "scheme": "bearer"}, {}, "authorization", "Bearer ann-key-123456"),
        ({"type": "apiKey", "in": "cookie", "name": "sid"}, {}, "cookie", "sid=ann-key-123456"),
    ],
)  # fmt: skip
async def test_other_kinds_of_schemes(
    database_settings: DatabaseSettings,
    tmp_path: Path,
    scheme: dict[str, str],
    form: dict[str, str],
    header: str,
    value: str,
) -> None:
    def spec(url: str) -> Any:
        return description(url, {"own": []}, own=scheme)

    async with (
        office(database_settings, tmp_path, spec=spec) as made,
        browsing() as browser,
    ):
        seen = await connect_all(made, browser, **{"scheme-0": "ann-key-123456", **form})
        assert seen[header] == value


async def test_a_new_key_is_stored_after_a_call_succeeds(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    settings = {"mode": "user", "check": "list_notes"}
    async with (
        office(database_settings, tmp_path, connect=settings) as made,
        browsing() as browser,
    ):
        token = await token_of(made, browser)
        link = link_of(await made.call(token))
        wrong = await connect(browser, link, "wrong-key-12345")
        assert wrong.status == 422, wrong.text
        assert "The service did not accept it" in wrong.text
        assert "401" in wrong.text
        assert "wrong-key" not in wrong.text
        link_of(await made.call(token))
        assert (await connect(browser, link, "ann-key-123456")).status == 200
        assert (await made.call(token))["result"]["structuredContent"] == {"owner": "ann"}


@pytest.mark.parametrize("security", [(), ({}, {"key": []})], ids=["none", "optional"])
async def test_open_operations_get_no_headers_of_the_operator(
    database_settings: DatabaseSettings, tmp_path: Path, security: Any
) -> None:
    """An operation that needs nothing is called with nothing."""

    def spec(url: str) -> Any:
        return description(url, *security, key=KEY)

    headers = {"Authorization": "Bearer operator", "X-Key": "operator", "X-Tenant": "t"}
    settings = {"mode": "user", "header": "X-Key"}
    env = {"TOOLGATE_SOURCES__NOTES__HEADERS": json.dumps(headers)}
    async with (
        office(database_settings, tmp_path, connect=settings, spec=spec, env=env) as made,
        browsing() as browser,
    ):
        await made.call(await token_of(made, browser))
        (seen,) = made.notes.seen
        assert seen["x-tenant"] == "t"
        assert "authorization" not in seen
        assert "x-key" not in seen


async def test_a_key_in_the_query_goes_without_the_operators_token(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    def spec(url: str) -> Any:
        return description(url, {"own": []}, own={"type": "apiKey", "in": "query", "name": "k"})

    env = {"TOOLGATE_SOURCES__NOTES__HEADERS": json.dumps({"Authorization": "Bearer operator"})}
    async with (
        office(database_settings, tmp_path, spec=spec, env=env) as made,
        browsing() as browser,
    ):
        seen = await connect_all(made, browser, **{"scheme-0": "ann-key-123456"})
        assert "authorization" not in seen


async def test_names_of_personal_schemes_are_folded(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    env = {"TOOLGATE_SOURCES__NOTES__CREDENTIALS": json.dumps({"key": OPERATOR})}
    settings = {"mode": "user", "schemes": ["KEY"]}
    async with (
        office(database_settings, tmp_path, connect=settings, env=env) as made,
        browsing() as browser,
    ):
        link_of(await made.call(await token_of(made, browser)))
        assert made.notes.seen == []
