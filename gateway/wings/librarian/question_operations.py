"""Operations that answer questions: `librarian_query` at once, `librarian_research` by runs."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace as replace_fields
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Literal
from uuid import UUID, uuid4

import anyio
import msgspec
from msgspec import Meta, Raw, Struct
from msgspec.structs import replace

from config.knowledge import CollectionName
from config.librarian import AUTO, LibrarianSettings, RunLimits
from config.value_types import HostId
from gateway.context import Context, Principal
from gateway.operations.job_declarations import NO_JOB, AsJob
from gateway.operations.operation import Operation, OperationInput
from gateway.operations.problems import ProblemDetails, conflict, not_found, unavailable
from gateway.wings.interface import Screen, WingParts, payer_of
from gateway.wings.librarian.library_access import DATA, READ, WRITE, LibraryAccess, context_of
from gateway.wings.librarian.member_texts import QUESTION, RESEARCH
from gateway.wings.librarian.part_answers import AnswerCache, Asker
from gateway.wings.librarian.query_engine import (
    LibraryAnswer,
    LibraryQuestion,
    Progress,
    QueryEngine,
)
from gateway.wings.librarian.requests_and_views import QuestionList, QuestionPaging
from gateway.wings.librarian.research import Research
from gateway.wings.librarian.research_runs import RunLog, RunState, RunStore, StoredRun, TakenOver
from gateway.wings.librarian.run_budget import RunLedger, RunSpent
from gateway.wings.librarian.shown_passages import Asking, ShownPassages
from gateway.wings.models.messages import ChatModel, ChatModels, ModelFailed
from registry.database.postgres import Pool, is_uuid
from registry.database.tenants import list_tenants

Strategy = Literal["auto", "recursive", "mapreduce"]
WAITING = 100  # runs, for a place
STEPS = 2000  # of a trace
SHOWN_BY = "librarian_search"  # the tool by whose guardrails models are shown texts
WITHHELD = "(withheld by a rule)"
STOPS = 5.0  # seconds for storing how a cancelled run ended


class AskLibrary(Struct, frozen=True, forbid_unknown_fields=True):
    question: Annotated[
        str, Meta(min_length=1, max_length=8000, pattern=r"\S", description="a question, not blank")
    ]
    collection: CollectionName | None = None
    collections: Annotated[
        tuple[CollectionName, ...],
        Meta(max_length=100, description="further ones; without any: all that you may read"),
    ] = ()
    max_chunks: Annotated[int, Meta(ge=1, le=50, description="passages that are read")] = 10
    include_sources: bool = True

    @property
    def wanted_collections(self) -> list[str]:
        single = () if self.collection is None else (self.collection,)
        return list(dict.fromkeys([*single, *self.collections]))


class LessLimits(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits below those of the settings."""

    depth: Annotated[int, Meta(ge=0)] | None = None
    iterations: Annotated[int, Meta(ge=1)] | None = None
    calls: Annotated[int, Meta(ge=1)] | None = None
    lookups: Annotated[int, Meta(ge=1)] | None = None
    tokens: Annotated[int, Meta(ge=1)] | None = None
    cost: Annotated[float, Meta(gt=0)] | None = None
    seconds: Annotated[float, Meta(gt=0)] | None = None
    concurrency: Annotated[int, Meta(ge=1)] | None = None

    def within(self, most: RunLimits) -> RunLimits:
        limits = {name: getattr(self, name) for name in self.__struct_fields__}

        def is_free(name: str) -> bool:
            return name == "cost" and not most.cost  # 0 is no limit

        less = {
            name: value if is_free(name) else min(value, getattr(most, name))
            for name, value in limits.items()
            if value is not None
        }
        return replace(most, **less)


class ResearchLibrary(AskLibrary, frozen=True, forbid_unknown_fields=True):
    strategy: Strategy = "auto"
    limits: LessLimits = LessLimits()
    run: Annotated[
        HostId | None, Meta(description="a run of yours to go on with, after a restart")
    ] = None


class CitedSource(Struct, frozen=True, omit_defaults=True):
    """Lines of a document; `relevance` is the score of the search, 0: cited, but not among the
    first hits."""

    collection: str
    path: str
    version: int
    lines: tuple[int, int]
    relevance: float
    cited: bool = False
    quote: str = ""


class LibraryAnswerView(Struct, frozen=True, omit_defaults=True):
    answer: str
    sources: tuple[CitedSource, ...]
    confidence: float
    incomplete: str = ""
    llm_generated: bool = False
    run: str = ""
    spent: RunSpent | None = None


