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
from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

GATEWAY = "toolgate"
GATEWAY_KEY = b64encode(f"{GATEWAY}:the-gateway-s-own-secret".encode()).decode()
PEOPLE = {"ann": ("lovelace", ["engineering"]), "ben": ("franklin", ["sales"])}
PAGE = """<!doctype html><title>{title}</title><h1>{title}</h1>{problem}
<form method="post"><label>Name <input name="name"></label>
<label>Password <input name="password" type="password"></label><button>Log in</button></form>"""


class LoginPage:
    """A page on which people log in, which then leads them back to a program with a code."""

    def __init__(self, url: str, title: str) -> None:
        self.url = url
        self._title = title
        self._codes: dict[str, tuple[str, dict[str, str]]] = {}  # code -> name, request

    async def log_in(self, request: Request) -> Response:
        """The page by GET; back to the program by POST."""
        problem = ""
        if request.method == "POST":
            form = await request.form()
            name, password = str(form.get("name", "")), str(form.get("password", ""))
            if name in PEOPLE and secrets.compare_digest(password, PEOPLE[name][0]):
                return self.lead_back(name, dict(request.query_params))
            problem = f"<p>That is not {escape(name)}'s password.</p>"
        return HTMLResponse(PAGE.format(title=self._title, problem=problem))

    def lead_back(self, name: str, query: dict[str, str]) -> Response:
        """The redirect to a program with a code. `query`: that of the page."""
        code = secrets.token_urlsafe(16)
        self._codes[code] = (name, query)
        answer = urlencode({"code": code, "state": query["state"], "iss": self.url})
        return RedirectResponse(f"{query['redirect_uri']}?{answer}", 303)

    def redeem(self, form: FormData) -> tuple[str, dict[str, str]]:
        """The person of a code, and the request that it answers; "" for a code that is not good."""
        name, query = self._codes.pop(str(form.get("code")), ("", {}))
        return (name, query) if form.get("redirect_uri") == query.get("redirect_uri") else ("", {})


class Provider(LoginPage):
    def __init__(self, url: str) -> None:
        super().__init__(url, "The company")
        self._key = generate_private_key(SECP256R1())

    async def metadata(self, _request: Request) -> Response:
        ends = {"authorization": "authorize", "token": "token"}
        addresses = {f"{name}_endpoint": f"{self.url}/{path}" for name, path in ends.items()}
        return JSONResponse({"issuer": self.url, "jwks_uri": f"{self.url}/jwks", **addresses})

    async def jwks(self, _request: Request) -> Response:
        key = ECAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        return JSONResponse({"keys": [{**key, "kid": "1", "alg": "ES256", "use": "sig"}]})

    async def token(self, request: Request) -> Response:
        if request.headers.get("authorization") != f"Basic {GATEWAY_KEY}":
            return JSONResponse({"error": "invalid_client"}, 401)
        name, query = self.redeem(await request.form())
        if not name:
            return JSONResponse({"error": "invalid_grant"}, 400)
        claims: dict[str, Any] = {"sub": name, "roles": PEOPLE[name][1], "nonce": query["nonce"]}
        claims |= {"iss": self.url, "aud": GATEWAY, "exp": int(time.time()) + 300}
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
        Route("/authorize", provider.log_in, methods=["GET", "POST"]),
        Route("/token", provider.token, methods=["POST"]),
    ]
    uvicorn.run(Starlette(routes=routes), port=port, log_level="warning")


if __name__ == "__main__":
    main()
