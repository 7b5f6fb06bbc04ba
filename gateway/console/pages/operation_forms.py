"""Generated page of an operation: its form, its checks, its outcome."""

import hashlib
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from msgspec import Struct
from starlette.responses import Response

from gateway.console.forms import (
    Form,
    FormField,
    Reading,
    add_texts,
    chosen_for,
    chosen_in,
    example,
    read_json,
    walk,
)
from gateway.console.page_request import PageRequest, segments_of
from gateway.console.pages.lists_and_entries import screens
from gateway.console.pages.operation_buttons import NAMES, title_of
from gateway.console.rendering import JSON_BYTES, in_lines
from gateway.console.routes import PageRoute
from gateway.console.visitor_operations import NO_ERRORS, OperationAnswer
from gateway.operations.operation import Operation
from gateway.policy.rule_matches import selection_of

JSON_FIELD = "json"

OF_ENTRIES = ("ids", "documents")  # members of bodies that name entries
SUBJECTS = (*OF_ENTRIES, "principal", "subject", "jti", "person")  # those that name what is removed
CONFIRMATION_MEMBER = "/confirm"  # member with the subject again, which the console asks for itself
EMPTY: tuple[Any, ...] = (None, "", [], {})
TYPED_NAME = re.compile(r"\S{1,64}")  # names that are typed to confirm; others are ticked
OPAQUE = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-")  # of a UUID


PLACES: Mapping[str, str] = {
    "tools": "tools",
    "sources": "sources",
    "policy": "policy",
    "embeddings": "embeddings",
    "secrets": "secrets",
    "audit": "audit",
}
"""Screens by the first segment of an operation's path, where the two differ from VIEWS."""


WING_PLACES: Mapping[tuple[str, str], str] = {
    ("agent", "conversations"): "chat",
    ("events", "webhooks"): "webhooks",
    ("knowledge", "collections"): "collections",
    ("knowledge", "documents"): "documents",
    ("knowledge", "sources"): "documents",
}
"""Screens by the wing and the first segment, where they are not named as the wing."""


@dataclass(frozen=True, slots=True)
class MemberChange:
    """A member that was changed since a form began, by another visitor or in the form. None where
    it is empty."""

    member: str
    began: Any
    now: Any
    own: Any

    @property
    def is_theirs(self) -> bool:
        return bool(self.began != self.now)

    @property
    def is_own(self) -> bool:
        return bool(self.began != self.own)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActForm:
    """An operation, the resource that it changes, and what its form says."""

    operation: Operation
    names: Mapping[str, str]
    present: OperationAnswer | None  # the resource; None: it changes none
    edition: str  # of the resource as it is
    began: Any  # members of the resource that the form began with
    form: Form
    reading: Reading
    as_text: bool

    @property
    def is_drawn(self) -> bool:
        return self.form.is_drawn and not self.as_text

    @property
    def subject_name(self) -> str:
        """Subject of the operation: the entry of its path, else those of its body."""
        value = self.reading.value if isinstance(self.reading.value, dict) else {}
        values = (value[subject] for subject in SUBJECTS if value.get(subject))
        subject = next(values, "")
        entries = [subject] if isinstance(subject, str) else subject
        return " ".join(self.names.values()) or " ".join(map(str, entries))

    @property
    def confirmed_by(self) -> str:
        """Text that confirms an operation that removes something; "" for any other."""
        counts = isinstance(self.reading.value, dict) and self.reading.value.get("dry_run") is True
        is_asked = self.operation.effect == "remove" and not counts
        return (self.subject_name or self.operation.id) if is_asked else ""

    @property
    def takes_subject(self) -> bool:
        """Whether a field of the form names the subject."""
        return bool(self.operation.names) or not _members(self.operation).isdisjoint(SUBJECTS)


async def act_page(visit: PageRequest) -> Response:
    """The page of an operation that changes something: a form by GET, the act by POST."""
    operation = visit.operations.operation(visit.path("operation"))
    if operation is None or operation.method == "GET":
        return visit.problem(404)
    if not visit.operations.may(operation.id):
        return visit.refuse(operation.id)
    filled, act = await _read_form(visit, operation), visit.posted_value("act")
    if act == "try" and not filled.reading.errors:
        body = {"rule": filled.reading.value}
        return _act_page(visit, filled, trial=await visit.operations.run("tryRule", body=body))
    if act == "do" and not filled.reading.errors:
        return await _run_act(visit, filled)
    matches = await _match_tools(visit, filled) if act == "match" else None
    if visit.is_part("matches"):
        return visit.page("matches.html", **_matches_of(matches))
    return _act_page(visit, filled, matches=matches)


