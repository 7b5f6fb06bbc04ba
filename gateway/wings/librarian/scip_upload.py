"""Indexes of code by PUT, with a limit of their own for the body: `/librarian/scip/COLLECTION`.

The operation that takes one is a call of a tool, so that policy, limits and audit hold.
"""

from collections.abc import Sequence
from typing import Annotated

from anyio import from_thread
from msgspec import Meta, Struct, convert

from config.knowledge import CollectionName
from config.librarian import LibrarianSettings
from gateway.operations.operation import Operation, OperationInput
from gateway.operations.problems import invalid
from gateway.wings.http_tool_calls import ToolCalls
from gateway.wings.interface import WingParts
from gateway.wings.librarian.library_access import WRITE, LibraryAccess, context_of
from gateway.wings.librarian.scip_format import ScipRefused, read_index
from registry.database.fair_limiter import FairLimiter

INDEXES = "/librarian/scip"
OPERATION = "librarian_index"


class IndexCode(Struct, frozen=True, forbid_unknown_fields=True):
    """An index, whose bytes are the upload of the request."""

    collection: CollectionName
    below: Annotated[
        str, Meta(max_length=255, description="folder of its files in the collection")
    ] = ""


class CodeIndexed(Struct, frozen=True):
    files: int
    definitions: int
    references: int
    left_out: Annotated[
        tuple[tuple[str, str], ...], Meta(description="paths, and why their files were left out")
    ]


class CodeIndexes:
    def __init__(self, parts: WingParts, access: LibraryAccess) -> None:
        self.app = ToolCalls(parts).upload_app(f"{INDEXES}/{{collection}}", OPERATION, ("below",))
        self._access = access
        self._settings: LibrarianSettings = parts.settings
        # An index of the largest size takes half a minute of a thread.
        self._turns = FairLimiter(1)

    @property
    def operations(self) -> Sequence[Operation]:
        return (
            Operation(
                OPERATION, "POST", "/indexes",
                "Take the definitions and references of code from an index in SCIP.", WRITE,
                self.index, CodeIndexed, body=IndexCode, waits=True,
                details=f"Its bytes are sent by PUT to {INDEXES}/COLLECTION.",
            ),
        )  # fmt: skip

    async def index(self, request: OperationInput) -> CodeIndexed:
        body: IndexCode = request.body
        context = context_of(request)
        if context.upload is None:
            raise invalid(f"Expected the bytes of an index, by PUT to {INDEXES}/COLLECTION.")
        data = context.upload.data
        files = read_index(data, self._settings.index, from_thread.check_cancelled)
        try:
            async with self._turns.turn(request.tenant, request.principal.id):
                report = await self._access.library.index(
                    context, body.collection, files, folder=body.below.strip("/")
                )
        except ScipRefused as error:
            raise invalid(f"index: {error}.") from error
        return convert(report, CodeIndexed, from_attributes=True)
