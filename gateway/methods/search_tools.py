"""search_tools: finds tools by a text query, and records usage feedback for its results.

It is an `Upstream`; results are described from the caller's own catalog, so tools that they cannot
call are never shown.
"""

import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from anyio import to_thread

from gateway.context import Context, Principal
from gateway.methods.describe_tools import answer, stubs_of
from gateway.methods.lists import Lists
from gateway.methods.skills.acting_agents import Handles
from gateway.protocol.revision_adapter import Members, is_failure
from gateway.state.background_tasks import BackgroundTasks
from registry.catalog.catalog import Catalog
from registry.catalog.lookup import by_words
from registry.catalog.tool_lists import searchable_text
from registry.database.postgres import AWAY
from registry.database.shared_pool import borrow_for
from registry.display.discovery_tools import DESCRIBES
from registry.display.schema_summaries import shorten
from registry.display.token_budgets import CHARACTERS
from registry.display.tool_shaper import FittedTools, ListedTool, ListingBudget, length
from registry.search.query import Filters, SearchQuery, SearchResult, ToolsetFilter
from schemas.errors import Unavailable, Unreachable
from schemas.mcp.messages import ToolListParams
from schemas.memo import Memo
from schemas.source import Source
from schemas.tool import TextContent, Tool, ToolResult

log = logging.getLogger("toolgate.usage")

CALLERS = 10_000  # whose searches are cached
SEARCHES = 3  # of each, the newest
HOLDS_S = 600.0  # later calls are not attributed to the search


@dataclass(frozen=True, slots=True)
class PastSearch:
    """A search of a caller that called one of the tools found later."""

    request_id: str
    query: str
    model: str | None  # None: it was by words alone, and has no vector
    vector: Any  # the query's, shape (dimension,)
    left: set[str]  # ids of the tools found that were not called yet
    until: float


Record = Callable[[Principal, str, PastSearch], Awaitable[Any]]
"""Records that a principal called a tool, by its id, after a search. Raises `psycopg.Error`."""


class Usage:
    def __init__(
        self,
        records: Sequence[Record],
        clock: Callable[[], float] = time.monotonic,
        *,
        characters: int = 0,
    ) -> None:
        """`characters`: of a query that are kept until it is recorded."""
        self._records = records
        self._clock = clock
        self._characters = characters
        self._searches: Memo[tuple[str, ...], list[PastSearch]] = Memo(CALLERS)
        self.tasks = BackgroundTasks()

    def on_search(
        self, context: Context, query: str, result: SearchResult, tools: Sequence[Tool]
    ) -> None:
        """Cache a caller's search and the tools shown."""
        caller = _caller(context)
        if caller is None or not tools:
            return
        search = PastSearch(
            str(uuid.uuid4()),
            query[: self._characters],
            result.model,
            result.vector,
            {tool.id for tool in tools},
            self._clock() + HOLDS_S,
        )
        self._searches.put(caller, [search, *self._searches.get(caller, ())][:SEARCHES])

    def on_call(self, context: Context, tool: Tool, result: ToolResult | Members) -> None:
        """Attribute a call to the caller's recent searches; recording is a background task."""
        caller = _caller(context)
        searches = self._searches.get(caller) if caller is not None else None
        if not searches or _is_failed(result):
            return
        now = self._clock()
        for search in searches:
            if tool.id in search.left and search.until > now:
                search.left.discard(tool.id)
                self.tasks.start(self._record_usage(context, tool, search))
                return

    async def _record_usage(self, context: Context, tool: Tool, search: PastSearch) -> None:
        try:
            for record in self._records:
                await record(context.principal, tool.id, search)
        except AWAY as error:
            log.warning("usage_not_recorded", extra={"reason": str(error).split("\n", 1)[0][:200]})


def _caller(context: Context) -> tuple[str, ...] | None:
    """Key of the caller; None: anonymous, so indistinguishable from others."""
    if context.session is not None:
        return (context.session.id,)
    return context.principal.key if context.identity.verified else None


