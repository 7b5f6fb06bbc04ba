"""The knowledge: questions answered with passages, and the names that stand beside a name."""

from starlette.responses import Response

from gateway.console.graph import GraphEdge, drawn
from gateway.console.routes import PageRoute
from gateway.console.visit import Visit, as_json

NAMES = 24  # that are shown with an answer, and in a picture


async def asked(visit: Visit) -> Response:
    """Passages for a question, each with its place; the names in them."""
    question = visit.query.get("q", "").strip()
    collection = visit.query.get("collection", "")
    listed = await visit.desk.run("knowledge_collections")
    if not listed.ok:
        return visit.refused(listed)
    found = None
    if question:
        body = {
            "query": question,
            "collections": [collection] if collection else [],
            "explain": True,
            "names": NAMES,
        }
        found = await visit.desk.run("knowledge_query", body=body)
    names = await visit.desk.run("knowledge_names", query={"limit": NAMES})
    if visit.query.get("format") == "json" and found is not None and found.ok:
        return as_json(found.value)
    return visit.page(
        "ask.html",
        200 if found is None else found.status,
        question=question,
        collection=collection,
        collections=[one["name"] for one in listed.value["items"]],
        found=found.value if found is not None and found.ok else None,
        names=names.value["items"] if names.ok else (),
        problem="" if found is None else found.problem,
    )


async def named(visit: Visit) -> Response:
    """A name: where it is mentioned, and a picture of what stands beside it."""
    name = visit.path("name")
    answer = await visit.desk.run("knowledge_entity", body={"name": name, "limit": NAMES})
    if not answer.ok:
        return visit.refused(answer)
    near = answer.value["near"][:NAMES]
    edges = [
        GraphEdge(answer.value["name"], one["name"], "requires", str(one["passages"]))
        for one in near
    ]
    return visit.page(
        "name.html",
        entity=answer.value,
        picture=drawn(answer.value["name"], edges, lambda one: visit.url("names", one)),
    )


ROUTES = (PageRoute("/ask", asked), PageRoute("/names/{name}", named))
