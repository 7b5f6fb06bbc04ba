"""The gateway as a client: `python -m tests.conformance.client URL`, started by the suite.

The suite serves one scenario at URL, names it in the environment, and watches what arrives there.
The one source of a gateway is put there, and another client is put in front of the gateway, so
whatever arrives came from the gateway.

    scenario                            what the gateway has to do
    initialize                          offer a revision, and say its name and version
    tools_call                          list, and hand a call on
    sse-retry                           come back by GET with Last-Event-ID, `retry` ms after the
                                        stream of a call was closed without its answer
    elicitation-sep1034-client-defaults hand a server's question on, and the answer back
    request-metadata                    header and `_meta` on every request; ask again when
                                        -32022 names our own revision
    sep-2322-client-request-state       hand questions of `input_required` on; new ids, the state
                                        byte for byte or not at all; no resultType is "complete"
    http-standard-headers               Mcp-Method always, Mcp-Name where there is a name
    http-custom-headers                 Mcp-Param-* from `x-mcp-header`, base64 where needed, none
                                        for null
    http-invalid-tool-headers           leave out tools with wrong `x-mcp-header`, keep the others
    json-schema-ref-no-deref            fetch no $ref
    json-schema-2020-12-preservation    lose no keyword of a schema

Left out: all of auth/*, in which a person logs in by a browser: see `connections`.
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
from mcp import MCPError, types
from mcp.client.client import Client as McpClient
from msgspec.structs import replace

from config.load import load
from config.settings import Settings
from config.sources import SourceSettings
from gateway.context import Context, Identity
from schemas.mcp.revisions import HANDSHAKE, STATELESS
from tests.fixtures_database import settings_for
from tests.fixtures_gateway import Client, running

DATABASE = "TOOLGATE_CONFORMANCE_DATABASE"  # URL of a database of a server where we may add others
REVISION = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "")
SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))

Script = Callable[[Client], Awaitable[None]]
SCRIPTS: dict[str, Script] = {}


def script(*names: str) -> Callable[[Script], Script]:
    def register(run: Script) -> Script:
        SCRIPTS.update(dict.fromkeys(names, run))
        return run

    return register


def official(client: Client, answer: Callable[[Any], dict[str, Any]] | None = None) -> McpClient:
    """The SDK's client in front of the gateway, in the era of the scenario; `answer` makes the
    content of a form out of the question."""

    async def answer_elicitation(_context: Any, params: Any) -> types.ElicitResult:
        assert answer is not None
        return types.ElicitResult(action="accept", content=answer(params))

    mode = "legacy" if REVISION in HANDSHAKE else "auto"
    callback = None if answer is None else answer_elicitation
    return McpClient(client.url + "/mcp", mode=mode, elicitation_callback=callback)


@script("initialize", "request-metadata", "json-schema-ref-no-deref")
async def import_only(_client: Client) -> None:
    """Nothing more than the import of the source."""


@script("tools_call")
async def tools_call(client: Client) -> None:
    async with official(client) as mcp:
        result = await mcp.call_tool("add_numbers", {"a": 5, "b": 3})
        assert result.content[0].text == "The sum of 5 and 3 is 8"


@script("sse-retry")
async def sse_retry(client: Client) -> None:
    async with official(client) as mcp:
        result = await mcp.call_tool("test_reconnection", {})
        assert result.content[0].text == "Reconnection test completed successfully"


@script("elicitation-sep1034-client-defaults")
async def defaults(client: Client) -> None:
    def accept(params: Any) -> dict[str, Any]:
        fields = params.requested_schema["properties"]
        return {name: field["default"] for name, field in fields.items()}

    async with official(client, accept) as mcp:
        result = await mcp.call_tool("test_client_elicitation_defaults", {})
        assert not result.is_error


@script("sep-2322-client-request-state")
async def request_state(client: Client) -> None:
    async def between() -> None:
        status, _ = await client.modern("tools/call", {"name": "test_mrtr_unrelated"})
        assert status == 200

    unrelated: list[asyncio.Task[None]] = []

    def confirm(_params: Any) -> dict[str, Any]:
        unrelated.append(asyncio.create_task(between()))
        return {"confirmed": True}

    async with official(client, confirm) as mcp:
        for name in ("test_mrtr_echo_state", "test_mrtr_no_state", "test_mrtr_no_result_type"):
            result = await mcp.call_tool(name, {})
            assert result.content[0].text.endswith("-ok"), result
        await asyncio.gather(*unrelated)
    assert len(unrelated) == 2


@script("http-standard-headers")
async def standard_headers(client: Client) -> None:
    async with official(client) as mcp:
        for tool in (await mcp.list_tools()).tools:
            await mcp.call_tool(tool.name, {})
        for resource in (await mcp.list_resources()).resources:
            # the suite's server answers with no contents, which the gateway, as 2026-07-28 wants
            # it, says is a resource that is not there
            with suppress(MCPError):
                await mcp.read_resource(resource.uri)
        for prompt in (await mcp.list_prompts()).prompts:
            await mcp.get_prompt(prompt.name)


@script("http-custom-headers")
async def custom_headers(client: Client) -> None:
    """A null that the tool's own schema forbids never gets past the gateway, so that one call is
    made where calls leave it."""
    async with official(client) as mcp:
        await mcp.list_tools()  # so that it knows which arguments to repeat
        for call in CONTEXT["toolCalls"]:
            if None in call["arguments"].values():
                await _called_behind(client, **call)
                continue
            result = await mcp.call_tool(call["name"], call["arguments"])
            assert not result.is_error, result


async def _called_behind(client: Client, name: str, arguments: dict[str, Any]) -> None:
    gateway = client.gateway
    catalog = gateway.catalogs.of(gateway.principal.tenant)
    tool = catalog.get(name)
    assert tool is not None
    context = Context(Identity(gateway.principal), STATELESS[REVISION], "behind")
    await gateway.federation.upstream.call(tool, catalog.sources[tool.source], arguments, context)


@script("http-invalid-tool-headers")
async def invalid_tool_headers(client: Client) -> None:
    """By hand, as the SDK's client would leave such tools out itself."""
    _, listed = await client.modern("tools/list")
    assert [tool["name"] for tool in listed["result"]["tools"]] == ["valid_tool"]
    call = {"name": "valid_tool", "arguments": {"region": "eu"}}
    status, answer = await client.modern("tools/call", call, **{"Mcp-Param-Region": "eu"})
    assert status == 200, answer


@script("json-schema-2020-12-preservation")
async def preservation(client: Client) -> None:
    async with official(client) as mcp:
        schemas = {tool.name: tool.input_schema for tool in (await mcp.list_tools()).tools}
        focal = schemas["json_schema_2020_12_tool"]
        result = await mcp.call_tool("json_schema_echo", {"schema": focal})
        assert not result.is_error, result


def _settings(url: str) -> Settings:
    """A gateway with an empty database and one source."""
    name = f"conformance_{os.getpid()}"
    with psycopg.connect(os.environ[DATABASE], autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    own = os.environ[DATABASE].replace("/postgres?", f"/{name}?")
    era = "handshake" if REVISION in HANDSHAKE else "stateless"
    return replace(
        load(None, {}),
        database=replace(settings_for(Path("unused")), url=own),
        sources={"suite": SourceSettings(mcp=url, era=era)},
    )


async def main(url: str) -> None:
    async with running(_settings(url)) as client:
        await SCRIPTS[SCENARIO](client)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[-1]))