def _is_failed(result: ToolResult | Members) -> bool:
    return result.is_error if isinstance(result, ToolResult) else is_failure(result)


NOTE = 300  # characters of the note on the search itself
AROUND = 40  # characters of an answer besides its parts
UNSEARCHABLE = (Unavailable, *AWAY)  # raised by `Find` when the registry is down
BY_WORDS = "The registry cannot be searched now: these were found by plain words."
ANY_DOMAIN = "They may be of any domain."
NOTHING = "Nothing was found: say in other words what the tool should do."
NO_TOOLS = "There are no tools here yet: the operator of this gateway has imported none."

Json = dict[str, Any]

Fit = Callable[[int], FittedTools]
"""Fits the tools that were found into so many characters."""

Find = Callable[[SearchQuery], Awaitable[SearchResult]]
"""See `registry.search.search.Search.run`."""

Learn = Callable[[Context, str, SearchResult, Sequence[Tool]], None]
"""Told of each search, its query, and the tools that its caller sees of what it found."""


@dataclass(frozen=True, slots=True)
class SearchLimits:
    usual: int  # tools in an answer
    most: int
    tokens: int  # of an answer
    stub_tokens: int = 200  # of a tool in it


class SearchTools:
    def __init__(
        self,
        lists: Lists,
        find: Find,
        *,
        limits: SearchLimits,
        handles: Handles | None = None,
        learn: Learn | None = None,
    ) -> None:
        """`handles` resolve skills to the tools they grant; None: no skills."""
        self._lists = lists
        self._find = find
        self._limits = limits
        self._handles = handles
        self._learn = learn

    async def call(
        self, _tool: Tool, _source: Source | None, arguments: Any, context: Context
    ) -> ToolResult:
        lists = self._lists
        (catalog, language), scopes = lists.search_basis(arguments, context), lists.scopes(context)
        shaper, profile = lists.shaper, lists.profile(context)
        limit = min(arguments.get("limit", self._limits.usual), self._limits.most)
        query = await self._query(arguments, limit, catalog, scopes=scopes, context=context)
        try:
            scored, note = await self._find_tools(query, catalog, context)
        except Unreachable as fault:
            return unsearchable_result(fault)
        if language is not None:
            tools = await lists.complete(context.principal, [tool for tool, _ in scored])
            scored = list(zip(tools, (score for _, score in scored), strict=True))
        entries = [
            ListedTool(
                replace(tool, name=catalog.display_name(tool, profile)), {"score": round(score, 3)}
            )
            for tool, score in scored
        ]
        schemas = arguments.get("detail") != "names"
        fit: Fit
        if language is None:
            ceiling = ListingBudget(self._limits.tokens, shaper, profile, DESCRIBES)
            fit = partial(ceiling.fit, entries, schemas=schemas)
        else:
            stub_tokens = self._limits.stub_tokens
            fit = partial(stubs_of, catalog, entries, language=language, most=stub_tokens)
        # in a thread: a schema of megabytes takes long to fold, the first time
        nothing = NOTHING if catalog.tools else NO_TOOLS
        found_tools = partial(
            _found_tools,
            entries,
            self._limits.tokens,
            fit,
            schemas=schemas,
            note=note,
            nothing=nothing,
        )
        return answer(await to_thread.run_sync(found_tools), language)

    async def mean(self, context: Context, catalog: Catalog, params: ToolListParams) -> list[str]:
        """Names of tools by semantic search for `intent`, filtered by the words of `query`. Raises
        Unreachable."""
        search_arguments = {"query": params.intent}
        scopes = self._lists.scopes(context)
        query = await self._query(
            search_arguments, self._limits.usual, catalog, scopes=scopes, context=context
        )
        scored, _ = await self._find_tools(query, catalog, context)
        text = (params.query or "").strip().casefold()
        return [tool.name for tool, _ in scored if text in searchable_text(tool)]

    async def _query(
        self,
        arguments: Json,
        limit: int,
        catalog: Catalog,
        *,
        scopes: frozenset[str] | None,
        context: Context,
    ) -> SearchQuery:
        ids: list[str] | None = None
        if self._handles is not None and "skill" in arguments:
            grants = await self._handles.granted_tools(context, catalog, arguments["skill"])
            ids = list(grants.tools)
        selected = self._lists.toolset(context)
        toolset = None if selected is None else ToolsetFilter.of(context.toolset or "", selected)
        denied = () if ids is not None else catalog.denied
        if len(denied) > len(catalog.tools):
            ids, denied = [tool.id for tool in catalog.tools], ()
        without = sorted(denied) or None
        domain = arguments.get("domain", "").replace("\0", "\ufffd")  # PostgreSQL takes no NUL
        filters = Filters(
            *(context.identity.principal.tenant, toolset, scopes),
            ids=ids,
            without=without,
            domains=[domain] if domain else None,
        )
        return SearchQuery(arguments["query"], limit, "hybrid", filters, details=False)

    async def _find_tools(
        self, query: SearchQuery, catalog: Catalog, context: Context
    ) -> tuple[list[tuple[Tool, float]], str | None]:
        """The tools with their scores, and a note if the search was degraded or nothing fits."""
        try:
            with borrow_for(context.principal.key):
                result = await self._find(query)
        except UNSEARCHABLE:
            ids = None if query.filters.ids is None else set(query.filters.ids)
            tools = [tool for tool in catalog.tools if ids is None or tool.id in ids]
            ranked = await to_thread.run_sync(_find_by_words, tools, query.text, query.limit)
            return ranked, BY_WORDS if query.filters.domains is None else f"{BY_WORDS} {ANY_DOMAIN}"
        scored = ((catalog.by_id(hit.id), hit.score) for hit in result.hits)
        ranked = [(tool, score) for tool, score in scored if tool is not None]
        if self._learn is not None:
            self._learn(context, query.text, result, [tool for tool, _ in ranked])
        return ranked, result.note or result.warning


