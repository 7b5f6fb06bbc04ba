"""Logins as clients that people use do them: what they register, ask for, leave out and repeat.

Written down from their sources and bug reports. Each logs a person in, has its tokens refreshed by
two processes at once, and is told where it has lost its registration.
"""

import asyncio
import base64
from typing import Any

import pytest
from msgspec import Struct, field

from config.settings import DatabaseSettings
from tests.gateway.login.company import VERIFIER, Company, browsing, company
from tests.gateway.login.test_clients import Published

pytestmark = pytest.mark.anyio

BOTH = ["authorization_code", "refresh_token"]


class Habits(Struct, frozen=True, kw_only=True):
    """What a client sends; its id is the URL of a document, or given to it."""

    redirect: str  # that it asks for
    document: str = ""  # URL
    registered: dict[str, Any] = field(default_factory=dict)  # or published in the document
    authorize: dict[str, str] = field(default_factory=dict)
    later: dict[str, str] = field(default_factory=dict)  # changes when it reconnects
    basic: bool = False  # its secret comes in a header
    code_resource: bool = True  # it names the resource where it takes its code
    refresh_resource: bool = True
    slash: bool = False  # its URL class adds one to an origin


CLIENTS = {
    "claude": Habits(
        document="https://claude.ai/oauth/mcp-oauth-client-metadata",
        registered={
            "client_name": "Claude",
            "client_uri": "https://claude.ai",
            "redirect_uris": [
                "https://claude.ai/api/mcp/auth_callback",
                "https://claude.com/api/mcp/auth_callback",
            ],
            "grant_types": BOTH,
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        },
        redirect="https://claude.ai/api/mcp/auth_callback",
        authorize={"scope": "tools:read tools:write"},
    ),
    "claude by registration": Habits(
        registered={
            "client_name": "Claude",
            "redirect_uris": ["https://claude.ai/api/mcp/auth_callback"],
            "grant_types": BOTH,
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
            "scope": "tools:read",
        },
        redirect="https://claude.ai/api/mcp/auth_callback",
        authorize={"scope": "tools:read"},
    ),
    "claude code": Habits(
        document="https://claude.ai/oauth/claude-code-client-metadata",
        registered={
            "client_name": "Claude Code",
            "client_uri": "https://claude.ai",
            "redirect_uris": ["http://localhost/callback", "http://127.0.0.1/callback"],
            "grant_types": BOTH,
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        },
        redirect="http://localhost:54213/callback",
        later={"redirect_uri": "http://localhost:61002/callback"},
    ),
    "chatgpt": Habits(
        registered={
            "client_name": "ChatGPT",
            "redirect_uris": ["https://chatgpt.com/connector_platform_oauth_redirect"],
            "grant_types": BOTH,
            "response_types": ["code"],
            "token_endpoint_auth_method": "client_secret_post",
        },
        redirect="https://chatgpt.com/connector_platform_oauth_redirect",
        authorize={"scope": "tools:read"},
        later={"scope": ""},
    ),
    "codex": Habits(
        document="https://chatgpt.com/oauth/codex/client.json",
        registered={
            "client_name": "Codex",
            "redirect_uris": ["http://127.0.0.1/callback", "http://localhost/callback"],
            "grant_types": BOTH,
            "token_endpoint_auth_method": "none",
        },
        redirect="http://127.0.0.1:40123/callback",
        authorize={"scope": "tools:read"},
        refresh_resource=False,
    ),
    "vs code": Habits(
        registered={
            "client_name": "Visual Studio Code",
            "client_uri": "https://code.visualstudio.com",
            "redirect_uris": [
                "https://insiders.vscode.dev/redirect",
                "https://vscode.dev/redirect",
                "http://127.0.0.1/",
                "http://127.0.0.1:33418/",
            ],
            "grant_types": [*BOTH, "urn:ietf:params:oauth:grant-type:device_code"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
            "application_type": "native",
            "scope": "tools:read",
        },
        redirect="http://127.0.0.1:33418/",
        authorize={"scope": "tools:read", "prompt": "select_account"},
        later={"redirect_uri": "https://vscode.dev/redirect"},
        code_resource=False,
        refresh_resource=False,
    ),
    "vs code by document": Habits(
        document="https://vscode.dev/oauth/client-metadata.json",
        registered={
            "client_name": "Visual Studio Code",
            "logo_uri": "https://vscode.dev/icon.png",
            "redirect_uris": [
                "http://127.0.0.1:33418/",
                "http://127.0.0.1/",
                "https://vscode.dev/redirect",
            ],
            "grant_types": [*BOTH, "urn:ietf:params:oauth:grant-type:device_code"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        },
        redirect="http://127.0.0.1:51999/",
        later={"redirect_uri": "https://vscode.dev/redirect"},
    ),
    "opencode": Habits(
        document="https://opencode.ai/oauth/client-metadata.json",
        registered={
            "client_name": "OpenCode",
            "client_uri": "https://opencode.ai",
            "redirect_uris": ["http://127.0.0.1:19876/mcp/oauth/callback"],
            "grant_types": BOTH,
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        },
        redirect="http://127.0.0.1:19876/mcp/oauth/callback",
    ),
    "cursor": Habits(
        registered={
            "client_name": "Cursor",
            "redirect_uris": ["cursor://anysphere.cursor-mcp/oauth/callback"],
            "grant_types": BOTH,
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        },
        redirect="cursor://anysphere.cursor-mcp/oauth/callback",
        authorize={"scope": "tools:read tools:write"},
    ),
    "gemini cli": Habits(
        registered={
            "client_name": "Gemini CLI (Google ADK)",
            "redirect_uris": ["http://localhost:7777/oauth/callback"],
            "grant_types": BOTH,
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
            "code_challenge_method": ["S256"],
            "scope": "",
        },
        redirect="http://localhost:7777/oauth/callback",
        later={"redirect_uri": "http://localhost:38801/oauth/callback"},
    ),
    "n8n": Habits(
        registered={
            "client_name": "n8n",
            "client_uri": "https://n8n.io",
            "redirect_uris": ["https://oauth.n8n.cloud/oauth2/callback"],
            "grant_types": BOTH,
            "response_types": ["code"],
            "token_endpoint_auth_method": "client_secret_basic",
        },
        redirect="https://oauth.n8n.cloud/oauth2/callback",
        authorize={"access_type": "offline", "resource": ""},
        basic=True,
        code_resource=False,
        refresh_resource=False,
    ),
    "mcp-remote": Habits(
        registered={
            "client_name": "MCP CLI Proxy",
            "client_uri": "https://github.com/geelen/mcp-remote",
            "redirect_uris": ["http://localhost:3334/oauth/callback"],
            "grant_types": BOTH,
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
            "software_id": "2e6dc280-f3c3-4e01-99a7-8181dbd1d23d",
            "software_version": "0.15.1",
            "scope": "openid email profile",
        },
        redirect="http://localhost:3334/oauth/callback",
        authorize={"scope": "tools:read tools:write offline_access", "prompt": "consent"},
        slash=True,
    ),
}


class Program:
    """A client that acts as its habits say."""

    def __init__(self, made: Company, habits: Habits, published_documents: Published) -> None:
        self.made = made
        self.habits = habits
        self.id = habits.document
        self.secret = ""
        self._published = published_documents

    async def begin(self) -> None:
        if self.id:
            document = {"client_id": self.id, **self.habits.registered}
            self._published.documents[self.id] = document
            return
        answer = await self.made.register(*self.habits.registered["redirect_uris"], **{
            name: value
            for name, value in self.habits.registered.items()
            if name != "redirect_uris"
        })  # fmt: skip
        wanted = self.habits.registered.get("token_endpoint_auth_method")
        assert answer["token_endpoint_auth_method"] == wanted
        assert ("client_secret" in answer) is (wanted != "none")
        assert answer["redirect_uris"] == self.habits.registered["redirect_uris"]
        self.id, self.secret = answer["client_id"], answer.get("client_secret", "")

    @property
    def resource(self) -> str:
        return f"{self.made.url}/mcp{'/' if self.habits.slash else ''}"

    def authorize(self, **changes: str) -> str:
        query = {"redirect_uri": self.habits.redirect, "resource": self.resource}
        return self.made.authorize(self.id, **{**query, **self.habits.authorize, **changes})

    async def send(self, form: dict[str, str], *, resource: bool) -> tuple[int, dict[str, Any]]:
        form, headers = {**form, "client_id": self.id}, {}
        if resource:
            form["resource"] = self.resource
        if self.habits.basic:
            pair = base64.b64encode(f"{self.id}:{self.secret}".encode()).decode()
            headers["Authorization"] = f"Basic {pair}"
        elif self.secret:
            form["client_secret"] = self.secret
        async with self.made.http.post(
            f"{self.made.url}/token", data=form, headers=headers
        ) as answer:
            return answer.status, await answer.json()

    async def take(self, code: str, redirect: str) -> dict[str, Any]:
        status, tokens = await self.send(
            {
                "grant_type": "authorization_code",
                "code": code,
                "code_verifier": VERIFIER,
                "redirect_uri": redirect,
            },
            resource=self.habits.code_resource,
        )
        assert status == 200, tokens
        return tokens

    async def refresh(self, token: str) -> tuple[int, dict[str, Any]]:
        return await self.send(
            {"grant_type": "refresh_token", "refresh_token": token},
            resource=self.habits.refresh_resource,
        )


@pytest.fixture
def published_documents(monkeypatch: pytest.MonkeyPatch) -> Published:
    made = Published()
    monkeypatch.setattr("gateway.login.clients.fetch", made.fetch)
    return made


@pytest.mark.parametrize("name", [*CLIENTS])
async def test_habits_of_a_client_are_served(
    database_settings: DatabaseSettings, published_documents: Published, name: str
) -> None:
    habits = CLIENTS[name]
    async with company(database_settings) as made, browsing() as browser:
        made.identity.person["roles"] = ["clerk"]
        program = Program(made, habits, published_documents)
        await program.begin()
        back = await browser.log_in(program.authorize())
        assert back.location.startswith(f"{habits.redirect}?"), back
        assert (back.query["state"], back.query["iss"]) == ("s t/ä", made.url)
        tokens = await program.take(back.query["code"], habits.redirect)
        assert tokens["token_type"] == "Bearer"
        assert tokens["scope"].startswith("tools:read")
        assert await made.status(tokens["access_token"]) == 200

        first, second = await asyncio.gather(
            *(program.refresh(tokens["refresh_token"]) for _ in range(2))
        )
        assert first[0] == second[0] == 200, first
        assert first[1]["refresh_token"] == second[1]["refresh_token"]
        for answer in (first[1], second[1]):
            assert await made.status(answer["access_token"]) == 200
        status, following = await program.refresh(first[1]["refresh_token"])
        assert status == 200, following

        url = program.authorize(**habits.later)  # it reconnects
        back = await browser.get(url)
        if back.status == 200:
            asks = "prompt=select_account" in url
            back = await (browser.log_in(url) if asks else browser.press(url, "allow"))
        tokens = await program.take(
            back.query["code"], habits.later.get("redirect_uri", habits.redirect)
        )
        assert tokens["scope"].startswith("tools:read")
        assert await made.status(tokens["access_token"]) == 200


async def test_a_client_is_told_that_its_registration_is_lost(
    database_settings: DatabaseSettings, published_documents: Published
) -> None:
    """Clients that know the error register again; people of those that do not get a page."""
    async with company(database_settings) as made, browsing() as browser:
        for name in ("claude", "vs code", "n8n", "mcp-remote"):
            program = Program(made, CLIENTS[name], published_documents)
            program.id = "https://gone.example/client.json" if program.id else "lost"
            program.secret = "lost"
            status, answer = await program.refresh("tgr_x")
            assert (status, answer["error"]) == (401, "invalid_client"), name
            page = await browser.get(program.authorize())
            assert page.status == 400
            assert "add it again" in page.text
            assert not page.location
