"""How much one caller, tenant, tool or source may have."""

import asyncio
from dataclasses import replace as copy

import anyio
import pytest
from msgspec.structs import replace

from config.access import Rate
from config.load import load
from gateway.context import CallHeaders, Context, Identity, Principal
from gateway.interfaces import Route, ToolCall
from gateway.middleware.rate_limits import DAY_S, RateLimits
from gateway.state.rate_windows import LocalRates
from schemas.errors import Overloaded, TooManyRequests, Unavailable
from schemas.hybrid import MISSING_AUTH_TOKEN, StatusFault
from schemas.jsonrpc import Request
from schemas.mcp.revisions import JSON_RPC, V2025_11_25

pytestmark = pytest.mark.anyio

NONE = replace(
    load(None, {}).limits, principal_calls=0, principal_concurrent=0, concurrent=0, per_s=60.0
)
ANONYMOUS = Identity(Principal("anonymous", "t"))
CALL = Request("2.0", "tools/call")


def of(name, tenant="t"):
    return Identity(Principal(name, tenant), verified=True)


def context(identity, revision=V2025_11_25, **call_headers):
    return Context(identity, revision, "r-1", headers=CallHeaders(**call_headers))


class Serving:
    """A handler behind the middleware."""

    def __init__(self, rates=None, **limits):
        self.refused = []
        self.served = 0
        self.release = asyncio.Event()
        self.release.set()
        self.limiting = RateLimits(
            replace(NONE, **limits), rates or LocalRates(), self.refused.append
        )

    async def _handler(self, _context, _request):
        self.served += 1
        await self.release.wait()
        return "served"

    async def ask(self, identity=ANONYMOUS, request=CALL, times=1, **more):
        for _ in range(times):
            assert await self._handle(context(identity, **more), request) == "served"

    async def _handle(self, context, request):
        route = Route(context.revision, request.method)
        return await self.limiting.middleware(self._handler, route)(context, request)


async def refusal_of(serving, limit, identity=ANONYMOUS, **more):
    with pytest.raises(TooManyRequests) as caught:
        await serving.ask(identity, **more)
    assert caught.value.data["limit"] == f"limits.{limit}"
    assert caught.value.data["retryAfter"] == caught.value.retry_after >= 1
    assert serving.refused[-1] == limit
    return caught.value


@pytest.mark.parametrize(
    ("limit", "window"), [("principal_calls", "in 60 s"), ("principal_daily", f"in {DAY_S:g} s")]
)
async def test_a_principal_has_so_many_calls(limit, window):
    serving = Serving(**{limit: 3})
    await serving.ask(of("ann"), times=3)
    fault = await refusal_of(serving, limit, of("ann"))
    assert fault.message == (
        f"Too many calls: at most 3 {window} (limits.{limit}); try again in {fault.retry_after} s"
    )
    await serving.ask(of("bob"))
    await serving.ask(of("ann", "another tenant"))
    assert serving.served == 5


async def test_limits_that_were_lowered_hold_for_callers_that_are_known():
    serving, ann = Serving(principal_calls=5), of("ann")
    await serving.ask(ann, times=3)
    serving.limiting = serving.limiting.with_limits(replace(NONE, principal_calls=3))
    await refusal_of(serving, "principal_calls", ann)
    assert copy(ann.principal).prepared == {}


@pytest.mark.parametrize("limit", ["tenant_calls", "tenant_daily"])
async def test_calls_of_a_tenant_are_limited_over_all_its_callers(limit):
    serving = Serving(**{limit: 3})
    await serving.ask(of("ann"), times=2)
    await serving.ask(of("bob"))
    await refusal_of(serving, limit, of("ann"))
    await refusal_of(serving, limit, of("bob"))
    await serving.ask(of("ann", "another tenant"))


async def test_a_call_that_is_refused_costs_nothing():
    serving = Serving(principal_calls=2, principal_daily=1)
    await serving.ask(of("ann"))
    for _ in range(5):
        await refusal_of(serving, "principal_daily", of("ann"))
    rates = LocalRates()
    serving = Serving(rates, principal_calls=2, tenant_calls=1)
    await serving.ask(of("bob"))
    await refusal_of(serving, "tenant_calls", of("ann"))
    assert rates.take(("principal_calls", "t", "ann"), 1, 60.0) == 0


@pytest.mark.parametrize("method", ["initialize", "ping", "notifications/cancelled"])
async def test_keep_alive_methods_do_not_count(method):
    serving = Serving(principal_calls=1)
    await serving.ask(of("ann"), Request("2.0", method), times=5)
    await serving.ask(of("ann"))
    await refusal_of(serving, "principal_calls", of("ann"))


@pytest.mark.parametrize("method", ["ping", "notifications/x", "tools/list", "completion/complete"])
async def test_every_other_method_and_services_of_these_names_count(method):
    serving = Serving(principal_calls=1)
    request = Request("2.0", method)
    await serving.ask(of("ann"), request, revision=JSON_RPC)
    await refusal_of(serving, "principal_calls", of("ann"), request=request, revision=JSON_RPC)