async def _match_tools(visit: PageRequest, form: ActForm) -> OperationAnswer | None:
    """The tools that the form is about; None where it does not choose tools."""
    selects, value = form.operation.selects, form.reading.value
    if not selects or form.reading.errors or not isinstance(value, dict):
        return None
    return await visit.operations.run("matchTools", body=selection_of(value, selects))


def _matches_of(answer: OperationAnswer | None) -> Mapping[str, Any]:
    """Values of the template of matches."""
    problems = [] if answer is None else [*answer.errors.values(), answer.problem]
    return {
        "matches": answer.value if answer is not None and answer.ok else None,
        "matches_problem": next(filter(None, problems), ""),
    }


async def _read_form(visit: PageRequest, operation: Operation) -> ActForm:
    """The form as it was posted, or as it begins: with the resource that is changed, if any."""
    posted = visit.request.method == "POST"
    names, schema = _names(visit, operation, posted), _schema(operation.body)
    present = await _present(visit, operation, names)
    first = _first(visit, operation, schema) if present is None else _initial(present, schema)
    form = Form(schema, chosen_in(visit.form) if posted else chosen_for(schema, first))
    reading = _read(visit, operation, form) if posted else Reading(first)
    began = read_json(visit.posted_value("began") or "{}").value if posted else first
    as_text, act = visit.posted_value("view") == JSON_FIELD, visit.posted_value("act")
    if act in {"form", JSON_FIELD} and not reading.errors:
        as_text = act == JSON_FIELD or (as_text and not form.holds(reading.value))
    return ActForm(
        operation=operation,
        names=names,
        present=present,
        edition=_edition(operation, present, schema),
        began=began,
        form=form,
        reading=reading,
        as_text=as_text,
    )


async def _run_act(visit: PageRequest, form: ActForm) -> Response:
    """Run the operation, if its form is confirmed, and of what the resource is now."""
    operation, names = form.operation, form.names
    missing = dict.fromkeys(form.form.missing(form.reading.value) if form.is_drawn else ())
    if operation.optional_body and not form.reading.value:
        missing = {}
    errors = {pointer: visit.texts("This is needed.") for pointer in missing}
    if errors := errors | _confirmation_errors(visit, form):
        return _act_page(visit, form, errors=errors)
    if visit.posted_value("if_match") != form.edition and not operation.match:
        answer = OperationAnswer(412, {"detail": visit.texts("It was changed or removed.")})
    else:
        value = form.reading.value
        if form.is_drawn and "confirm" in _members(operation):
            value = {**value, "confirm": visit.posted_value("confirmed").strip()}
        answer = await _run(visit, operation, names, value)
    if answer.ok:
        return await _outcome(visit, operation, names, answer)
    if answer.status == 412:
        return await _conflict(visit, form, answer)
    return _act_page(visit, form, answer=answer, errors=answer.errors)


async def _conflict(visit: PageRequest, form: ActForm, answer: OperationAnswer) -> Response:
    """The form of a visitor before whom another has saved: what changed, side by side. Posted once
    more it replaces what the other has saved."""
    operation, schema = form.operation, _schema(form.operation.body)
    present = await _present(visit, operation, form.names)
    if present is None:  # it was removed
        return _act_page(visit, replace(form, present=None, edition=""), answer=answer)
    now = _initial(present, schema)
    latest = replace(form, present=present, edition=_edition(operation, present, schema), began=now)
    form_value = form.began if operation.body is None else form.reading.value
    changes = _changed_members(form.began, now, form_value)
    return _act_page(visit, latest, answer=answer, conflict=changes)


def _changed_members(*values: Any) -> Sequence[MemberChange]:
    """Members that are not the same as they began, as they are now, and in the form."""
    objects = [member if isinstance(member, dict) else {} for member in values]
    changes = (
        MemberChange(
            name, *(None if member.get(name) in EMPTY else member[name] for member in objects)
        )
        for name in dict.fromkeys(name for member in objects for name in member)
    )
    return [change for change in changes if change.is_theirs or change.is_own]


