"""Callers are asked to connect in the words of their client, on every front."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from config.settings import DatabaseSettings
from tests.fixtures_gateway import DEADLINE_S
from tests.gateway.connections.services import Office, connect, link_of, office, token_of
from tests.gateway.login.company import browsing
from tests.servers.hooks import EVENTS, MODULE

pytestmark = pytest.mark.anyio

URL = {"elicitation": {"url": {}}}


async def call_stateless(
    made: Office, token: str, capabilities: Any, *, name: str = "list_notes", **more: Any
) -> Any:
    """A call by a client of 2026-07-28."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    }
    params = {"name": name, "arguments": {}, "_meta": meta, **more}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {
        "Authorization": f"Bearer {token}",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": name,
    }
    async with made.company.http.post(made.url + "/mcp", json=body, headers=headers) as answer:
        text = await answer.text()
    lines = [line[6:] for line in text.splitlines() if line.startswith("data: {")]
    return json.loads(lines[-1] if lines else text)


async def test_a_stateless_client_opens_the_address_and_its_retry_goes_on(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    async with office(database_settings, tmp_path) as made, browsing() as browser:
        token = await token_of(made, browser)
        asked = (await call_stateless(made, token, URL))["result"]
        assert asked["resultType"] == "input_required", asked
        (request,) = asked["inputRequests"].values()
        assert request["method"] == "elicitation/create"
        assert request["params"]["mode"] == "url"
        assert "elicitationId" not in request["params"]
        link = request["params"]["url"]
        (name,) = asked["inputRequests"]
        answers = {
            "inputResponses": {name: {"action": "accept"}},
            "requestState": asked["requestState"],
        }
        results: list[Any] = []

        async def retry() -> None:
            results.append(await call_stateless(made, token, URL, **answers))

        with anyio.fail_after(DEADLINE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(retry)  # waits for the person
                await connect(browser, link, "ann-key-123456")
        assert results[0]["result"]["structuredContent"] == {"owner": "ann"}, results
        assert len(made.notes.seen) == 1


async def test_a_call_that_waits_for_an_account_asks_its_hooks_once(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    env = {
        "TOOLGATE_HOOKS__WATCH__AT": "before",
        "TOOLGATE_HOOKS__WATCH__USE": f"{MODULE}:remember",
    }
    EVENTS.clear()
    async with office(database_settings, tmp_path, env=env) as made, browsing() as browser:
        token = await token_of(made, browser)
        asked = (await call_stateless(made, token, URL))["result"]
        [(name, request)] = asked["inputRequests"].items()
        await connect(browser, request["params"]["url"], "ann-key-123456")
        answers = {
            "inputResponses": {name: {"action": "accept"}},
            "requestState": asked["requestState"],
        }
        answer = await call_stateless(made, token, URL, **answers)
        assert answer["result"]["structuredContent"] == {"owner": "ann"}
        assert len(EVENTS) == 1
        forged = {**answers, "requestState": "toolgate/connect:1:forged"}
        refused = await call_stateless(made, token, URL, **forged)
        assert "structuredContent" not in refused.get("result", {}), refused
        await call_stateless(made, token, URL)  # a new call
        assert len(EVENTS) == 2


async def test_a_client_whose_person_declines_gets_the_link_as_text(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    async with office(database_settings, tmp_path) as made, browsing() as browser:
        token = await token_of(made, browser)
        asked = (await call_stateless(made, token, URL))["result"]
        (name,) = asked["inputRequests"]
        for state in (asked["requestState"], "toolgate/connect:3"):
            answer = await call_stateless(
                made,
                token,
                URL,
                inputResponses={name: {"action": "decline"}},
                requestState=state,
            )
            assert "structuredContent" not in answer["result"]
        link_of(answer)
        link_of(await call_stateless(made, token, {"elicitation": {}}))
        link_of(await call_stateless(made, token, {}))
        assert made.notes.seen == []


async def test_a_client_of_2025_11_25_gets_the_error_with_the_address(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    async with office(database_settings, tmp_path) as made, browsing() as browser:
        token = await token_of(made, browser)
        refused = await made.call(token, version="2025-11-25", capabilities=URL)
        assert refused["error"]["code"] == -32042, refused
        (asked,) = refused["error"]["data"]["elicitations"]
        assert asked["mode"] == "url"
        assert asked["elicitationId"]
        link_of(await made.call(token, version="2025-11-25", capabilities={"elicitation": {}}))
        link_of(await made.call(token, version="2025-03-26"))
        await connect(browser, asked["url"], "ann-key-123456")
        answer = await made.call(token, version="2025-11-25", capabilities=URL)
        assert answer["result"]["structuredContent"] == {"owner": "ann"}


async def test_json_rpc_gets_the_error_with_the_link_also_in_batches(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    async with office(database_settings, tmp_path) as made, browsing() as browser:
        await token_of(made, browser)
        _, tokens = await made.company.grant_tokens(browser, resource=f"{made.url}/rpc")
        headers = {"Authorization": f"Bearer {tokens['access_token']}"}
        call = {"jsonrpc": "2.0", "id": 1, "method": "list_notes", "params": {}}
        rpc = f"{made.url}/rpc"
        async with made.company.http.post(rpc, json=call, headers=headers) as refused:
            error = (await refused.json())["error"]
        assert error["code"] == 1427
        assert error["data"]["reason"] == "missing"
        async with made.company.http.post(
            rpc, json=[call, {**call, "id": 2}], headers=headers
        ) as many:
            errors = [answer["error"] for answer in await many.json()]
        assert [each["data"]["url"] for each in errors] == [error["data"]["url"]] * 2
        await connect(browser, error["data"]["url"], "ann-key-123456")
        async with made.company.http.post(rpc, json=call, headers=headers) as done:
            assert (await done.json())["result"] == {"owner": "ann"}


async def test_a_tool_that_a_rule_denies_sends_nobody_to_a_login(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    rules = {"none": {"effect": "deny", "tools": ["list_notes"]}}
    env = {"TOOLGATE_POLICY__RULES": json.dumps(rules)}
    async with office(database_settings, tmp_path, env=env) as made, browsing() as browser:
        refused = await made.call(await token_of(made, browser))
        assert "Unknown tool" in json.dumps(refused)
        assert "/connect" not in json.dumps(refused)
