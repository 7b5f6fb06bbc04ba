"""Audit and guardrails, in front of a service, by every front."""

import json

import pytest
from msgspec.structs import replace

from config.access import Guardrail, Rule
from config.sources import SourceSettings
from gateway.audit.queries import AuditQuery, search
from tests.fixtures_gateway import running, wordless

pytestmark = pytest.mark.anyio

DENY = Guardrail("result", "deny", tools=("getPet",), pattern="/pets/13", reason="unlucky")
HIDE = Guardrail("result", "redact", tools=("listPets",), fields=("heard.path",))


@pytest.fixture
def guarded_settings(settings, tmp_path):
    rails = replace(settings.guardrails, rules={"deny": DENY, "hide": HIDE})
    audit = replace(settings.audit, mode="always", spool_dir=str(tmp_path / "spool"))
    return replace(settings, guardrails=rails, audit=audit)


def call(name, **arguments):
    return {"jsonrpc": "2.0", "id": name, "method": name, "params": arguments}


async def test_every_front_is_guarded_and_recorded(guarded_settings):
    async with running(guarded_settings) as client:
        batch = [call("getPet", id=13), call("getPet", id=1), call("listPets"), call("none")]
        denied, shown, hidden, unknown = await client.rpc(batch)
        assert denied["error"]["message"] == "Refused by the guardrail 'deny': unlucky"
        assert "/pets/13" not in str(denied)
        assert shown["result"]["heard"]["path"] == "/pets/1"
        assert hidden["result"]["heard"]["path"] == "***"
        assert unknown["error"]["code"] == -32601
        session = await client.session()
        answer = await session.call("tools/call", {"name": "getPet", "arguments": {"id": 13}})
        assert answer["result"]["isError"]
        assert "structuredContent" not in answer["result"]
        _, answer = await client.modern("tools/call", {"name": "listPets", "arguments": {}})
        assert '"path":"***"' in answer["result"]["content"][0]["text"]
        await client.modern("tools/list")
        await client.gateway.access.settle()
        assert client.gateway.feed.pool is not None
        page = await search(client.gateway.feed.pool, guarded_settings.tenant.host_id, AuditQuery())
        metrics = await (await client.http.get(client.url + "/metrics")).text()
    found = {
        (one.entry.front, one.entry.method, one.entry.subject, one.entry.outcome, one.entry.rule)
        for one in page.records
    }
    default = "policy.default"
    assert found == {
        ("jsonrpc", "getPet", "getPet", "1500", "guardrails.deny"),
        ("jsonrpc", "getPet", "getPet", "ok", default),
        ("jsonrpc", "listPets", "listPets", "ok", default),
        ("jsonrpc", "none", "none", "-32601", ""),
        ("2025-06-18", "initialize", "", "ok", ""),
        ("2025-06-18", "tools/call", "getPet", "tool_error", "guardrails.deny"),
        ("2026-07-28", "tools/call", "listPets", "ok", default),
    }
    assert {one.entry.client for one in page.records} == {"127.0.0.1"}
    assert 'toolgate_audit_records_total{outcome="written"} 7.0' in metrics
    assert "toolgate_audit_queued_records 0.0" in metrics


async def test_marked_arguments_of_calls_that_are_refused_are_not_recorded(
    database_settings, service, tmp_path
):
    """The arguments of a call that does not get to its tool are kept as it would have them."""
    card = {"name": "card", "in": "query", "schema": {"type": "string", "x-mask": True}}
    age = {"name": "age", "in": "query", "schema": {"type": "integer"}}
    pay = {"get": {"operationId": "pay", "summary": "Pay", "parameters": [card, age]}}
    info = {"title": "Pay", "version": "1"}
    file = tmp_path / "pay.json"
    file.write_text(json.dumps({"openapi": "3.1.0", "info": info, "paths": {"/pay": pay}}))
    own = wordless()
    own = replace(
        own,
        database=database_settings,
        sources={"pay": SourceSettings(openapi=str(file), base_url=service.url)},
        audit=replace(
            own.audit, mode="always", spool_dir=str(tmp_path / "spool"), arguments="masked"
        ),
        disclosure=replace(own.disclosure, mode="search"),
    )
    wrong = {"card": "4111111111111111", "age": "old"}
    async with running(own) as client:
        await client.rpc([call("pay", **wrong), {**call("pay"), "params": [wrong["card"]]}])
        session = await client.session()
        for arguments in (wrong, json.dumps(wrong)):
            passed = {"name": "pay", "arguments": arguments}
            await session.call("tools/call", {"name": "call_tool", "arguments": passed})
        await session.call("tools/call", {"name": "pay", "arguments": wrong})
        await client.gateway.access.settle()
        page = await search(client.gateway.feed.pool, own.tenant.host_id, AuditQuery())
    kept = [one.entry.arguments for one in page.records if one.entry.subject]
    assert service.requests == []
    assert len(kept) == 5
    assert "4111" not in str(kept)
    assert kept.count('{"card":"***","age":"old"}') == 2


async def test_a_call_that_a_rule_denies_is_recorded_with_the_rule(settings, tmp_path):
    rules = {
        "no-deletes": Rule("deny", tools=("deletePet",)),
        "reading": Rule("allow", tools=("getPet",)),
    }
    policy = replace(settings.policy, default="deny", rules=rules)
    audit = replace(settings.audit, mode="always", spool_dir=str(tmp_path / "spool"))
    disclosure = replace(settings.disclosure, mode="search")
    own = replace(settings, policy=policy, audit=audit, disclosure=disclosure)
    async with running(own) as client:
        await client.rpc(
            [call("deletePet", id=1), call("listPets"), call("none"), call("getPet", id=1)]
        )
        session = await client.session()
        for name, arguments in [
            ("deletePet", {"id": 1}),
            ("search_tools", {"query": "pet"}),
            ("call_tool", {"name": "deletePet", "arguments": {"id": 1}}),
            ("call_tool", {"name": "getPet", "arguments": {"id": 1}}),
        ]:
            await session.call("tools/call", {"name": name, "arguments": arguments})
        await client.gateway.access.settle()
        page = await search(client.gateway.feed.pool, own.tenant.host_id, AuditQuery())
    found = [
        (one.entry.front, one.entry.subject, one.entry.decision, one.entry.rule)
        for one in page.records
        if one.entry.method != "initialize"
    ]
    assert sorted(found) == [
        ("2025-06-18", "deletePet", "deny", "no-deletes"),
        ("2025-06-18", "deletePet", "deny", "no-deletes"),
        ("2025-06-18", "getPet", "allow", "reading"),
        ("2025-06-18", "search_tools", "allow", "built_in"),
        ("jsonrpc", "deletePet", "deny", "no-deletes"),
        ("jsonrpc", "getPet", "allow", "reading"),
        ("jsonrpc", "listPets", "deny", "policy.default"),
        ("jsonrpc", "none", "", ""),
    ]
