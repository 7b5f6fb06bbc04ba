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
    operation = visit.operations.operation(screen.lists)
    filters = _filters(operation)
    filled = filters.read({f"/{name}": [value] for name, value in visit.query.items() if value})
    value = filled.value if isinstance(filled.value, dict) else {}
    answer = await visit.operations.run(
        screen.lists, query={**value, "after": visit.query.get("after", "")}
    )
    refused = answer.status in {400, 409, 422}
    if not answer.ok and not refused:
        return visit.problem_page(answer)
    if visit.query.get("format") == "json" and answer.ok:
        return as_json(answer.value)
    fields = filters.fields(value, filled.errors)
    return visit.page(
        "list.html",
        200 if answer.ok else answer.status,
        screen=screen,
        icon=visit.icon_of(screen.path) or screen.icon,
        filters=[
            replace(field, pointer=field.label, help="", example="")
            for field in add_texts(fields, FILTER_TEXTS)
            if field.kind in FILTERS
        ],
        filtered=bool(value),
        problem=answer.problem,
        rows=rows_of(answer.value) if answer.ok else (),
        next=answer.value.get("next", "") if answer.ok else "",
        adds=buttons(visit, screen.adds, {}),
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
) -> tuple[str, Sequence[Any], ResourceView | None] | None:
    """Answer of another operation about an entry, and the screen that lists it, if there is one;
    None where the visitor may not ask."""
    operation = visit.operations.operation(id_)
    if operation is None or not visit.operations.may(id_):
        return None
    members = operation.query.__struct_encode_fields__
    answer = await visit.operations.run(
        id_,
        {name: name_ for name, name_ in names.items() if name in operation.names},
        query={name: name_ for name, name_ in names.items() if name in members},
    )
    listed = next((name for name in screens(visit).values() if name.lists == id_), None)
    return (title, rows_of(answer.value), listed) if answer.ok else None


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
)
