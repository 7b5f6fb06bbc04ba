"""Calls that need an approval, on their way to where they are executed."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from config.access import Rule
from gateway.context import AuditDraft, Context, Identity, Principal, Upload
from gateway.interfaces import ToolCall
from gateway.middleware.policy_guard import PolicyGuard, arguments_for_approvers
from gateway.policy.approval_gate import ApprovalGate
from gateway.policy.visibility import PolicyView
from registry.access.approvals import Approvals
from registry.database.postgres import Database
from schemas.binding import GatewayBinding
from schemas.errors import ApprovalRequired, Denied, TooManyRequests, Unavailable
from schemas.mcp.revisions import JSON_RPC
from schemas.tool import RelayedResult, Tool, ToolResult
from tests.fixtures_database import HOST
from tests.gateway.policy.oracle import tool, usual

pytestmark = pytest.mark.anyio

ADA = Principal("ada", HOST, mark="1")
ID = "00000000-0000-0000-0000-00000000000a"
PAY = tool("pay", id=ID)
ASKS = RelayedResult({"resultType": Raw(b'"input_required"')})
DONE = ToolResult(())


@dataclass
class Upstream:
    """Answers as a test says, one after the other."""

    answers: list[Any]
    calls: list[ToolCall] = field(default_factory=list)

    async def __call__(self, call: ToolCall) -> Any:
        self.calls.append(call)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def call(arguments: Any = None, one: Tool = PAY, note: AuditDraft | None = None) -> ToolCall:
    context = Context(Identity(ADA, verified=True), JSON_RPC, "1", note=note)
    return ToolCall(one, None, arguments or {}, context)


def judging(pool: Any, **rules: Rule) -> PolicyGuard:
    policy = replace(usual(), rules=rules)
    return PolicyGuard(
        PolicyView(policy, 50), ApprovalGate(policy, lambda: pool, arguments_for_approvers)
    )


WAITS = {"sums": Rule("approve", tools=("pay",))}


async def agreed(database: Database, asked: ApprovalRequired) -> None:
    approvals = Approvals(database.pool, HOST)
    assert await approvals.decide(asked.data["approval"], True, "bob")


async def test_denied_calls_are_not_sent_and_noted() -> None:
    upstream, note = Upstream([DONE]), AuditDraft()
    guarded = judging(None, no=Rule("deny", when="arguments.sum > 5")).guard(upstream)
    with pytest.raises(Denied):
        await guarded(call({"sum": 6}, note=note))
    assert (note.decision, note.rule, upstream.calls) == ("deny", "no", [])
    assert await guarded(call({"sum": 5}, note=note)) is DONE
    assert (note.decision, note.rule) == ("allow", "policy.default")


async def test_tools_of_the_gateway_are_for_everybody() -> None:
    own = tool("describe_tools", binding=GatewayBinding("describe_tools"))
    guarded = judging(None, no=Rule("deny")).guard(Upstream([DONE]))
    assert await guarded(call(one=own)) is DONE


async def test_the_order_of_arguments_makes_no_other_call(database: Database) -> None:
    guarded = judging(database.pool, **WAITS).guard(Upstream([DONE]))
    with pytest.raises(ApprovalRequired) as asked:
        await guarded(call({"a": 1, "b": 2}))
    with pytest.raises(ApprovalRequired) as again:
        await guarded(call({"b": 2, "a": 1}))
    assert again.value.data == asked.value.data
    await agreed(database, asked.value)
    assert await guarded(call({"b": 2, "a": 1})) is DONE


async def test_an_approval_covers_only_the_approved_definition_of_a_tool(
    database: Database,
) -> None:
    guarded = judging(database.pool, **WAITS).guard(Upstream([DONE]))
    with pytest.raises(ApprovalRequired) as asked:
        await guarded(call())
    await agreed(database, asked.value)
    with pytest.raises(ApprovalRequired):
        await guarded(call(one=tool("pay", id=ID, digest="of another description")))


async def test_an_approval_covers_only_the_approved_upload(database: Database) -> None:
    """Bytes beside the arguments are approved with them, by their size and digest."""
    guarded = judging(database.pool, **WAITS).guard(Upstream([DONE]))

    def uploading(data: bytes) -> ToolCall:
        wanted = call()
        wanted.context.upload = Upload(data)
        return wanted

    with pytest.raises(ApprovalRequired) as asked:
        await guarded(uploading(b"harmless"))
    await agreed(database, asked.value)
    for other in (uploading(b"hostile"), call()):
        with pytest.raises(ApprovalRequired):
            await guarded(other)
    assert await guarded(uploading(b"harmless")) is DONE
    assert "and 8 bytes, SHA-256 " in arguments_for_approvers(uploading(b"harmless"))


@pytest.mark.parametrize(
    "first",
    [ASKS, TooManyRequests("later", 1.0), Unavailable("later")],
    ids=["asks", "limited", "away"],
)
async def test_a_call_that_came_to_no_end_may_be_made_again(database: Database, first: Any) -> None:
    guarded = judging(database.pool, **WAITS).guard(Upstream([first, DONE]))
    with pytest.raises(ApprovalRequired) as asked:
        await guarded(call())
    await agreed(database, asked.value)
    if isinstance(first, Exception):
        with pytest.raises(type(first)):
            await guarded(call())
    else:
        assert await guarded(call()) is first
    assert await guarded(call()) is DONE
    with pytest.raises(ApprovalRequired):
        await guarded(call())


async def test_without_a_database_nothing_is_approved() -> None:
    upstream = Upstream([DONE])
    with pytest.raises(Unavailable):
        await judging(None, **WAITS).guard(upstream)(call())
    assert upstream.calls == []


def test_approvers_see_no_secrets() -> None:
    schema = Raw(b'{"properties":{"iban":{"type":"string","x-mask":true}}}')
    asked = call({"iban": "DE02", "api_key": "sk-1", "sum": 5}, tool("pay", input_schema=schema))
    shown = arguments_for_approvers(asked)
    assert "DE02" not in shown
    assert "sk-1" not in shown
    assert '"sum":5' in shown
    long = arguments_for_approvers(call({"text": "x" * 30_000}))
    assert len(long) < 17_000
