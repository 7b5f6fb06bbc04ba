"""A service with items to read and to change, and a gateway whose callers run programs over it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec import convert
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from config.settings import Settings
from config.sources import SourceSettings
from tests.fixtures_gateway import Client, running
from tests.fixtures_servers import serving

PAGE = 3


@dataclass
class Shop:
    """`slow_s`: how long a read takes. `hangs`: until its caller is gone. `watch` is called before
    the effect of a mail with 0, and behind it with 1. `keys`: the mails of each idempotency key."""

    stock: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(10), 10))
    slow_s: float = 0.0
    hangs: bool = False
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    reads: int = 0
    most_at_once: int = 0
    open: int = 0
    mails: list[str] = field(default_factory=list)
    keys: dict[str, list[str]] = field(default_factory=dict)
    watch: Callable[[int], None] = lambda _when: None

    @property
    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/items", self.list),
                Route("/counts", self.count),
                Route("/items/{id:int}", self.read),
                Route("/items/{id:int}", self.change, methods=["PUT"]),
                Route("/mails", self.mail, methods=["POST"]),
            ]
        )

    async def list(self, request: Request) -> Response:
        begin = int(request.query_params.get("cursor", 0))
        numbers = sorted(self.stock)[begin : begin + PAGE]
        more = {"next_cursor": str(begin + PAGE)} if begin + PAGE < len(self.stock) else {}
        return JSONResponse({"items": [{"id": number} for number in numbers], **more})

    async def count(self, _request: Request) -> Response:
        return JSONResponse([*self.stock.values()])

    async def read(self, request: Request) -> Response:
        self.open += 1
        self.reads += 1
        self.most_at_once = max(self.most_at_once, self.open)
        try:
            await asyncio.sleep(self.slow_s)
            if self.hangs:
                await self._hang(request)
        finally:
            self.open -= 1
        number = request.path_params["id"]
        if number not in self.stock:
            return JSONResponse({"error": "no such item"}, 404)
        return JSONResponse({"id": number, "count": self.stock[number]})

    async def _hang(self, request: Request) -> None:
        self.arrived.set()
        while (await request.receive())["type"] != "http.disconnect":
            pass
        self.gone.set()

    async def change(self, request: Request) -> Response:
        number = request.path_params["id"]
        self.stock[number] = (await request.json())["count"]
        self.keys.setdefault(request.headers.get("idempotency-key", ""), []).append(str(number))
        return Response(status_code=204)

    async def mail(self, request: Request) -> Response:
        text = (await request.json())["text"]
        self.watch(0)
        self.mails.append(text)
        self.keys.setdefault(request.headers.get("idempotency-key", ""), []).append(text)
        self.watch(1)
        return Response(status_code=204)


def describe(url: str) -> dict[str, Any]:
    number = {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}
    cursor = {"name": "cursor", "in": "query", "schema": {"type": "string"}}
    item = {"type": "object", "properties": {"id": {"type": "integer"}}}
    page = {"items": {"type": "array", "items": item}, "next_cursor": {"type": "string"}}
    counts = json_of({"type": "array", "items": {"type": "integer"}})
    listing = {"200": {"description": "ok", "content": counts}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Shop", "version": "1"},
        "servers": [{"url": url}],
        "paths": {
            "/items": {"get": {**operation("list_items", page), "parameters": [cursor]}},
            "/counts": {"get": {"operationId": "list_counts", "responses": listing}},
            "/items/{id}": {
                "parameters": [number],
                "get": operation("get-item"),
                "put": {**operation("change_item"), "requestBody": body("count", "integer")},
            },
            "/mails": {"post": {**operation("send_mail"), "requestBody": body("text", "string")}},
        },
    }


def operation(name: str, members: Any = None) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": "ok"}
    if members is not None:
        answer["content"] = json_of({"type": "object", "properties": members})
    return {"operationId": name, "responses": {"200": answer}}


def body(name: str, kind: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {name: {"type": kind}}, "required": [name]}
    return {"required": True, "content": json_of(schema)}


def json_of(schema: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


@dataclass
class CodeShop:
    """The gateway and its service."""

    shop: Shop
    client: Client

    async def run(self, code: str, tool: str = "run_code", **more: Any) -> dict[str, Any]:
        """The end of a program, by /rpc."""
        answer = await self.ask(code, tool, **more)
        assert "result" in answer, answer
        return {"output": "", "error": "", **answer["result"]}

    async def ask(self, code: str, tool: str = "run_code", **more: Any) -> dict[str, Any]:
        body = {"jsonrpc": "2.0", "id": 1, "method": tool, "params": {"code": code, **more}}
        _, answer, _ = await self.client.post("/rpc", body)
        read: dict[str, Any] = answer
        return read


@asynccontextmanager
async def code_shop(
    settings: Settings,
    folder: Path,
    *,
    code: dict[str, Any] | None = None,
    crm: str = "",
    more: Mapping[str, SourceSettings] | None = None,
    **sections: Any,
) -> AsyncIterator[CodeShop]:
    """`crm`: the URL of an MCP server beside the shop. `more`: further sources.

    No process waits for a second program, which few tests run: each costs 0.1 s of CPU."""
    shop = Shop()
    async with serving(shop.app) as url:
        path = folder / "shop.json"
        path.write_text(json.dumps(describe(url)))
        sources = {"shop": convert({"openapi": str(path), "base_url": url}, SourceSettings)}
        if crm:
            sources["crm"] = SourceSettings(mcp=crm)
        sources.update(more or {})
        own = replace(
            settings.code, **{"enabled": True, "writes": "allow", "ready": 0, **(code or {})}
        )
        async with running(replace(settings, sources=sources, code=own, **sections)) as client:
            async with asyncio.timeout(30):
                await client.gateway.wait_for_wings()
            yield CodeShop(shop, client)
