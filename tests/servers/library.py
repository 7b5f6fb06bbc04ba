"""A service with answers of every length and kind, and its description."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from starlette.types import Receive, Scope, Send

from tests.servers.rest import body_of

BOOKS = [{"id": n, "title": f"Book {n}", "tags": ["é", "x,y"]} for n in range(400)]
LINES = "".join(f"line {n} of a long text\n" for n in range(2000))
PIECE = bytes(range(256)) * 64


def file_of(size: int) -> bytes:
    return (PIECE * (size // len(PIECE) + 1))[:size]


def description() -> dict[str, Any]:
    def operation(name: str, schema: Any, *parameters: str, kind: str = "application/json") -> Any:
        described = {"description": "ok", "content": {kind: {"schema": schema}}}
        queries = [
            {"name": one, "in": "query", "schema": {"type": "integer", "default": 1}}
            for one in parameters
        ]
        return {"operationId": name, "parameters": queries, "responses": {"200": described}}

    book = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}
    shelf = {"properties": {"results": {"type": "array"}, "total_pages": {"type": "integer"}}}
    linked = operation("links", {"type": "array", "items": book}, "page")
    linked["responses"]["200"]["headers"] = {"Link": {"schema": {"type": "string"}}}
    binary = {"type": "string", "format": "binary"}
    zipped = operation("getFile", binary, "size", kind="application/zip")
    return {
        "openapi": "3.1.0",
        "info": {"title": "Library", "version": "1"},
        "paths": {
            "/file": {"get": zipped, "head": {**zipped, "operationId": "headFile"}},
            "/endless": {"get": operation("endless", binary, kind="application/zip")},
            "/books": {"get": operation("listBooks", {"type": "array", "items": book})},
            "/text": {"get": operation("getText", {"type": "string"}, kind="text/plain")},
            "/export": {"get": operation("export", {"type": "string"}, kind="text/csv")},
            "/shelf": {"get": operation("getShelf", shelf, "page")},
            "/links": {"get": linked},
            "/wrong": {"get": operation("wrong", book)},
            "/fails": {"get": operation("fails", book)},
            "/none": {"delete": {"operationId": "removeAll", "responses": {"204": {}}}},
        },
    }


@dataclass
class Library:
    asked: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await body_of(receive)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.asked.append((scope["method"], scope["path"], headers))
        query = {key: int(one[0]) for key, one in parse_qs(scope["query_string"].decode()).items()}
        answer = _Answer(send, receive, scope["method"])
        await getattr(self, scope["path"].strip("/"))(answer, query)

    async def file(self, answer: "_Answer", query: dict[str, int]) -> None:
        data = file_of(query.get("size", 10))
        named = "attachment; filename*=UTF-8''caf%C3%A9%2Fmenu.zip"
        await answer.give(data, "application/zip", ("content-disposition", named))

    async def endless(self, answer: "_Answer", _query: dict[str, int]) -> None:
        await answer.begin("application/zip")
        gone = asyncio.create_task(answer.receive())
        while not gone.done():
            await answer.more(PIECE)
            await asyncio.sleep(0)  # lets the disconnect arrive

    async def books(self, answer: "_Answer", _query: dict[str, int]) -> None:
        await answer.json(BOOKS)

    async def text(self, answer: "_Answer", _query: dict[str, int]) -> None:
        await answer.give(LINES.encode(), "text/plain; charset=utf-8")

    async def export(self, answer: "_Answer", _query: dict[str, int]) -> None:
        await answer.give(LINES.encode(), "text/csv", ("content-disposition", "attachment"))

    async def shelf(self, answer: "_Answer", query: dict[str, int]) -> None:
        await answer.json({"results": [{"n": query.get("page", 1)}], "total_pages": 3})

    async def links(self, answer: "_Answer", query: dict[str, int]) -> None:
        page = query.get("page", 1)
        link = f'<http://10.0.0.1/links?page={page + 1}>; rel="next"' if page < 3 else ""
        await answer.json([{"id": page}], ("link", link))

    async def wrong(self, answer: "_Answer", _query: dict[str, int]) -> None:
        await answer.json({"id": "seven"})

    async def fails(self, answer: "_Answer", _query: dict[str, int]) -> None:
        await answer.json({"detail": LINES}, status=500)

    async def none(self, answer: "_Answer", _query: dict[str, int]) -> None:
        await answer.begin("", 204)
        await answer.end()


@dataclass
class _Answer:
    send: Send
    receive: Receive
    method: str

    async def begin(self, kind: str, status: int = 200, *headers: tuple[str, str]) -> None:
        lines = [("content-type", kind), *headers] if kind else list(headers)
        encoded = [(name.encode(), value.encode()) for name, value in lines]
        await self.send({"type": "http.response.start", "status": status, "headers": encoded})

    async def more(self, data: bytes) -> None:
        await self.send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self) -> None:
        await self.send({"type": "http.response.body", "body": b""})

    async def give(
        self, data: bytes, kind: str, *headers: tuple[str, str], status: int = 200
    ) -> None:
        if self.method == "HEAD":
            headers = (*headers, ("content-length", str(len(data))), ("etag", '"1"'))
            data = b""
        await self.begin(kind, status, *headers)
        for at in range(0, len(data), 50_000):  # in chunks, without a length
            await self.more(data[at : at + 50_000])
        await self.end()

    async def json(self, value: Any, *headers: tuple[str, str], status: int = 200) -> None:
        data = json.dumps(value, ensure_ascii=False).encode()
        await self.give(data, "application/json", *headers, status=status)
