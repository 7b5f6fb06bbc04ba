"""The provider of the login asserts to an MCP server's login who its callers are: nobody sees a
page."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from config.settings import DatabaseSettings
from tests.fixtures_servers import serving
from tests.gateway.connections.oauth_service import Drive, Grant
from tests.gateway.connections.services import Notes, Office, token_of
from tests.gateway.connections.test_mcp import OPERATOR, mcp_server
from tests.gateway.login.company import browsing, company
from tests.servers.authorization import Late
from tests.servers.identity_assertions import (
    ID_JAG,
    MACHINE,
    SECRET,
    AssertedServer,
    AssertingIdentity,
)

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def act_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """People of tests are faster than those for whom a refusal is remembered some seconds."""
    monkeypatch.setattr("gateway.upstreams.auth.service_tokens.INTERACTION_TTL_S", 0.0)


class Files(Drive):
    """The MCP server's view of the tokens."""

    def __init__(self, server: AssertedServer) -> None:
        super().__init__()
        self.server = server

    @property
    def access(self) -> Any:
        people = {token: Grant(who, "") for token, who in self.server.people.items()}
        return {**people, OPERATOR: Grant("operator", "")}

    @access.setter
    def access(self, _tokens: Any) -> None:
        pass


@asynccontextmanager
async def files_office(
    database: DatabaseSettings, server: AssertedServer, **connect: Any
) -> AsyncIterator[Office]:
    login, files, issuer = Late(), Late(), Late()
    identity = server.identity
    async with serving(login) as server.url, serving(files) as url, serving(issuer) as identity.url:
        server.resource = f"{url}/mcp"
        drive = Files(server)
        drive.url = server.url
        login.app, files.app, issuer.app = server.app, mcp_server(drive, url), identity.app
        client = {"id": MACHINE, "secret": SECRET}
        settings = {"mode": "id_jag", "issuer": server.url, "client": client, **connect}
        env = {
            "TOOLGATE_SOURCES__FILES__MCP": server.resource,
            "TOOLGATE_SOURCES__FILES__HEADERS": json.dumps({"Authorization": f"Bearer {OPERATOR}"}),
            "TOOLGATE_SOURCES__FILES__CONNECT": json.dumps(settings),
        }
        async with (
            files.app.router.lifespan_context(files.app),
            company(database, identity, env=env) as made,
        ):
            yield Office(made, Notes())


def text_of(answer: dict[str, Any]) -> str:
    text: str = answer["result"]["content"][0]["text"]
    return text


async def test_each_caller_is_themself_at_the_server_without_a_page(
    database_settings: DatabaseSettings,
) -> None:
    server = AssertedServer(identity := AssertingIdentity(rotates=True))
    async with (
        files_office(database_settings, server, scopes=["files:read"]) as made,
        browsing() as ann,
        browsing() as bob,
    ):
        tokens = {
            name: await token_of(made, browser, name)
            for name, browser in (("ann", ann), ("bob", bob))
        }
        identity.person = {}

        async def call(name: str) -> None:
            assert text_of(await made.call(tokens[name], "whose")) == name

        for _ in range(2):
            async with anyio.create_task_group() as group:
                for name in (*tokens, *tokens):
                    group.start_soon(call, name)
        assert len(identity.exchanged) == 2
        assert identity.exchanged[0]["scope"] == "files:read"
        server.people.clear()  # the server refuses their tokens: each is had anew, once
        await call("ann")
        assert len(identity.exchanged) == 3
        page = await ann.get(f"{made.url}/connect")
        assert "files" not in page.text


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"denies": "access_denied"}, "gave no token: access_denied"),
        ({"issues": f"{ID_JAG}x"}, "gives no identity assertions (ID-JAG)"),
        ({"gives_refresh": False}, "their login has none of a provider"),
    ],
)
async def test_a_provider_that_asserts_nothing_is_named(
    database_settings: DatabaseSettings, changes: dict[str, Any], text: str
) -> None:
    server = AssertedServer(AssertingIdentity(**changes))
    async with files_office(database_settings, server) as made, browsing() as browser:
        answer = await made.call(await token_of(made, browser), "whose")
        assert text in json.dumps(answer), answer
        assert server.used == set()


async def test_a_person_whose_login_is_not_renewed_logs_in_again(
    database_settings: DatabaseSettings,
) -> None:
    server = AssertedServer(identity := AssertingIdentity())
    async with files_office(database_settings, server) as made, browsing() as browser:
        token = await token_of(made, browser)
        identity.left = True
        asked = (await made.call(token, "whose"))["result"]["_meta"]["toolgate/connect"]
        assert (asked["source"], asked["reason"]) == ("files", "expired")
        identity.left = False
        assert text_of(await made.call(token, "whose")) == "ann"


async def test_a_server_that_refuses_the_assertion_is_named(
    database_settings: DatabaseSettings,
) -> None:
    server = AssertedServer(AssertingIdentity())
    async with files_office(database_settings, server) as made, browsing() as browser:
        server.resource = "https://another.example/mcp"
        answer = await made.call(await token_of(made, browser), "whose")
        assert "invalid_grant" in json.dumps(answer), answer


async def test_a_token_for_former_settings_is_not_sent_with_new_settings(
    database_settings: DatabaseSettings,
) -> None:
    """They may name another server, or fewer scopes."""
    server = AssertedServer(identity := AssertingIdentity())
    async with (
        files_office(database_settings, server, scopes=["files:read", "files:write"]) as made,
        browsing() as browser,
    ):
        token = await token_of(made, browser)
        assert text_of(await made.call(token, "whose")) == "ann"
        gateway = made.company.gateway
        source = gateway.settings.sources["files"]
        fewer = replace(source, connect=replace(source.connect, scopes=("files:read",)))
        await gateway.reconfigure(replace(gateway.settings, sources={"files": fewer}))
        assert text_of(await made.call(token, "whose")) == "ann"
        scopes = [exchange["scope"] for exchange in identity.exchanged]
        assert scopes == ["files:read files:write", "files:read"]
