"""The routes of an authorization server, made with authlib.

Metadata (RFC 8414), registration of clients (RFC 7591), login with PKCE (RFC 7636) for one resource
(RFC 8707), `iss` in the answer (RFC 9207), refresh tokens, client credentials, token exchange (RFC
8693), JWTs as access tokens (RFC 9068), and their keys. On loopback and in memory.
"""

import json
from typing import Any

from authlib.oauth2 import OAuth2Error
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from tests.servers.issuer.accounts import TOKEN_EXCHANGE, Client, logged_in
from tests.servers.issuer.server import Answer, Asked, Server

BODY_BYTES = 64 << 10
GATEWAY = ("toolgate", "the-gateway-s-own-secret")  # how the gateway says who it is
FORM = """<!doctype html><title>Log in</title><form method="post">
<input name="username"><input name="password" type="password">
<button name="answer" value="allow">Allow</button>
<button name="answer" value="deny">Deny</button></form>"""


class Endpoints:
    def __init__(self, server: Server) -> None:
        self._server = server

    async def metadata(self, _request: Request) -> Response:
        return JSONResponse(self._server.metadata)

    async def jwks(self, _request: Request) -> Response:
        return JSONResponse(self._server.keys.public)

    async def register(self, request: Request) -> Response:
        asked = await _read(request)
        try:
            asked.body = json.loads(asked.body)
        except ValueError:
            asked.body = b""
        if not isinstance(asked.body, dict):
            return JSONResponse({"error": "invalid_client_metadata"}, 400)
        return _to_response(self._server.create_endpoint_response("client_registration", asked))

    async def token(self, request: Request) -> Response:
        return _to_response(self._server.create_token_response(await _read(request)))

    async def revoke(self, request: Request) -> Response:
        return _to_response(
            self._server.create_endpoint_response("revocation", await _read(request))
        )

    async def authorize(self, request: Request) -> Response:
        """The page, by GET; what its form says, by POST."""
        asked = self._server.create_oauth2_request(await _read(request))
        try:
            grant = self._server.get_consent_grant(asked)
        except OAuth2Error as error:
            if error.redirect_uri:  # it is the client's own; others are not to be believed
                return _to_response(self._server.refusal(asked, error))
            return PlainTextResponse(f"{error.error}: {error.description}", 400)
        form = asked.form
        user = logged_in(form.get("username", ""), form.get("password", ""))
        if request.method == "POST" and (user or form.get("answer") == "deny"):
            granting = user if form.get("answer") == "allow" else None
            made = self._server.create_authorization_response(asked, granting, grant)
            return _to_response(made)
        return HTMLResponse(FORM)


def build_app(server: Server) -> Starlette:
    at = Endpoints(server)
    known = "/.well-known/"
    return Starlette(
        routes=[
            Route(f"{known}oauth-authorization-server", at.metadata),
            Route(f"{known}openid-configuration", at.metadata),
            Route("/jwks", at.jwks),
            Route("/register", at.register, methods=["POST"]),
            Route("/authorize", at.authorize, methods=["GET", "POST"]),
            Route("/token", at.token, methods=["POST"]),
            Route("/revoke", at.revoke, methods=["POST"]),
        ]
    )


def with_gateway(server: Server) -> Server:
    """With the gateway as a client, which nobody has to register."""
    gateway_url, *_ = server.resources
    own = ("client_credentials", TOKEN_EXCHANGE)
    server.accounts.add(Client(*GATEWAY, "Toolgate", grant_types=own, receives=gateway_url))
    return server


async def _read(request: Request) -> Asked:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES:
            break
    headers = {name.title(): value for name, value in request.headers.items()}
    url = str(request.url)
    return Asked(request.method, url, headers, request.url.query, body[:BODY_BYTES])


def _to_response(answer: Answer) -> Response:
    body: Any = json.dumps(answer.body) if isinstance(answer.body, dict) else answer.body
    return Response(body or b"", answer.status, dict(answer.headers))
