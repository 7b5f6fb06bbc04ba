"""When a source is spared, and when it is tried again."""

import logging

import anyio
import msgspec
import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry, generate_latest

from config.load import load
from gateway.context import Context, Identity, Principal
from gateway.interfaces import ToolCall
from gateway.middleware.circuit_breaker import Breaker
from gateway.middleware.rate_limits import RefusalCounts
from gateway.upstreams.http.responses_as_results import failure_result, outage
from schemas.binding import HybridBinding, McpBinding, OpenAPIBinding, PythonBinding
from schemas.errors import InvalidParams, RelayedFault, SourceDown, Unreachable
from schemas.mcp.revisions import JSON_RPC
from schemas.tool import TextContent, ToolResult

pytestmark = pytest.mark.anyio

SETTINGS = replace(
    load(None, {}).breaker,
    window_s=30.0, calls=4, failures=0.5, open_s=5.0, longest_s=15.0, probes=2,
)  # fmt: skip
FINE = ToolResult((TextContent("fine"),))
DOWN = outage(failure_result("crm could not be reached"))
ASKED = Context(Identity(Principal("anonymous", "t")), JSON_RPC, "r-1")
REST = OpenAPIBinding("GET", "/pets")
HYBRID, PYTHON = HybridBinding("a/b/c/1"), PythonBinding("a/b/c/1")
RELAYED = McpBinding("get")


class Named:
    def __init__(self, name):
        self.name = self.place = name


class Bound:
    def __init__(self, binding):
        self.binding = binding


class Source:
    """What is called, with the clock of the test."""

    def __init__(self, **settings):
        self.now = 100.0
        self.calls = 0
        self.answer = FINE
        self.refused = []
        self.breaker = Breaker(
            replace(SETTINGS, **settings), self.refused.append, lambda: self.now, lambda: 1.0
        )
        self._guard = self.breaker.guard(self._execute)

    async def _execute(self, _call):
        self.calls += 1
        answer = self.answer
        if isinstance(answer, anyio.Event):
            await answer.wait()
            return FINE
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def call(self, answer=None, binding=REST, source="crm"):
        self.answer = self.answer if answer is None else answer
        call = ToolCall(Bound(binding), Named(source), {}, ASKED)
        applies = self.breaker.applies(call.tool, call.source)
        return await (self._guard if applies else self._execute)(call)

    async def fail(self, times):
        for _ in range(times):
            assert await self.call(DOWN) is DOWN

    @property
    def state(self):
        return self.breaker.states().get("crm", "closed")


async def test_a_source_that_fails_is_not_called_for_a_while(caplog):
    caplog.set_level(logging.INFO, "toolgate.upstream")
    source = Source()
    await source.fail(3)
    assert source.state == "closed"  # too few to tell
    await source.fail(1)
    assert source.state == "open"
    result = await source.call(FINE)
    assert (source.calls, source.refused) == (4, ["breaker"])
    assert result.is_error
    assert result.content[0].text == (
        "crm does not answer at the moment, and was not asked again; try again in 5 s"
    )
    assert msgspec.json.decode(result.structured_content) == {
        "status": 503,
        "body": result.content[0].text,
        "retryAfter": 5,
    }
    [record] = caplog.records
    assert (record.message, record.source, record.open_s) == ("breaker_opened", "crm", 5.0)
    assert (record.calls, record.failures) == (4, 4)


async def test_other_sources_are_called():
    source = Source()
    await source.fail(4)
    assert await source.call(FINE, source="erp") is FINE
    assert source.breaker.states() == {"crm": "open"}


async def test_the_breaker_opens_by_the_failure_share_of_recent_calls():
    source = Source()
    for _ in range(6):
        await source.call(FINE)
    await source.fail(5)
    assert source.state == "closed"
    source.now += 31  # all of that is over
    await source.fail(3)
    assert source.state == "closed"
    await source.fail(1)
    assert source.state == "open"


@pytest.mark.parametrize(
    "answer",
    [FINE, failure_result("HTTP 500"), InvalidParams("x"), Unreachable("asks too much"),
     RelayedFault(-32602, "x")],
    ids=["fine", "failed", "unsendable", "unreachable", "relayed"],
)  # fmt: skip
async def test_errors_about_a_call_are_no_failures_of_the_source(answer):
    source = Source()
    for _ in range(20):
        if isinstance(answer, Exception):
            with pytest.raises(type(answer)):
                await source.call(answer)
        else:
            assert await source.call(answer) is answer
    assert (source.state, source.calls) == ("closed", 20)


