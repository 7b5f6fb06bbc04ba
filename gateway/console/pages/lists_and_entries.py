"""Generated pages of resources: lists with their filters, and single entries."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
from starlette.responses import Response

from gateway.admin.resource_views import VIEWS
from gateway.console.forms import Form, add_texts
from gateway.console.page_request import PageRequest, as_json
from gateway.console.pages.operation_buttons import buttons
from gateway.console.routes import PageRoute
from gateway.operations.member_texts import NAME_TEXTS, MemberText, MemberTexts
from gateway.operations.operation import Operation
from gateway.operations.resource_view import ResourceView
from schemas.json_schema.references import dereference

PAGING = frozenset({"after", "before", "limit", "track_id", "begin"})
NO_NAMES: Mapping[str, str] = {}
FILTERS = frozenset({"text", "number", "choice", "switch"})  # kinds of fields that filter lists
FILTER_TEXTS: MemberTexts = {
    **NAME_TEXTS,
    "principal": MemberText("Caller", "", choices="principals"),
    "skillName": MemberText("Tool", "", choices="tools"),
    "everyone": MemberText("Of all callers", ""),
}
"""Words for filters of lists."""


def screens(visit: PageRequest) -> Mapping[str, ResourceView]:
    """The screens of the console and of open wings."""
    offers = visit.parts.offers.values()
    return {**VIEWS, **{page.path: page for offer in offers for page in offer.pages}}


async def list_page(visit: PageRequest) -> Response:
    screen = screens(visit).get(visit.path("screen"))
    if screen is None:
        return visit.problem(404)
    return await _listing(
        visit,
        screen.lists,
        "list.html",
        screen=screen,
        icon=visit.icon_of(screen.path) or screen.icon,
        adds=buttons(visit, screen.adds, {}),
    )


async def related_page(visit: PageRequest) -> Response:
    """A list about an entry, of which the page of the entry shows the beginning."""
    screen, id_ = screens(visit).get(visit.path("screen")), visit.path("list")
    title = next((title for title, listed in screen.also if listed == id_), "") if screen else ""
    shows = visit.operations.operation(screen.shows) if screen else None
    operation = visit.operations.operation(id_)
    if screen is None or not title or shows is None or operation is None:
        return visit.problem(404)
    name = visit.path("entry")
    return await _listing(
        visit,
        id_,
        "related.html",
        about={shows.names[0]: name},
        screen=screen,
        name=name,
        title=title,
        listed=_screen_of(visit, id_),
        here=visit.url(screen.path, name, id_),
    )


async def _listing(
    visit: PageRequest,
    id_: str,
    template: str,
    *,
    about: Mapping[str, str] = NO_NAMES,
    **values: Any,
) -> Response:
    """The page of a list with its filters. `about`: the entry that the list is about."""
    operation = visit.operations.operation(id_)
    filters = _filters(operation)
    filled = filters.read({f"/{name}": [value] for name, value in visit.query.items() if value})
    value = filled.value if isinstance(filled.value, dict) else {}
    names, fixed = ({}, {}) if operation is None else _request_about(operation, about)
    query = {**value, "after": visit.query.get("after", ""), **fixed}
    answer = await visit.operations.run(id_, names, query=query)
    refused = answer.status in {400, 409, 422}
    if not answer.ok and not refused:
        return visit.problem_page(answer)
    if visit.query.get("format") == "json" and answer.ok:
        return as_json(answer.value)
    fields = filters.fields(value, filled.errors)
    return visit.page(
        template,
        200 if answer.ok else answer.status,
        filters=[
            replace(field, pointer=field.label, help="", example="")
            for field in add_texts(fields, FILTER_TEXTS)
            if field.kind in FILTERS and field.label not in fixed
        ],
        filtered=bool(value),
        problem=answer.problem,
        rows=rows_of(answer.value) if answer.ok else (),
        next=answer.value.get("next", "") if answer.ok else "",
        **values,
    )


async def entry_page(visit: PageRequest) -> Response:
    screen = screens(visit).get(visit.path("screen"))
    operation = visit.operations.operation(screen.shows) if screen is not None else None
    if screen is None or operation is None:
        return visit.problem(404)
    names = {operation.names[0]: visit.path("entry")}
    answer = await visit.operations.run(operation.id, names)
    if not answer.ok:
        return visit.problem_page(answer)
    return visit.page(
        "entry.html",
        screen=screen,
        name=visit.path("entry"),
        entry=answer.value,
        labels={"principal": "Caller", **{member: label for member, label, _ in screen.columns}},
        also=[
            related
            for operation in screen.also
            if (related := await _also(visit, *operation, names))
        ],
        acts=buttons(visit, acts_of(screen, answer.value), names),
        running=answer.value.get("state") in {"waiting", "running"},
    )


def acts_of(screen: ResourceView, entry: Mapping[str, Any]) -> Sequence[str]:
    """The acts that change the entry: none on an ended one, and a disabled one is only enabled."""
    if entry.get(screen.ended):
        return ()
    if "disabled" not in entry:
        return screen.acts
    vain = "disable" if entry["disabled"] else "enable"
    return [id_ for id_ in screen.acts if not id_.startswith(vain)]


async def _also(
    visit: PageRequest, title: str, id_: str, names: Mapping[str, str]
) -> tuple[str, str, Sequence[Any], ResourceView | None] | None:
    """Answer of another operation about an entry, with the operation if it has pages, and the
    screen that lists it, if there is one; None where the visitor may not ask."""
    operation = visit.operations.operation(id_)
    if operation is None or not visit.operations.may(id_):
        return None
    in_path, query = _request_about(operation, names)
    answer = await visit.operations.run(id_, in_path, query=query)
    paged = id_ if "after" in operation.query.__struct_encode_fields__ else ""
    return (title, paged, rows_of(answer.value), _screen_of(visit, id_)) if answer.ok else None


def _request_about(
    operation: Operation, names: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Names that the path of an operation takes, and names that its query takes."""
    members = operation.query.__struct_encode_fields__
    return (
        {name: value for name, value in names.items() if name in operation.names},
        {name: value for name, value in names.items() if name in members},
    )


def _screen_of(visit: PageRequest, id_: str) -> ResourceView | None:
    """The screen whose list an operation is."""
    return next((screen for screen in screens(visit).values() if screen.lists == id_), None)


def _filters(operation: Operation | None) -> Form:
    """The form of what a list can be restricted to: scalars of its query."""
    schema = {} if operation is None else msgspec.json.schema(operation.query)
    inner = dereference(schema, schema.get("$defs", {}))
    properties = {
        name: schema for name, schema in inner.get("properties", {}).items() if name not in PAGING
    }
    return Form({"type": "object", "properties": properties, "$defs": schema.get("$defs", {})})


def rows_of(value: Any) -> Sequence[Any]:
    """The entries of a list, whatever the member that has them is called."""
    return next((member for member in value.values() if isinstance(member, list)), [])


ROUTES = (
    PageRoute("/{screen}", list_page),
    PageRoute("/{screen}/{entry}", entry_page),
    PageRoute("/{screen}/{entry}/{list}", related_page),
)
