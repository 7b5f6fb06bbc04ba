"""Uses of a chat model in the knowledge: imported only where `knowledge.model` names one."""

from collections.abc import Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from config.knowledge import CollectionName, KnowledgeSettings
from gateway.context import Context, Principal
from gateway.operations.job_declarations import SCHEDULE, AsJob
from gateway.operations.operation import Operation, OperationInput, OperationOutput
from gateway.operations.problems import ProblemDetails, invalid
from gateway.wings.http_tool_calls import check_result, structured_body
from gateway.wings.interface import CallTool, Screen, payer_of
from gateway.wings.knowledge.background_extraction import (
    SHOWN_BY,
    DocumentExtractor,
    ExtractionReport,
)
from gateway.wings.knowledge.caller_access import WRITE, knowledge_reader
from gateway.wings.knowledge.cited_answers import Answerer, AnswerRequest
from gateway.wings.knowledge.collections import CollectionStore
from gateway.wings.knowledge.model_spending import DailySpending
from gateway.wings.knowledge.requests_and_views import AnswerView, KnowledgeFound, QueryKnowledge
from gateway.wings.models.messages import ChatModels, ModelFailed, Payer
from gateway.wings.models.usage import BudgetExhausted
from registry.database.postgres import Pool


class RetryDocuments(Struct, frozen=True, forbid_unknown_fields=True):
    collection: CollectionName


class DocumentsRetried(Struct, frozen=True):
    documents: int


class KnowledgeModel:
    """A chat model that reads documents in the background, and answers from passages."""

    def __init__(
        self,
        pool: Pool,
        models: ChatModels,
        call: CallTool,
        settings: KnowledgeSettings,
        *,
        screen: Screen,
    ) -> None:
        self._call = call
        self._screen = screen
        self._claim = settings.agent_claim
        self._collections = CollectionStore(pool, settings.collections)
        self._schedule = settings.extraction.schedule
        self.extractor = DocumentExtractor(
            pool, models, settings.strategy, settings.extraction, screen=screen
        )
        spending = DailySpending(pool, "answers", settings.answers.tokens_per_day)
        self.answerer = Answerer(models, settings.strategy, spending, settings.answers)

    @property
    def operations(self) -> Sequence[Operation]:
        return (
            Operation(
                "knowledge_extract", "POST", "/extract",
                "Have the chat model read documents that it has not read.", WRITE, self.extract,
                ExtractionReport, no_tool="it runs on a schedule",
                job=AsJob(always=True, once=True, lock="extraction", schedule=self._schedule),
            ),
            Operation(
                "knowledge_retry", "POST", "/extract/failed",
                "Have the chat model read the failed documents of a collection again.", WRITE,
                self.retry, DocumentsRetried, body=RetryDocuments,
            ),
        )  # fmt: skip

    async def extract(self, request: OperationInput) -> ExtractionReport:
        try:
            return await self.extractor.run(request.job, _tenant_of(request))
        except ModelFailed as error:
            raise ProblemDetails(409, "unconfigured", f"{error}.") from error

    async def retry(self, request: OperationInput) -> DocumentsRetried:
        body: RetryDocuments = request.body
        reader = knowledge_reader(request, self._claim)
        await self._collections.get(reader, body.collection, "write")
        return DocumentsRetried(await self.extractor.retry(reader, body.collection))

    async def query(self, operation_input: OperationInput) -> OperationOutput:
        """The passages, fetched by a call of the caller, so that what guards remove from results
        does not reach the model; and its answer."""
        if operation_input.context is None:
            raise invalid("Expected a caller.")
        body: QueryKnowledge = operation_input.body
        passages = await self.passages(operation_input.context, replace(body, answer=False))
        request = self.request(payer_of(operation_input.context), body.query, passages)
        return with_answer(passages, await self.answerer.answer(request))

    def request(
        self,
        payer: Payer,
        question: str,
        passages: KnowledgeFound,
        *,
        history: tuple[tuple[str, str], ...] = (),
        wish: str = "",
    ) -> AnswerRequest:
        return AnswerRequest(payer, question, passages, history, wish)

    async def say(self, question: AnswerRequest) -> str:
        """Answer of the model without passages. Raises ProblemDetails."""
        try:
            return await self.answerer.say(question)
        except (ModelFailed, BudgetExhausted) as error:
            raise ProblemDetails(503, "unavailable", f"No answer: {error}.") from error

    def screen_answer(self, principal: Principal, answer: str) -> str:
        """An answer that is no result of a tool as guardrails leave it; "": they refuse it."""
        screened = self._screen(principal, SHOWN_BY, {"answer": {"text": answer}})
        try:
            return str(screened["answer"]["text"])
        except (TypeError, LookupError):
            return ""

    async def passages(self, context: Context, query: QueryKnowledge) -> KnowledgeFound:
        """Raises ProblemDetails, and Fault."""
        result = check_result(
            await self._call(context, "knowledge_query", msgspec.to_builtins(query))
        )
        return msgspec.json.decode(structured_body(result), type=KnowledgeFound)


def _tenant_of(request: OperationInput) -> str | None:
    """The tenant whose documents are read; None: those of all, by schedule."""
    verified = request.context is not None and request.context.identity.verified
    return None if not verified and request.principal.id == SCHEDULE else request.tenant


def with_answer(passages: KnowledgeFound, answer: AnswerView | str) -> OperationOutput:
    """The passages with the answer; without one its text is that of the passages."""
    if isinstance(answer, str):
        return OperationOutput(replace(passages, note=f"No answer: {answer}."))
    sources = "\n".join(
        f"[{reference.reference}] {reference.path}" for reference in passages.references
    )
    return OperationOutput(replace(passages, answer=answer), text=f"{answer.text}\n\n{sources}")
