"""The page of limits, guardrails and circuit breakers: what is in effect, where it is set, and what
was refused. They have no stored form: the page gives lines for the settings instead."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starlette.responses import Response

from config.access import LimitsSettings
from gateway.console.page_request import PageRequest
from gateway.console.pages.overview import operator_role_text
from gateway.console.rendering import number
from gateway.console.routes import PageRoute

LIMITS: Mapping[str, str] = {
    "principal_calls": "Calls of one caller",
    "tenant_calls": "Calls of one tenant",
    "principal_daily": "Calls of one caller in a day",
    "tenant_daily": "Calls of one tenant in a day",
    "principal_concurrent": "Calls of one caller at the same time",
    "concurrent": "Calls of all callers at the same time",
    "principal_sessions": "Sessions of one caller",
    "principal_streams": "Streams of one caller",
    "principal_subscriptions": "Subscriptions of one caller to resources",
    "when_down": "When the shared counters do not answer",
    "connections": "Connections of clients",
    "headers": "Headers of a request",
    "header_bytes": "Size of the headers of a request",
    "json_depth": "Nesting of JSON in a request",
    "pipelined": "Requests that wait on one connection",
    "header_timeout_s": "Time to receive the headers",
    "body_timeout_s": "Time to receive the body",
    "send_timeout_s": "Time for a client to take a part of an answer",
    "unauthenticated_body_bytes": "Size of a request without a valid token",
    "buffered_body_bytes": "Size of all requests that are read",
    "client_buffered_body_bytes": "Size of the requests of one address",
    "memory_bytes": "Memory of the process",
    "loop_lag_s": "Lag of the event loop",
}
"""Words for the settings in `limits` that are numbers, in the order of the page."""

CALLERS = 10  # of these, the first ones are about callers
REFUSALS: Mapping[str, str] = {
    **LIMITS,
    "breaker": "Open circuit breaker",
    "tools": "Limit of a tool",
    "sources": "Limit of a source",
}
"""Words for the reasons of refusals."""

WHEN_DOWN: Mapping[str, str] = {
    "local": "each gateway counts for itself",
    "refuse": "calls are refused",
}
UNLIMITED, DERIVED = "no limit", "chosen by the gateway"
AUTOMATIC = frozenset(
    {"connections", "buffered_body_bytes", "client_buffered_body_bytes", "memory_bytes"}
)
"""Limits that the gateway chooses where they are 0."""

LIMITS_EXAMPLE = """limits:
  tools:
    "delete_*": {calls: 10, per_s: 60, per: caller}
  sources:
    crm: {calls: 1000, per_s: 60, concurrent: 20}
"""
GUARDRAILS_EXAMPLE = """guardrails:
  rules:
    no-card-numbers:
      looks_at: result
      effect: redact
      pattern: '[0-9]{13,16}'
      reason: Card numbers stay in the shop.
"""


@dataclass(frozen=True, slots=True)
class LimitRow:
    title: str
    value: str
    setting: str


async def limits(visit: PageRequest) -> Response:
    status = await visit.operations.run("getStatus")
    if not status.ok or not visit.operations.is_operator:
        return visit.problem(403, operator_role_text(visit))
    settings = visit.parts.settings()
    rows = [_limit_row(visit, settings.limits, name) for name in LIMITS]
    return visit.page(
        "limits.html",
        callers=rows[:CALLERS],
        requests=rows[CALLERS:],
        own=[*settings.limits.tools.items(), *settings.limits.sources.items()],
        guardrails=settings.guardrails.rules,
        masks=settings.guardrails.mask,
        breaker=settings.breaker,
        broken=visit.parts.states().get("breakers", {}),
        refusals=_refusals(visit),
        examples=(LIMITS_EXAMPLE, GUARDRAILS_EXAMPLE),
    )


def _limit_row(visit: PageRequest, settings: LimitsSettings, name: str) -> LimitRow:
    texts, value = visit.texts, getattr(settings, name)
    if isinstance(value, str):
        text = texts(WHEN_DOWN[value])
    elif not value:
        text = texts(DERIVED if name in AUTOMATIC else UNLIMITED)
    elif name in ("principal_calls", "tenant_calls"):
        text = texts("{count} in {seconds} s", count=number(value), seconds=f"{settings.per_s:g}")
    else:
        unit = " s" if name.endswith("_s") else " B" if name.endswith("_bytes") else ""
        text = f"{number(value, 0 if value == int(value) else 1)}{unit}"
    return LimitRow(texts(LIMITS[name]), text, f"limits.{name}")


def _refusals(visit: PageRequest) -> Sequence[tuple[str, float]]:
    """The limits that refused requests since this process started, and how often."""
    counts = {
        sample.labels.get("limit", ""): sample.value
        for family in visit.parts.metrics.collect()
        if family.name == "toolgate_refusals"
        for sample in family.samples
        if sample.name.endswith("_total") and sample.value
    }
    return [(visit.texts(REFUSALS.get(name, name)), count) for name, count in counts.items()]


ROUTES = (PageRoute("/limits", limits),)
