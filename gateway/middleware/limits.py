"""Rate limits, quotas and concurrency limits of callers, tenants, tools and sources.

Every message counts but initialize, ping and MCP notifications; lists too, because encoding them is
work. Counts taken for a message that a later limit refuses are given back.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import lru_cache
from types import TracebackType
from typing import Any, NamedTuple

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from config.access import LimitsSettings, Rate
from gateway.abc import Execute, Handler, RateKey, Rates, Route, ToolCall
from gateway.context import Context
from gateway.state.rates import network_of
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
AGAIN_S = 1.0  # retry delay of concurrency limits: when a slot frees up is unknown


class _Bound(NamedTuple):
    """One rate limit: at most `most` uses of a key per window."""

    limit: str  # the setting
    key: RateKey
    most: int
    window_s: float
    what: str = "calls"


class _CallLimits(NamedTuple):
    """Rate and concurrency limits of a tool and its source."""

    bounds: Sequence[_Bound]
    at_a_time: Sequence[tuple[str, RateKey, int]]  # setting, key, most


class _InFlight:
    """Context manager that counts one running call of a key. (A generator takes three times as
    long.)"""

    __slots__ = ("_key", "_running")

    def __init__(self, running: Counter[RateKey], key: RateKey | None) -> None:
        self._running = running
        self._key = key

    def __enter__(self) -> None:
        if self._key is not None:
            self._running[self._key] += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._key is not None:
            self._running[self._key] -= 1
            if not self._running[self._key]:
                del self._running[self._key]


class RateLimits:
    def __init__(
        self,
        limits: LimitsSettings,
        rates: Rates,
        refused: Callable[[str], None] = lambda _limit: None,
        running: Counter[RateKey] | None = None,
    ) -> None:
        """`refused` is called with the limit's name; `running` counts the calls in flight."""
        self._limits = limits
        self._rates = rates
        self._refused = refused
        self._of_principal = _given(
            ("principal_calls", limits.principal_calls, limits.per_s),
            ("principal_daily", limits.principal_daily, DAY_S),
        )
        self._of_tenant = _given(
            ("tenant_calls", limits.tenant_calls, limits.per_s),
            ("tenant_daily", limits.tenant_daily, DAY_S),
        )
        self._tools = [(ToolGlobs((one,)), rate) for one, rate in limits.tools.items()]
        self._bounds_of = lru_cache(REMEMBERED)(self._bounds)
        self._of_call = lru_cache(REMEMBERED)(self._share)
        self._running: Counter[RateKey] = Counter() if running is None else running

    def with_limits(self, limits: LimitsSettings) -> "RateLimits":
        """The same counters with other limits."""
        return RateLimits(limits, self._rates, self._refused, self._running)

    @property
    def running(self) -> int:
        """Number of calls in flight."""
        return self._running[_ALL]

    def middleware(self, handler: Handler, route: Route) -> Handler:
        is_mcp, method = route.revision.mcp, route.method
        if is_mcp and (method in FREE or method.startswith(NOTIFICATIONS)):
            return handler
        return self._rated(handler) if is_mcp and method in LASTING else self._counted(handler)

    def _rated(self, handler: Handler) -> Handler:
        """The handler behind the rates and quotas of callers and tenants."""
        if not self._of_principal and not self._of_tenant:
            return handler

        async def rated(context: Context, request: Request) -> Any:
            await self._count(self._bounds_of(_owner(context), _tenant(context)))
            return await handler(context, request)

        return rated

    def _counted(self, handler: Handler) -> Handler:
        """The handler behind rates and quotas, with its calls in flight counted and bounded."""
        limits, running = self._limits, self._running
        most, per_principal = limits.concurrent or math.inf, limits.principal_concurrent
        of_tenant, of_principal = bool(self._of_tenant), bool(self._of_principal)

        async def counted(context: Context, request: Request) -> Any:
            identity = context.identity
            has_owner = identity.verified or identity.refusal is not None
            if of_tenant or (of_principal and has_owner):
                await self._count(self._bounds_of(_owner(context), _tenant(context)))
            if running[_ALL] >= most:
                raise self._overloaded()
            running[_ALL] += 1
            try:
                if not per_principal or not has_owner:
                    return await handler(context, request)
                with self._at_a_time("principal_concurrent", _owner(context), per_principal):
                    return await handler(context, request)
            finally:
                running[_ALL] -= 1

        return counted

    def applies(self, tool: Tool, _source: Source | None) -> bool:
        return (
            tool.source in self._limits.sources
            or self._rate(tool.name, tool.tags, tool.domain) is not None
        )

    def guard(self, execute: Execute) -> Execute:
        async def limited(call: ToolCall) -> ToolResult | RelayedResult:
            tool = call.tool
            tenant = call.context.principal.tenant
            of = self._of_call(
                tenant, tool.name, source=tool.source, tags=tool.tags, domain=tool.domain
            )
            if not of.at_a_time:
                await self._count(of.bounds)
                return await execute(call)
            with ExitStack() as running:
                for limit, key, most in of.at_a_time:
                    running.enter_context(self._at_a_time(limit, key, most))
                await self._count(of.bounds)
                return await execute(call)

        return limited

    def _share(
        self, tenant: str, name: str, *, source: str, tags: tuple[str, ...], domain: str | None
    ) -> "_CallLimits":
        rates = {
            ("tools", tenant, name): self._rate(name, tags, domain),
            ("sources", tenant, source): self._limits.sources.get(source),
        }
        given = [(key, rate) for key, rate in rates.items() if rate is not None]
        return _CallLimits(
            [
                _Bound(key[0], key, rate.calls, rate.per_s, f"calls of {key[2]}")
                for key, rate in given
                if rate.calls
            ],
            [(key[0], key, rate.concurrent) for key, rate in given if rate.concurrent],
        )

    def _rate(self, name: str, tags: tuple[str, ...], domain: str | None) -> Rate | None:
        return next((rate for one, rate in self._tools if one.match((name,), tags, domain)), None)

    def _bounds(self, owner: RateKey | None, tenant: str | None) -> Sequence[_Bound]:
        bounds = []
        if owner is not None:
            for name, most, window_s in self._of_principal:
                bounds.append(_Bound(name, (name, *owner), most, window_s))
        if tenant is not None:
            for name, most, window_s in self._of_tenant:
                bounds.append(_Bound(name, (name, tenant), most, window_s))
        return bounds

    async def _count(self, bounds: Sequence[_Bound]) -> None:
        """Count one use of all `bounds`, or of none. Raises TooManyRequests and Unavailable."""
        for place, (limit, key, most, window_s, what) in enumerate(bounds):
            wait_s = self._rates.take(key, most, window_s)
            if wait_s is None:
                wait_s = await self._rates.acquire(key, most, window_s)
            if wait_s:
                for before in bounds[:place]:
                    self._rates.give_back(before.key, before.window_s)
                raise self._too_many(limit, f"{what}: at most {most} in {window_s:g} s", wait_s)

    def _at_a_time(self, limit: str, whose: RateKey | None, most: int) -> _InFlight:
        """Reserve a concurrency slot. Raises TooManyRequests."""
        key = None if whose is None or not most else whose
        if key is not None and self._running[key] >= most:
            raise self._too_many(limit, f"calls at a time: at most {most}", AGAIN_S)
        return _InFlight(self._running, key)

    def _too_many(self, limit: str, text: str, wait_s: float) -> TooManyRequests:
        self._refused(limit)
        name = f"limits.{limit}"
        fault = TooManyRequests(f"Too many {text} ({name})", wait_s, name)
        fault.message += f"; try again in {fault.retry_after} s"
        return fault

    def _overloaded(self) -> Overloaded:
        self._refused("concurrent")
        return Overloaded("The gateway runs as many calls as it can; try again later")


_ALL: RateKey = ("all",)


def _given(*settings: tuple[str, int, float]) -> list[tuple[str, int, float]]:
    return [(name, most, window_s) for name, most, window_s in settings if most]


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
