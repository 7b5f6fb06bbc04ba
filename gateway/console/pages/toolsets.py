"""Toolsets: one with its tools, tokens and clients, and the page that makes one by search."""

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import Response

from gateway.console.page_request import PageRequest
from gateway.console.pages.operation_buttons import buttons
from gateway.console.routes import PageRoute
from gateway.console.visitor_operations import OperationAnswer

LIMIT = 30  # tools of a search
TOOLS_PREVIEWED = 20  # tools of a toolset that is not saved yet
LINES = ("include", "exclude", "sources", "roles")
TEXTS = ("description", "instructions", "mode")
OTHERS = ("code", "signatures", "tool_tokens")  # members that the page keeps as they are
MEMBERS = (*LINES, *TEXTS, *OTHERS)


async def toolset_page(visit: PageRequest) -> Response:
    """One toolset: its tools, what its lists cost, its endpoint and the clients for it."""
    names = {"toolset": visit.path("toolset")}
    answer = await visit.operations.run("getToolset", names)
    if not answer.ok:
        return visit.problem_page(answer)
    with_key = visit.parts.settings().auth.mode == "keys"
    tools = await visit.operations.run("listToolsetTools", names)
    clients = await visit.operations.run("listToolsetClients", names, query={"key": with_key})
    is_stored = answer.value["origin"] == "stored"
    return visit.page(
        "toolset.html",
        toolset=answer.value,
        preview=tools.value if tools.ok else None,
        setup=clients.value if clients.ok else None,
        may_edit=is_stored and visit.operations.may("putToolset"),
        acts=buttons(visit, ["deleteToolset"], names) if is_stored else (),
    )


async def edit_page(visit: PageRequest) -> Response:
    """A toolset that is made or changed: tools are searched and ticked, seen, and then saved."""
    name = visit.request.path_params.get("toolset", "")
    present = await visit.operations.run("getToolset", {"toolset": name}) if name else None
    if present is not None and not present.ok:
        return visit.problem_page(present)
    if not visit.operations.may("putToolset"):
        return visit.problem(403)
    began = {} if present is None else present.value
    is_posted = visit.request.method == "POST"
    first = {member: began.get(member) for member in MEMBERS}
    members = _read_members(visit, began) if is_posted else first
    body = {member: value for member, value in members.items() if value}
    chosen, saved = name or visit.posted_value("name").strip(), None
    if visit.posted_value("act") == "save":
        saved = await _save(visit, chosen, body, is_new=present is None)
        if saved.ok:
            return visit.to("toolsets", chosen)
    query = visit.posted_value("q").strip()
    preview = await visit.operations.run(
        "previewToolset",
        body={"toolset": body, "limit": TOOLS_PREVIEWED, **({"name": chosen} if name else {})},
    )
    return visit.page(
        "toolset_edit.html",
        200 if saved is None else saved.status,
        name=name,
        chosen=chosen,
        given=members,
        query=query,
        found=await _search(visit, query),
        preview=preview.value if preview.ok else None,
        problem=_problem(saved or preview),
        etag=(visit.posted_value("if_match") if is_posted else "") or _etag(present),
    )


def _read_members(visit: PageRequest, began: Mapping[str, Any]) -> dict[str, Any]:
    """The members in the form; ticked tools of a search are added to `include`."""
    members: dict[str, Any] = {name: visit.posted_value(name).strip() for name in TEXTS}
    for name in LINES:
        lines = visit.posted_value(name).splitlines()
        members[name] = [line.strip() for line in lines if line.strip()]
    ticked = visit.form.get("tool", ())
    members["include"] = list(dict.fromkeys([*members["include"], *ticked]))
    return {**members, **{name: began.get(name) for name in OTHERS}}


async def _save(
    visit: PageRequest, name: str, body: Mapping[str, Any], *, is_new: bool
) -> OperationAnswer:
    if not name:
        return OperationAnswer(422, {"detail": visit.texts("Give the toolset a name.")})
    condition = (
        {"if-none-match": "*"} if is_new else {"if-match": visit.posted_value("if_match") or "*"}
    )
    return await visit.operations.run("putToolset", {"toolset": name}, body=body, headers=condition)


async def _search(visit: PageRequest, query: str) -> Sequence[Any]:
    if not query:
        return ()
    answer = await visit.operations.run("searchTools", body={"query": query, "limit": LIMIT})
    return answer.value["hits"] if answer.ok else ()


def _problem(answer: OperationAnswer) -> str:
    """The problem of an answer, with the places of mistakes in the form."""
    if answer.ok:
        return ""
    mistakes = (f"{place.strip('/')}: {text}" for place, text in answer.errors.items())
    return " ".join([answer.problem, *mistakes])


def _etag(present: OperationAnswer | None) -> str:
    return "" if present is None else present.etag


ROUTES = (
    PageRoute("/toolsets/new", edit_page, ("GET", "POST")),
    PageRoute("/toolsets/{toolset}", toolset_page),
    PageRoute("/toolsets/{toolset}/edit", edit_page, ("GET", "POST")),
)
