"""The authorization server's own metadata, fetched for old clients."""

import asyncio
import json
import logging
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace
from starlette.types import Receive, Scope, Send

from config.load import load
from gateway.guards.authorization_server_proxy import AuthorizationServer, NoMetadata
from schemas.issuers import well_known
from tests.fixtures_servers import Serve
from tests.servers.rest import read_seen, respond

pytestmark = pytest.mark.anyio

OAUTH = load(None, {}).oauth
PLACE = "/.well-known/oauth-authorization-server"


@dataclass
class Metadata:
    """Serves documents by path, and counts what it is asked."""

    documents: dict[str, Any] = field(default_factory=dict)  # JSON, or bytes
    location: str = ""
    asked: list[str] = field(default_factory=list)
    came: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await read_seen(scope, receive)
        self.asked.append(scope["path"])
        self.came.set()
        await self.released.wait()
        found = self.documents.get(scope["path"])
        body = found if isinstance(found, bytes) else json.dumps(found).encode()
        headers = [("content-type", "application/json")]
        if self.location:
            await respond(send, 302, b"", [*headers, ("location", self.location)])
        else:
            await respond(send, 404 if found is None else 200, body, headers)


@pytest.fixture
def server() -> Metadata:
    made = Metadata()
    made.released.set()
    return made


def document(issuer: str, **members: Any) -> dict[str, Any]:
    return {"issuer": issuer, "token_endpoint": f"{issuer}/token", "x": "kept", **members}


async def test_metadata_is_forwarded_unchanged_and_cached(serve: Serve, server: Metadata) -> None:
    url = await serve(server)
    server.documents[PLACE] = document(url)
    source = AuthorizationServer(url, OAUTH)
    assert json.loads(await source.metadata()) == document(url)
    assert json.loads(await source.metadata()) == document(url)
    assert server.asked == [PLACE]


async def test_however_many_ask_one_request_is_made(serve: Serve, server: Metadata) -> None:
    url = await serve(server)
    server.documents[PLACE] = document(url)
    server.released.clear()
    source = AuthorizationServer(url, OAUTH)
    asking = [asyncio.create_task(source.metadata()) for _ in range(20)]
    await server.came.wait()
    server.released.set()
    assert len(set(await asyncio.gather(*asking))) == 1
    assert server.asked == [PLACE]


@pytest.mark.parametrize("place", range(3))
async def test_metadata_is_looked_up_at_every_well_known_place(
    serve: Serve, server: Metadata, place: int
) -> None:
    issuer = await serve(server) + "/tenant"
    places = [url.removeprefix(issuer.removesuffix("/tenant")) for url in well_known(issuer)]
    assert places == [
        f"{PLACE}/tenant",
        "/.well-known/openid-configuration/tenant",
        "/tenant/.well-known/openid-configuration",
    ]
    server.documents[places[place]] = document(issuer)
    assert json.loads(await AuthorizationServer(issuer, OAUTH).metadata()) == document(issuer)
    assert server.asked == places[: place + 1]


@pytest.mark.parametrize(("path", "stated"), [("/realm", "/realm/"), ("/realm/", "/realm")])
async def test_metadata_of_another_path_is_refused(
    serve: Serve, server: Metadata, path: str, stated: str
) -> None:
    """An issuer is compared as it is; `/realm` and `/realm/` are two."""
    url = await serve(server)
    server.documents[f"{PLACE}/realm"] = document(url + stated)
    with pytest.raises(NoMetadata):
        await AuthorizationServer(url + path, OAUTH).metadata()


@pytest.mark.parametrize(("path", "stated"), [("", "/"), ("/", "")])
async def test_an_empty_path_and_a_slash_are_one_issuer(
    serve: Serve, server: Metadata, path: str, stated: str
) -> None:
    """Google's documents name its issuer with and without the slash."""
    url = await serve(server)
    server.documents[PLACE] = document(url + stated)
    assert await AuthorizationServer(url + path, OAUTH).metadata()


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (None, "it is at none of the usual places"),
        (b"<html>", "it is no JSON"),
        (b"[]", "it is no JSON object"),
        (b"[" * 30_000, "it is no JSON"),
        (b"\xff", "it is no JSON"),
        ({"issuer": 1}, "it has no issuer"),
        ({"issuer": "http://other"}, "it has no token_endpoint"),
        (document("http://other"), "its issuer is another one: 'http://other'"),
        (b" " * 65537, "longer than 65536 bytes (oauth.metadata_bytes)"),
    ],
    ids=["none", "html", "list", "deep", "binary", "number", "half", "other", "long"],
)
async def test_invalid_metadata_is_not_forwarded(
    serve: Serve, server: Metadata, caplog: pytest.LogCaptureFixture, found: Any, reason: str
) -> None:
    url = await serve(server)
    if found is not None:
        server.documents[PLACE] = found
    source = AuthorizationServer(url, OAUTH)
    with caplog.at_level(logging.WARNING, "toolgate.auth"):
        for _ in range(2):  # the second one is not passed on: it was tried just now
            with pytest.raises(NoMetadata) as refused:
                await source.metadata()
    assert refused.value.status == 502
    assert url not in str(refused.value)
    assert [one.reason for one in caplog.records] == [reason]  # type: ignore[attr-defined]
    assert len(server.asked) <= 2  # both usual places


async def test_a_redirect_is_not_followed(serve: Serve, server: Metadata) -> None:
    elsewhere = Metadata({PLACE: document("http://other")})
    server.location = await serve(elsewhere) + PLACE
    with pytest.raises(NoMetadata):
        await AuthorizationServer(await serve(server), OAUTH).metadata()
    assert elsewhere.asked == []


async def test_a_server_that_does_not_answer_is_given_up_on(serve: Serve, server: Metadata) -> None:
    server.released.clear()
    url = await serve(server)
    with pytest.raises(NoMetadata):
        await AuthorizationServer(url, replace(OAUTH, metadata_timeout_s=0.2)).metadata()
    server.released.set()


async def test_a_server_that_is_not_there_is_no_bug() -> None:
    with pytest.raises(NoMetadata):
        await AuthorizationServer("http://127.0.0.1:1", OAUTH).metadata()


async def test_metadata_is_fetched_again_after_its_ttl(serve: Serve, server: Metadata) -> None:
    url = await serve(server)
    server.documents[PLACE] = document(url)
    source = AuthorizationServer(url, replace(OAUTH, metadata_ttl_s=0))
    await source.metadata()
    server.documents[PLACE] = document(url, x="new")
    assert json.loads(await source.metadata())["x"] == "new"
