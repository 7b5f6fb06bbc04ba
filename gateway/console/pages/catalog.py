"""Catalog: a server of a registry, the plan of adding it, and the act."""

from typing import Any

from starlette.responses import Response

from gateway.console.page_request import PageRequest
from gateway.console.routes import PageRoute

INPUT, ALLOW = "input.", "allow"  # prefix of fields for inputs; boxes of what is allowed


async def server_page(visit: PageRequest) -> Response:
    """A server; by POST its plan with the values of the form, or the act that was reviewed."""
    name = f"{visit.path('namespace')}/{visit.path('server')}"
    registry = visit.query.get("registry", "")
    answer = await visit.operations.run(
        "getCatalogEntry", {"server": name}, query={"registry": registry}
    )
    if not answer.ok:
        return visit.problem_page(answer)
    entry = answer.value
    values = {
        field.removeprefix(INPUT): texts[-1]
        for field, texts in visit.form.items()
        if field.startswith(INPUT) and texts[-1]
    }
    request: dict[str, Any] = {
        "name": name, "registry": entry["registry"], "version": entry["version"],
        "choice": "remote", "inputs": values, "allow": list(visit.form.get(ALLOW, ())),
    }  # fmt: skip
    plan = await visit.operations.run("planServer", body=request)
    problem = plan.problem
    if plan.ok and visit.posted_value("act") == "add":
        secret = {each["name"] for each in plan.value.get("questions", ()) if each.get("secret")}
        source = visit.posted_value("source")
        request |= {
            "source": source,
            "sha256": visit.posted_value("sha256"),
            "inputs": {input_: text for input_, text in values.items() if input_ not in secret},
            "secrets": {input_: text for input_, text in values.items() if input_ in secret},
        }
        done = await visit.operations.run("addServer", body=request)
        if done.ok:
            return visit.to("sources", source, imported="yes")
        problem = done.problem
    return visit.page(
        "catalog.html",
        entry=entry,
        plan=plan.value if plan.ok else None,
        values=values,
        allow=request["allow"],
        source=visit.posted_value("source") or name.rpartition("/")[2].lower().replace(".", "-"),
        problem=problem,
        may=visit.operations.may("addServer"),
        prefix=INPUT,
    )


ROUTES = (PageRoute("/catalog/{namespace}/{server}", server_page, ("GET", "POST")),)
