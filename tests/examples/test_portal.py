"""The portal example: a service in Python, and the clients that a portal has."""

import json
import re
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest
from msgspec.structs import replace

from config.load import load
from config.settings import DatabaseSettings
from examples.portal import dashboard
from examples.portal.fetch_client import (
    CORS,
    FetchClient,
    FetchError,
    converted,
    describe,
    is_rpc,
    rule,
)
from tests.examples.conftest import ROOT, python
from tests.fixtures_gateway import Client, running
from tests.fixtures_servers import Serve
from tests.servers.rest import Recorder

pytestmark = pytest.mark.anyio

PORTAL = ROOT / "examples/portal"
KEY = {"hostId": "1234567", "ruleId": "cors"}
TUPLE = {"host": "lightapi.net", "service": "rule", "action": "deleteRule", "version": "0.1.0"}


@pytest.fixture
async def gateway(database_settings: DatabaseSettings) -> AsyncIterator[Client]:
    settings = replace(load(str(PORTAL / "toolgate.yaml"), {}), database=database_settings)
    async with running(settings) as client:
        yield client


@pytest.fixture
async def portal(gateway: Client) -> AsyncIterator[FetchClient]:
    async with aiohttp.ClientSession() as http:
        yield FetchClient(http, gateway.url)


async def output(program: Path, *arguments: str) -> list[tuple[str, str]]:
    """The lines that a program prints, as label and text."""
    with anyio.fail_after(30):
        done = await anyio.run_process(python(str(program), *arguments), check=False)
    assert done.stderr == b""
    assert done.returncode == 0
    return [(line[:14].rstrip(), line[15:]) for line in done.stdout.decode().splitlines()]


async def test_the_client_creates_reads_and_removes_a_rule(gateway: Client) -> None:
    printed = await output(PORTAL / "fetch_client.py", gateway.url)
    created = {"data": CORS | {"updateUser": "anonymous", "newAggregateVersion": 1}}
    stored = CORS | {"updateUser": "anonymous", "aggregateVersion": 1}
    (create, again, no_owner, listed, labels, review, delete, read) = printed
    assert json.loads(create[1]) == created
    assert (again[0], json.loads(again[1])) == ("create again", created)
    assert no_owner[1].startswith("failed: Schema Validation Error - $: required property 'rule")
    assert json.loads(listed[1]) == {"total": 1, "rules": [stored]}
    assert json.loads(labels[1]) == [{"id": "cors", "label": "Allow our origins"}]
    assert json.loads(review[1]) == {"data": None}
    assert json.loads(delete[1]) == {"data": "OK"}
    assert read == ("read", "failed: Object rule not found for key cors.")


async def test_the_dashboard_shows_results_and_failures(
    gateway: Client, portal: FetchClient
) -> None:
    await portal.command(rule("createRule", CORS))
    shown = dict(await output(PORTAL / "dashboard.py", gateway.url))
    assert list(shown) == list(dashboard.parts(""))
    assert json.loads(shown["Rules in all"]) == {"rules": 1, "hosts": 1}
    assert json.loads(shown["Newest page"])["rules"][0]["ruleId"] == "cors"
    assert json.loads(shown["Select box"]) == [{"id": "cors", "label": "Allow our origins"}]
    assert shown["Bad request"].startswith("! ERR11004 Schema Validation Error - $.offset: ")
    assert shown["Not there"] == "! ERR11637 Object rule not found for key nobody knows."


async def test_a_form_submitted_twice_runs_once(portal: FetchClient) -> None:
    first = await portal.command(rule("createRule", CORS), Idempotency_Key="k")
    again = await portal.command(rule("createRule", CORS), Idempotency_Key="k")
    without = await portal.command(rule("createRule", CORS))
    other = await portal.command(
        rule("createRule", CORS | {"ruleOwner": "bob"}), Idempotency_Key="k"
    )
    assert first["data"]["newAggregateVersion"] == 1
    assert again == first
    assert without["error"]["data"]["code"] == "ERR11650"
    assert other["error"]["data"]["statusCode"] == 409
    assert (await portal.query(rule("getRule", KEY | {"offset": 0, "limit": 9})))["total"] == 1