async def test_the_failures_of_an_mcp_server_are_errors_and_so_is_its_rest():
    source = Source()
    for _ in range(4):
        with pytest.raises(SourceDown, match="gone"):
            await source.call(SourceDown("gone"), RELAYED)
    with pytest.raises(SourceDown, match="does not answer at the moment") as caught:
        await source.call(FINE, RELAYED)
    assert caught.value.data == {"retryAfter": 5}
    assert source.calls == 4


async def test_a_hybrid_call_gets_a_status():
    source = Source()
    await source.fail(4)
    result = await source.call(FINE, HYBRID)
    told = msgspec.json.decode(result.structured_content)
    assert (told["status"], told["body"]["code"]) == (503, "ERR18503")
    assert told["body"]["metadata"] == {"retryAfter": 5}


async def test_local_functions_have_no_breaker():
    source = Source()
    for _ in range(10):
        assert await source.call(DOWN, PYTHON) is DOWN
    assert source.breaker.states() == {}


async def test_single_probes_close_the_breaker(caplog):
    caplog.set_level(logging.INFO, "toolgate.upstream")
    source = Source()
    await source.fail(4)
    source.now += 5
    assert await source.call(FINE) is FINE
    assert source.state == "half-open"
    assert await source.call(FINE) is FINE
    assert source.state == "closed"
    assert [record.message for record in caplog.records] == ["breaker_opened", "breaker_closed"]
    await source.fail(3)
    assert source.state == "closed"  # it begins anew


async def test_a_source_that_is_seen_to_answer_is_called_again_at_once(caplog):
    caplog.set_level(logging.INFO, "toolgate.upstream")
    source = Source()
    source.breaker.close("crm")  # nobody has called it
    await source.fail(4)
    assert (await source.call(FINE)).is_error
    source.breaker.close("another")
    assert source.state == "open"
    source.breaker.close("crm")
    source.breaker.close("crm")
    assert await source.call(FINE) is FINE
    assert source.state == "closed"
    assert [record.message for record in caplog.records] == ["breaker_opened", "breaker_closed"]


async def test_one_probe_runs_at_a_time():
    source = Source()
    await source.fail(4)
    source.now += 5
    answered = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(source.call, answered)
        await anyio.wait_all_tasks_blocked()
        assert source.calls == 5
        refused = await source.call(answered)
        assert refused.is_error
        assert source.calls == 5
        source.now += 5  # one that takes that long is not waited for
        tasks.start_soon(source.call, answered)
        await anyio.wait_all_tasks_blocked()
        assert source.calls == 6
        answered.set()
    assert source.state == "closed"


async def test_a_probe_that_nobody_waits_for_makes_room_for_another():
    source = Source()
    await source.fail(4)
    source.now += 5
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(source.call, anyio.Event())
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert source.state == "half-open"
    assert await source.call(FINE) is FINE


async def test_each_probe_that_fails_doubles_the_time_up_to_the_longest():
    source, waits = Source(), []
    await source.fail(4)
    for _ in range(4):
        result = await source.call(DOWN)
        wait_s = msgspec.json.decode(result.structured_content)["retryAfter"]
        waits.append(wait_s)
        source.now += wait_s
        assert await source.call(DOWN) is DOWN
    assert waits == [5, 10, 15, 15]


async def test_calls_begun_before_the_opening_are_not_counted():
    source, late = Source(), anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(source.call, late)
        await anyio.wait_all_tasks_blocked()
        await source.fail(4)
        source.now += 5
        await source.call(FINE)
        late.set()
    assert source.state == "half-open"  # one probe has passed, and that was none


async def test_nodes_do_not_come_back_together():
    breaker = Breaker(SETTINGS)
    assert all(0 <= breaker._jitter() <= 1 for _ in range(100))
    for jitter, wait_s in ((0.0, 4.0), (1.0, 5.0)):
        source = Source()
        source.breaker._jitter = lambda jitter=jitter: jitter
        await source.fail(4)
        source.now += wait_s - 0.01
        assert (await source.call(FINE)).is_error
        source.now += 0.01
        assert await source.call(FINE) is FINE


async def test_the_breaker_can_be_switched_off():
    source = Source(enabled=False)
    await source.fail(50)
    assert source.calls == 50


async def test_metrics_show_states_and_refusals():
    source, registry, refusals = Source(), CollectorRegistry(), RefusalCounts()
    registry.register(source.breaker)
    registry.register(refusals)
    await source.fail(4)
    await source.call(FINE, source="erp")
    for limit in ("tools", "breaker", "tools"):
        refusals.add(limit)
    text = generate_latest(registry).decode()
    assert 'toolgate_breaker{source="crm"} 1.0' in text
    assert 'toolgate_breaker{source="erp"} 0.0' in text
    assert 'toolgate_refusals_total{limit="tools"} 2.0' in text
    source.now += 5
    await source.call(FINE)
    assert 'toolgate_breaker{source="crm"} 0.5' in generate_latest(registry).decode()
