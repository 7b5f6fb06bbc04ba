"""The knowledge: questions answered with passages, and the names that stand beside a name."""

from starlette.responses import Response

from gateway.console.graph import GraphEdge, draw_graph
from gateway.console.page_request import PageRequest, as_json
from gateway.console.routes import PageRoute

NAMES = 24  # that are shown with an answer, and in a picture


async def ask_page(visit: PageRequest) -> Response:
    """Passages for a question, each with its place; the names in them."""
    question = visit.query.get("q", "").strip()
    collection = visit.query.get("collection", "")
    listed = await visit.operations.run("knowledge_collections")
    if not listed.ok:
        return visit.problem_page(listed)
    answer = None
    if question:
        body = {
            "query": question,
            "collections": [collection] if collection else [],
            "explain": True,
            "names": NAMES,
        }
        answer = await visit.operations.run("knowledge_query", body=body)
    names = await visit.operations.run("knowledge_names", query={"limit": NAMES})
    if visit.query.get("format") == "json" and answer is not None and answer.ok:
        return as_json(answer.value)
    return visit.page(
        "ask.html",
        200 if answer is None else answer.status,
        question=question,
        collection=collection,
        collections=[item["name"] for item in listed.value["items"]],
        found=answer.value if answer is not None and answer.ok else None,
        names=names.value["items"] if names.ok else (),
        problem="" if answer is None else answer.problem,
    )


async def name_page(visit: PageRequest) -> Response:
    """Page of a name: its mentions, and a graph of co-occurring names."""
    name = visit.path("name")
    answer = await visit.operations.run("knowledge_entity", body={"name": name, "limit": NAMES})
    if not answer.ok:
        return visit.problem_page(answer)
    near = answer.value["near"][:NAMES]
    edges = [
        GraphEdge(answer.value["name"], neighbour["name"], "requires", str(neighbour["passages"]))
        for neighbour in near
    ]
    return visit.page(
        "name.html",
        entity=answer.value,
        picture=draw_graph(answer.value["name"], edges, lambda node: visit.url("names", node)),
    )


ROUTES = (PageRoute("/ask", ask_page), PageRoute("/names/{name}", name_page))
