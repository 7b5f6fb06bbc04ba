"""Rate limits, quotas and concurrency limits of callers, tenants, tools and sources.

Every message counts but initialize, ping and MCP notifications; lists too, because encoding them is
work. Counts taken for a message that a later limit refuses are given back.
"""

import math
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from config.access import LimitsSettings, Rate
from gateway.context import Context
from gateway.interfaces import Execute, Handler, RateBound, RateKey, Rates, Route, TakeAll, ToolCall
from gateway.state.rate_windows import network_of
from schemas.errors import Overloaded, TooManyRequests
from schemas.globs import ToolGlobs
from schemas.jsonrpc import Request
from schemas.source import Source
from schemas.tool import RelayedResult, Tool, ToolResult


class RefusalCounts(Collector):
    def __init__(self) -> None:
        self._count: Counter[str] = Counter()

    def collect(self) -> Iterator[Metric]:
        total = CounterMetricFamily(
            "toolgate_refusals", "Refused requests, by limit.", labels=("limit",)
        )
        for limit, count in list(self._count.items()):
            total.add_metric((limit,), count)
        yield total

    def add(self, limit: str) -> None:
        """Count a refusal; `limit` is the name of a setting (few label values)."""
        self._count[limit] += 1


DAY_S = 86_400.0
FREE = frozenset({"initialize", "ping"})  # the rate of new sessions is limited elsewhere
NOTIFICATIONS = "notifications/"
LASTING = frozenset({"subscriptions/listen", "tasks/result"})  # long-running: limited as streams
REMEMBERED = 10_000  # tools, and callers
PREPARED = "limits"
OF_TENANT = ", shared by all callers of the tenant"
SHARED = {  # by `per` of a rate
    "caller": " for each caller",
    "tenant": OF_TENANT,
    "all": ", shared by all callers",
}
AGAIN_S = 1.0  # retry delay of concurrency limits: when a slot frees up is unknown


class _CallLimits(NamedTuple):
    """Rate and concurrency limits of a tool and its source."""

    bounds: Sequence[RateBound]
    take_all: TakeAll  # of the bounds
    at_a_time: Sequence[tuple[str, RateKey, int, str]]  # setting, key, most, text


class _CallerLimits(NamedTuple):
    """Rate limits of a caller and its tenant, and the key of its calls in flight."""

    owner: RateKey | None
    bounds: Sequence[RateBound]
    take_all: TakeAll  # of the bounds


class _Running:
    """Calls in flight: all of them, and those by each key that has any."""

    __slots__ = ("by_key", "total")

    def __init__(self) -> None:
        self.total = 0
        self.by_key: dict[RateKey, int] = {}

    def leave(self, key: RateKey) -> None:
        """Give back a concurrency slot."""
        others = self.by_key[key] - 1
        if others:
            self.by_key[key] = others
        else:
            del self.by_key[key]


