"""An OAuth 2.1 authorization server, made with authlib.

    python -m tests.servers.issuer.app --resource URL [--resource URL ...]

Metadata (RFC 8414), registration of clients (RFC 7591), login with PKCE (RFC 7636) for one resource
(RFC 8707), `iss` in the answer (RFC 9207), refresh tokens, client credentials, token exchange (RFC
8693), JWTs as access tokens (RFC 9068), and their keys, which change by `POST /rotate`. On loopback
and in memory: for trying things out.
"""

import argparse
import json
import os
import socket
from typing import Any

import uvicorn
from authlib.oauth2 import OAuth2Error
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from tests.servers.issuer import pages
from tests.servers.issuer.accounts import TOKEN_EXCHANGE, Client, logged_in
from tests.servers.issuer.server import Answer, Asked, Server

HOST = "127.0.0.1"
BODY_BYTES = 64 << 10
GATEWAY = ("toolgate", "the-gateway-s-own-secret")  # how the gateway says who it is
REPORTS = ("reports", "the-secret-of-a-nightly-job")  # a program that acts for nobody


class Endpoints:
    def __init__(self, server: Server) -> None:
        self._server = server

    async def metadata(self, _request: Request) -> Response:
        return JSONResponse(self._server.metadata)

    async def jwks(self, _request: Request) -> Response:
        return JSONResponse(self._server.keys.public)

    async def rotate(self, _request: Request) -> Response:
        """No such thing is open to all in earnest."""
        self._server.keys.rotate()
        return JSONResponse(self._server.keys.public)

    async def register(self, request: Request) -> Response:
        asked = await _read(request)
        try:
            asked.body = json.loads(asked.body)
        except ValueError:
            asked.body = b""
        if not isinstance(asked.body, dict):
            return JSONResponse({"error": "invalid_client_metadata"}, 400)
        return _sent(self._server.create_endpoint_response("client_registration", asked))

    async def token(self, request: Request) -> Response:
        return _sent(self._server.create_token_response(await _read(request)))

    async def revoke(self, request: Request) -> Response:
        return _sent(self._server.create_endpoint_response("revocation", await _read(request)))

    async def authorize(self, request: Request) -> Response:
        """The page, by GET; what its form says, by POST."""
        asked = self._server.create_oauth2_request(await _read(request))
        try:
            grant = self._server.get_consent_grant(asked)
        except OAuth2Error as error:
            if error.redirect_uri:  # it is the client's own; others are not to be believed
                return _sent(self._server.refusal(asked, error))
            return _page(pages.failure(f"{error.error}: {error.description}"), 400)
        form = asked.form
        user = logged_in(form.get("username", ""), form.get("password", ""))
        if request.method == "POST" and (user or form.get("answer") == "deny"):
            granting = user if form.get("answer") == "allow" else None
            made = self._server.create_authorization_response(asked, granting, grant)
            return _sent(made)
        problem = "That is not right." if request.method == "POST" else ""
        client, target = grant.request.client, self._server.target(asked)
        scope = client.get_allowed_scope(asked.payload.scope)
        return _page(pages.login(client.name, target, scope, problem))


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
            Route("/rotate", at.rotate, methods=["POST"]),
        ]
    )


def with_programs(server: Server) -> Server:
    """Those that nobody has to register: the gateway, and a job that runs by night."""
    gateway_url, *_ = server.resources
    name, secret = GATEWAY
    own = ("client_credentials", TOKEN_EXCHANGE)
    gateway = Client(name, secret, "Toolgate", grant_types=own, receives=gateway_url)
    scopes = frozenset({"orders:read"})
    job = Client(*REPORTS, "Reports", grant_types=("client_credentials",), scopes=scopes)
    server.accounts.add(gateway, job)
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


def _sent(answer: Answer) -> Response:
    body: Any = json.dumps(answer.body) if isinstance(answer.body, dict) else answer.body
    return Response(body or b"", answer.status, dict(answer.headers))


def _page(text: str, status: int = 200) -> Response:
    return HTMLResponse(text, status, pages.HEADERS)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.servers.issuer.app")
    parser.add_argument("--port", type=int, default=8770, help="0 takes a free one")
    parser.add_argument("--resource", action="append", required=True, help="what tokens are for")
    parser.add_argument("--lifetime", type=int, default=300, help="of access tokens, seconds")
    arguments = parser.parse_args()
    try:
        listener = socket.create_server((HOST, arguments.port))
    except OSError as error:
        parser.exit(1, f"{HOST}:{arguments.port}: {os.strerror(error.errno or 0)}. Try --port 0.\n")
    url = f"http://{HOST}:{listener.getsockname()[1]}"
    server = with_programs(Server(url, arguments.resource, arguments.lifetime))
    print(url, flush=True)
    uvicorn.Server(uvicorn.Config(build_app(server), log_level="warning")).run(sockets=[listener])


if __name__ == "__main__":
    main()
