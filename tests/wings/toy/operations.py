"""Operations of the toy wing."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from config.value_types import END
from gateway.operations.job_declarations import AsJob
from gateway.operations.operation import Line, Operation, OperationInput, OperationOutput
from gateway.operations.problems import not_found
from gateway.wings.interface import CallTool
from tests.polling import until
from tests.wings.toy.store import Notes


class NewNote(Struct, frozen=True, forbid_unknown_fields=True):
    text: Line


class Note(Struct, frozen=True, omit_defaults=True):
    number: int
    text: str
    owner: Annotated[str, Meta(extra_json_schema={"x-mask": True})] = ""


class NoteList(Struct, frozen=True):
    notes: tuple[Note, ...]


class Wanted(Struct, frozen=True, forbid_unknown_fields=True):
    contains: Line | None = None


class Sought(Struct, frozen=True, forbid_unknown_fields=True):
    text: Line


class Call(Struct, frozen=True, forbid_unknown_fields=True):
    tool: str
    arguments: dict[str, Any] = {}


class Copies(Struct, frozen=True, forbid_unknown_fields=True):
    texts: tuple[Line, ...]


class Counted(Struct, frozen=True):
    notes: int


class Called(Struct, frozen=True):
    text: str


Number = Annotated[str, Meta(pattern=r"^[1-9][0-9]{0,6}" + END, description="the number of a note")]


class NoteOperations:
    def __init__(self, notes: Notes, call: CallTool, limit: int, schedule: str) -> None:
        """`limit`: most notes of an owner."""
        self._schedule = schedule
        self._notes = notes
        self._call = call
        self._limit = limit

    @property
    def operations(self) -> tuple[Operation, ...]:
        number = {"number": Number}
        return (
            Operation(
                "toy_add",
                "POST",
                "/notes",
                "Write a note down, to be found later.",
                "toy:write",
                self.add,
                Note,
                201,
                body=NewNote,
            ),
            Operation(
                "toy_list",
                "GET",
                "/notes",
                "List the notes of the caller.",
                "toy:read",
                self.list,
                NoteList,
                query=Wanted,
            ),
            Operation(
                "toy_get",
                "GET",
                "/notes/{number}",
                "Show one note.",
                "toy:read",
                self.get,
                Note,
                types=number,
            ),
            Operation(
                "toy_search",
                "GET",
                "/search",
                "Find notes of the caller by words and meaning.",
                "toy:read",
                self.search,
                NoteList,
                query=Sought,
            ),
            Operation(
                "toy_call",
                "POST",
                "/calls",
                "Call another tool for the caller.",
                "toy:write",
                self.call,
                Called,
                body=Call,
                job=AsJob(),
            ),
            Operation(
                "toy_copy",
                "POST",
                "/copies",
                "Write many notes down, once there is a note `go`.",
                "toy:write",
                self.copy,
                NoteList,
                body=Copies,
                job=AsJob(lock="copies"),
            ),
            Operation(
                "toy_greet",
                "POST",
                "",
                "Greet somebody.",
                "toy:read",
                self.greet,
                Called,
                body=NewNote,
                tool="greet",
            ),
            Operation(
                "toy_count",
                "POST",
                "/count",
                "Count the notes of all owners.",
                "toy:write",
                self.count,
                Counted,
                job=AsJob(always=True, once=True, schedule=self._schedule),
                no_tool="it runs on a schedule",
            ),
        )

    async def add(self, request: OperationInput) -> OperationOutput:
        assert request.context is not None
        number = await self._notes.add(request.tenant, request.principal.id, request.body.text)
        return OperationOutput(Note(number, request.body.text), location=f"/notes/{number}")

    async def list(self, request: OperationInput) -> NoteList:
        contains = request.query.contains or ""
        found = await self._notes.of(request.tenant, request.principal.id)
        return NoteList(tuple(Note(*one) for one in found if contains in one[1]))

    async def search(self, request: OperationInput) -> NoteList:
        found = await self._notes.find(request.tenant, request.principal.id, request.query.text)
        return NoteList(tuple(Note(*one) for one in found))

    async def get(self, request: OperationInput) -> Note:
        wanted = request.names["number"]
        for number, text in await self._notes.of(request.tenant, request.principal.id):
            if str(number) == wanted:
                return Note(number, text, request.principal.id)
        raise not_found("note", wanted)

    async def copy(self, request: OperationInput) -> NoteList:
        tenant, owner = request.tenant, request.principal.id
        request.job.progress(0, len(request.body.texts), "waiting")

        async def may_go() -> bool:
            return "go" in [text for _, text in await self._notes.of(tenant, owner)]

        await until(may_go)
        for number, text in enumerate(request.body.texts, 1):
            await self._notes.add(tenant, owner, text)
            request.job.progress(number, len(request.body.texts))
        found = await self._notes.of(tenant, owner)
        return NoteList(tuple(Note(*one, owner) for one in found))

    async def greet(self, request: OperationInput) -> OperationOutput:
        return OperationOutput(Called(request.body.text), text=f"Hello, {request.body.text}!")

    async def count(self, _request: OperationInput) -> Counted:
        return Counted(await self._notes.count())

    async def call(self, request: OperationInput) -> Called:
        assert request.context is not None
        result = await self._call(request.context, request.body.tool, request.body.arguments)
        return Called(str(result.content))
