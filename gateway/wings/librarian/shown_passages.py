"""Log of passages shown to a model, by caller and question."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import Raw

from gateway.operations.operation import OperationInput
from gateway.wings.librarian.library_access import context_of
from gateway.wings.librarian.part_answers import Asker
from gateway.wings.librarian.query_engine import LibraryQuestion
from gateway.wings.librarian.requests_and_views import QuestionList, QuestionPaging, QuestionView
from registry.database.postgres import Pool
from registry.database.tables import Tables

Asking = Literal["query", "research"]


class ShownPassages(Tables):
    def __init__(self, pool: Pool, keep_days: int) -> None:
        self._pool = pool
        self._keep_days = keep_days

    async def note(
        self,
        request: OperationInput,
        operation: Asking,
        question: LibraryQuestion,
        asker: Asker | None = None,
    ) -> None:
        passages = [] if asker is None else list(asker.places)
        await self._execute(
            "INSERT INTO librarian_question_t (host_id, principal, operation, request_id,"
            " question, collections, model, shown) VALUES (%s, %s, %s, %s, %s, %s, %s, %s)",
            [
                request.tenant,
                request.principal.id,
                operation,
                context_of(request).request_id[:200],
                question.text.replace("\0", ""),
                list(question.collections),
                "" if asker is None else asker.model.strategy,
                msgspec.json.encode(passages),
            ],
        )

    async def list(self, request: OperationInput) -> QuestionList:
        """The newest first, of all callers of the tenant."""
        query: QuestionPaging = request.query
        rows = await self._fetch(
            "SELECT created_ts, principal, operation, request_id, question, collections,"
            " model, shown FROM librarian_question_t WHERE host_id = %s"
            " AND (%s::timestamptz IS NULL OR created_ts < %s)"
            " ORDER BY created_ts DESC LIMIT %s",
            [request.tenant, query.before, query.before, query.limit],
        )
        questions = [_view(row) for row in rows]
        return QuestionList(tuple(questions))

    async def sweep(self, host_id: str) -> None:
        await self._execute(
            "DELETE FROM librarian_question_t WHERE host_id = %s"
            " AND created_ts < clock_timestamp() - %s * interval '1 day'",
            [host_id, self._keep_days],
        )


def _view(row: Sequence[Any]) -> QuestionView:
    created, principal, operation, request_id, question, collections, model, passages = row
    return QuestionView(
        created,
        principal,
        operation,
        request_id,
        question,
        tuple(collections),
        model,
        Raw(passages),
    )
