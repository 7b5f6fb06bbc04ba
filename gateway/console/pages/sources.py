"""Sources: what is imported, the import of a new one, versions."""

import secrets
from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.responses import Response

from gateway.admin.resources.import_requests import Import
from gateway.admin.resources.member_texts import IMPORT
from gateway.console.forms import Form, add_texts, chosen_in, read_json
from gateway.console.page_request import PageRequest, as_json
from gateway.console.pages.operation_buttons import buttons
from gateway.console.routes import PageRoute

ACTS = ("refreshSource", "uploadDocument", "rollBack", "deleteSource")
STATUSES = ("imported", "degraded", "held", "skipped")
OUTCOMES_LISTED = 200  # outcomes on a page
SCHEMES = 20  # that a page names
SCHEMA = msgspec.json.schema(Import)


async def list_page(visit: PageRequest) -> Response:
    answer = await visit.operations.run(
        "listSources", query={"after": visit.query.get("after", "")}
    )
    if not answer.ok:
        return visit.problem_page(answer)
    if visit.query.get("format") == "json":
        return as_json(answer.value)
    status = await visit.operations.run("getStatus")
    failures = await visit.operations.items("listImportFailures", limit=500)
    return visit.page(
        "sources.html",
        failures={failure["source"]: failure["reason"] for failure in failures},
        rows=answer.value["items"],
        next=answer.value.get("next", ""),
        states=status.value["sources"] if status.ok else {},
        broken=visit.parts.states().get("breakers", {}),
        may=visit.operations.may("importSource"),
    )


async def source_page(visit: PageRequest) -> Response:
    """A source; by POST with what an import of it would change."""
    name = visit.path("source")
    compared = None
    if visit.request.method == "POST":
        compared = await visit.operations.run("compareSource", {"source": name})
    answer = await visit.operations.run("getSource", {"source": name})
    if not answer.ok:
        return visit.problem_page(answer)
    versions = await visit.operations.run("listVersions", {"source": name})
    secrets_of = [
        secret
        for secret in await visit.operations.items("listSecrets", limit=500)
        if secret["source"] == name
    ]
    return visit.page(
        "source.html",
        source=answer.value,
        versions=versions.value["items"] if versions.ok else (),
        secrets=secrets_of,
        wanted=_wanted_credentials(visit, name, {secret["scheme"] for secret in secrets_of}),
        tools=await visit.operations.items("listTools", source=name, limit=10),
        acts=buttons(visit, ACTS, {"source": name}),
        imported=visit.query.get("imported", ""),
        difference=compared.value if compared is not None and compared.ok else None,
        problem="" if compared is None else compared.problem,
    )


@dataclass(frozen=True, slots=True)
class WantedCredential:
    """A security scheme that tools of a source name, and where its credential is."""

    scheme: str
    kind: str
    tools: int
    place: str  # "settings", "stored"; "": nowhere


def _wanted_credentials(
    visit: PageRequest, source: str, stored_names: Set[str]
) -> list[WantedCredential]:
    """The credentials that security schemes of a source's tools ask for, the most wanted first.
    Only operators are told which of them the settings have. Schemes are compared by name."""
    settings = visit.parts.settings().sources.get(source)
    configured_schemes = (
        settings.credentials if settings is not None and visit.operations.is_operator else {}
    )
    kinds: dict[str, str] = {}
    counts: Counter[str] = Counter()
    for tool in visit.parts.catalogs.of(visit.operations.tenant).tools:
        if tool.source == source:
            kinds_by_scheme = {
                credential.scheme: credential.kind
                for each in tool.binding.security
                for credential in each
            }
            kinds |= kinds_by_scheme
            counts.update(kinds_by_scheme.keys())
    return [
        WantedCredential(
            scheme,
            kinds[scheme],
            count,
            "settings"
            if scheme in configured_schemes
            else "stored"
            if scheme in stored_names
            else "",
        )
        for scheme, count in counts.most_common(SCHEMES)
    ]


async def import_page(visit: PageRequest) -> Response:
    """Import a source: what it is, what an import makes of it, and the import."""
    if not visit.operations.may("importSource"):
        return visit.refuse("importSource")
    posted = visit.request.method == "POST"
    form = Form(SCHEMA, chosen_in(visit.form))
    as_text = visit.posted_value("view") == "json"
    reading = (
        (read_json(visit.posted_value("json")) if as_text else form.read(visit.form))
        if posted
        else None
    )
    value = reading.value if reading is not None else {}
    errors = dict(reading.errors) if reading is not None else {}
    act, report, problem = visit.posted_value("act"), None, ""
    if act in {"form", "json"} and not errors:
        as_text = act == "json" or (as_text and not form.holds(value))
    elif act in {"preview", "import"} and not as_text and (empty := form.missing(value)):
        errors |= dict.fromkeys(empty, visit.texts("This is needed."))
    elif act in {"preview", "import"} and not errors:
        id_ = "previewImport" if act == "preview" else "importSource"
        key = visit.posted_value("idempotency_key") if act == "import" else ""
        headers = {"idempotency-key": key} if key else {}
        answer = await visit.operations.run(id_, body=value, headers=headers)
        if answer.ok and act == "import":
            return visit.to("sources", value["name"], imported="yes")
        problem, errors = answer.problem, dict(answer.errors)
        report = _report(answer.value) if answer.ok else None
    is_drawn = not as_text
    return visit.page(
        "import.html",
        fields=add_texts(form.fields(value, errors), IMPORT) if is_drawn else (),
        is_drawn=is_drawn,
        can_draw=True,
        text=visit.posted_value("json") if errors and as_text
        else msgspec.json.format(msgspec.json.encode(value), indent=2).decode(),
        errors=errors,
        report=report,
        public_only=not visit.parts.settings().imports.private_networks,
        problem=problem,
        key=visit.posted_value("idempotency_key") or secrets.token_urlsafe(16),
    )  # fmt: skip


def _report(value: Mapping[str, Any]) -> dict[str, Any]:
    """The coverage of an import: how many operations became tools, and why others did not."""
    counts = value["counts"]
    total = sum(counts.values())
    return {
        "total": total,
        "counts": [
            (name, counts.get(name, 0)) for name in ("imported", "degraded", "held", "skipped")
        ],
        "outcomes": value["outcomes"][:OUTCOMES_LISTED],
        "more": max(0, len(value["outcomes"]) - OUTCOMES_LISTED),
        "notes": value["notes"],
    }


ROUTES = (
    PageRoute("/sources", list_page),
    PageRoute("/sources/new", import_page, ("GET", "POST")),
    PageRoute("/sources/{source}", source_page),
    PageRoute("/sources/{source}/compare", source_page, ("POST",)),
)