def _act_page(
    visit: PageRequest,
    form: ActForm,
    *,
    answer: OperationAnswer | None = None,
    trial: OperationAnswer | None = None,
    matches: OperationAnswer | None = None,
    conflict: Sequence[MemberChange] | None = None,
    errors: Mapping[str, str] = NO_ERRORS,
) -> Response:
    operation, reading, output = form.operation, form.reading, answer or trial
    errors = {**reading.errors, **errors}
    is_latest = answer is not None and answer.status == 412  # whatever was posted
    draws = form.is_drawn and operation.body is not None
    names = _name_fields(visit, form, errors)
    open_names = tuple(field for field in names if not field.is_hidden)
    return visit.page(
        "do.html",
        200 if answer is None else answer.status,
        operation=operation,
        title=title_of(visit, operation, replaces=form.present is not None),
        names={name: form.names.get(name, "") for name in operation.names},
        hidden=[field for field in names if field.is_hidden],
        open_names=() if draws else open_names,
        prefix=NAMES,
        has_body=operation.body is not None,
        fields=(*open_names, *_body_fields(form, errors)) if draws else (),
        is_drawn=form.is_drawn,
        can_draw=form.form.is_drawn,
        text=visit.posted_value(JSON_FIELD)
        if reading.errors and not form.is_drawn
        else in_lines(reading.value),
        errors=errors,
        trial=trial.value if trial is not None and trial.ok else None,
        tries=operation.id == "putRule" and visit.operations.may("tryRule"),
        selects=bool(operation.selects) and draws and visit.operations.may("matchTools"),
        **_matches_of(matches),
        problem=_problem_text(visit, form, output, errors),
        conflict=conflict,
        began=_sent_along(form),
        removes=operation.effect == "remove",
        saves=operation.method == "PUT" and operation.body is not None,
        named=form.subject_name,
        confirmed_by=form.confirmed_by,
        is_named=bool(form.subject_name),
        is_typed=form.takes_subject
        and TYPED_NAME.fullmatch(form.confirmed_by) is not None
        and OPAQUE.search(form.confirmed_by) is None,
        if_match=form.edition if is_latest else visit.posted_value("if_match") or form.edition,
        key=(not is_latest and visit.posted_value("idempotency_key")) or secrets.token_urlsafe(16),
        back=_back(visit, operation, form.names),
    )


def _body_fields(form: ActForm, errors: Mapping[str, str]) -> Iterator[FormField]:
    """Fields of the body; the console asks for the confirmation itself."""
    fields = form.form.fields(form.reading.value, errors)
    for field in add_texts(fields, form.operation.members):
        if field.pointer != CONFIRMATION_MEMBER:
            yield field


def _problem_text(
    visit: PageRequest,
    form: ActForm,
    answer: OperationAnswer | None,
    errors: Mapping[str, str],
) -> str:
    """A sentence above the form: where its fields have the errors, that they do."""
    pointers = {field.pointer for field in walk(form.form.fields({}))}
    if form.is_drawn and any(name in pointers or name.startswith(NAMES) for name in errors):
        return visit.texts("Some fields need another value.")
    return "" if answer is None else answer.problem


def _name_fields(
    visit: PageRequest, form: ActForm, errors: Mapping[str, str]
) -> Sequence[FormField]:
    """The fields of path parameters. A page that was opened for an entry does not ask for it, nor
    does one that removes it."""
    operation = form.operation
    texts = {name: text for name in operation.names if (text := operation.text_of(name))}
    is_fixed = visit.request.method == "GET" and set(form.names) == set(operation.names)
    fields = (
        FormField(
            NAMES + name, name, "text", required=True, value=form.names.get(name, ""),
            error=errors.get(NAMES + name, ""),
        )
        for name in operation.names
    )  # fmt: skip
    removes = operation.effect == "remove"
    return [
        replace(field, is_hidden=bool(is_fixed or (removes and field.value and not field.error)))
        for field in add_texts(tuple(fields), texts)
    ]


def _sent_along(form: ActForm) -> str:
    """Initial value of a form as JSON; "" where it is too long to be posted."""
    text = in_lines(form.began) if form.edition else ""
    return text if len(text) <= JSON_BYTES else ""


def _schema(body: Any) -> Any:
    return {} if body is None else msgspec.json.schema(body)


def _names(visit: PageRequest, operation: Operation, posted: bool) -> dict[str, str]:
    names = {
        name: (
            visit.posted_value(NAMES + name) if posted else visit.query.get(NAMES + name, "")
        ).strip()
        for name in operation.names
    }
    return {name: value for name, value in names.items() if value}


async def _present(
    visit: PageRequest, operation: Operation, names: Mapping[str, str]
) -> OperationAnswer | None:
    """The resource as it is, where the operation changes one."""
    reader = visit.operations.reader(operation)
    if reader is None or not set(reader.names) <= set(names):
        return None
    answer = await visit.operations.run(reader.id, {name: names[name] for name in reader.names})
    return answer if answer.ok else None


def _initial(present: OperationAnswer | None, schema: Any) -> Any:
    """Initial value of the form: the resource's members that the operation takes; all for an
    operation that takes none."""
    value = None if present is None else present.value
    members_of_view = value.get("rule", value) if isinstance(value, dict) else {}
    if not schema:
        return members_of_view
    form = Form(schema)
    names = {node.label for node in form.node.nodes} if form.node.kind == "group" else set()
    members = {
        name: value
        for name, value in members_of_view.items()
        if name in names and value is not None
    }
    return members or example(schema)


