"""A provider with the habits of Entra ID: tokens on behalf of people (AADSTS errors), no RFC 8693,
and refresh tokens that are good for every resource."""

import base64
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

import anyio
import jwt
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tests.servers.identity import CLIENT, SECRET, Identity

JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
CLAIMS = '{"access_token":{"polids":{"essential":true,"values":["p-1"]}}}'
CONSENT = {"error": "invalid_grant", "suberror": "consent_required", "error_codes": [65001]}
FACTOR = {"error": "interaction_required", "error_codes": [50079], "claims": CLAIMS}


@dataclass
class Entra(Identity):
    """Answers `1:ann@api://orders` for the first token of ann for that API."""

    slow_s: float = 0.0
    client: str = CLIENT  # that asks on behalf of people
    certificate: bytes = b""  # of the client, in PEM; b"": it has a secret
    refusal: Mapping[str, Any] = field(default_factory=dict)  # of tokens on behalf of people
    forms: list[dict[str, str]] = field(default_factory=list)  # of those
    numbers: Any = field(default_factory=lambda: itertools.count(1))

    async def _token(self, request: Request) -> Response:
        body = (await request.body()).decode()
        form = {name: texts[0] for name, texts in parse_qs(body).items()}
        if form["grant_type"] == JWT_BEARER:
            self.forms.append(form)
            return self._on_behalf_of(request, form)
        self._scope = form.get("scope", "")
        answer = await super()._token(request)  # the token is used up before the answer comes
        await anyio.sleep(self.slow_s)
        return answer

    def _tokens(self, person: Mapping[str, Any], nonce: str) -> dict[str, Any]:
        return {**super()._tokens(person, nonce), "access_token": self.user_token(person["sub"])}

    def user_token(self, user: str, **changes: Any) -> str:
        """A person's token for the client, where that is asked for, else for another API."""
        scope = getattr(self, "_scope", f"{CLIENT}/.default")
        audience = scope.removesuffix("/.default") or "https://graph.microsoft.com"
        claims = {"sub": user, "oid": user, "scp": "access_as_user", "aud": audience, **changes}
        return self.sign({name: value for name, value in claims.items() if value is not None})

    def _on_behalf_of(self, request: Request, form: dict[str, str]) -> Response:
        if not self._is_client(request, form):
            return JSONResponse({"error": "invalid_client"}, 401)
        if form.get("requested_token_use") != "on_behalf_of":
            return JSONResponse({"error": "invalid_request"}, 400)
        if not form.get("scope", "").endswith("/.default"):
            return JSONResponse({"error": "invalid_scope", "error_codes": [70011]}, 400)
        try:
            public = jwt.PyJWK(self._jwk)
            claims = jwt.decode(form["assertion"], public, ["ES256"], audience=self.client)
        except jwt.PyJWTError:
            return JSONResponse({"error": "invalid_grant", "error_codes": [50013]}, 400)
        if self.refusal:
            return JSONResponse({**self.refusal, "error_description": "AADSTS: said so"}, 400)
        api = form["scope"].removesuffix("/.default")
        text = f"{next(self.numbers)}:{claims['sub']}@{api}"
        return JSONResponse({"access_token": text, "token_type": "Bearer", "expires_in": 3600})

    def _is_client(self, request: Request, form: dict[str, str]) -> bool:
        if not self.certificate:
            basic = base64.b64encode(
                f"{self.client}:{SECRET.replace(' ', '%20')}".encode()
            ).decode()
            return request.headers.get("authorization") == f"Basic {basic}"
        certificate = x509.load_pem_x509_certificate(self.certificate)
        thumb = base64.urlsafe_b64encode(certificate.fingerprint(SHA256())).rstrip(b"=").decode()
        header = jwt.get_unverified_header(form["client_assertion"])
        audience = f"{self.url}/token"
        key: Any = certificate.public_key()
        claims = jwt.decode(form["client_assertion"], key, ["PS256"], audience=audience)
        return header["x5t#S256"] == thumb and claims["iss"] == claims["sub"] == self.client