class RateLimits:
    def __init__(
        self,
        limits: LimitsSettings,
        rates: Rates,
        on_refusal: Callable[[str], None] = lambda _limit: None,
        running: _Running | None = None,
    ) -> None:
        """`on_refusal` is called with the limit's name."""
        self._limits = limits
        self._rates = rates
        self._refused = on_refusal
        self._of_principal = _given_rates(
            ("principal_calls", limits.principal_calls, limits.per_s),
            ("principal_daily", limits.principal_daily, DAY_S),
        )
        self._of_tenant = _given_rates(
            ("tenant_calls", limits.tenant_calls, limits.per_s),
            ("tenant_daily", limits.tenant_daily, DAY_S),
        )
        self._tools = [(ToolGlobs((pattern,)), rate) for pattern, rate in limits.tools.items()]
        of_calls = (*limits.tools.values(), *limits.sources.values())
        self._per_caller = any(rate.per == "caller" for rate in of_calls)
        self._generation = object()  # of what is prepared with principals
        self._of_others = lru_cache(REMEMBERED)(self._of_caller)
        self._of_call = lru_cache(REMEMBERED)(self._share)
        self._running = _Running() if running is None else running

    def with_limits(self, limits: LimitsSettings) -> "RateLimits":
        """The same counters with other limits."""
        return RateLimits(limits, self._rates, self._refused, self._running)

    @property
    def running(self) -> int:
        """Number of calls in flight."""
        return self._running.total

    def middleware(self, handler: Handler, route: Route) -> Handler:
        is_mcp, method = route.revision.mcp, route.method
        if is_mcp and (method in FREE or method.startswith(NOTIFICATIONS)):
            return handler
        return (
            self._with_rates(handler)
            if is_mcp and method in LASTING
            else self._with_counts(handler)
        )

    def _with_rates(self, handler: Handler) -> Handler:
        """The handler behind the rates and quotas of callers and tenants."""
        if not self._of_principal and not self._of_tenant:
            return handler

        async def count_rates(context: Context, request: Request) -> Any:
            await self._count(self._of(context).bounds)
            return await handler(context, request)

        return count_rates

    def _with_counts(self, handler: Handler) -> Handler:
        """The handler behind rates and quotas, with its calls in flight counted and bounded."""
        limits, running = self._limits, self._running
        most, per_principal = limits.concurrent or math.inf, limits.principal_concurrent
        of_tenant, by_key, leave = bool(self._of_tenant), running.by_key, running.leave

        async def count_running(context: Context, request: Request) -> Any:
            identity, key = context.identity, None
            if of_tenant or identity.verified or identity.refusal is not None:
                owner, bounds, take_all = self._of(context)
                stopped = take_all()
                if stopped is not None:
                    await self._count_rest(bounds, *stopped)
                key = owner if per_principal else None
            if running.total >= most:
                raise self._overload_fault()
            if key is not None:
                others = by_key.get(key, 0)
                if others >= per_principal:
                    raise self._too_many_at_a_time("principal_concurrent", per_principal)
                by_key[key] = others + 1
            running.total += 1
            try:
                return await handler(context, request)
            finally:
                running.total -= 1
                if key is not None:
                    leave(key)

        return count_running

    def _of(self, context: Context) -> _CallerLimits:
        identity = context.identity
        if not identity.verified:
            return self._of_others(_owner(context), _tenant(context))
        caller_limits: _CallerLimits
        generation, caller_limits = identity.principal.prepared.get(PREPARED, (None, _NOTHING))
        if generation is self._generation:
            return caller_limits
        caller_limits = self._of_caller(_owner(context), _tenant(context))
        identity.principal.prepared[PREPARED] = (self._generation, caller_limits)
        return caller_limits

    def _of_caller(self, owner: RateKey | None, tenant: str | None) -> _CallerLimits:
        bounds = []
        if owner is not None:
            for name, most, window_s in self._of_principal:
                bounds.append(_rate_bound(name, ((name, *owner), window_s), most))
        if tenant is not None:
            for name, most, window_s in self._of_tenant:
                bounds.append(_rate_bound(name, ((name, tenant), window_s), most, shared=OF_TENANT))
        return _CallerLimits(owner, bounds, self._rates.prepare(bounds))

    def applies(self, tool: Tool, _source: Source | None) -> bool:
        return (
            tool.source in self._limits.sources
            or self._rate(tool.name, tool.tags, tool.domain) is not None
        )

    def guard(self, execute: Execute) -> Execute:
        per_caller = self._per_caller
        # of the last call: the guards of a tool are its own, and nearly always of one tenant
        last: tuple[Tool | None, str, _CallLimits] = (None, "", _NO_CALL_LIMITS)

        def limit_call(call: ToolCall) -> Coroutine[Any, Any, ToolResult | RelayedResult]:
            nonlocal last
            tool, tenant = call.tool, call.context.identity.principal.tenant
            last_tool, last_tenant, limits = last
            if last_tool is not tool or last_tenant != tenant or per_caller:
                owner = _owner(call.context) if per_caller else None
                limits = self._of_call(
                    (tenant, owner), tool.name, tool.source, tool.tags, domain=tool.domain
                )
                last = tool, tenant, limits
            bounds, take_all, at_a_time = limits
            if at_a_time:
                return self._at_a_time(execute, call, bounds, at_a_time)
            stopped = take_all()
            if stopped is None:
                return execute(call)
            return self._counted_on(execute, call, bounds, stopped)

        return limit_call

    def _share(
        self,
        caller: tuple[str, RateKey | None],
        name: str,
        source: str,
        tags: tuple[str, ...],
        *,
        domain: str | None,
    ) -> _CallLimits:
        """`caller`: its tenant, and its own key."""
        rates = (
            ("tools", name, self._rate(name, tags, domain)),
            ("sources", source, self._limits.sources.get(source)),
        )
        limits = [
            (setting, _sharing_key((setting, named), rate, *caller), rate, f"calls of {named}")
            for setting, named, rate in rates
            if rate is not None
        ]
        bounds = [
            _rate_bound(setting, (key, rate.per_s), rate.calls, calls, shared=SHARED[rate.per])
            for setting, key, rate, calls in limits
            if rate.calls
        ]
        return _CallLimits(
            bounds,
            self._rates.prepare(bounds),
            [
                (
                    setting,
                    key,
                    rate.concurrent,
                    f"{calls} at a time: at most {rate.concurrent}{SHARED[rate.per]}",
                )
                for setting, key, rate, calls in limits
                if rate.concurrent
            ],
        )

    def _rate(self, name: str, tags: tuple[str, ...], domain: str | None) -> Rate | None:
        return next(
            (rate for globs, rate in self._tools if globs.match((name,), tags, domain)), None
        )

    async def _count(self, bounds: Sequence[RateBound]) -> None:
        """Count one use of all `bounds`, or of none. Raises TooManyRequests and Unavailable."""
        stopped = self._rates.take_all(bounds)
        if stopped is not None:
            await self._count_rest(bounds, *stopped)

    async def _count_rest(
        self, bounds: Sequence[RateBound], place: int, wait_s: float | None
    ) -> None:
        """Count one use of each bound from `place` on, for which the result was `wait_s`; or give
        back all. Raises TooManyRequests and Unavailable."""
        stopped: tuple[int, float | None] | None = (place, wait_s)
        while stopped is not None:
            place, wait_s = stopped
            limit, (key, window_s), most, text = bounds[place]
            if wait_s is None:
                wait_s = await self._rates.acquire(key, most, window_s)
            if wait_s:
                for before in bounds[:place]:
                    self._rates.give_back(*before.bucket)
                raise self._too_many(limit, text, wait_s)
            stopped = self._rates.take_all(bounds, place + 1)

    async def _counted_on(
        self,
        execute: Execute,
        call: ToolCall,
        bounds: Sequence[RateBound],
        stopped: tuple[int, float | None],
    ) -> ToolResult | RelayedResult:
        """Execute the call once the bounds from `stopped` on are counted. Raises TooManyRequests
        and Unavailable."""
        await self._count_rest(bounds, *stopped)
        return await execute(call)

    async def _at_a_time(
        self,
        execute: Execute,
        call: ToolCall,
        bounds: Sequence[RateBound],
        at_a_time: Sequence[tuple[str, RateKey, int, str]],
    ) -> ToolResult | RelayedResult:
        """Execute the call while all its concurrency slots are taken. Raises TooManyRequests."""
        running = self._running
        by_key = running.by_key
        for limit, key, most, calls in at_a_time:
            if by_key.get(key, 0) >= most:
                raise self._too_many(limit, calls, AGAIN_S)
        for _, key, _, _ in at_a_time:
            by_key[key] = by_key.get(key, 0) + 1
        try:
            await self._count(bounds)
            return await execute(call)
        finally:
            for _, key, _, _ in at_a_time:
                running.leave(key)

    def _too_many_at_a_time(self, limit: str, most: int) -> TooManyRequests:
        return self._too_many(limit, f"calls at a time: at most {most}", AGAIN_S)

    def _too_many(self, limit: str, text: str, wait_s: float) -> TooManyRequests:
        self._refused(limit)
        name = f"limits.{limit}"
        fault = TooManyRequests(f"Too many {text} ({name})", wait_s, name)
        fault.message += f"; try again in {fault.retry_after} s"
        return fault

    def _overload_fault(self) -> Overloaded:
        self._refused("concurrent")
        return Overloaded("The gateway runs as many calls as it can; try again later")


