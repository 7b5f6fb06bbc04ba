"""A service whose callers have keys of their own, and a gateway in front of it."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from config.settings import DatabaseSettings
from tests.fixtures_servers import serving
from tests.gateway.login.company import Browser, Company, company, fields

KEYS = {"ann-key-123456": "ann", "bob-key-123456": "bob"}


@dataclass
class Notes:
    """A service that answers whose key it was called with."""

    seen: list[dict[str, str]] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=lambda: dict(KEYS))

    @property
    def app(self) -> Starlette:
        return Starlette(routes=[Route("/notes", self.notes, methods=["GET", "POST"])])

    async def notes(self, request: Request) -> Response:
        self.seen.append(dict(request.headers))
        owner = self.keys.get(request.headers.get("x-key", ""))
        if owner is None:
            return JSONResponse({"error": "who are you?"}, 401)
        return JSONResponse({"owner": owner})


def description(url: str, *security: dict[str, list[str]], **schemes: Any) -> dict[str, Any]:
    answer = {"200": {"description": "ok"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Notes", "version": "1"},
        "servers": [{"url": url}],
        "components": {"securitySchemes": schemes},
        "paths": {
            "/notes": {
                "get": {"operationId": "list_notes", "responses": answer, "security": [*security]},
                "post": {"operationId": "add_note", "responses": answer, "security": [*security]},
            }
        },
    }


@dataclass
class Office:
    """A company whose people have accounts at the service."""

    company: Company
    notes: Notes

    @property
    def url(self) -> str:
        return self.company.url

    async def call(
        self, token: str, tool: str = "list_notes", *, version: str = "2025-06-18", **params: Any
    ) -> dict[str, Any]:
        """The answer to a call of a tool by a client of a handshake revision."""
        capabilities = params.pop("capabilities", {})
        call = {"name": tool, "arguments": {}, **params}
        return await self.ask(token, "tools/call", call, version, capabilities)

    async def ask(
        self,
        token: str,
        method: str,
        params: dict[str, Any],
        version: str = "2025-06-18",
        capabilities: Any = None,
    ) -> dict[str, Any]:
        """The answer to a request of such a client."""
        return await self.send(await self.begin(token, version, capabilities), method, params)

    async def begin(
        self, token: str, version: str = "2025-06-18", capabilities: Any = None
    ) -> dict[str, str]:
        """The headers of a session of such a client."""
        headers = {
            "Authorization": f"Bearer {token}",
            "Accept": "application/json, text/event-stream",
        }
        begin = {
            "protocolVersion": version,
            "capabilities": capabilities or {},
            "clientInfo": {"name": "test", "version": "1"},
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": begin}
        async with self.company.http.post(self.url + "/mcp", json=body, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            headers["Mcp-Session-Id"] = answer.headers["Mcp-Session-Id"]
        return {**headers, "MCP-Protocol-Version": version}

    async def send(
        self, headers: dict[str, str], method: str, params: dict[str, Any]
    ) -> dict[str, Any]:
        """The answer to a request in a session."""
        body = {"jsonrpc": "2.0", "id": 2, "method": method, "params": params}
        async with self.company.http.post(self.url + "/mcp", json=body, headers=headers) as answer:
            text = await answer.text()
        lines = [line[6:] for line in text.splitlines() if line.startswith("data: {")]
        read: dict[str, Any] = json.loads(lines[-1] if lines else text)
        return read


async def rows_of(made: Office, query: str) -> list[tuple[Any, ...]]:
    await made.company.gateway.access.settle()
    pool = made.company.gateway._handle.pool()
    assert pool is not None
    async with pool.connection() as connection:
        rows = await connection.execute(query.encode())
        return await rows.fetchall()


async def token_of(office: Office, browser: Browser, subject: str = "ann") -> str:
    """The token of a person, who logs in with their browser."""
    office.company.identity.person["sub"] = subject
    _, tokens = await office.company.grant_tokens(browser)
    token: str = tokens["access_token"]
    return token


def link_of(answer: dict[str, Any]) -> str:
    assert "result" in answer, answer
    result = answer["result"]
    assert result["isError"] is True, answer
    url: str = result["_meta"]["toolgate/connect"]["url"]
    assert url in result["content"][0]["text"]
    return url


async def connect(browser: Browser, link: str, key: str, **more: str) -> Any:
    page = await browser.get(link)
    assert page.status == 200, page.text
    form = {**fields(page.text), "scheme-0": key, "choice": "save", **more}
    return await browser.post(link, form)


async def change(made: Office, browser: Browser, act: str, **more: str) -> None:
    """Act on all connections of a person."""
    page = await browser.get(f"{made.url}/connect")
    for part in page.text.split('name="end" value="')[1:]:
        form = {**fields(page.text), act: part.split('"')[0], **more}
        await browser.post(f"{made.url}/connect", form)


@asynccontextmanager
async def office(
    database: DatabaseSettings,
    folder: Path,
    *,
    connect: dict[str, Any] | None = None,
    spec: Any = None,
    env: dict[str, str] | None = None,
) -> AsyncIterator[Office]:
    notes = Notes()
    async with serving(notes.app) as url:
        key = {"type": "apiKey", "in": "header", "name": "X-Key"}
        made = description(url, {"key": []}, key=key) if spec is None else spec(url)
        path = folder / "notes.json"
        path.write_text(json.dumps(made))
        settings = {
            "TOOLGATE_SOURCES__NOTES__OPENAPI": str(path),
            "TOOLGATE_SOURCES__NOTES__BASE_URL": url,
            "TOOLGATE_SOURCES__NOTES__CONNECT": json.dumps(connect or {"mode": "user"}),
            **(env or {}),
        }
        async with company(database, env=settings) as made_company:
            yield Office(made_company, notes)
