"""The port of clients of LightRAG."""

import socket
from typing import Any

import pytest
from msgspec.structs import replace
from starlette.types import Receive, Scope, Send

from config.knowledge import KnowledgeSettings
from config.load import load
from gateway.cli.serve.lightrag_port import LightRagPort, lightrag_listener
from schemas.errors import ToolgateError

pytestmark = pytest.mark.anyio


async def test_requests_of_the_port_have_the_prefix() -> None:
    seen: list[tuple[Any, ...]] = []

    async def app(scope: Scope, _receive: Receive, _send: Send) -> None:
        seen.append((scope["type"], scope.get("path"), scope.get("raw_path")))

    port = LightRagPort(app, 9621, "bot")
    request = {"type": "http", "path": "/a b", "raw_path": b"/a%20b"}
    none: Any = None
    for scope in (
        {**request, "server": ("::1", 9621)},
        {**request, "server": ("::1", 8080)},
        {"type": "lifespan"},
    ):
        await port(scope, none, none)
    assert seen == [
        ("http", "/lightrag/bot/a b", b"/lightrag/bot/a%20b"),
        ("http", "/a b", b"/a%20b"),
        ("lifespan", None, None),
    ]


def settings(port: int, *, enabled: bool = True) -> KnowledgeSettings:
    found = load(None, {}).knowledge
    return replace(found, enabled=enabled, lightrag=replace(found.lightrag, port=port))


def test_the_port_is_on_the_host_of_the_gateway() -> None:
    with socket.create_server(("127.0.0.1", 0)) as beside:
        taken = beside.getsockname()[1]
        assert lightrag_listener(settings(0), beside) is None
        assert lightrag_listener(settings(taken, enabled=False), beside) is None
        with pytest.raises(ToolgateError, match=r"knowledge\.lightrag\.port"):
            lightrag_listener(settings(taken), beside)
