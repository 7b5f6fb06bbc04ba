"""An OpenID provider with switches: each habit of a real one that has broken somebody's login."""

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlencode

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from jwt.algorithms import ECAlgorithm
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

CLIENT, SECRET = "the-gateway", "a secret of the gateway"


@dataclass
class Identity:
    """A provider at which one person at a time is logged in: no page asks for a password."""

    url: str = ""
    person: dict[str, Any] = field(default_factory=lambda: {"sub": "ann", "name": "Ann"})
    refuses_resource: bool = True  # as Entra ID does, beside scopes
    rotates: bool = False  # refresh tokens are good once
    gives_refresh: bool = True
    sends_iss: bool = True
    announces_iss: bool = False
    wrong_iss: bool = False  # in the answer to the browser
    wrong_nonce: bool = False
    wrong_audience: bool = False
    refuses: str = ""  # the error of the authorization endpoint
    fails: int = 0  # status of the token endpoint
    body: bytes = b"<html>oops</html>"  # of that answer
    adds: dict[str, Any] = field(default_factory=dict)  # to answers with tokens
    says: dict[str, Any] = field(default_factory=dict)  # in the metadata
    left: bool = False  # the person is no longer there
    asked: list[dict[str, str]] = field(default_factory=list)  # of the authorization endpoint
    refreshed: int = 0

    def __post_init__(self) -> None:
        self._codes: dict[str, dict[str, str]] = {}
        self._refresh: dict[str, dict[str, Any]] = {}
        self.use_key("k1")

    def use_key(self, kid: str, jwks: str = "/jwks") -> None:
        """Sign with a new key from now on, alone in the key set at the path `jwks`."""
        self._key, self.jwks = generate_private_key(SECP256R1()), jwks
        public = ECAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        self._jwk = {**public, "kid": kid, "alg": "ES256", "use": "sig"}

    @property
    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self._metadata),
                Route("/{name:path}jwks", self._jwks),
                Route("/login", self._authorize),
                Route("/token", self._token, methods=["POST"]),
            ]
        )

    def sign(self, claims: Mapping[str, Any], typ: str = "JWT") -> str:
        """A token of this provider, good for five minutes unless `claims` say so."""
        now = int(time.time())
        said = {"iss": self.url, "iat": now, "exp": now + 300, **claims}
        return jwt.encode(said, self._key, "ES256", {"kid": self._jwk["kid"], "typ": typ})

    async def _metadata(self, _request: Request) -> Response:
        return JSONResponse(
            {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/login",
                "token_endpoint": f"{self.url}/token",
                "jwks_uri": self.url + self.jwks,
                "authorization_response_iss_parameter_supported": self.announces_iss,
                **self.says,
            }
        )

    async def _jwks(self, request: Request) -> Response:
        return JSONResponse({"keys": [self._jwk] if request.url.path == self.jwks else []})

    async def _authorize(self, request: Request) -> Response:
        asked = dict(request.query_params)
        self.asked.append(asked)
        answer = {"state": asked["state"]}
        if self.sends_iss:
            answer["iss"] = "https://elsewhere.example" if self.wrong_iss else self.url
        if self.refuses:
            answer |= {"error": self.refuses, "error_description": "AADSTS: said so"}
        elif self.refuses_resource and "resource" in asked:
            answer |= {"error": "invalid_target", "error_description": "AADSTS9010010"}
        else:
            code = secrets.token_urlsafe(16)
            self._codes[code] = asked
            answer["code"] = code
        return RedirectResponse(f"{asked['redirect_uri']}?{urlencode(answer)}", 302)

    async def _token(self, request: Request) -> Response:
        form = {name: texts[0] for name, texts in parse_qs((await request.body()).decode()).items()}
        if self.fails:
            return Response(self.body, self.fails)
        if form["grant_type"] == "refresh_token":
            return self._refresh_tokens(form["refresh_token"])
        asked = self._codes.pop(form["code"], None)
        if asked is None or asked["redirect_uri"] != form["redirect_uri"]:
            return JSONResponse({"error": "invalid_grant"}, 400)
        nonce = "another" if self.wrong_nonce else asked["nonce"]
        return JSONResponse(self._tokens(self.person, nonce))

    def _refresh_tokens(self, token: str) -> Response:
        self.refreshed += 1
        person = self._refresh.get(token)
        if person is None or self.left:
            return JSONResponse({"error": "invalid_grant"}, 400)
        if self.rotates:
            del self._refresh[token]
        return JSONResponse(self._tokens({**person, **self.person}, ""))

    def _tokens(self, person: Mapping[str, Any], nonce: str) -> dict[str, Any]:
        audience = "somebody-else" if self.wrong_audience else CLIENT
        claims = {**person, "aud": audience, **({"nonce": nonce} if nonce else {})}
        answer = {"access_token": "opaque", "token_type": "Bearer", "id_token": self.sign(claims)}
        if self.gives_refresh:
            refresh = secrets.token_urlsafe(16)
            self._refresh[refresh] = dict(person)
            answer["refresh_token"] = refresh
        return {**answer, **self.adds}
