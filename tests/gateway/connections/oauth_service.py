"""A service with an authorization server of its own, whose tokens end and rotate."""

import itertools
from base64 import b64decode
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route


@dataclass
class Grant:
    person: str
    scope: str
    refresh: str = ""
    acr: str = ""  # how the person has logged in


@dataclass
class Drive:
    """The service; `person` is whoever logs in next."""

    url: str = ""
    person: str = "ann"
    lasts_s: float = 3600
    down: bool = False
    grants_scope: str = ""  # "": what was asked for
    rotates: bool = True
    token_type: str = "Bearer"
    slow_s: float = 0.0
    asked: list[dict[str, str]] = field(default_factory=list)
    clients: list[tuple[str, str]] = field(default_factory=list)  # at /token: method, and secret
    requests: Counter[str] = field(default_factory=Counter)
    codes: dict[str, Grant] = field(default_factory=dict)
    access: dict[str, Grant] = field(default_factory=dict)
    refresh: dict[str, Grant] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)  # whose token each call had
    revoked: list[str] = field(default_factory=list)
    needs: str = ""  # a scope that calls need
    secret: str = ""  # of its only client; "": any is good
    changes: dict[str, Any] = field(default_factory=dict)  # of its metadata
    challenge: str = ""  # of calls of people who have not logged in as `acr`
    acr: str = ""
    numbers: Any = field(default_factory=lambda: itertools.count(1))

    @property
    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/.well-known/oauth-authorization-server", self.metadata),
                Route("/authorize", self.authorize),
                Route("/token", self.token, methods=["POST"]),
                Route("/revoke", self.revoke, methods=["POST"]),
                Route("/register", self.register, methods=["POST"]),
                Route("/notes", self.notes, methods=["GET", "POST"]),
            ]
        )

    async def metadata(self, _request: Request) -> Response:
        return JSONResponse(
            {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "revocation_endpoint": f"{self.url}/revoke",
                "registration_endpoint": f"{self.url}/register",
                "code_challenge_methods_supported": ["S256"],
                "authorization_response_iss_parameter_supported": True,
                **self.changes,
            }
        )

    async def register(self, request: Request) -> Response:
        self.requests["register"] += 1
        asked = await request.json()
        return JSONResponse(
            {**asked, "client_id": f"client-{next(self.numbers)}", "client_secret": "s" * 20}, 201
        )

    async def authorize(self, request: Request) -> Response:
        asked = dict(request.query_params)
        self.asked.append(asked)
        code = f"code-{next(self.numbers)}"
        scope = self.grants_scope or asked.get("scope", "")
        self.codes[code] = Grant(self.person, scope, acr=asked.get("acr_values", ""))
        query = urlencode({"code": code, "state": asked["state"], "iss": self.url})
        return RedirectResponse(f"{asked['redirect_uri']}?{query}", 303)

    async def token(self, request: Request) -> Response:
        form = {name: str(value) for name, value in (await request.form()).items()}
        self.requests[form["grant_type"]] += 1
        self.clients.append(client_of(request, form))
        await anyio.sleep(self.slow_s)
        if self.secret not in ("", self.clients[-1][1]):
            return JSONResponse({"error": "invalid_client"}, 401)
        if self.down:
            return JSONResponse({"error": "server_error"}, 500)
        if form["grant_type"] == "authorization_code":
            grant = self.codes.pop(form["code"], None)
        else:
            grant = self.refresh.get(form["refresh_token"])
            if grant is not None and self.rotates:
                del self.refresh[form["refresh_token"]]
        if grant is None:
            return JSONResponse({"error": "invalid_grant"}, 400)
        number = next(self.numbers)
        access, refresh = f"access-{number}-{'x' * 20}", f"refresh-{number}-{'y' * 20}"
        self.access[access] = self.refresh[refresh] = grant
        return JSONResponse(
            {
                "access_token": access,
                "token_type": self.token_type,
                "expires_in": self.lasts_s,
                "refresh_token": refresh,
                "scope": grant.scope,
            }
        )

    async def revoke(self, request: Request) -> Response:
        form = await request.form()
        self.revoked.append(str(form["token"]))
        return Response()

    async def notes(self, request: Request) -> Response:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        grant = self.access.get(token)
        if grant is None:
            return JSONResponse({}, 401, {"WWW-Authenticate": 'Bearer error="invalid_token"'})
        if self.needs and self.needs not in grant.scope.split():
            challenge = f'Bearer error="insufficient_scope", scope="{self.needs}"'
            return JSONResponse({}, 403, {"WWW-Authenticate": challenge})
        if grant.acr != self.acr:
            return JSONResponse({}, 401, {"WWW-Authenticate": self.challenge})
        self.seen.append(grant.person)
        return JSONResponse({"owner": grant.person})

    def end_tokens(self) -> None:
        """The service refuses all access tokens from now on."""
        self.access.clear()


@dataclass
class SlowDrive(Drive):
    """A service whose next renewal waits until `gate` is set."""

    asked_for: anyio.Event = field(default_factory=anyio.Event)
    gate: anyio.Event = field(default_factory=anyio.Event)

    async def token(self, request: Request) -> Response:
        form = await request.form()
        if form["grant_type"] == "refresh_token":
            self.asked_for.set()
            await self.gate.wait()
        return await super().token(request)

    async def notes(self, request: Request) -> Response:
        self.requests["notes"] += 1
        return await super().notes(request)


def client_of(request: Request, form: Mapping[str, str]) -> tuple[str, str]:
    """How a client authenticates, and its secret."""
    header = request.headers.get("authorization", "")
    if header.startswith("Basic "):
        return "basic", b64decode(header[6:]).decode().partition(":")[2]
    return ("post", form["client_secret"]) if "client_secret" in form else ("none", "")
