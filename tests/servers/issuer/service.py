"""A service that takes tokens of its own audience only (RFC 9068), and says who asks. openapi.yaml
describes it."""

from typing import Any

import jwt
from anyio import to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route


class Orders:
    def __init__(self, issuer: str, url: str) -> None:
        """`url`: its own, which is the audience of its tokens."""
        self._issuer = issuer
        self._url = url
        # no pause before it looks for a new key, so that one can be tried out at once
        self._keys = jwt.PyJWKClient(f"{issuer}/jwks", cooldown_duration=0)
        self._orders: list[dict[str, str]] = [{"item": "tea", "by": "ada"}]

    async def list(self, request: Request) -> Response:
        return await self._answer(request, "orders:read", None)

    async def place(self, request: Request) -> Response:
        return await self._answer(request, "orders:write", await request.json())

    async def _answer(self, request: Request, scope: str, order: Any) -> Response:
        try:
            claims = await to_thread.run_sync(self._claims, request)
        except jwt.PyJWTError as error:
            said = f'Bearer error="invalid_token", error_description="{type(error).__name__}"'
            return JSONResponse({"error": "invalid_token"}, 401, {"WWW-Authenticate": said})
        if scope not in claims["scope"].split():
            said = f'Bearer error="insufficient_scope", scope="{scope}"'
            return JSONResponse({"error": "insufficient_scope"}, 403, {"WWW-Authenticate": said})
        if order is not None:
            self._orders.append({"item": order["item"], "by": claims["sub"]})
        through = claims.get("act", {}).get("sub", "")
        asked = {"askedBy": claims["sub"], "through": through, "scope": claims["scope"]}
        return JSONResponse({**asked, "orders": self._orders}, 201 if order else 200)

    def _claims(self, request: Request) -> dict[str, Any]:
        """Raises PyJWTError."""
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer":
            raise jwt.InvalidTokenError
        if jwt.get_unverified_header(token).get("typ") != "at+jwt":
            raise jwt.InvalidTokenError
        key = self._keys.get_signing_key_from_jwt(token)
        claims: dict[str, Any] = jwt.decode(
            token, key, algorithms=["ES256"], audience=self._url, issuer=self._issuer
        )
        return claims


def build_app(issuer: str, url: str) -> Starlette:
    orders = Orders(issuer, url)
    return Starlette(
        routes=[
            Route("/orders", orders.list),
            Route("/orders", orders.place, methods=["POST"]),
        ]
    )
