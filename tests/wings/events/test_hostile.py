"""Results of servers that mean no good: each ends its own invocation, and nothing else."""

from typing import Any

import pytest
from msgspec.structs import replace

from config.load import load
from config.settings import Settings
from config.sources import SourceSettings
from gateway.wings.events import execution
from tests.fixtures_gateway import running
from tests.fixtures_servers import serving
from tests.servers.mcp_wire import Scripted, Turn
from tests.wings.events.rig import ended, invoked, with_events

pytestmark = pytest.mark.anyio

SOMEBODY = "00000000-0000-0000-0000-0000000000aa"


async def _list(turn: Turn) -> None:
    await turn.result(tools=[{"name": "say", "inputSchema": {"type": "object"}}])


async def _say(turn: Turn) -> None:
    """Answers what the call asks for, with NUL for `NUL`."""
    asked = turn.message["params"]["arguments"]
    text = asked.pop("text", "no").replace("NUL", "\0")
    await turn.result(content=[{"type": "text", "text": text}], **asked)


def refusal(**members: Any) -> dict[str, Any]:
    return {"isError": True, **members}


def approval(value: Any) -> dict[str, Any]:
    return refusal(_meta={"toolgate/approval": value})


async def test_a_result_ends_its_own_invocation_alone(settings: Settings) -> None:
    server = Scripted({"tools/call": _say, "tools/list": _list}, capabilities={"tools": {}})
    async with serving(server) as url:
        source = SourceSettings(mcp=f"{url}/mcp")
        settings = replace(settings, sources={"bad": source})
        async with running(with_events(settings)) as client:
            asked = [
                ({"text": "a NUL"}, "cannot be stored"),
                (refusal(text="a NUL"), "cannot be stored"),
                (approval({"approval": "x"}), "no"),
                (approval({"approval": {"a": 1}}), "no"),
                (approval({"approval": SOMEBODY}), "no"),
                (approval([1]), "no"),
                *(
                    (refusal(structuredContent={"retryAfter": one}), "no")
                    for one in (1e300, "inf", True, None)
                ),
            ]
            sent = [
                await invoked(client, "say", arguments, retry="never") for arguments, _ in asked
            ]
            for one, (arguments, message) in zip(sent, asked, strict=True):
                over = await ended(client, one["id"])
                assert (over["status"], over["reason"]) == ("FAILED", "error"), arguments
                assert message in over["error"]["message"], arguments
            told = {"status": 503, "retryAfter": "soon"}
            again = await invoked(client, "say", refusal(structuredContent=told), retry="always")
            over = await ended(client, again["id"])
            assert (over["status"], over["reason"], over["attempt"] > 1) == (
                "FAILED",
                "attempts",
                True,
            )
            good = await invoked(client, "say", {"text": "yes"})
            assert (await ended(client, good["id"]))["status"] == "ACKED"


def test_v09_the_delay_doubles_with_full_jitter_up_to_its_limit() -> None:
    settings = replace(load(None, {}).events, backoff_s=2.0, backoff_max_s=10.0)
    for attempt, most in ((1, 2.0), (2, 4.0), (3, 8.0), (4, 10.0), (100, 10.0)):
        delays = [execution.backoff(attempt, settings) for _ in range(200)]
        assert min(delays) >= 0
        assert most / 2 < max(delays) <= most


@pytest.mark.parametrize(
    ("told", "wait_s"),
    [
        ({"retryAfter": 7, "limit": "limits.principal_calls"}, 7.0),
        ({"retryAfter": -5}, 1.0),
        ({"retryAfter": 10**400}, 3600.0),
        ({"retryAfter": 1e300}, None),
        ({"retryAfter": 7, "status": 503}, None),
        ({}, None),
    ],
)
def test_the_delay_for_a_limit_is_bounded(told: dict[str, Any], wait_s: float | None) -> None:
    assert execution.wait_of(told) == wait_s


@pytest.mark.parametrize(
    ("asked", "wait_s"),
    [(7, 7.0), (0.5, 0.5), (-5, 0.0), (10**400, 3600.0), (1e300, 3600.0), (True, 0.0), ("7", 0.0)],
)
def test_the_delay_that_a_service_asks_for_is_bounded(asked: Any, wait_s: float) -> None:
    assert execution.asked_wait_s({"retryAfter": asked, "status": 503}) == wait_s
