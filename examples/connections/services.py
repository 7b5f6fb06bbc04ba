"""Three services at which people have accounts, for trying things out: in memory, on loopback.

    python services.py

Notes takes keys; the code host has people log in and knows one program, the gateway, as GitHub
would; the tracker is an MCP server with a login of its own.
"""

import asyncio
import secrets
from base64 import b64encode, urlsafe_b64encode
from hashlib import sha256
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from examples.connections import tracker
from examples.login.provider import LoginPage

NOTES, CODE, TRACKER = "http://127.0.0.1:8766", "http://127.0.0.1:8767", "http://127.0.0.1:8768"
KEYS = {"notes-key-of-ann": "ann", "notes-key-of-ben": "ben"}
GATEWAY = {
    "client_id": "toolgate",
    "redirect_uri": "http://127.0.0.1:8765/connect/code/callback",
}
GATEWAY_KEY = b64encode(b"toolgate:the-secret-of-the-gateway").decode()


def description(url: str, path: str, operation: str, scheme: dict[str, Any]) -> dict[str, Any]:
    """The OpenAPI description of a service with one operation, which answers a list of texts."""
    schema = {"type": "array", "items": {"type": "string"}}
    answer = {"description": "The list", "content": {"application/json": {"schema": schema}}}
    get = {"operationId": operation, "responses": {"200": answer}}
    return {
        "openapi": "3.1.0",
        "info": {"title": operation, "version": "1"},
        "servers": [{"url": url}],
        "security": [{"account": ["read"] if scheme["type"] == "oauth2" else []}],
        "components": {"securitySchemes": {"account": scheme}},
        "paths": {path: {"get": get}},
    }


class Notes:
    async def describe(self, _request: Request) -> Response:
        scheme = {"type": "apiKey", "in": "header", "name": "X-Api-Key"}
        return JSONResponse(description(NOTES, "/notes", "listNotes", scheme))

    async def settings(self, _request: Request) -> Response:
        """A page that would need a login, and make a key."""
        return PlainTextResponse("".join(f"{name}: {key}\n" for key, name in KEYS.items()))

    async def notes(self, request: Request) -> Response:
        name = KEYS.get(request.headers.get("x-api-key", ""))
        if name is None:
            return JSONResponse({"error": "no such key"}, 401)
        return JSONResponse([f"{name}: buy tea"])


class CodeHost(LoginPage):
    def __init__(self) -> None:
        super().__init__(CODE, "The code host")
        self._tokens: dict[str, str] = {}  # token -> name

    async def describe(self, _request: Request) -> Response:
        flow = {"authorizationUrl": f"{CODE}/authorize", "tokenUrl": f"{CODE}/token"}
        flows = {"authorizationCode": {**flow, "scopes": {"read": "Read issues"}}}
        scheme = {"type": "oauth2", "flows": flows}
        return JSONResponse(description(CODE, "/issues", "listIssues", scheme))

    async def log_in(self, request: Request) -> Response:
        """The page, for the program that is registered and the address that it comes from."""
        if any(request.query_params.get(name) != value for name, value in GATEWAY.items()):
            return PlainTextResponse("This program is not registered here.", 400)
        return await super().log_in(request)

    async def token(self, request: Request) -> Response:
        if request.headers.get("authorization") != f"Basic {GATEWAY_KEY}":
            return JSONResponse({"error": "invalid_client"}, 401)
        form = await request.form()
        name, query = self.redeem(form)
        digest = sha256(str(form.get("code_verifier")).encode()).digest()
        challenge = urlsafe_b64encode(digest).rstrip(b"=").decode()
        if not name or query.get("code_challenge") != challenge:  # PKCE
            return JSONResponse({"error": "invalid_grant"}, 400)
        token = secrets.token_urlsafe(24)
        self._tokens[token] = name  # for good, as GitHub's
        return JSONResponse({"access_token": token, "token_type": "bearer", "scope": "read"})

    async def issues(self, request: Request) -> Response:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in self._tokens:
            return JSONResponse({}, 401, {"WWW-Authenticate": 'Bearer error="invalid_token"'})
        return JSONResponse([f"assigned to {self._tokens[token]}: the door squeaks"])


def applications() -> dict[str, Starlette]:
    """The services, by their URLs."""
    notes, code = Notes(), CodeHost()
    of_notes = [
        Route("/openapi.json", notes.describe),
        Route("/settings", notes.settings),
        Route("/notes", notes.notes),
    ]
    of_code = [
        Route("/openapi.json", code.describe),
        Route("/authorize", code.log_in, methods=["GET", "POST"]),
        Route("/token", code.token, methods=["POST"]),
        Route("/issues", code.issues),
    ]
    return {
        NOTES: Starlette(routes=of_notes),
        CODE: Starlette(routes=of_code),
        TRACKER: tracker.build_app(TRACKER),
    }


async def main() -> None:
    servers = [
        uvicorn.Server(uvicorn.Config(app, port=int(url.rpartition(":")[2]), log_level="warning"))
        for url, app in applications().items()
    ]
    bound = [(server, server.config.bind_socket()) for server in servers]
    print("Services:", NOTES, CODE, TRACKER, flush=True)
    await asyncio.gather(*(server.serve([listener]) for server, listener in bound))


if __name__ == "__main__":
    asyncio.run(main())