def _edition(operation: Operation, present: OperationAnswer | None, schema: Any) -> str:
    """Version that a form began with: the ETag, or, of an operation that takes no If-Match, a
    digest of the members that it replaces. "" without a resource to replace."""
    if present is None or (operation.method != "PUT" and not operation.match):
        return ""
    if operation.match:
        return present.etag
    initial = msgspec.json.encode(_initial(present, schema))
    return hashlib.sha256(initial).hexdigest()


def _first(visit: PageRequest, operation: Operation, schema: Any) -> Any:
    """Initial value of a form whose operation names the entry in its body."""
    entry = [
        value
        for name, value in visit.query.items()
        if name.startswith(NAMES) and name.removeprefix(NAMES) not in operation.names
    ]
    start = example(schema)
    member = next((candidate for candidate in OF_ENTRIES if candidate in _members(operation)), None)
    if not entry or member is None or not isinstance(start, dict):
        return start
    return {**start, member: entry[:1]}


def _members(operation: Operation) -> set[str]:
    body = operation.body
    if not (isinstance(body, type) and issubclass(body, Struct)):  # a union, or none
        return set()
    return set(body.__struct_encode_fields__)


def _read(visit: PageRequest, operation: Operation, form: Form) -> Reading:
    if operation.body is None:
        return Reading({})
    if visit.posted_value("view") == JSON_FIELD or not form.is_drawn:
        return read_json(visit.posted_value(JSON_FIELD))
    return form.read(visit.form)


def _confirmation_errors(visit: PageRequest, form: ActForm) -> dict[str, str]:
    """Errors of a form without its entry, or without the confirmation of what it removes."""
    missing = set(form.operation.names) - set(form.names)
    if missing:
        return {NAMES + name: visit.texts("This is needed.") for name in missing}
    phrase = form.confirmed_by
    if not phrase or visit.posted_value("confirmed").strip() == phrase:
        return {}
    text = "Confirm that you mean {name}." if form.subject_name else "Confirm that you mean it."
    return {"#confirm": visit.texts(text, name=phrase)}


async def _run(
    visit: PageRequest, operation: Operation, names: Mapping[str, str], value: Any
) -> OperationAnswer:
    headers: dict[str, str] = {}
    if operation.match and visit.posted_value("if_match"):
        headers["if-match"] = visit.posted_value("if_match")
    elif operation.creates:
        headers["if-none-match"] = "*"
    if operation.keeps_answers and visit.posted_value("idempotency_key"):
        headers["idempotency-key"] = visit.posted_value("idempotency_key")
    empty = operation.body is None or (operation.optional_body and not value)
    return await visit.operations.run(
        operation.id, names, body=None if empty else value, headers=headers
    )


async def _outcome(
    visit: PageRequest, operation: Operation, names: Mapping[str, str], answer: OperationAnswer
) -> Response:
    """Where the visitor goes: to the resource, or to a page with what the operation answered."""
    is_job = answer.status == 202 and isinstance(answer.value, dict) and "job" in answer.value
    if is_job:
        return visit.to("jobs", answer.value["job"])
    if place := segments_of(visit.posted_value("next")):
        return visit.to(*place)
    if operation.method == "POST" and answer.value and "name" not in answer.value:
        return visit.page(
            "done.html",
            operation=operation,
            title=title_of(visit, operation),
            value=answer.value,
            back=_back(visit, operation, names),
        )
    return visit.to(*_place(operation, names), done=operation.id)


def _place(operation: Operation, names: Mapping[str, str]) -> tuple[str, ...]:
    first = operation.parts[0]
    wing = operation.id.split("_")[0] if "_" in operation.id else ""
    screen = WING_PLACES.get((wing, first), wing) if wing else PLACES.get(first, first)
    gone = operation.effect == "remove" and len(operation.parts) <= 2
    entry = next(iter(names.values()), "")
    stays = entry and not gone and screen not in {"policy", "secrets", "embeddings", "audit"}
    return (screen, entry) if stays and not wing else (screen,)


def _back(visit: PageRequest, operation: Operation, names: Mapping[str, str]) -> str:
    """The page to return to: the entry, or the list."""
    place, entry = _place(operation, names)[0], next(iter(names.values()), "")
    if "_" in operation.id:
        screen = screens(visit).get(place)
        reader = visit.operations.operation(screen.shows) if screen is not None else None
        has_page = reader is not None and [*names][:1] == [*reader.names]
    else:
        has_page = bool(names) and operation.parts[0] not in {"policy", "secrets", "approvals"}
    return visit.url(place, entry) if has_page else visit.url(place)


ROUTES = (PageRoute("/do/{operation}", act_page, ("GET", "POST")),)
