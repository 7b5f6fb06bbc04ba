"""People have accounts at an MCP server with a login of its own, built with the official SDK."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from config.settings import DatabaseSettings
from tests.fixtures_servers import serving
from tests.gateway.connections.oauth_service import Drive, Grant
from tests.gateway.connections.services import Notes, Office, change, link_of, token_of
from tests.gateway.connections.test_fronts import URL, call_stateless
from tests.gateway.connections.test_oauth import authorize
from tests.gateway.login.company import browsing, company
from tests.servers.authorization import Late

pytestmark = pytest.mark.anyio

OPERATOR = "operator-token"


class Verifier(TokenVerifier):
    def __init__(self, drive: Drive) -> None:
        self._drive = drive

    async def verify_token(self, token: str) -> AccessToken | None:
        grant = self._drive.access.get(token)
        if grant is None:
            return None
        return AccessToken(token=token, client_id="toolgate", scopes=[], subject=grant.person)


def mcp_server(drive: Drive, url: str) -> Any:
    auth = AuthSettings(
        issuer_url=drive.url, resource_server_url=f"{url}/mcp", validate_token_resource=False
    )  # type: ignore[arg-type]
    server = MCPServer("files", token_verifier=Verifier(drive), auth=auth)

    @server.tool()
    async def whose() -> str:
        token = get_access_token()
        return "nobody" if token is None else str(token.subject)

    @server.prompt()
    async def about() -> str:
        token = get_access_token()
        return "nobody" if token is None else str(token.subject)

    @server.resource("files://mine")
    async def mine() -> str:
        token = get_access_token()
        return "nobody" if token is None else str(token.subject)

    return server.streamable_http_app()


@dataclass
class Ledger:
    """An MCP server whose sessions are those of the account that has opened them."""

    drive: Drive
    owners: list[str] = field(default_factory=list)  # of sessions, by their number

    @property
    def app(self) -> Starlette:
        return Starlette(routes=[Route("/mcp", self.post, methods=["POST"])])

    async def post(self, request: Request) -> Response:
        asked = await request.json()
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if (grant := self.drive.access.get(token)) is None:
            return JSONResponse({}, 401, {"WWW-Authenticate": "Bearer"})
        headers = {}
        match asked["method"]:
            case "initialize":
                headers["Mcp-Session-Id"] = str(len(self.owners))
                self.owners.append(grant.person)
                about = {"serverInfo": {"name": "ledger", "version": "1"}}
                result = {**about, "protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
            case "tools/list":
                result = {"tools": [{"name": "whose", "inputSchema": {"type": "object"}}]}
            case "tools/call":
                owner = self.owners[int(request.headers["mcp-session-id"])]
                result = {"content": [{"type": "text", "text": owner}]}
            case _:
                return Response(status_code=202)
        answer = {"jsonrpc": "2.0", "id": asked["id"], "result": result}
        return JSONResponse(answer, headers=headers)


@asynccontextmanager
async def files_office(
    database: DatabaseSettings, drive: Drive, app: Any = None, **more: str
) -> AsyncIterator[Office]:
    login, files = Late(), Late()
    drive.access[OPERATOR] = Grant("operator", "")
    async with serving(login) as drive.url, serving(files) as url:
        login.app, files.app = drive.app, app or mcp_server(drive, url)
        env = {
            "TOOLGATE_CONNECTIONS__REFUSED_TOKEN_S": "0.001",
            "TOOLGATE_SOURCES__FILES__MCP": f"{url}/mcp",
            "TOOLGATE_SOURCES__FILES__HEADERS": json.dumps({"Authorization": f"Bearer {OPERATOR}"}),
            "TOOLGATE_SOURCES__FILES__CONNECT": json.dumps({"mode": "user", "issuer": drive.url}),
            **more,
        }
        async with files.app.router.lifespan_context(files.app), company(database, env=env) as made:
            yield Office(made, Notes())


async def test_tools_prompts_and_resources_are_the_persons_own(
    database_settings: DatabaseSettings,
) -> None:
    drive = Drive()
    async with (
        files_office(database_settings, drive) as made,
        browsing() as ann,
        browsing() as bob,
    ):
        tokens = {
            name: await token_of(made, browser, name)
            for name, browser in (("ann", ann), ("bob", bob))
        }
        for method, params in (
            ("prompts/get", {"name": "about"}),
            ("resources/read", {"uri": "files://mine"}),
        ):
            refused = await made.ask(tokens["ann"], method, params)
            assert refused["error"]["data"]["source"] == "files", refused
        for name, browser in (("ann", ann), ("bob", bob)):
            drive.person = name
            link = link_of(await made.call(tokens[name], "whose"))
            done = await authorize(browser, link)
            assert done.status == 200, done.text
        for _ in range(2):
            for name, token in tokens.items():
                answer = await made.call(token, "whose")
                assert answer["result"]["content"][0]["text"] == name, answer
                prompt = await made.ask(token, "prompts/get", {"name": "about"})
                assert prompt["result"]["messages"][0]["content"]["text"] == name
                read = await made.ask(token, "resources/read", {"uri": "files://mine"})
                assert read["result"]["contents"][0]["text"] == name
            drive.end_tokens()  # each is renewed once
            drive.access[OPERATOR] = Grant("operator", "")
        assert drive.requests["register"] == 1
        assert drive.asked[0]["resource"].endswith("/mcp")


async def test_the_own_session_of_a_client_ends_with_its_account(
    database_settings: DatabaseSettings,
) -> None:
    drive = Drive()
    ledger, own = Ledger(drive), {"TOOLGATE_SOURCES__FILES__OWN_SESSIONS": "true"}
    async with (
        files_office(database_settings, drive, ledger.app, **own) as made,
        browsing() as browser,
    ):
        token = await token_of(made, browser)
        headers = await made.begin(token)

        async def call() -> Any:
            call = {"name": "whose", "arguments": {}}
            return (await made.send(headers, "tools/call", call))["result"]

        for person in ("ann", "ann-at-work"):
            drive.person = person
            await authorize(browser, link_of({"result": await call()}))
            for _ in range(2):
                assert (await call())["content"][0]["text"] == person
            await change(made, browser, "end")
        opened = [owner for owner in ledger.owners if owner != "operator"]
        assert opened == ["ann", "ann-at-work"]


async def test_the_header_of_a_server_may_be_spelt_otherwise_later(
    database_settings: DatabaseSettings,
) -> None:
    drive = Drive()
    async with files_office(database_settings, drive) as made, browsing() as browser:
        token = await token_of(made, browser)
        await authorize(browser, link_of(await made.call(token, "whose")))
        gateway = made.company.gateway
        source = gateway.settings.sources["files"]
        lower = replace(source, connect=replace(source.connect, header="authorization"))
        await gateway.reconfigure(replace(gateway.settings, sources={"files": lower}))
        answer = await made.call(token, "whose")
        assert answer["result"]["content"][0]["text"] == "ann", answer


async def test_state_of_the_gateway_itself_reaches_no_server(
    database_settings: DatabaseSettings,
) -> None:
    drive = Drive()
    async with files_office(database_settings, drive) as made, browsing() as browser:
        token = await token_of(made, browser)
        asked = (await call_stateless(made, token, URL, name="whose"))["result"]
        (name,) = asked["inputRequests"]
        await authorize(browser, asked["inputRequests"][name]["params"]["url"])
        answer = await call_stateless(
            made,
            token,
            URL,
            name="whose",
            inputResponses={name: {"action": "accept"}},
            requestState=asked["requestState"],
        )
        assert answer["result"]["content"][0]["text"] == "ann", answer
