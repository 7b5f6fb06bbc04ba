"""Things that exist, for fields that name them: the answers of other operations.

Fields take any text; what a visitor may not list is not offered.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

from starlette.responses import Response

from gateway.admin.scopes import OWN
from gateway.console.page_request import PageRequest
from gateway.console.routes import PageRoute

CHOICES_LIMIT = 20  # choices of one answer
READ = 500  # entries of a list that are looked through

LISTS: Mapping[str, Sequence[tuple[str, str]]] = {
    "agents": (("listAgents", "name"),),
    "collections": (("knowledge_collections", "name"),),
    "principals": (
        ("listPeople", "principal"),
        ("listKeys", "principal"),
        ("listLogins", "principal"),
    ),
    "roles": (("listUsers", "roles"), ("listKeys", "roles"), ("listPeople", "roles")),
    "scopes": (("listKeys", "scopes"),),
    "skills": (("listSkills", "name"),),
    "sources": (("listSources", "name"),),
    "toolsets": (("listToolsets", "name"),),
    "tools": (("listTools", "name"),),
}
"""The lists that know a kind of thing, and the member that names it."""

SEARCHING_LISTS = frozenset({"listTools"})  # lists that search by a part of the name themselves
OF_RULES = frozenset({"principals", "roles", "scopes", "tiers"})  # that rules name, too


async def choices(visit: PageRequest) -> Response:
    """The choices of a kind that have the text of the field, as options."""
    kind = visit.path("kind")
    text = next(iter(visit.query.values()), "").strip("* ").lower()
    if kind not in LISTS and kind not in OF_RULES:
        return visit.problem(404)
    names = [name async for name in _names(visit, kind, text)]
    names = sorted({name for name in names if text in name.lower()})
    names.sort(key=lambda name: not name.lower().startswith(text))
    return visit.page("choices.html", names=names[:CHOICES_LIMIT])


async def _names(visit: PageRequest, kind: str, text: str) -> AsyncIterator[str]:
    for id_, member in LISTS.get(kind, ()):
        query = (
            {"name": text, "limit": CHOICES_LIMIT} if id_ in SEARCHING_LISTS else {"limit": READ}
        )
        for item in await _items(visit, id_, query):
            for name in _texts(item.get(member)):
                yield name
    if kind in OF_RULES:
        for item in await _items(visit, "listRules", {"limit": READ}):
            for name in _texts(item["rule"].get(kind)):
                yield name
    if kind == "scopes":
        for name in OWN:
            yield name
    if kind == "tiers" and visit.operations.is_operator:
        for name in visit.parts.settings().policy.tiers:
            yield name


async def _items(visit: PageRequest, id_: str, query: Mapping[str, Any]) -> Sequence[Any]:
    """The entries of a list; none of one that the visitor may not read."""
    operation = visit.operations.operation(id_)
    if operation is None or not visit.operations.may(id_):
        return ()
    members = {name for name in query if name in operation.query.__struct_fields__}
    answer = await visit.operations.run(id_, query={name: query[name] for name in members})
    if not answer.ok:
        return ()
    return next((member for member in answer.value.values() if isinstance(member, list)), ())


def _texts(value: Any) -> Iterable[str]:
    return (value,) if isinstance(value, str) else value or ()


ROUTES = (PageRoute("/choices/{kind}", choices),)
