"""A company's identity provider (OpenID Connect), for trying things out: in memory, on loopback.

    python provider.py [--port PORT]

It knows its people and one program, the gateway, as Entra or Keycloak would.
"""

import argparse
import secrets
import time
from base64 import b64encode
from html import escape
from typing import Any
from urllib.parse import urlencode

import jwt
import uvicorn
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from jwt.algorithms import ECAlgorithm
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

GATEWAY = "toolgate"
GATEWAY_KEY = b64encode(f"{GATEWAY}:the-gateway-s-own-secret".encode()).decode()
PEOPLE = {"ann": ("lovelace", ["engineering"]), "ben": ("franklin", ["sales"])}
PAGE = """<!doctype html><title>The company</title><h1>The company</h1>{problem}
<form method="post"><label>Name <input name="name"></label>
<label>Password <input name="password" type="password"></label><button>Log in</button></form>"""


class Provider:
    def __init__(self, url: str) -> None:
        self._url = url
        self._key = generate_private_key(SECP256R1())
        self._codes: dict[str, tuple[str, dict[str, str]]] = {}  # code -> name, request

    async def metadata(self, _request: Request) -> Response:
        ends = {"authorization": "authorize", "token": "token"}
        addresses = {f"{name}_endpoint": f"{self._url}/{path}" for name, path in ends.items()}
        return JSONResponse({"issuer": self._url, "jwks_uri": f"{self._url}/jwks", **addresses})

    async def jwks(self, _request: Request) -> Response:
        key = ECAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        return JSONResponse({"keys": [{**key, "kid": "1", "alg": "ES256", "use": "sig"}]})

    async def authorize(self, request: Request) -> Response:
        """The page by GET; back to the gateway with a code by POST."""
        problem = ""
        if request.method == "POST":
            form = await request.form()
            name, password = str(form.get("name", "")), str(form.get("password", ""))
            if name in PEOPLE and secrets.compare_digest(password, PEOPLE[name][0]):
                return self._back(name, dict(request.query_params))
            problem = f"<p>That is not {escape(name)}'s password.</p>"
        return HTMLResponse(PAGE.format(problem=problem))

    def _back(self, name: str, query: dict[str, str]) -> Response:
        code = secrets.token_urlsafe(16)
        self._codes[code] = (name, query)
        answer = urlencode({"code": code, "state": query["state"], "iss": self._url})
        return RedirectResponse(f"{query['redirect_uri']}?{answer}", 303)

    async def token(self, request: Request) -> Response:
        if request.headers.get("authorization") != f"Basic {GATEWAY_KEY}":
            return JSONResponse({"error": "invalid_client"}, 401)
        form = await request.form()
        name, query = self._codes.pop(str(form.get("code")), ("", {}))
        if not name or form.get("redirect_uri") != query["redirect_uri"]:
            return JSONResponse({"error": "invalid_grant"}, 400)
        claims: dict[str, Any] = {"sub": name, "roles": PEOPLE[name][1], "nonce": query["nonce"]}
        claims |= {"iss": self._url, "aud": GATEWAY, "exp": int(time.time()) + 300}
        token = jwt.encode({**claims, "iat": int(time.time())}, self._key, "ES256", {"kid": "1"})
        return JSONResponse({"access_token": "-", "token_type": "Bearer", "id_token": token})


def main() -> None:
    parser = argparse.ArgumentParser(prog="python provider.py")
    parser.add_argument("--port", type=int, default=8770)
    port = parser.parse_args().port
    provider = Provider(f"http://127.0.0.1:{port}")
    routes = [
        Route("/.well-known/openid-configuration", provider.metadata),
        Route("/jwks", provider.jwks),
        Route("/authorize", provider.authorize, methods=["GET", "POST"]),
        Route("/token", provider.token, methods=["POST"]),
    ]
    uvicorn.run(Starlette(routes=routes), port=port, log_level="warning")


if __name__ == "__main__":
    main()
