"""Overview pages: calls, errors, latency; health, and the design system."""

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import Response

from config.load import mask_secrets
from gateway.console.activity import activity
from gateway.console.navigation import title_of_wing
from gateway.console.page_request import PageRequest, as_json
from gateway.console.routes import PageRoute
from gateway.wings.table import WINGS

WORST: Mapping[str, int] = {"failed": 0, "warning": 1, "ok": 2}  # the worst come first


async def overview(visit: PageRequest) -> Response:
    """The front page; its figures are asked for again every few seconds. Those of calls are of all
    tenants, and for operators."""
    if not visit.operations.may("getStatus"):
        return _no_access(visit)
    status = await visit.operations.run("getStatus")
    if not status.ok:
        return visit.problem_page(status)
    figures, sees_calls = visit.parts.figures, visit.operations.is_operator
    if visit.query.get("format") == "json":
        if not sees_calls:
            return visit.problem(403, operator_role_text(visit))
        return as_json(figures.points())
    sources = await visit.operations.items("listSources", limit=500)
    down = _broken_sources(visit, sources)
    values = {
        "status": status.value,
        "sees_calls": sees_calls,
        "now": figures.now(),
        "workers": figures.workers,
        "errors": figures.errors() if sees_calls else {},
        "points": figures.points()[-12:],
        "waiting": len(await visit.operations.items("listApprovals", limit=500)),
        "sources": sources,
        "broken": down,
        "sample_s": visit.parts.settings().console.sample_s,
    }
    if visit.is_part("figures"):
        return visit.page("overview_figures.html", **values)
    return visit.page("overview.html", **values, **await activity(visit, status.value, down))


def _no_access(visit: PageRequest) -> Response:
    """The page of a visitor without the scope of the overview: other pages, and whom to ask."""
    if visit.query.get("format") == "json":
        return visit.refuse("getStatus")
    pages = [page for _, places in visit.places for page in places]
    return visit.page("no_access.html", pages=pages)


async def health(visit: PageRequest) -> Response:
    """States of the parts, and the settings in effect for those who may see them."""
    status = await visit.operations.run("getStatus")
    if not status.ok:
        return visit.problem_page(status)
    examine = visit.parts.examine if visit.operations.is_operator else None
    posted = visit.request.method == "POST" and examine is not None
    findings = await examine() if posted and examine is not None else None
    return visit.page(
        "health.html",
        status=status.value,
        may_examine=examine is not None,
        findings=findings and sorted(findings, key=lambda finding: WORST.get(finding["status"], 3)),
        failed=findings is not None and not findings,
        states=_flat(visit.parts.states()) if visit.operations.is_operator else {},
        titles={f"wing {name}": title_of_wing(name) for name in WINGS},
        settings=mask_secrets(visit.parts.settings()) if visit.operations.is_operator else None,
    )


async def design(visit: PageRequest) -> Response:
    """The components of the console, side by side."""
    return visit.page("design.html")


def _broken_sources(visit: PageRequest, sources: Sequence[Mapping[str, Any]]) -> list[str]:
    """Sources that do not answer: all for operators, the visitor's own for others."""
    broken = visit.parts.states().get("breakers", {})
    source_names = {source["name"] for source in sources}
    return [name for name in broken if visit.operations.is_operator or name in source_names]


def _flat(states: Mapping[str, Any]) -> dict[str, str]:
    """States by name; those of sources by `source NAME`."""
    flat: dict[str, str] = {}
    for name, state in states.items():
        if isinstance(state, Mapping):
            flat |= {f"{name.removesuffix('s')} {key}": str(inner) for key, inner in state.items()}
        else:
            flat[name] = str(state)
    return flat


def operator_role_text(visit: PageRequest) -> str:
    role = visit.parts.settings().admin.operator_role
    return f"This takes the role {role}: it is about all tenants."


ROUTES = (
    PageRoute("/", overview),
    PageRoute("/health", health, ("GET", "POST")),
    PageRoute("/design", design),
)