async def test_anonymous_callers_are_not_counted_as_one_principal():
    serving = Serving(principal_calls=1, principal_concurrent=1)
    await serving.ask(times=3)
    serving = Serving(tenant_calls=1)
    await serving.ask()
    await refusal_of(serving, "tenant_calls")


async def test_strangers_count_by_their_addresses():
    serving = Serving(principal_calls=1)
    stranger = copy(ANONYMOUS, refusal=StatusFault(MISSING_AUTH_TOKEN))
    await serving.ask(stranger, client="10.0.0.1")
    await serving.ask(stranger, client="10.0.0.2")
    await refusal_of(serving, "principal_calls", stranger, client="10.0.0.1")


async def running(serving, tasks, identity, count, **more):
    before = serving.served
    for _ in range(count):
        tasks.start_soon(lambda: serving.ask(identity, **more))
    with anyio.fail_after(30):
        while serving.served < before + count:
            await anyio.lowlevel.checkpoint()


async def test_a_stranger_gets_no_more_by_taking_another_address_of_the_same_network():
    serving = Serving(principal_calls=2)
    stranger = copy(ANONYMOUS, refusal=StatusFault(MISSING_AUTH_TOKEN))
    for address in ("2001:db8::1", "2001:db8::2:0:0:1"):
        await serving.ask(stranger, client=address)
    await refusal_of(serving, "principal_calls", stranger, client="2001:db8::3")
    await serving.ask(stranger, client="2001:db8:0:1::1")
    for address in ("::ffff:10.0.0.1", "10.0.0.1"):
        await serving.ask(stranger, client=address)
    await refusal_of(serving, "principal_calls", stranger, client="10.0.0.1")


@pytest.mark.parametrize("limit", ["tenant_calls", "tenant_daily"])
async def test_strangers_use_up_nothing_of_a_tenant(limit):
    serving = Serving(**{limit: 2})
    stranger = copy(ANONYMOUS, refusal=StatusFault(MISSING_AUTH_TOKEN))
    await serving.ask(stranger, times=5)
    await serving.ask(of("ada"), times=2)
    await refusal_of(serving, limit, of("ada"))


async def test_a_principal_runs_so_many_calls_at_a_time():
    serving = Serving(principal_concurrent=2)
    serving.release.clear()
    async with anyio.create_task_group() as tasks:
        await running(serving, tasks, of("ann"), 2)
        await running(serving, tasks, of("bob"), 1)
        await refusal_of(serving, "principal_concurrent", of("ann"))
        serving.release.set()
    await serving.ask(of("ann"), times=2)


async def test_waiting_streams_do_not_count_as_running():
    serving = Serving(principal_concurrent=1, concurrent=1)
    serving.release.clear()
    async with anyio.create_task_group() as tasks:
        listening = Request("2.0", "subscriptions/listen")
        await running(serving, tasks, of("ann"), 3, request=listening)
        await running(serving, tasks, of("ann"), 1)
        serving.release.set()


async def test_all_together_run_so_many_calls_at_a_time():
    serving = Serving(concurrent=2)
    serving.release.clear()
    async with anyio.create_task_group() as tasks:
        await running(serving, tasks, of("ann"), 1)
        await running(serving, tasks, ANONYMOUS, 1)
        with pytest.raises(Overloaded) as caught:
            await serving.ask(of("bob"))
        assert caught.value.status == 503
        serving.release.set()
    assert serving.refused == ["concurrent"]
    await serving.ask(of("bob"))


async def test_a_call_that_fails_runs_no_longer():
    limiting = RateLimits(replace(NONE, principal_concurrent=1, concurrent=1), LocalRates())

    async def fails(_context, _request):
        raise Unavailable("x")

    handle = limiting.middleware(fails, Route(V2025_11_25, CALL.method))
    for _ in range(3):
        with pytest.raises(Unavailable, match="x"):
            await handle(context(of("ann")), CALL)


class Tool:
    def __init__(self, name, source="crm", tags=()):
        self.name = name
        self.source = source
        self.tags = tags
        self.domain = None


async def test_the_first_pattern_that_fits_limits_each_tool_by_itself():
    tools = {"delete_*": Rate(calls=1), "*": Rate(calls=2)}
    limiting, refusals = RateLimits(replace(NONE, tools=tools), LocalRates()), []

    async def execute(call):
        return call.tool.name

    guard = limiting.guard(execute)

    async def call(name, tenant="t"):
        try:
            return await guard(ToolCall(Tool(name), None, {}, context(of("ann", tenant))))
        except TooManyRequests as fault:
            refusals.append(fault)
            return None

    names = ["delete_pet", "delete_pet", "delete_all", "get", "get", "get", "list"]
    assert [await call(name) for name in names] == [
        *("delete_pet", None, "delete_all", "get", "get", None, "list")
    ]
    assert await call("delete_pet", "another tenant") == "delete_pet"
    assert refusals[0].message.startswith("Too many calls of delete_pet: at most 1 in 60 s, shared")
    assert refusals[0].data["limit"] == "limits.tools"


