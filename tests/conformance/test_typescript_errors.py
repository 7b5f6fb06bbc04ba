"""Errors of tools with output schemas, as the official TypeScript SDK reads them: it checks the
structured content of any result."""

import asyncio
import json
import shutil
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from config.settings import DatabaseSettings
from tests.conformance.node import SCRIPTS, sdk
from tests.fixtures_database import TEMPLATE, Cluster, own_database
from tests.fixtures_gateway import Client, running
from tests.gateway.admin.client import KEY, bearer
from tests.gateway.guards.signing import by_jwks
from tests.wings.test_leaving import with_all

pytestmark = pytest.mark.anyio

ABSENT = str(uuid.UUID(int=7, version=4))
CALLS_S = 120


@dataclass(frozen=True)
class Sdk:
    node: Path
    script: Path

    async def call(self, url: str, token: str, calls: list[Mapping[str, Any]]) -> list[Any]:
        """What the client made of each call."""
        process = await asyncio.create_subprocess_exec(
            *(str(self.node), str(self.script), url, token, json.dumps(calls)),
            cwd=self.script.parent,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(CALLS_S):
                said, complaint = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode == 0, complaint.decode(errors="replace")
        return [json.loads(line) for line in said.splitlines()]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # with one event loop for the module


@pytest.fixture(scope="module")
def official() -> Sdk:
    found = sdk()
    if found is None:
        pytest.skip("needs node 18 or later, and @modelcontextprotocol/sdk from npm")
    node, folder = found
    return Sdk(node, Path(shutil.copyfile(SCRIPTS / "errors.mjs", folder / "errors.mjs")))


@pytest.fixture(scope="module")
async def client(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Client]:
    """A gateway with all wings, and with the operations of the admin API as tools."""
    for database in own_database(cluster, TEMPLATE):
        async with running(_settings(database, tmp_path_factory.mktemp("errors"))) as client:
            yield client


def _settings(database: DatabaseSettings, folder: Path) -> Any:
    settings = with_all(database)
    settings = replace(settings, memory=replace(settings.memory, enabled=True))
    admin = replace(settings.admin, tools=True, requests=0)
    audit = replace(settings.audit, spool_dir=str(folder / "audit"))
    return replace(settings, auth=by_jwks(folder, [KEY.jwk()]), admin=admin, audit=audit)


def _scopes() -> str:
    wings, rights = ("memory", "events", "knowledge", "librarian"), ("read", "write", "admin")
    more = "admin events:invoke events:work librarian:query"
    return " ".join([more, *(f"{wing}:{right}" for wing in wings for right in rights)])


def _absent(schema: Any, whole: Any) -> Any:
    """A value that the schema allows, with names of nothing that exists."""
    while "$ref" in schema:
        schema = whole["$defs"][schema["$ref"].rpartition("/")[2]]
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return _absent(schema[word][0], whole)
    if "const" in schema or "enum" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    match schema.get("type"):
        case "object":
            wanted = schema.get("required", [])
            return {name: _absent(schema["properties"][name], whole) for name in wanted}
        case "array":
            return [_absent(schema.get("items", {}), whole)] * schema.get("minItems", 0)
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return True
    return ABSENT


def _calls(tools: list[Any]) -> Iterator[Mapping[str, Any]]:
    """Each tool with names of nothing, and with a value that its operation refuses."""
    for tool in tools:
        schema = tool["inputSchema"]
        if "outputSchema" not in tool:
            continue
        given = _absent(schema, schema)
        yield {"name": tool["name"], "arguments": given}
        broken = {name: f"{ABSENT}/../%" for name, value in given.items() if value == ABSENT}
        if broken:
            yield {"name": tool["name"], "arguments": {**given, **broken}}


@pytest.mark.parametrize("path", ["/mcp", "/mcp/admin"])
async def test_the_official_client_reads_the_errors_of_every_operation(
    client: Client, official: Sdk, path: str
) -> None:
    """The SDK throws nothing at errors of the operations of wings and of the admin API, nor at
    their other results (mending 11)."""
    who = bearer(scope=_scopes())
    tools = await _list_tools(client, path, who)
    token = who["Authorization"].removeprefix("Bearer ")
    answers = await official.call(client.url + path, token, list(_calls(tools)))
    refused = [one for one in answers if one["thrown"] is not None]
    assert not refused, refused[:3]
    failed = [one for one in answers if one["failed"]]
    assert len(failed) > 20
    assert all(one["text"] for one in failed)


async def _list_tools(client: Client, path: str, who: Mapping[str, str]) -> list[Any]:
    about = {"name": "test", "version": "1"}
    wanted = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": about}
    begin = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": wanted}
    _, _, headers = await client.post(path, begin, dict(who))
    sent = {**who, "Mcp-Session-Id": headers["mcp-session-id"]}
    listing, tools, cursor = True, [], None
    while listing:
        params = {} if cursor is None else {"cursor": cursor}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params}
        _, answer, _ = await client.post(path, body, sent)
        tools += answer["result"]["tools"]
        cursor = answer["result"].get("nextCursor")
        listing = cursor is not None
    return tools