def _take_nothing() -> None:
    return None


_NOTHING = _CallerLimits(None, (), _take_nothing)
_NO_CALL_LIMITS = _CallLimits((), _take_nothing, ())


def _given_rates(*settings: tuple[str, int, float]) -> list[tuple[str, int, float]]:
    return [(name, most, window_s) for name, most, window_s in settings if most]


def _rate_bound(
    limit: str, bucket: tuple[RateKey, float], most: int, unit: str = "calls", *, shared: str = ""
) -> RateBound:
    return RateBound(limit, bucket, most, f"{unit}: at most {most} in {bucket[1]:g} s{shared}")


def _sharing_key(
    subject: tuple[str, str], rate: Rate, tenant: str, owner: RateKey | None
) -> RateKey:
    """The key under which callers share a rate. `subject`: the names of the setting, and of the
    tool or the source. Where no token is required, all callers share one key."""
    setting, name = subject
    if rate.per == "tenant":
        return setting, tenant, name
    return (setting, rate.per, name, *((owner or ()) if rate.per == "caller" else ()))


def _owner(context: Context) -> RateKey | None:
    """Rate-limit key of the caller; callers without a valid token are keyed by client network. None
    where no token is required, so that all callers are one."""
    identity = context.identity
    if identity.verified:
        return identity.principal.key
    if identity.refusal is not None:
        return "", network_of(context.headers.client)
    return None


def _tenant(context: Context) -> str | None:
    """The caller's tenant; None for unauthenticated callers, who must not use up its quota."""
    identity = context.identity
    stranger = identity.refusal is not None and not identity.verified
    return None if stranger else context.principal.tenant
