"""Erasure of all that is held of a person: counted first, and continued if it was interrupted.

Not a job: what a job is asked is stored, and this names the person. Each place is erased in small
transactions, and the report is stored behind each, so that the same request continues.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

import msgspec
import psycopg
from msgspec import Meta, Struct

from config.value_types import HostId
from gateway.interfaces import PersonEraser
from gateway.operations.member_texts import MemberText, MemberTexts
from gateway.operations.operation import Operation, OperationDependencies, OperationInput
from gateway.operations.paging import ListPage, Paging
from gateway.operations.problems import Mistake, ProblemDetails, conflict, invalid, not_found
from registry.access.erasures import ErasureRow, ErasureStore, new_pseudonym
from registry.database.person_rows import ErasedPerson
from schemas.errors import ToolgateError

log = logging.getLogger("toolgate.admin")

READ, WRITE = "admin:erasures:read", "admin:erasures:write"
PERSON_TEXTS: MemberTexts = {
    "person": MemberText(
        "Person",
        "The id of the person: the caller of their keys, or the sub of their tokens.",
        "corp:ann",
        choices="principals",
    ),
    "confirm": MemberText(
        "The same id again", "Nothing is erased unless it is typed twice.", "corp:ann"
    ),
    "dry_run": MemberText("Only count", "Counts by place; nothing is changed."),
}


class ErasePerson(Struct, frozen=True, forbid_unknown_fields=True):
    person: Annotated[str, Meta(min_length=1, max_length=255)]
    confirm: Annotated[str, Meta(max_length=255)] = ""
    dry_run: bool = False


class PlaceRows(Struct, frozen=True):
    place: str
    rows: int


class KeptPlace(Struct, frozen=True):
    """Data that stays in a place, and the reason."""

    place: str
    why: str


class ErasureReport(Struct, frozen=True, omit_defaults=True):
    """Rows that were deleted, blanked or pseudonymised, by place; `kept`: what stays, and why;
    `ask`: systems that hold copies. Without `id`, nothing was erased; without `ended`, the same
    request continues."""

    places: tuple[PlaceRows, ...] = ()
    kept: tuple[KeptPlace, ...] = ()
    ask: tuple[str, ...] = ()
    id: str = ""
    pseudonym: str = ""
    requester: str = ""
    begun: datetime | None = None
    ended: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonErasure:
    """Dependencies of an erasure on the parts of a gateway."""

    erasers: Callable[[], Sequence[PersonEraser]]  # in the order in which they erase
    addresses: Callable[[str, str], Awaitable[Sequence[str]]]  # of a tenant's person
    ask: Callable[[ErasedPerson], Awaitable[Sequence[str]]]
    remains: Callable[[ErasedPerson], Awaitable[Sequence[tuple[str, str]]]]

    async def erase_copies(self, tenant: str, principal: str) -> None:
        """Listener: the memories of a person are erased."""
        person = ErasedPerson(tenant, principal, new_pseudonym())
        errors: list[Exception] = []
        for eraser in self.erasers():
            try:
                if eraser.is_copy:
                    await eraser.erase_person(person)
            except (psycopg.Error, ToolgateError, ProblemDetails) as error:
                errors.append(error)
        if errors:
            raise errors[0]


class ErasureOperations:
    def __init__(self, dependencies: OperationDependencies, erasure: PersonErasure) -> None:
        self._dependencies = dependencies
        self._erasure = erasure

    @property
    def operations(self) -> Sequence[Operation]:
        item = "/erasures/{erasure}"
        return (
            Operation(
                "listErasures", "GET", "/erasures", "List the erasures of people.", READ, self.list,
                ListPage[ErasureReport], query=Paging,
            ),
            Operation(
                "getErasure", "GET", item, "Show the report of an erasure.", READ, self.get,
                ErasureReport, types={"erasure": HostId},
            ),
            Operation(
                "erasePerson", "POST", "/erasures", "Erase a person everywhere.", WRITE, self.erase,
                ErasureReport, body=ErasePerson, members=PERSON_TEXTS, destroys=True, secret=True,
                no_tool="a person confirms it, by typing the name twice",
                details="It cannot be undone. `confirm` is the id again; dry_run only counts.",
            ),
        )  # fmt: skip

    async def list(self, request: OperationInput) -> ListPage[ErasureReport]:
        rows = await self._store(request).all()
        views = map(_view, rows)
        return self._dependencies.pages.page(request.query, views, lambda report: report.id)

    async def get(self, request: OperationInput) -> ErasureReport:
        id_ = request.names["erasure"]
        row = await self._store(request).get(id_)
        if row is None:
            raise not_found("erasure", id_)
        return _view(row)

    async def erase(self, request: OperationInput) -> ErasureReport:
        body: ErasePerson = request.body
        if body.dry_run:
            return await self._count(ErasedPerson(request.tenant, body.person, new_pseudonym()))
        if body.confirm != body.person:
            text = "expected the same id as in person, typed again"
            raise invalid("Nothing was erased.", Mistake(text, "/confirm"))
        if body.person == request.principal.id:
            text = "expected another person: the audit record of this request will name its caller"
            raise invalid("Nothing was erased.", Mistake(text, "/person"))
        store = self._store(request)
        async with store.turn() as is_free:
            if not is_free:
                raise conflict("Another erasure is running: try again when it has ended.")
            return await self._erase(request, store)

    async def _erase(self, request: OperationInput, store: ErasureStore) -> ErasureReport:
        body: ErasePerson = request.body
        addresses = await self._erasure.addresses(request.tenant, body.person)
        row, person = await store.begin(body.person, request.principal.id, addresses)
        report = await self._prepare(_view(row), person)
        await store.advance(row.id, _contents(report), ends=False)
        failed: list[KeptPlace] = []
        for eraser in self._erasure.erasers():
            try:
                rows = await eraser.erase_person(person)
            except (psycopg.Error, ToolgateError, ProblemDetails) as error:
                log.exception("erasure_failed", extra={"place": eraser.place})
                failed.append(KeptPlace(eraser.place, f"failed, run again: {type(error).__name__}"))
                continue
            report = _with_rows(report, eraser, rows)
            await store.advance(row.id, _contents(report), ends=False)
        report = msgspec.structs.replace(report, kept=(*report.kept, *failed))
        await store.advance(row.id, _contents(report), ends=not failed)
        ended = await store.get(row.id)
        return report if ended is None else _view(ended)

    async def _count(self, person: ErasedPerson) -> ErasureReport:
        report = await self._prepare(ErasureReport(), person)
        for eraser in self._erasure.erasers():
            report = _with_rows(report, eraser, await eraser.count_person(person))
        return report

    async def _prepare(self, report: ErasureReport, person: ErasedPerson) -> ErasureReport:
        """The report with what stays anyway, and with the systems that were ever to be asked."""
        kept_places = [KeptPlace(*entry) for entry in await self._erasure.remains(person)]
        ask = dict.fromkeys((*report.ask, *await self._erasure.ask(person)))
        return msgspec.structs.replace(report, kept=tuple(kept_places), ask=tuple(ask))

    def _store(self, request: OperationInput) -> ErasureStore:
        return ErasureStore(self._dependencies.pool, request.tenant)


def _with_rows(report: ErasureReport, eraser: PersonEraser, rows: int) -> ErasureReport:
    """The report with rows of a place, beside those of an earlier attempt."""
    places = {entry.place: entry.rows for entry in report.places}
    places[eraser.place] = total = places.get(eraser.place, 0) + rows
    kept_places = {entry.place: entry for entry in report.kept}
    if eraser.remains and total:
        kept_places[eraser.place] = KeptPlace(eraser.place, eraser.remains)
    entries = tuple(PlaceRows(*entry) for entry in places.items() if entry[1])
    return msgspec.structs.replace(report, places=entries, kept=tuple(kept_places.values()))


def _contents(report: ErasureReport) -> bytes:
    return msgspec.json.encode(
        ErasureReport(places=report.places, kept=report.kept, ask=report.ask)
    )


def _view(row: ErasureRow) -> ErasureReport:
    return msgspec.structs.replace(
        msgspec.json.decode(row.report, type=ErasureReport),
        id=row.id,
        pseudonym=row.pseudonym,
        requester=row.requester,
        begun=row.begun,
        ended=row.ended,
    )