@pytest.mark.parametrize("setting", ["tools", "sources"])
@pytest.mark.parametrize(
    ("per", "passing", "shared"),
    [
        ("caller", ["ann", "bob", "eve"], "in 60 s for each caller (limits"),
        ("tenant", ["ann", "eve"], "in 60 s, shared by all callers of the tenant (limits"),
        ("all", ["ann"], "in 60 s, shared by all callers (limits"),
    ],
)
async def test_limits_of_tools_are_shared_by_caller_or_tenant(setting, per, passing, shared):
    """A limit of a tool may be of each caller, and texts say who shares it (mending 41)."""
    name = "get" if setting == "tools" else "crm"
    limits = replace(NONE, **{setting: {name: Rate(calls=1, per=per)}})
    limiting, passed, refusals = RateLimits(limits, LocalRates()), [], []

    async def execute(call):
        passed.append(call.context.identity.principal.id)

    guard, tool = limiting.guard(execute), Tool("get")
    for identity in (of("ann"), of("ann"), of("bob"), of("eve", "another tenant")):
        try:
            await guard(ToolCall(tool, None, {}, context(identity)))
        except TooManyRequests as fault:
            refusals.append(fault.message)
    assert passed == passing
    assert [text for text in refusals if shared not in text] == []


async def test_concurrency_of_one_caller_does_not_limit_another_caller():
    """A slow caller holds no place of another one (mending 41)."""
    limits = replace(NONE, tools={"get": Rate(concurrent=1, per="caller")})
    limiting, began, release = RateLimits(limits, LocalRates()), anyio.Event(), anyio.Event()

    async def execute(call):
        if call.context.identity.principal.id == "ann":
            began.set()
            await release.wait()
        return "done"

    def call_of(name):
        return ToolCall(Tool("get"), None, {}, context(of(name)))

    guard = limiting.guard(execute)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(guard, call_of("ann"))
            await began.wait()
            assert await guard(call_of("bob")) == "done"
            with pytest.raises(TooManyRequests, match="at a time: at most 1 for each caller"):
                await guard(call_of("ann"))
            release.set()


@pytest.mark.parametrize("pattern", ["*refund*", "tag:Money"])
async def test_a_limit_holds_for_names_in_any_case_and_for_tags(pattern):
    limiting = RateLimits(replace(NONE, tools={pattern: Rate(calls=1)}), LocalRates())

    async def execute(_call):
        return "done"

    call = ToolCall(Tool("PostRefunds", tags=("money",)), None, {}, context(ANONYMOUS))
    guard = limiting.guard(execute)
    assert await guard(call) == "done"
    with pytest.raises(TooManyRequests, match="calls of PostRefunds: at most 1"):
        await guard(call)


async def test_a_source_has_so_many_calls_whatever_its_tools():
    sources = {"crm": Rate(calls=2)}
    limiting = RateLimits(replace(NONE, sources=sources), LocalRates())

    async def execute(_call):
        return "done"

    guard = limiting.guard(execute)

    async def call(name, source="crm"):
        return await guard(ToolCall(Tool(name, source), None, {}, context(ANONYMOUS)))

    assert [await call(name) for name in ("a", "b")] == ["done", "done"]
    with pytest.raises(TooManyRequests, match="calls of crm: at most 2"):
        await call("c")
    assert await call("a", "erp") == "done"


@pytest.mark.parametrize("setting", ["tools", "sources"])
async def test_a_tool_or_a_source_runs_so_many_calls_at_a_time(setting):
    name = "get" if setting == "tools" else "crm"
    limits = {setting: {name: Rate(concurrent=1)}}
    limiting, began, release = (
        RateLimits(replace(NONE, **limits), LocalRates()), anyio.Event(), anyio.Event()
    )  # fmt: skip

    async def execute(_call):
        began.set()
        await release.wait()
        return "done"

    guard, one = limiting.guard(execute), ToolCall(Tool("get"), None, {}, context(of("ann")))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(guard, one)
        await began.wait()
        with pytest.raises(TooManyRequests, match=f"limits.{setting}"):
            await guard(one)
        release.set()
    assert await guard(one) == "done"


def test_only_tools_and_sources_with_limits_have_to_pass():
    limits = replace(NONE, tools={"get_*": Rate(calls=1)}, sources={"erp": Rate(concurrent=1)})
    limiting = RateLimits(limits, LocalRates())
    assert limiting.applies(Tool("get_pet"), None)
    assert limiting.applies(Tool("list", "erp"), None)
    assert not limiting.applies(Tool("list"), None)
