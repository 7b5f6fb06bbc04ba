"""Notes of calls, without a gateway."""

import pytest

from gateway.context import Context, Identity, Principal, Session
from gateway.interfaces import ToolCall
from schemas.mcp.revisions import V2025_11_25
from tests.fixtures_database import HOST
from tests.gateway.policy.oracle import tool
from tests.wings.memory.rig import Rig

pytestmark = pytest.mark.anyio

ANN = Principal("ann", HOST)
SESSION = Session("s", V2025_11_25, ANN, {}, {})
CALL = ToolCall(
    tool("pay"), None, {"iban": 1}, Context(Identity(ANN, verified=True), V2025_11_25, "1", SESSION)
)


async def test_a_line_for_each_call_the_newest_of_a_session(rig: Rig) -> None:
    for number in range(25):
        rig.parts.notes.call_ended(CALL, number % 2 == 0)
    await rig.parts.notes.flush()
    await rig.parts.notes.flush()
    rows = await rig.rows("SELECT content, trust, subject, kind FROM memory_t ORDER BY position")
    assert len(rows) == 20
    assert rows[-2:] == [
        ("Called the tool pay, which failed.", "tool", "ann", "turn"),
        ("Called the tool pay.", "tool", "ann", "turn"),
    ]


async def test_calls_before_an_erasure_are_not_noted_afterwards(rig: Rig) -> None:
    """Calls before an erasure are not noted afterwards (M30)."""
    rig.parts.notes.call_ended(CALL, True)
    await rig.caller("ann")("forget", subject="ann")
    await rig.parts.notes.flush()
    assert await rig.rows("SELECT FROM memory_t") == []
    rig.parts.notes.call_ended(CALL, True)
    await rig.parts.notes.flush()
    assert len(await rig.rows("SELECT FROM memory_t")) == 1
