"""Habits of real authorization servers, around one that has none of them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send


@dataclass
class Habits:
    app: ASGIApp
    hides_rfc8414: bool = False  # OpenID Connect's document only
    refuses_resource: bool = False  # beside scopes, as Entra ID does
    iss: str | None = None  # instead of its own; "": none
    refuses: str = ""  # the error of the authorization endpoint
    status: int = 0  # of the token endpoint, with a page of HTML
    token: Mapping[str, Any] = field(default_factory=dict)  # members of its answers; None: left out
    token_status: int = 0  # of its answers
    asked: list[tuple[str, dict[str, str], dict[str, str]]] = field(default_factory=list)

    def forms(self, path: str) -> list[dict[str, str]]:
        return [form for asked, form, _ in self.asked if asked == path]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope, receive)
        body, path = await request.body(), request.url.path
        form = dict(parse_qsl(body.decode(errors="replace")))
        asked = dict(request.query_params) if path == "/authorize" else form
        self.asked.append((path, asked, dict(request.headers)))
        response = self._refusal(path, asked) or await self._inner(scope, body)
        await self._change(path, response)(scope, receive, send)

    def _refusal(self, path: str, fields: Mapping[str, str]) -> Response | None:
        if path == "/.well-known/oauth-authorization-server" and self.hides_rfc8414:
            return Response("", 404)
        if path == "/token" and self.status:
            return Response("<html>oops</html>", self.status)
        if path in ("/token", "/authorize") and self.refuses_resource and "resource" in fields:
            error = {"error": "invalid_target", "error_description": "AADSTS9010010"}
            if path == "/token":
                return JSONResponse(error, 400)
            return RedirectResponse(f"{fields['redirect_uri']}?{urlencode(error)}", 302)
        if path == "/authorize" and self.refuses:
            error = {"error": self.refuses, "iss": "", "state": fields["state"]}
            return RedirectResponse(f"{fields['redirect_uri']}?{urlencode(error)}", 302)
        return None

    async def _inner(self, scope: Scope, body: bytes) -> Response:
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": body}

        async def collect(message: Message) -> None:
            sent.append(message)

        await self.app(scope, receive, collect)
        content = b"".join(message.get("body", b"") for message in sent[1:])
        response = Response(content, sent[0]["status"])
        response.raw_headers = sent[0]["headers"]
        return response

    def _change(self, path: str, response: Response) -> Response:
        location = response.headers.get("location", "")
        if path == "/authorize" and location and self.iss is not None:
            base, query = location.split("?")[0], dict(parse_qsl(urlsplit(location).query))
            query["iss"] = self.iss
            sent = {name: value for name, value in query.items() if value}
            return RedirectResponse(f"{base}?{urlencode(sent)}", 302)
        if path == "/token" and (self.token or self.token_status) and response.status_code == 200:
            answer = {**json.loads(bytes(response.body)), **self.token}
            kept = {name: value for name, value in answer.items() if value is not None}
            return JSONResponse(kept, self.token_status or 200)
        return response
