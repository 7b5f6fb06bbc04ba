"""Search: evaluations on requests whose tools are known, with plots, and the embeddings."""

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

from gateway.console.forms import read_json
from gateway.console.page_request import PageRequest, as_json
from gateway.console.pages.operation_buttons import buttons
from gateway.console.plots import calibration_plot, recall_plot
from gateway.console.routes import PageRoute
from gateway.console.visitor_operations import OperationAnswer

EVALUATE = "evaluateSearch"
ARROW = "=>"
OPEN = frozenset({"waiting", "running"})
SIDES = ("a", "b")
MODES = ("hybrid", "lexical")
LIMIT = 10  # results of each side
TABLE = (1, 3, 5, 10)  # numbers of results that the table has


async def evaluations(visit: PageRequest) -> Response:
    """The form of an evaluation, and those that were made; by POST a new one."""
    text, problem, status = visit.posted_value("requests"), "", 200
    if visit.request.method == "POST":
        answer = await _evaluate_requests(visit, text)
        if answer.ok and "job" in answer.value:
            return visit.to("search", answer.value["job"])
        if answer.ok:  # without jobs
            return _result(visit, {"state": "succeeded", "result": answer.value})
        problem, status = " ".join([answer.problem, *answer.errors.values()]), answer.status
    jobs = await visit.operations.items("listJobs", operation=EVALUATE, limit=20)
    return visit.page(
        "search.html",
        status,
        tab="search",
        text=text,
        problem=problem,
        jobs=jobs,
        may=visit.operations.may(EVALUATE),
        logs=visit.parts.settings().search.usage_log and visit.operations.is_operator,
    )


async def comparison_page(visit: PageRequest) -> Response:
    """One request searched in two ways, side by side, with the rank of each tool in the other."""
    query, problem, status = visit.query.get("q", "").strip(), "", 200
    sides: dict[str, dict[str, Any]] = {}
    for at, side in enumerate(SIDES):
        mode = visit.query.get(f"mode_{side}", "")
        side_values = {"mode": mode if mode in MODES else MODES[at], "hits": (), "note": None}
        side_values["source"] = visit.query.get(f"source_{side}", "")
        if query:
            body = {"query": query, "limit": LIMIT, "words": side_values["mode"] == "lexical"}
            answer = await visit.operations.run(
                "searchTools",
                body=body | ({"source": side_values["source"]} if side_values["source"] else {}),
            )
            if answer.ok:
                side_values |= answer.value
            elif not problem:
                problem, status = answer.problem, answer.status
        sides[side] = side_values
    ranks = {
        side: {hit["name"]: rank for rank, hit in enumerate(side_values["hits"], 1)}
        for side, side_values in sides.items()
    }
    return visit.page(
        "search_compare.html",
        status,
        tab="compare",
        query=query,
        problem=problem,
        sides=sides,
        others={"a": ranks["b"], "b": ranks["a"]},
        modes=MODES,
        sources=[
            source["name"] for source in await visit.operations.items("listSources", limit=500)
        ],
    )


async def evaluation(visit: PageRequest) -> Response:
    """An evaluation: its progress, then its plots."""
    answer = await visit.operations.run("getJob", {"job": visit.path("job")})
    if not answer.ok:
        return visit.problem_page(answer)
    if answer.value["operation"] != EVALUATE:
        return visit.problem(404)
    if visit.query.get("format") == "json":
        return as_json(answer.value)
    return _result(visit, answer.value)


async def embeddings(visit: PageRequest) -> Response:
    answer = await visit.operations.run("getEmbeddings")
    if not answer.ok:
        return visit.problem_page(answer)
    ids = ("refreshEmbeddings", "retryEmbeddings", "backfillEmbeddings")
    adds = buttons(visit, ids, {})
    return visit.page("embeddings.html", tab="embeddings", status=answer.value, adds=adds)


async def _evaluate_requests(visit: PageRequest, text: str) -> OperationAnswer:
    if visit.posted_value("act") == "usage":
        return await visit.operations.run(EVALUATE, body={"from_usage": True})
    requests = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            request = _request(line)
            if request is None:
                message = "Line {number} is not: a request => a tool, another tool."
                return OperationAnswer(422, {"detail": visit.texts(message, number=number)})
            requests.append(request)
    return await visit.operations.run(EVALUATE, body={"requests": requests})


def _request(line: str) -> Mapping[str, Any] | None:
    """A request of a line: `text => tool, tool`, or JSON as `toolgate search eval` reads it."""
    if line.lstrip().startswith("{"):
        reading = read_json(line)
        value = reading.value if isinstance(reading.value, dict) else {}
        gold = value.get("gold")
        query, tools = value.get("query"), [gold] if isinstance(gold, str) else gold
    else:
        query, _, names = line.rpartition(ARROW)
        tools = [name.strip() for name in names.split(",") if name.strip()]
    if not isinstance(query, str) or not query.strip() or not tools:
        return None
    return {"query": query.strip(), "gold": tools}


def _result(visit: PageRequest, job: Mapping[str, Any]) -> Response:
    result = job.get("result")
    value = msgspec.to_builtins(result) if job["state"] == "succeeded" else None
    texts = visit.texts
    plots = {}
    if value:
        plots["recall"] = recall_plot(value["curves"], texts("Results looked at"), texts("Recall"))
        plots["fit"] = calibration_plot(
            value["calibration"], texts("Fit that was told"), texts("Share that was found")
        )
    part = visit.is_part("evaluation")
    return visit.page(
        "evaluation_result.html" if part else "evaluation.html",
        tab="search",
        job=job,
        found=value,
        plots=plots,
        rows=TABLE,
        is_open=job["state"] in OPEN,
    )


ROUTES = (
    PageRoute("/search", evaluations, ("GET", "POST")),
    PageRoute("/search/compare", comparison_page),
    PageRoute("/search/{job}", evaluation),
    PageRoute("/embeddings", embeddings),
)
