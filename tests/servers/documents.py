"""A server of JSON documents, whose requests are recorded."""

from dataclasses import dataclass, field
from typing import Any

import anyio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send


@dataclass
class DocumentServer:
    """Documents by path: a value as JSON, bytes as they are, or a response; else 404."""

    documents: dict[str, Any] = field(default_factory=dict)
    challenge: str = ""  # of a 401 to whoever posts without a token; "": they get 404
    asked: list[str] = field(default_factory=list)  # paths, in order
    posted: list[bytes] = field(default_factory=list)
    silent: bool = False  # it never answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        self.asked.append(request.url.path)
        if self.silent:
            await anyio.sleep_forever()
        response = await self._answer(request)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        document = self.documents.get(request.url.path)
        if request.method == "POST":
            self.posted.append(await request.body())
            if document is None and self.challenge:
                return Response("", 401, {"WWW-Authenticate": self.challenge})
        if document is None:
            return Response("", 404)
        if isinstance(document, Response):
            return document
        if isinstance(document, bytes):
            return Response(document, media_type="text/html")
        return JSONResponse(document)
