"""Audit and guardrails, in front of a service, by every front."""

import pytest
from msgspec.structs import replace

from config.policy import Guardrail
from gateway.audit.reading import AuditQuery, search
from tests.fixtures_gateway import running

pytestmark = pytest.mark.anyio

DENY = Guardrail("result", "deny", tools=("getPet",), pattern="/pets/13", reason="unlucky")
HIDE = Guardrail("result", "redact", tools=("listPets",), fields=("heard.path",))


@pytest.fixture
def guarded(settings, tmp_path):
    rails = replace(settings.guardrails, rules={"deny": DENY, "hide": HIDE})
    audit = replace(settings.audit, mode="always", spool_dir=str(tmp_path / "spool"))
    return replace(settings, guardrails=rails, audit=audit)


def call(name, **arguments):
    return {"jsonrpc": "2.0", "id": name, "method": name, "params": arguments}


async def test_every_front_is_guarded_and_recorded(guarded):
    async with running(guarded) as client:
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
        page = await search(client.gateway.feed.pool, guarded.tenant.host_id, AuditQuery())
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
    assert "toolgate_audit_waiting 0.0" in metrics
