"""A provider that asserts to other servers who people are (ID-JAG), and such a server, which
refuses everything that the draft does not allow."""

import base64
import itertools
import secrets
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

import jwt
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.servers.identity import CLIENT, Identity

EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"
ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"
MACHINE, SECRET = "gateway-at-files", "secret at files"


def form_of(body: bytes) -> dict[str, str]:
    return {name: texts[0] for name, texts in parse_qs(body.decode()).items()}


@dataclass
class AssertingIdentity(Identity):
    denies: str = ""  # the error of the exchange
    issues: str = ID_JAG  # the type of what is issued
    exchanged: list[dict[str, str]] = field(default_factory=list)

    async def _token(self, request: Request) -> Response:
        form = form_of(await request.body())
        if form["grant_type"] != EXCHANGE:
            return await super()._token(request)
        self.exchanged.append(form)
        if self.denies:
            return JSONResponse({"error": self.denies}, 400)
        if (form["requested_token_type"], form["subject_token_type"]) != (ID_JAG, ID_TOKEN):
            return JSONResponse({"error": "invalid_request"}, 400)
        key = jwt.PyJWK(self._jwk)
        person = jwt.decode(form["subject_token"], key, ["ES256"], audience=CLIENT)
        claims = {
            "sub": person["sub"],
            "aud": form["audience"],
            "resource": form["resource"],
            "client_id": MACHINE,
            "jti": secrets.token_urlsafe(8),
            "scope": form.get("scope", ""),
        }
        token = self.sign(claims, "oauth-id-jag+jwt")
        answer = {"access_token": token, "issued_token_type": self.issues, "token_type": "N_A"}
        return JSONResponse({**answer, "expires_in": 300})


@dataclass
class AssertedServer:
    """The authorization server of an MCP server at `resource`."""

    identity: Identity
    url: str = ""
    resource: str = ""
    people: dict[str, str] = field(default_factory=dict)  # by token
    used: set[str] = field(default_factory=set)
    numbers: Any = field(default_factory=lambda: itertools.count(1))

    @property
    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/.well-known/oauth-authorization-server", self._metadata),
                Route("/token", self._token, methods=["POST"]),
            ]
        )

    async def _metadata(self, _request: Request) -> Response:
        return JSONResponse(
            {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "token_endpoint_auth_methods_supported": ["client_secret_basic"],
            }
        )

    async def _token(self, request: Request) -> Response:
        form = form_of(await request.body())
        basic = base64.b64encode(f"{MACHINE}:{SECRET.replace(' ', '%20')}".encode()).decode()
        if request.headers.get("authorization") != f"Basic {basic}":
            return JSONResponse({"error": "invalid_client"}, 401)
        try:
            claims = jwt.decode(
                form["assertion"],
                jwt.PyJWK(self.identity._jwk),
                ["ES256"],
                audience=self.url,
                issuer=self.identity.url,
            )
        except jwt.PyJWTError as error:
            return JSONResponse({"error": "invalid_grant", "error_description": str(error)}, 400)
        header = jwt.get_unverified_header(form["assertion"])
        good = (
            form["grant_type"] == JWT_BEARER
            and header["typ"] == "oauth-id-jag+jwt"
            and claims["client_id"] == MACHINE
            and claims["resource"] == self.resource
            and claims["exp"] - claims["iat"] <= 300
            and claims["jti"] not in self.used
        )
        if not good:
            return JSONResponse({"error": "invalid_grant"}, 400)
        self.used.add(claims["jti"])
        token = f"files-{next(self.numbers)}-{claims['sub']}"
        self.people[token] = claims["sub"]
        return JSONResponse({"access_token": token, "token_type": "Bearer", "expires_in": 3600})