async def test_text_survives_in_a_url(portal: FetchClient) -> None:
    for number, name in enumerate(["a+b", "100%", "a&b=c", "é😀", '"quoted"', "%2B"]):
        key = KEY | {"ruleId": f"rule{number}"}
        await portal.command(rule("createRule", CORS | key | {"ruleName": name}))
        wanted = json.dumps([{"id": "ruleName", "value": name}])
        page = {"hostId": key["hostId"], "offset": 0, "limit": 9, "filters": wanted}
        answer = await portal.query(rule("getRule", page))
        assert [entry["ruleName"] for entry in answer["rules"]] == [name]


async def test_rules_are_sorted_and_paged(portal: FetchClient) -> None:
    for owner, name in (("bob", "b"), ("ann", "c"), ("ann", "a")):
        data = CORS | {"ruleId": name, "ruleName": name, "ruleOwner": owner}
        await portal.command(rule("createRule", data))
    sorting = '[{"id": "ruleOwner", "desc": true}, {"id": "ruleName"}]'
    page = {"hostId": "1234567", "offset": 1, "limit": 9, "sorting": sorting}
    found = await portal.query(rule("getRule", page))
    assert ([one["ruleId"] for one in found["rules"]], found["total"]) == (["a", "c"], 3)


async def test_a_filter_that_is_none_is_refused(portal: FetchClient) -> None:
    for filters in ("{", "5", "[5]", "[{}]", '{"id": 1}'):
        page = {"hostId": "1", "offset": 0, "limit": 9, "filters": filters}
        with pytest.raises(FetchError, match="filters must be a JSON array"):
            await portal.query(rule("getRule", page))


async def test_a_page_catches_errors_of_either_dialect(portal: FetchClient) -> None:
    with pytest.raises(FetchError) as caught:
        await portal.query(rule("getFreshRule", KEY))
    status = caught.value.thrown
    assert (status["statusCode"], status["code"]) == (404, "ERR11637")
    error = (await portal.command(rule("deleteRule", KEY)))["error"]
    assert (error["code"], error["message"], error["data"]) == (404, "OBJECT_NOT_FOUND", status)


async def test_a_notification_gives_an_empty_object(portal: FetchClient) -> None:
    silent = {"jsonrpc": "2.0", "method": "lightapi.net/rule/createRule/0.1.0", "params": CORS}
    assert await portal.post("/portal/command", silent) == {"data": {}}
    assert (await portal.query(rule("getRuleCount")))["rules"] == 1


@pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed")
async def test_the_client_in_javascript_sends_the_reads_of_a_page_at_once(gateway: Client) -> None:
    with anyio.fail_after(60):
        program = str(PORTAL / "js" / "demo.mjs")
        done = await anyio.run_process(["node", program, gateway.url], check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    shown = {
        line[:13].rstrip(): json.loads(line[14:]) for line in done.stdout.decode().splitlines()
    }
    assert shown["create"]["data"]["newAggregateVersion"] == 1
    assert shown["create again"] == shown["create"]
    assert shown["count"] == {"rules": 1, "hosts": 1}
    assert shown["labels"] == [{"id": "cors", "label": "Allow our origins"}]
    assert shown["missing"] == "Object rule not found for key nobody knows."
    assert (shown["requests"], shown["members"]) == (1, 3)
    assert shown["delete"] == {"data": "OK"}
    assert shown["no owner"].startswith("Schema Validation Error")


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize(
    ("page", "printed"),
    [
        ("docs/json-rpc-and-portal.md", b'[{"id":"cors","label":"Allow our origins"}]'),
        ("examples/portal/README.md", b'{"rules":0,"hosts":0}'),
    ],
)
async def test_the_calls_of_the_documentation_work_as_printed(
    gateway: Client, page: str, printed: bytes
) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    (calls,) = (block for block in blocks if "/portal/query" in block)
    calls = calls.replace("http://127.0.0.1:8765", gateway.url)
    program = re.compile(r"^\.venv/bin/python (.*)$", re.MULTILINE)
    calls = program.sub(rf"{sys.executable} \1 {gateway.url}", calls)
    with anyio.fail_after(60):
        done = await anyio.run_process(["sh", "-ec", calls], cwd=ROOT, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert printed in done.stdout


async def test_actions_are_tools_too(gateway: Client) -> None:
    _, listed = await gateway.modern("tools/list")
    tools = {tool["name"]: tool for tool in listed["result"]["tools"]}
    assert len(tools) == 8
    (name,) = (name for name in tools if "getRuleCount" in name)
    _, answer = await gateway.modern("tools/call", {"name": name, "arguments": {}})
    assert answer["result"]["structuredContent"] == {"rules": 0, "hosts": 0}


async def test_an_error_that_is_no_json_is_the_status_line(serve: Serve) -> None:
    async with aiohttp.ClientSession() as http:
        client = FetchClient(http, await serve(Recorder(502, b"<h1>Bad</h1>", "text/html")))
        assert await client.command(rule("deleteRule", KEY)) == {"error": "Bad Gateway"}


async def test_a_page_sends_its_token_against_forged_requests(serve: Serve) -> None:
    service = Recorder(200, b"{}", headers=[("set-cookie", "csrf=t-1; Path=/")])
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
        client = FetchClient(http, await serve(service))
        await client.query(rule("getRuleCount"))
        await client.command(rule("deleteRule", KEY))
    assert [seen.all("x-csrf-token") for seen in service.seen] == [[], ["t-1"]]


@pytest.mark.parametrize(
    ("body", "params"),
    [
        (TUPLE | {"data": {"a": 1}, "title": "Delete", "success": "/app"}, {"a": 1}),
        (TUPLE, {}),
        (TUPLE | {"data": None, "rest": ""}, {}),
        (json.dumps(TUPLE | {"data": {"a": 1}}), {"a": 1}),
    ],
)
def test_a_form_becomes_json_rpc(body: Any, params: Any) -> None:
    sent = converted(body)
    assert sent.pop("id") != converted(body)["id"]
    assert sent == {
        "jsonrpc": "2.0", "method": "lightapi.net/rule/deleteRule/0.1.0", "params": params,
    }  # fmt: skip


@pytest.mark.parametrize(
    "body",
    [
        None,
        "text",
        [TUPLE],
        TUPLE | {"rest": "/r/rules"},
        TUPLE | {"version": ""},
        {"jsonrpc": "2.0", "method": "m", "id": 1},
        TUPLE | {"jsonrpc": "2.0"},
    ],
)
def test_unconvertible_bodies_are_sent_unchanged(body: Any) -> None:
    assert converted(body) == body


@pytest.mark.parametrize(
    ("error", "text"),
    [
        ({"code": 1, "message": "m", "data": {"description": "d"}}, "d"),
        ({"description": "d", "message": "m"}, "d"),
        ({"message": "m"}, "m"),
        ({"error": "e"}, "e"),
        ({"code": 1, "message": "m", "data": "d"}, "m"),
        ({}, "Unknown error"),
        ("Bad Gateway", "Bad Gateway"),
    ],
)
def test_an_error_is_described_by_its_most_specific_text(error: Any, text: str) -> None:
    assert describe(error) == text
    assert not is_rpc(error)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({}, "!  was not answered"),
        ({"error": {"code": -32601, "message": "Method not found"}}, "!  Method not found"),
        ({"result": None}, "null"),
    ],
)
def test_a_part_of_the_dashboard_explains_its_emptiness(answer: Any, text: str) -> None:
    assert dashboard.shown(answer) == text
