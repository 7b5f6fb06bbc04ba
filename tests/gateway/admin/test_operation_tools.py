"""The admin API's operations as tools: who is shown and may call which, and that they do the same
as by HTTP."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from config.access import Policy, Rule
from config.settings import Settings
from gateway.app.admin import AdminParts, operations_of
from gateway.operations.tool_definitions import tool_of
from schemas.json_schema.checker import Checker
from tests.fixtures_database import HOST
from tests.fixtures_gateway import META, MODERN, Client, pets, running
from tests.gateway.admin.client import KEY, Admin, bearer, open_admin
from tests.gateway.guards.signing import by_jwks
from tests.polling import until

pytestmark = pytest.mark.anyio

PATH, RPC = "/mcp/admin", "/rpc/admin"
ERAS = ["2025-03-26", "2025-06-18", "2025-11-25", MODERN]
OTHER = "00000000-0000-4000-8000-00000000beef"
LEFT_OUT = {"createKey", "putSecret", "uploadDocument", "describe"}


@dataclass
class Tools:
    """A client of the admin tools, of one revision."""

    client: Client
    revision: str = MODERN
    who: Mapping[str, str] = field(default_factory=bearer)
    path: str = PATH
    session: dict[str, str] = field(default_factory=dict)

    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> Any:
        params = dict(params or {})
        sent = {**self.who, "MCP-Protocol-Version": self.revision, **self.session}
        if self.revision == MODERN:
            sent |= {"Mcp-Method": method} | (
                {"Mcp-Name": params["name"]} if "name" in params else {}
            )
            params["_meta"] = META
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        _, answer, headers = await self.client.post(self.path, body, sent)
        if "mcp-session-id" in headers:
            self.session = {"Mcp-Session-Id": headers["mcp-session-id"]}
        return answer

    async def open(self) -> "Tools":
        if self.revision != MODERN:
            about = {"name": "test", "version": "1"}
            wanted = {"protocolVersion": self.revision, "capabilities": {}, "clientInfo": about}
            answer = await self.request("initialize", wanted)
            assert answer["result"]["protocolVersion"] == self.revision
        return self

    async def all(self) -> dict[str, Any]:
        answer = await self.request("tools/list")
        return {one["name"]: one for one in answer["result"]["tools"]}

    async def call(self, name: str, /, **arguments: Any) -> Any:
        answer = await self.request("tools/call", {"name": name, "arguments": arguments})
        return answer.get("result", answer)


@pytest.fixture
def admin_tools(settings: Settings, tmp_path: Path) -> Settings:
    audit = replace(settings.audit, spool_dir=str(tmp_path / "audit"), flush_s=0.05)
    admin = replace(settings.admin, requests=0, tools=True)
    auth = by_jwks(tmp_path, [KEY.jwk()])
    return replace(settings, auth=auth, audit=audit, admin=admin)


@pytest.fixture
async def tools_client(admin_tools: Settings) -> AsyncIterator[Client]:
    async with running(admin_tools) as client:
        yield client


@asynccontextmanager
async def running_with_rules(settings: Settings, **rules: Rule) -> AsyncIterator[Client]:
    policy: Policy = replace(settings.policy, rules=rules)
    async with running(replace(settings, policy=policy)) as client:
        yield client


async def rpc(client: Client, body: Any, who: Mapping[str, str] | None = None) -> Any:
    _, answer, _ = await client.post(RPC, body, dict(who or bearer()))
    return answer


def make_request(method: str, id_: int = 1, /, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}


async def test_each_row_is_a_tool_with_valid_schemas_or_says_why_not(parts: AdminParts) -> None:
    rows = operations_of(parts)
    assert {one.id for one in rows if one.no_tool} >= LEFT_OUT
    for one in rows:
        assert not (one.secret and not one.no_tool)  # a model would see it
        tool = tool_of(one)
        for schema in (tool.input_schema, tool.output_schema):
            if schema is not None:
                decoded = json.loads(bytes(schema))
                Draft202012Validator.check_schema(decoded)
                Checker(bytes(schema))
                assert decoded["type"] == "object"
        hints = tool.annotations
        reads = one.method == "GET" or one.scope.endswith(":read")
        assert hints.read_only_hint is reads
        assert hints.destructive_hint is not reads
        assert hints.idempotent_hint is (reads or one.effect != "act")


@pytest.mark.parametrize("revision", ERAS)
async def test_clients_of_every_era_list_read_and_write(
    tools_client: Client, revision: str
) -> None:
    tools = await Tools(tools_client, revision).open()
    found = await tools.all()
    assert {"listTools", "putRule", "decide"} <= found.keys()
    assert not LEFT_OUT & found.keys()
    assert found["listTools"]["annotations"]["readOnlyHint"] is True
    read = await tools.call("getTool", tool="slow")
    assert json.loads(read["content"][0]["text"])["name"] == "slow"
    if "outputSchema" in found["getTool"]:
        Draft202012Validator(found["getTool"]["outputSchema"]).validate(read["structuredContent"])
    done = await tools.call("disableTool", tool="slow")
    assert not done.get("isError")
    assert "disabled" in done["content"][0]["text"]


async def test_an_operation_gives_the_same_by_http_mcp_and_rpc(tools_client: Client) -> None:
    api, tools = await open_admin(tools_client.url, tools_client.http), Tools(tools_client)
    for name, path, arguments in [
        ("listTools", "/tools?limit=2", {"limit": 2}),
        ("getTool", "/tools/getPet", {"tool": "getPet"}),
        ("listSources", "/sources", {}),
        ("listRules", "/policy/rules", {}),
        ("listToolsets", "/toolsets", {}),
        ("getEmbeddings", "/embeddings", {}),
    ]:
        by_http = await api("GET", path)
        by_mcp = await tools.call(name, **arguments)
        assert by_mcp["structuredContent"] == by_http.json, name
        assert by_mcp["content"][0]["text"] == by_http.body.decode()
        assert by_mcp["_meta"]["toolgate/etag"] == by_http.headers["etag"]
        assert (await rpc(tools_client, make_request(name, **arguments)))["result"] == by_http.json
    question = {"tool": "getPet", "principal": "ada"}
    by_http = await api("POST", "/policy/explanations", question)
    assert (await tools.call("explain", **question))["structuredContent"] == by_http.json
    problem = (await api("GET", "/tools/nothing")).json
    refused = await tools.call("getTool", tool="nothing")
    assert refused["isError"] is True
    told = refused["_meta"]["toolgate/problem"]  # no value of the output schema
    assert {**told, "instance": ""} == {**problem, "instance": ""}


async def test_conditional_changes_require_their_etag(tools_client: Client) -> None:
    tools = Tools(tools_client)
    rule = {"rule": "mine", "effect": "deny", "tools": ["slow"]}
    one = await tools.call("putRule", **rule)
    assert one["_meta"]["toolgate/problem"]["status"] == 428
    made = await tools.call("putRule", **rule, if_none_match="*")
    assert made["structuredContent"]["name"] == "mine"
    read = await tools.call("getRule", rule="mine")
    tag = read["_meta"]["toolgate/etag"]
    assert read["content"][1]["text"] == f"ETag: {tag}"
    again = await tools.call("putRule", **{**rule, "tools": ["getPet"]}, if_match=tag)
    assert again["structuredContent"]["rule"]["tools"] == ["getPet"]
    assert (await tools.call("deleteRule", rule="mine", if_match=tag))["isError"] is True
    gone = await tools.call("deleteRule", rule="mine", if_match="*")
    assert gone["content"] == [{"type": "text", "text": "Done."}]


async def test_a_tag_in_any_characters_is_none_of_ours(tools_client: Client) -> None:
    tools = Tools(tools_client)
    for tag in ('"\N{GREEK SMALL LETTER ALPHA}"', "\N{SNOWMAN}", '"a\0"', '"\xff"'):
        refused = await tools.call("describeTool", tool="slow", text="x", if_match=tag)
        assert refused["_meta"]["toolgate/problem"]["status"] == 412, tag


async def test_rpc_takes_single_calls_and_batches(tools_client: Client) -> None:
    assert (await rpc(tools_client, make_request("getTool", tool="slow")))["result"][
        "name"
    ] == "slow"
    many = [
        make_request("listKeys", 1),
        make_request("disableTool", 2, tool="slow"),
        make_request("nothing", 3),
    ]
    found = {one["id"]: one for one in await rpc(tools_client, many)}
    assert found[1]["result"] == {"items": []}
    assert found[2]["result"]["name"] == "slow"
    assert found[3]["error"]["code"] == -32601
    methods = (await rpc(tools_client, make_request("rpc.discover")))["result"]["methods"]
    assert "listKeys" in {one["name"] for one in methods}


async def test_wrong_arguments_are_named(tools_client: Client) -> None:
    tools = Tools(tools_client)
    for arguments in ({}, {"tool": "slow", "more": 1}, {"tool": 1}):
        answer = await tools.call("getTool", **arguments)
        assert answer["isError"] is True
        assert "tool" in answer["content"][0]["text"] or "more" in answer["content"][0]["text"]
    nul = await tools.call("describeTool", tool="slow", description="a\0b")
    assert nul["isError"] is True
    source = {"kind": "openapi", "name": "more", "document": json.dumps(pets())}
    made = await tools.call("importSource", body=source)
    assert made["structuredContent"]["source"] == "more"


async def test_without_the_scope_an_operation_is_unknown(tools_client: Client) -> None:
    who = bearer("ada", scope="admin:keys:read other")
    tools = Tools(tools_client, who=who)
    keys = ["getKey", "getRevocation", "listKeys", "listRevocations"]
    assert sorted(await tools.all()) == sorted([*keys, "getJob", "listJobs", "sumCosts"])
    for name in ("listTools", "revokeKey", "nothing", "search_tools", "getPet"):
        refused, unknown = await tools.call(name), await tools.call("unheard")
        assert refused["error"]["code"] == unknown["error"]["code"] == -32602
        assert refused["error"]["message"].startswith(f"Unknown tool: {name}")
        assert (await rpc(tools_client, make_request(name), who))["error"]["code"] == -32601
    reader = Tools(tools_client, who=bearer("eve", scope="admin:read"))
    assert all(one["annotations"]["readOnlyHint"] for one in (await reader.all()).values())
    assert await Tools(tools_client, who=bearer("bob", scope="pets")).all() == {}


async def test_nobody_is_served_without_a_good_token(tools_client: Client) -> None:
    body = make_request("listKeys")
    for path in (PATH, RPC):
        status, answer, headers = await tools_client.post(path, body)
        assert status == 401
        assert "result" not in answer
        assert "www-authenticate" in headers


async def test_admin_tools_are_on_no_other_endpoint(tools_client: Client) -> None:
    everything = Tools(tools_client, path="/mcp")
    assert not {"listKeys", "listTools"} & (await everything.all()).keys()
    refused = await everything.call("listKeys")
    assert refused["error"]["message"].startswith("Unknown tool: listKeys")
    found = await everything.call("search_tools", query="list the keys of the gateway")
    assert "listKeys" not in json.dumps(found)
    status, _, _ = await tools_client.post("/mcp?scope=admin", make_request("tools/list"), bearer())
    assert status == 404
    _, answer, _ = await tools_client.post("/rpc", make_request("listKeys"), bearer())
    assert answer["error"]["code"] == -32601


async def test_a_session_of_the_tools_is_none_elsewhere(tools_client: Client) -> None:
    tools = await Tools(tools_client, "2025-06-18").open()
    tools.path = "/mcp"
    assert "error" in await tools.request("tools/list")


async def test_a_caller_administers_their_own_tenant(admin_tools: Settings) -> None:
    auth = replace(admin_tools.auth, tenant_claim="host")
    async with running(replace(admin_tools, auth=auth)) as client:
        ours = Tools(client, who=bearer("root", host=HOST))
        others = Tools(client, who=bearer("ada", host=OTHER))
        assert (await ours.call("listTools"))["structuredContent"]["items"]
        assert (await others.call("listTools"))["structuredContent"] == {"items": []}
        for name in ("getTool", "disableTool"):
            refused = await others.call(name, tool="getPet")
            assert refused["_meta"]["toolgate/problem"]["status"] == 404


async def test_rules_hold_for_operations(admin_tools: Settings) -> None:
    rules = {
        "no-keys": Rule(effect="deny", tools=("listKeys",)),
        "nothing-goes": Rule(effect="deny", destructive=True, toolsets=("admin",)),
    }
    async with running_with_rules(admin_tools, **rules) as client:
        tools = Tools(client)
        found = await tools.all()
        assert "getTool" in found
        assert "listKeys" not in found
        assert all(one["annotations"]["readOnlyHint"] for one in found.values())
        for name in ("listKeys", "disableTool"):
            refused = await tools.call(name)
            assert refused["error"]["message"].startswith(f"Unknown tool: {name}")
            assert (await rpc(client, make_request(name)))["error"]["code"] == -32601
        api = await open_admin(client.url, client.http)
        denied = await until(lambda: records_of(api, "listKeys"))
        assert {(one["decision"], one["rule"]) for one in denied} == {("deny", "no-keys")}


async def test_two_pairs_of_eyes_see_an_operation(admin_tools: Settings) -> None:
    rules = {"ask": Rule(effect="approve", tools=("disableTool",))}
    async with running_with_rules(admin_tools, **rules) as client:
        ada, bob = Tools(client, who=bearer("ada")), Tools(client, who=bearer("bob"))
        waits = await ada.call("disableTool", tool="slow")
        id_ = waits["_meta"]["toolgate/approval"]["approval"]
        own = await ada.call("decide", approval=id_, approve=True)
        assert own["_meta"]["toolgate/problem"]["type"] == "problems/own-call"
        agreed = await bob.call("decide", approval=id_, approve=True)
        assert agreed["structuredContent"]["state"] == "approved"
        done = await ada.call("disableTool", tool="slow")
        assert done["structuredContent"]["name"] == "slow"
        assert "isError" not in await bob.call("listKeys")


async def test_the_query_of_a_refused_url_is_not_recorded(admin_tools: Settings) -> None:
    audit = replace(admin_tools.audit, arguments="masked")
    async with running(replace(admin_tools, audit=audit)) as client:
        body = {"kind": "openapi", "name": "more", "url": "https://a.example/d?token=tiger"}
        refused = await Tools(client).call("importSource", body=body)
        assert "expected an http:// or https:// URL" in refused["content"][0]["text"]
        api = await open_admin(client.url, client.http)
        found = await until(lambda: records_of(api, "importSource"))
        assert "https://a.example/d?***" in json.dumps(found)
        assert "tiger" not in json.dumps(found)


async def records_of(api: Admin, subject: str) -> list[dict[str, Any]]:
    operator = bearer(roles=["operator"])
    found = (await api("GET", "/audit?limit=500", **operator)).json["items"]
    return [one["entry"] for one in found if one["entry"].get("subject") == subject]


async def test_calls_are_in_the_audit_log(tools_client: Client) -> None:
    await Tools(tools_client).call("disableTool", tool="slow")
    api = await open_admin(tools_client.url, tools_client.http)
    done = await until(lambda: records_of(api, "disableTool"))
    assert [(one["method"], one["decision"], one["outcome"]) for one in done] == [
        ("tools/call", "allow", "ok")
    ]


async def test_a_caller_has_one_rate_by_http_and_by_tools(admin_tools: Settings) -> None:
    admin = replace(admin_tools.admin, requests=6)
    async with running(replace(admin_tools, admin=admin)) as client:
        tools, ada = Tools(client, who=bearer("ada")), bearer("ada")
        assert "isError" not in await tools.call("listKeys")
        many = await rpc(client, [make_request("listKeys", n) for n in range(4)], ada)
        assert all("result" in one for one in many)
        api = Admin(client.url, client.http, (await open_admin(client.url, client.http)).api)
        assert (await api.raw("GET", "/keys", None, ada)).status == 200
        assert (await api.raw("GET", "/keys", None, ada)).status == 429
        refused = await tools.call("listKeys")
        assert refused["_meta"]["toolgate/problem"]["limit"] == "admin.requests"
        assert (await rpc(client, make_request("listKeys"), ada))["error"]["code"] == 1429
        assert "isError" not in await Tools(client, who=bearer("bob")).call("listKeys")


async def test_a_repetition_under_a_key_is_done_once(tools_client: Client) -> None:
    who = {**bearer(), "Idempotency-Key": "k1"}
    body = make_request("revokeTokens", jti="eve", expires="2099-01-01T00:00:00Z")
    first, second = await rpc(tools_client, body, who), await rpc(tools_client, body, who)
    assert "id" in first["result"], first
    assert second["result"] == first["result"]


async def test_secrets_are_in_no_result(tools_client: Client) -> None:
    api, tools = await open_admin(tools_client.url, tools_client.http), Tools(tools_client)
    made = await api("POST", "/keys", {"name": "ci", "scopes": ["admin:keys:read"]})
    key = made.json["secret"]
    for name in await tools.all():
        if name.startswith(("list", "get", "search")):
            assert key not in json.dumps(await tools.call(name))
    assert (await tools.call("createKey", name="x"))["error"]["code"] == -32602


async def test_switched_off_there_are_none(admin_tools: Settings) -> None:
    admin = replace(admin_tools.admin, tools=False)
    async with running(replace(admin_tools, admin=admin)) as client:
        for path in (PATH, RPC):
            assert (await client.post(path, make_request("tools/list"), bearer()))[0] == 404
        async with client.http.get(client.url) as response:
            assert "admin-mcp" not in (await response.json())["endpoints"]


def test_switched_off_nothing_is_imported() -> None:
    code = "import sys, gateway.app; print('gateway.app.admin_tools' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "False"