class RunPaging(Struct, frozen=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


class StepView(Struct, frozen=True, omit_defaults=True):
    node: str
    seq: int
    kind: str
    request: str
    answer: str = ""
    tokens: int = 0
    cost: float = 0.0
    ms: int = 0


class ResearchRunView(Struct, frozen=True, omit_defaults=True):
    run: str
    question: str
    state: RunState
    created: datetime
    updated: datetime
    result: Raw | None = None
    steps: tuple[StepView, ...] = ()


class ResearchRuns(Struct, frozen=True):
    runs: tuple[ResearchRunView, ...]


def question_operations(parts: WingParts, access: LibraryAccess) -> Sequence[Operation]:
    operations = QuestionOperations(
        parts.pool, parts.models, parts.settings, access, screen=parts.screen
    )
    return operations.operations


class QuestionOperations:
    def __init__(
        self,
        pool: Pool,
        models: ChatModels,
        settings: LibrarianSettings,
        access: LibraryAccess,
        *,
        screen: Screen = lambda _principal, _tool, value: value,
    ) -> None:
        self._screen = screen
        self._pool = pool
        self._models = models
        self._settings = settings
        self._access = access
        self._cache = AnswerCache(pool, settings.answers)
        self._runs = RunStore(pool, settings.research)
        self._passages_log = ShownPassages(pool, settings.query.audit_days)
        self._slots = anyio.CapacityLimiter(self._settings.research.runs)

    @property
    def operations(self) -> Sequence[Operation]:
        query = Operation(
            "librarian_query", "POST", "/query",
            "Answer a question about documents, with the lines that the answer is from.", READ,
            self.query, LibraryAnswerView, body=AskLibrary, members=QUESTION,
            waits=True, details=DATA,
        )  # fmt: skip
        audit = Operation(
            "librarian_questions", "GET", "/questions",
            "List questions, and the passages that models were shown.", "librarian:audit",
            self._passages_log.list, QuestionList, query=QuestionPaging,
            no_tool="it is for auditors",
        )  # fmt: skip
        sweep = Operation(
            "librarian_sweep", "POST", "/sweep",
            "Delete answers, runs and questions that are too old.", WRITE, self.sweep, None, 204,
            job=AsJob(schedule="23 * * * *", once=True), no_tool="it is for schedules",
        )  # fmt: skip
        return (query, audit, sweep, *self._research_operations())

    def _research_operations(self) -> Sequence[Operation]:
        if not self._settings.research.enabled:
            return ()
        run = "/runs/{run}"
        return (
            Operation(
                "librarian_research", "POST", "/research",
                "Answer a hard question about documents by a model that writes code to search, "
                "read and ask.", WRITE, self.research, LibraryAnswerView, body=ResearchLibrary,
                members=RESEARCH,
                waits=True, job=AsJob(), problems=(409, 429), details=DATA,
            ),
            Operation(
                "librarian_list_runs", "GET", "/runs", "List your runs of research, the newest "
                "first.", READ, self.list_runs, ResearchRuns, query=RunPaging,
            ),
            Operation(
                "librarian_get_run", "GET", run, "Show a run of research with its steps.", READ,
                self.get_run, ResearchRunView, types={"run": HostId}, details=DATA,
            ),
        )  # fmt: skip

    async def sweep(self, _request: OperationInput) -> None:
        for host_id in await list_tenants(self._pool):
            await self._cache.sweep(host_id)
            await self._runs.sweep(host_id)
            await self._passages_log.sweep(host_id)

    async def query(self, request: OperationInput) -> LibraryAnswerView:
        body: AskLibrary = request.body
        context, question = await self._question(request, body)
        engine = QueryEngine(self._access.library, self._settings.query)
        hits = await engine.net(context, question)
        model = self._model(self._settings.query.model)
        if model is None or not hits:
            answer = engine.extract(question, hits)
            await self._passages_log.note(request, "query", question)
            return _view(answer, body)
        ledger = RunLedger(self._settings.research.limits, currency=self._settings.currency)
        asker = self._asker(request, question, model, ledger)
        async with self._note(request, "query", question, asker):
            with anyio.move_on_after(ledger.left_s) as within:
                answer = await engine.answer(
                    context, question, hits, asker=asker, progress=_progress(request)
                )
        if within.cancelled_caught:
            answer = engine.extract(question, hits, "seconds")
        return _view(answer, body, amounts=ledger.spending)

    @asynccontextmanager
    async def _note(
        self, request: OperationInput, operation: Asking, question: LibraryQuestion, asker: Asker
    ) -> AsyncIterator[None]:
        """Notes what a model was shown within, also where the caller leaves."""
        try:
            yield
        finally:
            with anyio.move_on_after(STOPS, shield=True):
                await self._passages_log.note(request, operation, question, asker)

    async def _question(
        self, request: OperationInput, body: AskLibrary
    ) -> tuple[Context, LibraryQuestion]:
        """The question over the collections that the caller may read: what it may not is as if it
        were not there. Raises ProblemDetails where none of those asked for is there."""
        context = context_of(request)
        allowed = await self._allowed_collections(request)
        names = sorted(
            name
            for name in allowed
            if not body.wanted_collections or name in body.wanted_collections
        )
        if body.wanted_collections and not names:
            raise not_found("collection", ", ".join(body.wanted_collections))
        text = body.question.strip()
        return context, LibraryQuestion(text=text, collections=names, max_chunks=body.max_chunks)

    def _model(self, name: str) -> ChatModel | None:
        """None: no model is to be asked, or none can be."""
        try:
            return self._models.of("" if name == AUTO else name) if name else None
        except ModelFailed:
            return None

    def _asker(
        self,
        request: OperationInput,
        question: LibraryQuestion,
        model: ChatModel,
        ledger: RunLedger,
    ) -> Asker:
        return Asker(
            host_id=request.tenant,
            model=model,
            ledger=ledger,
            cache=self._cache,
            collections=question.collections,
            screen=partial(self._screen_text, request.principal),
            payer=payer_of(context_of(request)),
        )

    def _screen_text(self, principal: Principal, text: str) -> str:
        screened = self._screen(principal, SHOWN_BY, {"passages": [{"text": text}]})
        try:
            return str(screened["passages"][0]["text"])
        except (TypeError, LookupError):  # it is refused, or a rule masks more than texts
            return WITHHELD

    # -- research --

    async def research(self, request: OperationInput) -> LibraryAnswerView:
        body: ResearchLibrary = request.body
        context, question = await self._question(request, body)
        model = self._model(self._settings.research.model)
        if model is None:
            engine = QueryEngine(self._access.library, self._settings.query)
            hits = await engine.net(context, question)
            return _view(engine.extract(question, hits, "no_model"), body)
        run, done = await self._run_of(request, body, question)
        if done is not None:
            return done
        if self._slots.statistics().tasks_waiting >= WAITING:
            raise unavailable("Too many runs wait already; try again later.")
        async with self._slots:
            return await self._run_research(request, run, model)

    async def _run_of(
        self, request: OperationInput, body: ResearchLibrary, question: LibraryQuestion
    ) -> tuple[StoredRun, LibraryAnswerView | None]:
        """The run to begin or to go on with, and its answer, if it has ended. Raises
        ProblemDetails."""
        owner, id_ = request.principal.id, body.run or _job_of(request)
        run = None if id_ is None else await self._runs.get(request.tenant, owner, id_)
        if run is None and body.run is not None:
            raise not_found("run", body.run)
        if run is None:
            id_ = id_ or str(uuid4())
            begun = await self._runs.create(
                request.tenant, owner, id_, question=question.text,
                collections=question.collections,
                request=msgspec.json.encode(replace(body, run=None)),
            )  # fmt: skip
            run = await self._runs.get(request.tenant, owner, id_)
            if not begun or run is None:
                raise _too_many(self._settings.research.runs_per_hour)
        await self._check_run(request, run)
        if run.state in ("completed", "incomplete") and run.result is not None:
            return run, msgspec.json.decode(run.result, type=LibraryAnswerView)
        return run, None

    async def _check_run(self, request: OperationInput, run: StoredRun) -> None:
        """Raises ProblemDetails where the caller may no longer read what the run has read."""
        if not set(run.collections) <= await self._allowed_collections(request):
            raise ProblemDetails(403, "forbidden", "The run read what you may read no longer.")

    async def _allowed_collections(self, request: OperationInput) -> set[str]:
        collections = await self._access.library.collections(context_of(request))
        return {collection.name for collection in collections}

    async def _run_research(
        self, request: OperationInput, run: StoredRun, model: ChatModel
    ) -> LibraryAnswerView:
        body = msgspec.json.decode(run.request, type=ResearchLibrary)
        question = LibraryQuestion(
            text=run.question, collections=run.collections, max_chunks=body.max_chunks
        )
        research_settings = self._settings.research
        ledger = RunLedger(
            body.limits.within(research_settings.limits),
            currency=self._settings.currency,
            seconds=run.seconds,
        )
        log = RunLog(store=self._runs, host_id=request.tenant, run_id=run.id, ledger=ledger)
        await log.read()
        asker = self._asker(request, question, model, ledger)
        sub = self._model(research_settings.sub_model or research_settings.model) or model
        plain = model.strategy in research_settings.without_recursion
        research = Research(
            context=context_of(request),
            question=question,
            library=self._access.library,
            engine=QueryEngine(self._access.library, self._settings.query),
            settings=self._settings,
            asker=asker,
            sub=replace_fields(asker, model=sub),
            log=log,
            strategy="mapreduce" if plain else body.strategy,
            progress=_progress(request),
        )
        answer = await self._wait_for_answer(request, run, research)
        view = _view(answer, body, run=run.id, amounts=ledger.spending)
        state: RunState = "incomplete" if answer.incomplete else "completed"
        await self._runs.end(request.tenant, run.id, state, msgspec.json.encode(view))
        return view

    async def _wait_for_answer(
        self, request: OperationInput, run: StoredRun, research: Research
    ) -> LibraryAnswer:
        """The answer of a run. One whose caller leaves is cancelled; a job that is stopped with its
        process goes on elsewhere."""
        try:
            async with self._note(request, "research", research.question, research.asker):
                return await research.answer()
        except TakenOver as error:
            raise conflict(f"{error}.") from error
        except anyio.get_cancelled_exc_class():
            if _job_of(request) is None:
                with anyio.move_on_after(STOPS, shield=True):
                    await self._runs.end(request.tenant, run.id, "cancelled", None)
            raise

    async def list_runs(self, request: OperationInput) -> ResearchRuns:
        query: RunPaging = request.query
        runs = await self._runs.all(request.tenant, request.principal.id, query.limit)
        return ResearchRuns(tuple(_run_view(run) for run in runs))

    async def get_run(self, request: OperationInput) -> ResearchRunView:
        id_ = request.names["run"]
        run = await self._runs.get(request.tenant, request.principal.id, id_)
        if run is None:
            raise not_found("run", id_)
        await self._check_run(request, run)
        steps = await self._runs.trace(request.tenant, id_, STEPS)
        step_views = tuple(
            StepView(
                step.node, step.seq, step.kind, step.request,
                bytes(step.answer or b"").decode(errors="replace"),
                step.tokens, step.cost, step.ms,
            )
            for step in steps
        )  # fmt: skip
        result = None if run.result is None else Raw(run.result)
        return replace(_run_view(run), result=result, steps=step_views)


def _job_of(request: OperationInput) -> str | None:
    """The id of the job that runs the operation: it is that of its run, too."""
    context = context_of(request)
    if request.job is NO_JOB or not is_uuid(context.request_id):
        return None
    return str(UUID(context.request_id))


def _too_many(limit: int) -> ProblemDetails:
    return ProblemDetails(
        429,
        "too-many-requests",
        f"Expected at most {limit} runs in an hour (librarian.research.runs_per_hour).",
        headers={"Retry-After": "600"},
    )


def _progress(request: OperationInput) -> Progress:
    def report_progress(done: int, total: int, note: str) -> None:
        request.job.progress(done, total or None, note)

    return report_progress


def _run_view(run: StoredRun) -> ResearchRunView:
    return ResearchRunView(run.id, run.question, run.state, run.created, run.updated)


def _view(
    answer: LibraryAnswer, body: AskLibrary, *, run: str = "", amounts: RunSpent | None = None
) -> LibraryAnswerView:
    return LibraryAnswerView(
        answer.text,
        tuple(_sources(answer)) if body.include_sources else (),
        answer.confidence,
        answer.incomplete,
        answer.written,
        run,
        amounts,
    )


def _sources(answer: LibraryAnswer) -> list[CitedSource]:
    """Citations of the answer, then the other passages that it was chosen from."""
    cited = dict.fromkeys(citation for claim in answer.claims for citation in claim.citations)
    views = [
        CitedSource(
            citation.collection, citation.path, citation.version, citation.lines,
            max((hit.score for hit in answer.hits if _within(citation, hit)), default=0.0), True,
            citation.quote,
        )
        for citation in cited
    ]  # fmt: skip
    others = [hit for hit in answer.hits if not any(_within(citation, hit) for citation in cited)]
    return views + [
        CitedSource(hit.collection, hit.path, hit.version, hit.lines, hit.score) for hit in others
    ]


def _within(value: Any, hit: Any) -> bool:
    same = (value.collection, value.path) == (hit.collection, hit.path)
    return same and hit.lines[0] <= value.lines[0] <= hit.lines[1]
