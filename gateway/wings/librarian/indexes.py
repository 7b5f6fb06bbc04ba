"""Indexes of code by PUT, with a limit of their own for the body: `/librarian/scip/COLLECTION`.

The operation that takes one is a call of a tool, so that policy, limits and audit hold.
"""

import secrets
from collections.abc import Sequence
from functools import partial
from typing import Annotated

from anyio import from_thread
from msgspec import Meta, Raw, Struct, convert, json
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from config.librarian import LibrarianSettings
from gateway.context import CallHeaders, Context, new_request_id
from gateway.operations.http import check_known, run_while_connected, send_response
from gateway.operations.operation import (
    Operation,
    OperationInput,
    ProblemDetails,
    ProblemDocument,
    bad_request,
    invalid,
)
from gateway.operations.serving import OperationResponse, problem_response
from gateway.state.fair_limiter import FairLimiter
from gateway.wings.abc import WingParts
from gateway.wings.librarian.library_access import WRITE, LibraryAccess, context_of
from gateway.wings.librarian.requests import CollectionName
from gateway.wings.librarian.scip import ScipRefused, read_index
from schemas.errors import Fault
from schemas.mcp.revisions import V2025_11_25
from schemas.tool import TextContent, ToolResult

INDEXES = "/librarian/scip"
OPERATION = "librarian_index"


class IndexCode(Struct, frozen=True, forbid_unknown_fields=True):
    """An index that was sent before."""

    collection: CollectionName
    upload: Annotated[str, Meta(max_length=64, description="token of the bytes that were sent")]
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
    """The operation, and the bytes of uploads for as long as their calls last."""

    def __init__(self, parts: WingParts, shelves: LibraryAccess) -> None:
        self._parts = parts
        self._shelves = shelves
        self._settings: LibrarianSettings = parts.settings
        self._held: dict[str, bytes] = {}
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

    async def index(self, asked: OperationInput) -> CodeIndexed:
        body: IndexCode = asked.body
        data = self._held.get(body.upload)
        if data is None:
            raise invalid(f"upload: expected a token; an index is sent to {INDEXES}/COLLECTION.")
        files = read_index(data, self._settings.index, from_thread.check_cancelled)
        try:
            async with self._turns.turn(asked.tenant, asked.principal.id):
                report = await self._shelves.library.index(
                    context_of(asked), body.collection, files, folder=body.below.strip("/")
                )
        except ScipRefused as error:
            raise invalid(f"index: {error}.") from error
        return convert(report, CodeIndexed, from_attributes=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = new_request_id()
        try:
            response = await self._put(Request(scope, receive), request_id)
        except ProblemDetails as problem:
            response = problem_response(problem, request_id)
        except Fault as fault:
            status = fault.status if fault.status >= 400 else 422
            refused = ProblemDetails(status, "refused", fault.message)
            response = problem_response(refused, request_id)
        await send_response(send, response, request_id, head=scope["method"] == "HEAD")

    async def _put(self, request: Request, request_id: str) -> OperationResponse:
        if request.method != "PUT":
            raise ProblemDetails(405, "method-not-allowed", "Expected PUT.")
        context = await self._context(request, request_id)
        collection = request.scope["path"].removeprefix(f"{INDEXES}/")
        if not collection or "/" in collection:
            raise bad_request(f"Expected {INDEXES}/COLLECTION.")
        token = secrets.token_urlsafe(24)
        self._held[token] = await request.body()
        given = {"collection": collection, "upload": token}
        given |= {"below": request.query_params.get("below", "")}
        try:
            result = await run_while_connected(
                request.receive, partial(self._parts.call, context, OPERATION, given)
            )
        finally:
            del self._held[token]
        return OperationResponse(200, bytes(_check_body(result)))

    async def _context(self, request: Request, request_id: str) -> Context:
        """Raises ProblemDetails, and the Fault of an invalid X-Scope-Token."""
        identity = await self._parts.identify(request.scope)
        check_known(identity, request.headers)
        _ = identity.scopes
        client = request.client.host if request.client else ""
        headers = CallHeaders(authorization=request.headers.get("authorization"), client=client)
        return Context(identity, V2025_11_25, request_id, headers=headers)


def _check_body(result: ToolResult) -> Raw:
    """The body of a result. Raises ProblemDetails for that of a failed call."""
    structured = result.structured_content
    if isinstance(structured, Raw) and not result.is_error:
        return structured
    if not isinstance(structured, Raw):  # what its schema or a guard refuses
        raise invalid(
            " ".join(content.text for content in result.content if isinstance(content, TextContent))
        )
    problem = json.decode(structured, type=ProblemDocument)
    raise ProblemDetails(problem.status, "refused", problem.detail)
