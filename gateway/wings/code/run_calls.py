"""Calls of a program: each is a call of its caller, with policy, limits, approvals and audit.

Whatever goes wrong becomes an error that the program can catch.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import anyio
import msgspec
from msgspec import UNSET, Raw, Struct
from msgspec.structs import replace

from config.code import CodeSettings
from gateway.context import CallHeaders, Context, Hold, RunMark
from gateway.operations.job_declarations import Job
from gateway.sandbox.program_process import AskRefused
from gateway.wings.code.call_journal import CallView, HeldCall, Journal
from gateway.wings.code.learned_results import LearnedResults
from gateway.wings.code.stored_runs import WRITING, StoredProgram
from gateway.wings.interface import WingParts
from registry.catalog.catalog import Catalog
from registry.database.postgres import AWAY, unavailability
from registry.display.stubs import StubLanguage, write_stub
from registry.names.tool_names import CODE_TOOLS
from schemas.errors import (
    ConnectionRequired,
    Denied,
    Fault,
    Forbidden,
    InvalidParams,
    MethodNotFound,
    TooManyRequests,
    Unavailable,
    Unreachable,
)
from schemas.similar_names import did_you_mean
from schemas.tool import META_NEXT, Content, TextContent, Tool, ToolResult

Json = Mapping[str, Any]

READ = "resources/read"
LINK, LINK_HEAD = '"resource_link"', 4000  # characters in which a link says what it is
SHARED_HEADERS = (
    *("authorization", "scope_token", "correlation_id", "traceability_id", "traceparent", "client"),
)
HITS = 20  # of one search
QUERY = 500  # characters of a search
NAMES = 50  # of tools that are described at once
STUB = 2000  # characters
NAME = 300  # characters of the name of a tool, with its source


class _Hit(Struct):
    name: str


class _Hits(Struct):
    tools: tuple[_Hit, ...]


class _Contents(Struct):
    text: str | None = None
    blob: str = ""


class RunCalls:
    """The calls of one run."""

    def __init__(
        self,
        parts: WingParts,
        context: Context,
        job: Job,
        *,
        run_id: str,
        program: StoredProgram,
        journal: Journal,
        denied: Mapping[int, str],
        learned: LearnedResults,
    ) -> None:
        """`denied`: why calls are, by their numbers, as people have decided."""
        self._parts = parts
        self._settings: CodeSettings = parts.settings
        self._context = context
        self._viewing = replace(context, run=RunMark(code=True))
        self._job = job
        self._run_id = run_id
        self._program = program
        self._journal = journal
        self._denied = denied
        self._learned = learned
        self._bytes = 0
        self._slots = anyio.Semaphore(self._settings.parallel)

    @property
    def _catalog(self) -> Catalog:
        """The tools of the caller at present: they may change while the program runs."""
        return self._parts.view(self._viewing)

    async def answer(self, do: str, members: Json) -> Any:
        """Answer an ask of the program. Raises AskRefused, HeldCall and what stores its steps."""
        asks: Mapping[str, Callable[[int, Json], Any]] = {
            "call": self._call, "page": self._page, "search": self._search,
            "describe": self._describe, "read": self._read,
        }  # fmt: skip
        ask, seq, most = asks.get(do), members["ask"], self._program.calls_limit
        if ask is None:
            raise AskRefused("ToolError", f"Unknown request {do[:60]!r}.")
        if seq > most:  # searches and refusals cost the gateway something, too
            raise AskRefused("LimitReached", f"The run may make {most} calls.")
        async with self._slots:
            return await ask(seq, members)

    async def _call(self, seq: int, members: Json) -> Any:
        return value_of(await self._result(seq, members))

    async def _page(self, seq: int, members: Json) -> Any:
        """The value, and the arguments of the next page."""
        result = await self._result(seq, members)
        following = (result.meta or {}).get(META_NEXT)  # a server may write anything there
        following = following.get("arguments") if isinstance(following, dict) else None
        more = {"next": following} if isinstance(following, dict) else {}
        return {"value": value_of(result), **more}

    async def _result(self, seq: int, members: Json) -> ToolResult:
        name, arguments = members.get("name"), members.get("arguments")
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise AskRefused("Invalid", "Expected the name of a tool, and an object of arguments.")
        tool = self._tool(self._catalog, name, exact=members.get("exact") is True)
        if (reason := self._denied.get(seq)) is not None:
            raise AskRefused("Denied", reason)
        if not is_reading(tool):
            try:
                await self._journal.begin(seq, tool.name, repeatable=is_repeatable(tool))
            except AWAY as error:
                text = f"{unavailability(error)}; the call was not made."
                raise AskRefused("ToolError", text, retryable=True) from error
        with self._count_call(seq, tool.name, writes=not is_reading(tool)):
            return await self._make(self._calling(seq, tool), tool, arguments)

    async def _make(self, calling: Context, tool: Tool, arguments: Json) -> ToolResult:
        """Raises AskRefused and Fault, and HeldCall where a person has to approve the call."""
        hold = calling.hold
        try:
            result = await self._parts.call(calling, tool.name, arguments)
        except Fault as fault:
            if hold is not None and hold.request is not None:
                raise HeldCall(hold, arguments) from fault
            if not isinstance(fault, Denied | InvalidParams):  # else no service was asked
                self._journal.add_source(tool.source)
            raise
        if hold is not None and hold.request is not None:
            raise HeldCall(hold, arguments)
        self._journal.add_source(tool.source)
        self._check_result(calling, tool, arguments, result)
        await self._learned.learn(self._context.principal, tool, result)
        return result

    @contextmanager
    def _count_call(self, seq: int, name: str, *, writes: bool = False) -> Iterator[None]:
        """Count a call among those that were made. Raises AskRefused instead of Fault, and
        HeldCall for one that was not."""
        self._job.progress(len(self._journal.calls), None, name)
        begun, is_ok, is_made = time.monotonic(), False, True
        try:
            yield
            is_ok = True
        except HeldCall:
            is_made = False
            raise
        except Fault as fault:
            raise refusal_of(fault) from fault
        finally:
            if is_made:
                ms = int(1000 * (time.monotonic() - begun))
                self._journal.unsaved.calls.append(CallView(seq, name, is_ok, writes=writes, ms=ms))
                self._job.progress(len(self._journal.calls), None, name)

    def _tool(self, catalog: Catalog, name: str, *, exact: bool) -> Tool:
        """The tool of an exact name, or of its identifier. Raises AskRefused."""
        name = name[:NAME]  # similar names are searched in square time
        tools = catalog.by_identifier
        tool = (None if exact else tools.get(name)) or catalog.find_called(name)
        if tool is None or tool.binding.facts.own:
            hint = did_you_mean(name, [tool.name for tool in tools.values()] if exact else tools)
            raise AskRefused("NotFound", f"There is no tool {name!r}. {hint}".strip())
        if tool.name in CODE_TOOLS and tool.binding.wing:
            raise AskRefused("Denied", "A program cannot run a program.")
        if not self._program.writes and not is_reading(tool):
            advice = "" if self._settings.writes == "never" else f"; {WRITING} may call it"
            text = f"{tool.name} may change something, and run_code only reads{advice}."
            raise AskRefused("Denied", text)
        return tool

    def _calling(self, seq: int, tool: Tool | None = None) -> Context:
        """The context of a call. A key for idempotency is of one call, not of the run."""
        context, headers, run = self._context, self._context.headers, self._run_id
        sources = tuple(self._journal.sources)
        request_id = f"{context.request_id}.{seq}"
        key = None if tool is None or is_reading(tool) else f"{run}.{seq}"
        # what a program reads within a run of an agent reaches its further calls like the model's
        tainted = context.run is not None and (context.run.tainted or bool(sources))
        return replace(
            context,
            request_id=request_id,
            headers=CallHeaders(
                idempotency_key=key, **{name: getattr(headers, name) for name in SHARED_HEADERS}
            ),
            hold=Hold(request_id, run, self._program.digest, seq),
            run=RunMark(tainted, code=True, sources=sources, calls=seq - 1),
            params={}, peer=None, note=None, borrows=None,
        )  # fmt: skip

    def _check_result(
        self, calling: Context, tool: Tool, arguments: Json, result: ToolResult
    ) -> None:
        """Raises AskRefused for a failure, and for an answer that is too large; InvalidParams for
        wrong arguments."""
        self._check_size(size_of(value_of(result)))
        if not result.is_error:
            return
        text, data = result.text or f"{tool.name} failed.", data_of(result)
        wait = data.get("retryAfter") if isinstance(data, dict) else None
        if isinstance(wait, int):
            raise AskRefused("RateLimited", text, data=data, retryable=True, retry_after=wait)
        self._parts.check(calling, tool.name, arguments)
        raise AskRefused("ToolError", text, data=data)

    def _check_size(self, size: int) -> None:
        """Count an answer. Raises AskRefused for one that is too large."""
        settings = self._settings
        self._bytes += size
        for bytes_, most, setting in (
            (size, settings.call_bytes, "call"), (self._bytes, settings.total_bytes, "total")
        ):  # fmt: skip
            if bytes_ > most:
                text = f"{bytes_} bytes of answers, at most {most} (code.{setting}_bytes)"
                raise AskRefused("LimitReached", text)

    async def _search(self, seq: int, members: Json) -> Any:
        text, limit = str(members.get("text", ""))[:QUERY], members.get("limit")
        most = min(limit, HITS) if isinstance(limit, int) and limit > 0 else 5
        query = {"query": text, "limit": most, "detail": "names"}
        try:
            result = await self._parts.call(self._calling(seq), "search_tools", query)
        except Fault as fault:
            raise refusal_of(fault) from fault
        if result.structured_content is UNSET:
            raise AskRefused("ToolError", result.text)
        hits = msgspec.json.decode(result.structured_content, type=_Hits).tools
        catalog = self._catalog
        tools = [tool for hit in hits if (tool := catalog.find(hit.name)) is not None]
        return await self._stubs(catalog, tools)

    async def _describe(self, _seq: int, members: Json) -> Any:
        names = members.get("names")
        listed, catalog = names[:NAMES] if isinstance(names, list) else [], self._catalog
        tools = [self._tool(catalog, name, exact=False) for name in listed if isinstance(name, str)]
        return await self._stubs(catalog, tools)

    async def _read(self, seq: int, members: Json) -> Any:
        """A resource or a stored answer, as text or as bytes in base64."""
        uri = members.get("uri")
        if not isinstance(uri, str):
            raise AskRefused("Invalid", "Expected the URI of a resource.")
        with self._count_call(seq, READ):
            resource = await self._parts.read(self._calling(seq), uri)
            if resource is None:
                raise AskRefused("NotFound", f"There is no resource {uri[:NAME]!r}.")
            if resource.source:
                self._journal.add_source(resource.source)
            self._check_size(size_of(resource.contents))
        [contents, *_] = msgspec.json.decode(resource.contents, type=list[_Contents])
        return {"blob": contents.blob} if contents.text is None else {"text": contents.text}

    async def _stubs(self, catalog: Catalog, tools: Sequence[Tool]) -> Sequence[Json]:
        """The names of tools, and their signatures in programs."""
        kind: StubLanguage = "typescript" if self._program.language == "javascript" else "python"
        completed = await self._learned.complete(self._context.principal, tools)
        return [
            {"name": tool.name, "stub": write_stub(full_tool, catalog.identifier(tool) or tool.name,
                                                   kind, STUB)}
            for tool, full_tool in zip(tools, completed, strict=True)
        ]  # fmt: skip


def is_reading(tool: Tool) -> bool:
    """Whether rules take the tool for one that only reads."""
    return tool.annotations.read_only_hint is True


def is_repeatable(tool: Tool) -> bool:
    return is_reading(tool) or tool.annotations.idempotent_hint is True


def value_of(result: ToolResult) -> Any:
    """The structured answer, else the text, else all content, as MCP has it."""
    if result.structured_content is not UNSET:
        return result.structured_content
    content = [link_of(part) or part for part in result.content]
    is_text = all(isinstance(part, TextContent) for part in content)
    return result.text if is_text else {"content": content}


def link_of(part: Content) -> Json | None:
    """A link to a resource, which calls within the gateway get as the text of its JSON."""
    if not isinstance(part, TextContent) or LINK not in part.text[:LINK_HEAD]:
        return None
    try:
        link = msgspec.json.decode(part.text)
    except msgspec.DecodeError:
        return None
    is_link = isinstance(link, dict) and link.get("type") == "resource_link" and "uri" in link
    return link if is_link else None


def size_of(value: Any) -> int:
    return len(value if isinstance(value, Raw) else msgspec.json.encode(value))


def data_of(result: ToolResult) -> Any:
    """The structured answer, decoded; None where there is none, or none that can be."""
    if not isinstance(result.structured_content, Raw):
        return None
    try:
        return msgspec.json.decode(result.structured_content)
    except (msgspec.DecodeError, RecursionError):
        return None


def refusal_of(fault: Fault) -> AskRefused:
    """The error that a program gets for a refused call."""
    more: dict[str, Any] = {"code": fault.code, "data": fault.data}
    match fault:
        case TooManyRequests():
            kind, more = "RateLimited", {**more, "retry_after": fault.retry_after}
        case ConnectionRequired():
            kind, more = "ConnectionNeeded", {**more, "url": (fault.data or {}).get("url")}
        case Denied() | Forbidden():
            kind = "Denied"
        case MethodNotFound():
            kind = "NotFound"
        case InvalidParams():
            kind = "NotFound" if fault.message.startswith("Unknown tool") else "Invalid"
        case _:
            kind = "ToolError"
    retryable = isinstance(fault, TooManyRequests | Unavailable | Unreachable)
    return AskRefused(kind, fault.message, retryable=retryable, **more)
