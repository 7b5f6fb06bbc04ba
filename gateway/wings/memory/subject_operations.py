"""Operations of the admin API that list, export and erase one person's data."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from gateway.operations.operation import Operation, OperationInput
from gateway.operations.paging import ListPage, Paging
from gateway.wings.interface import AdminAccess
from gateway.wings.memory.erasure import Eraser, ErasureCounts
from gateway.wings.memory.export_and_import import list_memories_of
from gateway.wings.memory.memory_rows import Memory
from gateway.wings.memory.requests_and_views import MemoryView, view
from gateway.wings.memory.search_conditions import EVERY, IS_BELIEVED, Condition

PRESENT: Condition = (IS_BELIEVED, {"as_of": None, "valid_at": None})
# Not a scope that admin:read includes: who looks after the gateway need not read what people say.
READ, ERASE = "admin:memory", "admin:memory:erase"
SUBJECT = {
    "subject": Annotated[
        str, Meta(min_length=1, max_length=256, description="the id of a user: `sub` of its tokens")
    ]
}


class HeldMemories(Paging, frozen=True):
    history: Annotated[bool, Meta(description="also what was superseded or has expired")] = False


class EraseSubject(Struct, frozen=True, forbid_unknown_fields=True):
    dry_run: Annotated[bool, Meta(description="only count")] = False
    expect: Annotated[int, Meta(ge=0, description="erase only if so many are held")] | None = None


def subject_operations(access: AdminAccess) -> Sequence[Operation]:
    subjects, path = Subjects(access), "/subjects/{subject}/memories"
    return (
        Operation(
            "listMemoriesOfSubject", "GET", path, "List the memories of a user and its sessions.",
            READ, subjects.list, ListPage[MemoryView], query=HeldMemories, types=SUBJECT,
        ),
        Operation(
            "exportSubject", "GET", f"{path}/export",
            "Export all that is held of a user, as memory_import takes it.", READ, subjects.export,
            ListPage[Memory], query=Paging, types=SUBJECT,
        ),
        Operation(
            "eraseSubject", "DELETE", path, "Erase all that is held of a user.", ERASE,
            subjects.erase, ErasureCounts, query=EraseSubject, types=SUBJECT, problems=(409,),
            details="It cannot be undone. Use dry_run to count first.",
        ),
    )  # fmt: skip


class Subjects:
    def __init__(self, access: AdminAccess) -> None:
        self._access = access

    async def list(self, request: OperationInput) -> ListPage[MemoryView]:
        page = await self._page(request, EVERY if request.query.history else PRESENT)
        return ListPage(tuple(map(view, page.items)), page.next)

    async def export(self, request: OperationInput) -> ListPage[Memory]:
        return await self._page(request, EVERY)

    async def erase(self, request: OperationInput) -> ErasureCounts:
        eraser = Eraser(self._access.pool(), self._access.events.person_erased)
        return await eraser.erase(
            request.tenant, request.names["subject"], dry_run=request.query.dry_run,
            expect=request.query.expect, mentions=True,
        )  # fmt: skip

    async def _page(self, request: OperationInput, condition: Condition) -> ListPage[Memory]:
        return await list_memories_of(
            self._access.pool(), request.tenant, request.names["subject"], condition=condition,
            after=request.query.after, limit=self._access.pages.limit(request.query),
        )  # fmt: skip
