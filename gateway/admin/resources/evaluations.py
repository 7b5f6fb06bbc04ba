"""Evaluation of the tool search on requests with known tools."""

from collections.abc import Sequence
from time import perf_counter
from typing import Annotated

from msgspec import Meta, Struct

from gateway.admin.registry_parts import JobParts
from gateway.admin.resources.search import Find
from gateway.operations.job_declarations import AsJob, Job
from gateway.operations.operation import Line, Operation, OperationDependencies, OperationInput
from gateway.operations.paging import ListPage, Paging
from gateway.operations.problems import Mistake, invalid
from registry.evaluation.corpus import describe_tool
from registry.evaluation.curves import FitBin, ModeCurve, calibration, calibration_pairs, curve
from registry.evaluation.improvements import ToolImprovement, improvements
from registry.evaluation.mode_searches import MODES
from registry.evaluation.quality_metrics import DEPTH
from registry.evaluation.request_sets import EvaluationRequest, Index, RelevantTools
from registry.search import Filters, Mode, SearchQuery, SearchResult
from registry.search.usage_log import UsageLog, UsedRequest
from registry.sources.tool_store import ToolStore
from schemas.errors import InvalidParams

READ = "admin:registry:read"
REQUESTS_LIMIT = 500  # requests of one evaluation
MISSED_SHOWN = 50


class KnownRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A request, and the names or ids of all tools that it needs."""

    query: Annotated[str, Meta(min_length=1, max_length=4096)]
    gold: Annotated[tuple[Line, ...], Meta(min_length=1, max_length=20)]


class EvaluationSet(Struct, frozen=True, forbid_unknown_fields=True):
    """Requests with known tools; or, with `from_usage`, the newest `limit` requests of callers
    (`search.usage_log`) and what they called after them."""

    requests: Annotated[tuple[KnownRequest, ...], Meta(max_length=REQUESTS_LIMIT)] = ()
    from_usage: bool = False
    limit: Annotated[int, Meta(ge=1, le=REQUESTS_LIMIT)] = 200


class UsedRequestView(Struct, frozen=True):
    """A request of a caller. `gold`: ids of the tools that were called with success after it."""

    query: str
    gold: tuple[str, ...]


class MissedRequest(Struct, frozen=True):
    """A request without all of its tools among the first ten: those that were found first."""

    query: str
    expected: tuple[str, ...]
    found: tuple[str, ...]


class SearchEvaluation(Struct, frozen=True):
    """How well each search mode found the tools of the requests. `unknown`: tools that are not
    there, which count as missed. `calibration`: of the fit that the gateway tells. `improvements`:
    the ten tools that were missed most often."""

    requests: int
    tools: int
    model: str | None
    from_usage: bool
    curves: tuple[ModeCurve, ...]
    calibration: tuple[FitBin, ...]
    missed: tuple[MissedRequest, ...]
    improvements: tuple[ToolImprovement, ...]
    unknown: tuple[str, ...]
    notes: tuple[str, ...]


class EvaluationOperations:
    def __init__(self, dependencies: OperationDependencies, find: Find, usage: UsageLog) -> None:
        self._dependencies = dependencies
        self._find = find
        self._usage = usage

    @classmethod
    def of(cls, parts: JobParts) -> "EvaluationOperations":
        dependencies, search = parts.dependencies, parts.settings.search
        usage = UsageLog(dependencies.opened, search.usage_log_days, search.query_characters)
        return cls(dependencies, parts.find, usage)

    @property
    def operations(self) -> Sequence[Operation]:
        return (
            Operation(
                "evaluateSearch", "POST", "/search/evaluations",
                "Evaluate the search with requests whose tools are known.", READ, self.evaluate,
                SearchEvaluation, body=EvaluationSet, problems=(403,),
                job=AsJob(always=True, lock="evaluation"),
            ),
            Operation(
                "listUsedRequests", "GET", "/search/requests",
                "List requests of callers that were followed by calls, the newest first.", READ,
                self.list_used_requests, ListPage[UsedRequestView], query=Paging,
                details="They are recorded with search.usage_log, masked.",
            ),
        )  # fmt: skip

    async def evaluate(self, operation_input: OperationInput) -> SearchEvaluation:
        body: EvaluationSet = operation_input.body
        requests = await self._requests(operation_input, body)
        tools = await ToolStore(self._dependencies.pool).tools(operation_input.tenant)
        index = Index([(tool.id, tool.name, tool.source) for tool in tools])
        relevant = [index.resolve(request) for request in requests]
        searching = _Searching(self._find, operation_input.tenant, requests)
        curves, first = [], None
        for at, mode in enumerate(MODES):
            ran = await searching.run(mode, operation_input.job, at * len(requests))
            if ran.is_measured:
                curves.append(curve(mode, ran.answers, relevant, ran.took_ms))
                first = first or ran
        first = first or _Ran()
        names = {tool.id: tool.name for tool in tools}
        return SearchEvaluation(
            requests=len(requests),
            tools=len(tools),
            model=first.model,
            from_usage=body.from_usage,
            curves=tuple(curves),
            calibration=calibration(calibration_pairs(first.fits, first.answers, relevant))
            if first.answers
            else (),
            # readers see results of jobs; requests of callers are for operators alone
            missed=()
            if body.from_usage
            else _missed_requests(requests, relevant, first.answers, names),
            improvements=improvements(first.answers, relevant, map(describe_tool, tools))
            if first.answers
            else (),
            unknown=tuple(index.unknown(requests))[:MISSED_SHOWN],
            notes=tuple(searching.notes),
        )

    async def _requests(
        self, operation_input: OperationInput, body: EvaluationSet
    ) -> list[EvaluationRequest]:
        """Raises ProblemDetails."""
        if not body.from_usage:
            if not body.requests:
                text = "expected requests with their tools, or from_usage"
                raise invalid("There is nothing to evaluate.", Mistake(text, pointer="/requests"))
            return [
                _request(n, request.query, request.gold)
                for n, request in enumerate(body.requests, 1)
            ]
        queries = (await self._used_requests(operation_input))[: body.limit]
        if not queries:
            text = "no request was followed by a call yet; search.usage_log records them"
            raise invalid("There is nothing to evaluate.", Mistake(text, pointer="/from_usage"))
        return [_request(n, query.query, query.tools) for n, query in enumerate(queries, 1)]

    async def _used_requests(self, request: OperationInput) -> Sequence[UsedRequest]:
        """Requests of callers, which are texts of people. Raises ProblemDetails."""
        self._dependencies.require_operator(request, "Requests of callers take the role {role}.")
        return await self._usage.requests(request.tenant)

    async def list_used_requests(self, request: OperationInput) -> ListPage[UsedRequestView]:
        numbered = enumerate(await self._used_requests(request), 1)
        page = self._dependencies.pages.page(
            request.query, numbered, lambda entry: f"{entry[0]:010}"
        )
        views = tuple(UsedRequestView(used.query, used.tools) for _, used in page.items)
        return ListPage(views, page.next)


class _Ran:
    """The results of one mode, by request."""

    def __init__(self) -> None:
        self.answers: list[list[str]] = []
        self.fits: list[float | None] = []
        self.took_ms: list[float] = []
        self.model: str | None = None
        self.is_measured = False  # False: this mode has nothing to search by


class _Searching:
    def __init__(self, find: Find, tenant: str, requests: Sequence[EvaluationRequest]) -> None:
        self._find = find
        self._filters = Filters(tenant)
        self._requests = requests
        self.notes: dict[str, None] = {}

    async def run(self, mode: Mode, job: Job, before: int) -> _Ran:
        """Search one request after the other; a job that is cancelled stops here."""
        ran = _Ran()
        for done, request in enumerate(self._requests, 1):
            began = perf_counter()
            answer = await self._answer(SearchQuery(request.query, DEPTH, mode, self._filters))
            ran.took_ms.append((perf_counter() - began) * 1000)
            ran.answers.append([hit.id for hit in answer.hits])
            ran.fits.append(answer.fit)
            ran.model = ran.model or answer.model
            if answer.note:
                self.notes[f"{mode}: {answer.note}"] = None
            job.progress(before + done, len(MODES) * len(self._requests), mode)
        ran.is_measured = mode != "dense" or ran.model is not None
        return ran

    async def _answer(self, query: SearchQuery) -> SearchResult:
        """The results; a refused query, such as one of control characters, has none."""
        try:
            return await self._find(query)
        except InvalidParams as refused:
            return SearchResult(note=refused.message)


def _request(number: int, query: str, gold: Sequence[str]) -> EvaluationRequest:
    tools = tuple(dict.fromkeys(gold))
    return EvaluationRequest(f"request {number}", query, tools, tuple((tool,) for tool in tools))


def _missed_requests(
    requests: Sequence[EvaluationRequest],
    relevant: Sequence[RelevantTools],
    answers: Sequence[Sequence[str]],
    names: dict[str, str],
) -> tuple[MissedRequest, ...]:
    missed: list[MissedRequest] = []
    for request, want, answer in zip(requests, relevant, answers, strict=False):
        if any(slot.isdisjoint(answer) for slot in want.slots) and len(missed) < MISSED_SHOWN:
            gold = tuple(names.get(id_, id_) for id_ in request.gold)
            first = tuple(names[id_] for id_ in answer[:3] if id_ in names)
            missed.append(MissedRequest(request.query[:300], gold, first))
    return tuple(missed)