def unsearchable_result(fault: Unreachable) -> ToolResult:
    """Error result where settings require semantic search and it is down: a model can react."""
    return ToolResult((TextContent(fault.message),), is_error=True)


def _find_by_words(tools: Sequence[Tool], query: str, limit: int) -> list[tuple[Tool, float]]:
    by_name = {tool.name: tool for tool in tools}
    searchable_text = {
        tool.name: f"{tool.title or ''}\n{tool.description}\n{tool.source}" for tool in tools
    }
    return [(by_name[name], score) for name, score in by_words(searchable_text, query, limit)]


def _found_tools(
    entries: Sequence[ListedTool],
    tokens: int,
    fit: Fit,
    *,
    schemas: bool,
    note: str | None,
    nothing: str,
) -> Json:
    """`nothing`: the text for an empty result."""
    if not entries:
        return {"tools": [], **({"note": shorten(note, NOTE)} if note else {}), "more": nothing}
    before: Json = {"note": shorten(note, NOTE)} if note else {}
    longest = _advice(len(entries), len(entries), schemas)
    fitted = fit(tokens * CHARACTERS - length({**before, "more": longest}) - AROUND)
    more = _advice(fitted.folded, fitted.left_out, schemas)
    return {"tools": fitted.entries, **before, **({"more": more} if more else {})}


def _advice(omissions: int, left_out: int, schemas: bool) -> str:
    """Text on what an answer omits, and how to get it."""
    searchable_text = []
    if schemas and omissions:
        searchable_text.append(f"{omissions} without input schema: {DESCRIBES} tells it.")
    if left_out:
        searchable_text.append(f"{left_out} left out: ask for fewer (limit), or more precisely.")
    return " ".join(searchable_text)
