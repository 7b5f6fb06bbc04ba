"""A hybrid service behind the gateway, as each kind of client sees it."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from config.settings import DatabaseSettings
from config.sources import SourceSettings
from tests.examples.conftest import ROOT
from tests.fixtures_gateway import Client, running, wordless
from tests.fixtures_servers import Serve, serving
from tests.servers.hybrid import Failed, Hybrid
from tests.servers.rest import Recorder

pytestmark = pytest.mark.anyio

STATUS = {
    "statusCode": 404,
    "code": "ERR11637",
    "message": "OBJECT_NOT_FOUND",
    "description": 'Object rule not found for key "x".',
    "severity": "ERROR",
}


def id_of(action: str) -> str:
    return f"lightapi.net/rule/{action}/0.1.0"


def call(action: str, data: Any, id_: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": id_of(action), "params": data, "id": id_}


def legacy(action: str, data: Any) -> dict[str, Any]:
    names = {"host": "lightapi.net", "service": "rule", "action": action, "version": "0.1.0"}
    return names | {"data": data}


def fresh(data: Any) -> Any:
    if data["ruleId"] == "x":
        raise Failed(404, STATUS)
    return data | {"aggregateVersion": 1}


@pytest.fixture
def behind() -> Hybrid:
    functions = {id_of("deleteRule"): lambda _: "OK", id_of("reviewRule"): lambda _: None}
    return Hybrid(functions | {id_of("getFreshRule"): fresh})


@pytest.fixture
async def client(database_settings: DatabaseSettings, behind: Hybrid) -> AsyncIterator[Client]:
    async with serving(behind) as url:
        spec = str(ROOT / "examples/portal/spec.yaml")
        source = SourceSettings(hybrid=spec, base_url=url, batch=50)
        settings = replace(wordless(), database=database_settings, sources={"rules": source})
        async with running(settings) as client:
            yield client


KEY = {"hostId": "1", "ruleId": "a"}
FAILED = ("ERR18502", 502)
MISSING = KEY | {"ruleId": "x"}


async def raw(client: Client, body: Any) -> tuple[int, bytes]:
    sent = {"Content-Type": "application/json"}
    url = f"{client.url}/portal/command"
    async with client.http.post(url, data=json.dumps(body).encode(), headers=sent) as response:
        return response.status, await response.read()


async def test_a_legacy_client_gets_the_answers_of_the_service(client: Client) -> None:
    assert await raw(client, legacy("deleteRule", KEY)) == (200, b"OK")
    assert await raw(client, legacy("reviewRule", KEY)) == (200, b"")
    status, body = await raw(client, legacy("getFreshRule", KEY))
    assert (status, json.loads(body)) == (200, KEY | {"aggregateVersion": 1})
    status, body = await raw(client, legacy("getFreshRule", MISSING))
    assert (status, json.loads(body)) == (404, STATUS)


async def test_a_new_client_gets_envelopes(client: Client) -> None:
    assert await client.rpc(call("deleteRule", KEY)) == {"jsonrpc": "2.0", "id": 1, "result": "OK"}
    assert (await client.rpc(call("reviewRule", KEY)))["result"] is None
    error = (await client.rpc(call("getFreshRule", MISSING)))["error"]
    assert (error["code"], error["message"], error["data"]["code"]) == (
        404, "OBJECT_NOT_FOUND", "ERR11637",
    )  # fmt: skip


async def test_an_agent_gets_tools(client: Client) -> None:
    _, listed = await client.modern("tools/list")
    (name,) = (t["name"] for t in listed["result"]["tools"] if "getFreshRule" in t["name"])
    _, answer = await client.modern("tools/call", {"name": name, "arguments": KEY})
    assert answer["result"]["structuredContent"] == KEY | {"aggregateVersion": 1}
    _, answer = await client.modern("tools/call", {"name": name, "arguments": MISSING})
    assert answer["result"]["isError"]
    assert answer["result"]["structuredContent"] == {"status": 404, "body": STATUS}
    assert answer["result"]["content"][0]["text"].startswith("HTTP 404 ERR11637 OBJECT_NOT_FOUND: ")


async def test_a_batch_is_forwarded_in_few_batches_with_separate_errors(
    client: Client, behind: Hybrid
) -> None:
    batch = [call("getFreshRule", MISSING if n == 3 else KEY, n) for n in range(20)]
    batch.append(call("getFreshRule", {"hostId": "1"}, "bad"))
    answers = await client.rpc(batch)
    assert [one["id"] for one in answers] == [*range(20), "bad"]
    assert [one["id"] for one in answers if "error" in one] == [3, "bad"]
    assert answers[3]["error"]["data"]["code"] == "ERR11637"
    assert sum(len(body) for body in behind.bodies) == 20
    assert len(behind.bodies) < 5


async def test_a_service_that_does_not_answer_is_no_answer_of_its_own(
    client: Client, behind: Hybrid
) -> None:
    def redirects(_data: Any) -> Any:
        raise Failed(302, STATUS)

    behind.functions = {id_of("deleteRule"): redirects}
    status, body = await raw(client, legacy("deleteRule", KEY))
    assert status == 502
    assert b"redirects are not followed" in body


@pytest.mark.parametrize("status", [200, 502])
async def test_a_page_of_a_proxy_reaches_nobody(
    client: Client, behind: Hybrid, status: int, serve: Serve
) -> None:
    page = Recorder(status, b"<h1>db.inside:5432</h1>", "text/html")
    source = replace(client.gateway.settings.sources["rules"], base_url=await serve(page))
    await client.gateway.reconfigure(replace(client.gateway.settings, sources={"rules": source}))
    found, body = await raw(client, legacy("deleteRule", KEY))
    assert (found, json.loads(body)["code"], json.loads(body)["statusCode"]) == (502, *FAILED)
    error = (await client.rpc(call("deleteRule", KEY)))["error"]
    assert (error["data"]["code"], error["code"]) == FAILED
    _, listed = await client.modern("tools/list")
    (name,) = (t["name"] for t in listed["result"]["tools"] if "deleteRule" in t["name"])
    _, answer = await client.modern("tools/call", {"name": name, "arguments": KEY})
    text = answer["result"]["content"][0]["text"]
    assert text.startswith("HTTP 502 ERR18502 UPSTREAM_FAILED: rules ")
    assert behind.bodies == []
    assert "inside" not in f"{body!r}{error}{answer}"
