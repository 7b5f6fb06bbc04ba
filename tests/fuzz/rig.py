"""Real gateways on loopback, all parts real, and what a client has to know to talk to them."""

import asyncio
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from msgspec.structs import replace
from starlette.types import Receive, Scope, Send

from config.settings import Settings
from config.sources import SourceSettings
from registry.database.embedded_server import Embedded
from tests.fixtures_database import Cluster, settings_for
from tests.fixtures_gateway import Client, pets, running, wordless
from tests.fixtures_servers import serving
from tests.fuzz import oracle
from tests.fuzz.cases import GATEWAYS, SESSIONS
from tests.fuzz.judge import envelope
from tests.gateway.guards.signing import FOREVER, by_jwks, signer

SERVICE = Path(__file__).with_name("service.py")
KEY = signer("ES256", kid="fuzz")
SCOPES = "portal.r portal.w fuzz.x"
TOKENS = {
    "valid": KEY.token(exp=FOREVER, scope=SCOPES),
    "reader": KEY.token(sub="bob", exp=FOREVER, scope="portal.r"),
    "expired": KEY.token(exp=1),
    "forged": signer("ES256", "another", kid="fuzz").token(exp=FOREVER),
}


@dataclass
class Target:
    """One gateway, its sessions, and what came by itself on their streams."""

    port: int
    known: dict[str, bytes]  # what stands for `{name}` in a case
    complaints: list[str]  # about the events of the 2024-11-05 stream


async def upstream(scope: Scope, receive: Receive, send: Send) -> None:
    """The REST service behind the gateway. /pets/404 is missing, /pets/500 fails."""
    body, message = b"", {"more_body": True}
    while message.get("more_body"):
        message = await receive()
        body += message.get("body", b"")
    status = {"/pets/404": 404, "/pets/500": 500}.get(scope["path"], 200)
    said = {"path": scope["path"], "body": body.decode("utf-8", "replace")}
    text = json.dumps(said).encode() if status != 500 else b"<h1>Oh no</h1>"
    media_type = b"application/json" if status != 500 else b"text/html"
    headers = [(b"content-type", media_type)]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text})


@contextmanager
def database() -> Iterator[Cluster]:
    """An embedded server for as long as the run takes."""
    directory = Path(tempfile.mkdtemp(prefix="toolgate-fuzz-"))
    directory.chmod(0o755)
    settings = settings_for(directory / "data")
    embedded = Embedded.start(settings)
    try:
        yield Cluster(settings, embedded)
    finally:
        embedded.stop()
        shutil.rmtree(directory, ignore_errors=True)


@asynccontextmanager
async def targets(cluster: Cluster, directory: Path) -> AsyncIterator[dict[str, Target]]:
    """A gateway for each name in GATEWAYS; `directory` for their files."""
    description = directory / "pets.json"
    description.write_text(json.dumps(pets()))
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(serving(upstream))
        sources = {
            "org": SourceSettings(python=str(SERVICE)),
            "pets": SourceSettings(openapi=str(description), base_url=url),
        }
        common = replace(wordless(), sources=sources)
        found = {}
        for name in GATEWAYS:
            settings = _settings(common, cluster, name, directory)
            found[name] = await stack.enter_async_context(_target(settings))
        yield found


def _settings(common: Settings, cluster: Cluster, name: str, directory: Path) -> Settings:
    cluster.execute(f"DROP DATABASE IF EXISTS fuzz_{name} WITH (FORCE)")
    cluster.execute(f"CREATE DATABASE fuzz_{name} STRATEGY file_copy")
    settings = replace(common, database=replace(cluster.settings, url=cluster.url(f"fuzz_{name}")))
    if name == "spec":
        return replace(settings, portal=replace(settings.portal, compat="spec"))
    return replace(settings, auth=by_jwks(directory, [KEY.jwk()])) if name == "jwt" else settings


@asynccontextmanager
async def _target(settings: Settings) -> AsyncIterator[Target]:
    async with running(settings) as client:
        token = {"Authorization": f"Bearer {TOKENS['valid']}"}
        client.http.headers.update(token)
        port = int(client.url.rpartition(":")[2])
        known = {name: value.encode() for name, value in TOKENS.items()}
        target = Target(port, known, [])
        for revision in SESSIONS:
            known[revision] = (await client.session(revision)).id.encode()
        async with _stream(client, target):
            yield target


@asynccontextmanager
async def _stream(client: Client, target: Target) -> AsyncIterator[None]:
    """The session of 2024-11-05, whose answers come on a stream."""
    timeout = aiohttp.ClientTimeout(total=None)
    async with client.http.get(client.url + "/mcp/sse", timeout=timeout) as response:
        response.content._high_water = 2**30  # lines of any length
        while not (line := await response.content.readline()).startswith(b"data:"):
            pass
        target.known["stream"] = line.strip().rpartition(b"=")[2]
        listening = asyncio.create_task(_listen(response.content, target))
        try:
            yield
        finally:
            listening.cancel()


async def _listen(content: aiohttp.StreamReader, target: Target) -> None:
    async for line in _lines(content):
        if not line.startswith(b"data: "):
            continue
        try:
            target.complaints += envelope(oracle.strictly(line[6:]))
        except (ValueError, RecursionError) as error:
            target.complaints.append(f"an event that is no JSON: {error}: {line[:200]!r}")


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """The lines of a stream, however long."""
    begun = b""
    async for chunk in content.iter_any():
        *lines, begun = (begun + chunk).split(b"\n")
        for line in lines:
            yield line.rstrip(b"\r")
