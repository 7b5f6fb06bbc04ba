"""Audit middleware: records caller, subject, decision and outcome of messages.

One record for each message that calls or reads something, members of batches included; lists only
if `audit.lists` is set. The digest is over the arguments as the tool got them; where no tool was
reached, over those that the client sent.
"""

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import Callable, MutableMapping
from typing import Any, NamedTuple

from msgspec import UNSET, Raw
from msgspec.structs import replace

from config.access import Audit
from gateway.audit.argument_masking import format_arguments
from gateway.audit.database_writer import AuditWriter
from gateway.audit.records import METHOD_LIMIT, AuditEntry, argument_digest, storable_text
from gateway.context import AuditDraft, Context, Identify, Identity, Session
from gateway.interfaces import Execute, Handler, Route, ToolCall
from gateway.policy.engine import Decision
from gateway.protocol.revision_adapter import is_failure
from gateway.state.rate_windows import network_of
from schemas.errors import Fault
from schemas.hybrid import ServiceFailed
from schemas.jsonrpc import Request, encode
from schemas.masking import Masks, masks_of
from schemas.mcp.messages import CallToolResult
from schemas.mcp.revisions import Revision
from schemas.memo import Memo
from schemas.source import Source
from schemas.tool import RelayedResult, TextContent, Tool, ToolResult

CALL = "call_tool"  # forwards calls to the tool named in its arguments
LISTS = frozenset(
    {"tools/list", "prompts/list", "resources/list", "resources/templates/list", "skills/list",
     "resources/directory/read", "rpc.discover", "server/discover", "completion/complete"}
)  # fmt: skip
SILENT = frozenset(
    {"ping", "logging/setLevel", "subscriptions/listen", "resources/unsubscribe", "tasks/get"}
)
NOTIFICATIONS = "notifications/"
REFUSALS = 20  # per second, of unauthenticated callers: more are aggregated, see `sum_up`
ADDRESSES = 1000  # with sums of their own; further ones share one
SUM = "refusals"  # method name of an aggregated record
TOOLS = 10_000  # whose masks are cached


class _Refused(NamedTuple):
    """Grouping key of the refusals that one record aggregates."""

    tenant: str
    code: str
    client: str  # network; "": any further address


class _Repeat(NamedTuple):
    """Grouping key of refusals of the login."""

    tenant: str
    principal: str
    method: str
    subject: str
    client: str  # network; "": any further address


Refusal = Callable[[Context, str, str], Decision | None]
"""Why a rule keeps what a method names from a caller; None where none does, or there is no such
thing."""

FindTool = Callable[[Context, str], Tool | None]
"""The tool of a name; None where there is none."""


def _unknown(_context: Context, *_names: str) -> None:
    return None


class AuditTrail:
    """The audit middleware, and its guards around authentication and tool calls."""

    def __init__(
        self,
        settings: Audit,
        writer: AuditWriter,
        refusal: Refusal = _unknown,
        find_tool: FindTool = _unknown,
    ) -> None:
        self._settings = settings
        self._refusal = refusal
        self._named = find_tool
        self._writer = writer
        self._masks: Memo[str, Masks | None] = Memo(TOOLS)  # by tool digest
        self._refused = (0, 0)  # second, and how many in it
        self._sums: Counter[_Refused] = Counter()  # of refusals without a record
        self._repeats: dict[_Repeat, tuple[AuditEntry, int]] = {}  # likewise, of the login

    def middleware(self, handler: Handler, route: Route) -> Handler:
        writer = self._writer
        if not _is_recorded(route, self._settings.lists):
            return handler

        async def record_request(context: Context, request: Request) -> Any:
            writer.admit()
            note = AuditDraft()
            began, outcome, refused = time.perf_counter(), "crashed", False
            try:
                result = await handler(replace(context, note=note), request)
                outcome = outcome_of(result)
                return result
            except ServiceFailed as fault:
                outcome = f"service_{fault.status}"
                raise
            except Fault as fault:
                outcome = str(fault.code)
                refused = fault is context.identity.refusal
                raise
            except asyncio.CancelledError:
                outcome = "cancelled"
                raise
            finally:
                if not note.subject and outcome not in {"ok", "cancelled"}:
                    self._blame(context, request, note)
                if not refused:  # else recorded at authentication
                    seconds = time.perf_counter() - began
                    self._add(context, request, note, outcome, seconds=seconds)

        return record_request

    def applies(self, _tool: Tool, _source: Source | None) -> bool:
        return True

    def guard(self, execute: Execute) -> Execute:
        """Outermost guard: it sees the original arguments and the final result."""
        keep = self._settings.arguments == "masked"

        async def note_call(call: ToolCall) -> ToolResult | RelayedResult:
            note, tool = call.context.note, call.tool
            if note is None:
                return await execute(call)
            note.subject, note.source = tool.name, tool.source
            note.arguments = encode(call.arguments)
            if keep:
                note.redacted = self._format_shown(tool, call.arguments, note.arguments)
            if call.context.upload is not None:
                note.arguments += call.context.upload.digest.encode()
            result = await execute(call)
            note.result_bytes = _size(result)
            if not note.decision:
                note.decision = "allow"
            return result

        return note_call

    def identifying(self, identify: Identify) -> Identify:
        """Wrap `identify` to record refused authentications."""

        async def identify_and_note(scope: MutableMapping[str, Any]) -> Identity:
            identity = await identify(scope)
            if identity.refusal is not None and scope.get("type") == "http":
                self._refuse(identity, identity.refusal, scope)
            return identity

        return identify_and_note

    def _blame(self, context: Context, request: Request, note: AuditDraft) -> None:
        """Attribute a request that ended before reaching a tool to the policy rule that hides its
        subject, if any."""
        method, name = _meant_call(request, context.revision)
        decision = self._refusal(context, method, name) if name else None
        if decision is not None:
            note.decision, note.rule, note.subject = decision.effect, decision.rule, name

    def _add(
        self, context: Context, request: Request, note: AuditDraft, outcome: str, *, seconds: float
    ) -> None:
        principal, session = context.identity.principal, context.session
        arguments = note.arguments or _sent_params(request)
        shown_arguments = note.redacted
        if not shown_arguments and self._settings.arguments == "masked":
            shown_arguments = self._sent_shown(context, request, arguments)
        writer = self._writer
        session_digest = "" if session is None else session.fingerprint or fingerprint_of(session)
        writer.add(
            AuditEntry(  # by position: names would cost 0.4 us
                principal.tenant,
                writer.now(),
                storable_text(principal.id),
                principal.mark,
                context.revision.name,
                session_digest,
                storable_text(request.method, METHOD_LIMIT),
                note.subject or _subject(request, context.revision),
                note.source,
                note.decision,
                note.rule,
                outcome,
                int(seconds * 1e6),
                len(arguments),
                note.result_bytes,
                argument_digest(writer.key, arguments) if arguments else "",
                shown_arguments.decode(),
                context.request_id,
                context.headers.client,
                note.connection,
                note.owner,
                note.hooks,
            )
        )

    def _format_shown(self, tool: Tool, arguments: Any, data: bytes) -> bytes:
        return format_arguments(
            arguments, data, self._masks_of(tool), self._settings.arguments_bytes
        )

    def _sent_shown(self, context: Context, request: Request, arguments: bytes) -> bytes:
        """The arguments sent for a tool that was not reached, masked by that tool's schema."""
        params = _params(request)
        _, name = _meant_call(request, context.revision)
        tool = self._named(context, name) if name else None
        masks = None if tool is None else self._masks_of(tool)
        if masks is not None and isinstance(params, list):  # positional: no names to match marks
            return b"[%d bytes]" % len(arguments)
        return format_arguments(params, arguments, masks, self._settings.arguments_bytes)

    def _masks_of(self, tool: Tool) -> Masks | None:
        masks = self._masks.get(tool.digest, UNSET)
        if masks is UNSET:
            masks = self._masks.put(tool.digest, masks_of(bytes(tool.input_schema)))
        return masks

    def _refuse(self, identity: Identity, fault: Fault, scope: MutableMapping[str, Any]) -> None:
        second = int(time.monotonic())
        since, count = self._refused
        self._refused = (second, count + 1 if since == second else 1)
        tenant, code = identity.principal.tenant, str(fault.code)
        client = str((scope.get("client") or ("",))[0])
        if self._refused[1] > REFUSALS:
            key = _Refused(tenant, code, network_of(client))
            has_sum = key in self._sums or len(self._sums) < ADDRESSES
            self._sums[key if has_sum else key._replace(client="")] += 1
            return
        method = storable_text(str(scope.get("method", "")), METHOD_LIMIT)
        subject = storable_text(str(scope.get("path", "")))
        self._add_refusal(tenant, code, client, method=method, subject=subject)

    def sum_up(self) -> None:
        """Record the number of refusals per address since the last run that have no record of
        their own: brute-force guessing must show at any rate."""
        repeats, self._repeats = self._repeats, {}
        for entry, more in repeats.values():
            if more:
                subject = f"{entry.subject} ({more} more)"
                self._writer.add(replace(entry, recorded_ts=self._writer.now(), subject=subject))
        sums, self._sums = self._sums, Counter()
        for (tenant, code, client), count in sums.items():
            self._add_refusal(tenant, code, client, method=SUM, subject=f"{count} requests")

    def add_repeated(self, entry: AuditEntry) -> None:
        """Record a refusal that strangers can repeat: the first of a kind, person and network; how
        many more there were is recorded by `sum_up`."""
        network = network_of(entry.client)
        key = _Repeat(entry.host_id, entry.principal, entry.method, entry.subject, network)
        if key not in self._repeats and len(self._repeats) >= ADDRESSES:
            key = key._replace(principal="", client="")
            entry = replace(entry, principal="", client="")
        first, more = self._repeats.get(key, (entry, -1))
        if more < 0:
            self._writer.add(entry)
        self._repeats[key] = (first, more + 1)

    def _add_refusal(
        self, tenant: str, code: str, client: str, *, method: str, subject: str
    ) -> None:
        self._writer.add(
            AuditEntry(
                tenant,
                self._writer.now(),
                front="http",
                method=method,
                subject=subject,
                decision="deny",
                outcome=code,
                client=client,
            )
        )


def _is_recorded(route: Route, lists: bool) -> bool:
    method = route.method
    if method in LISTS:
        return lists
    if not route.revision.mcp:  # any other method may be the name of a tool or action
        return True
    return method not in SILENT and not method.startswith(NOTIFICATIONS)


def fingerprint_of(session: Session) -> str:
    """Digest of a session's id, which itself could be used to take the session over."""
    session.fingerprint = (
        session.fingerprint or hashlib.sha256(session.id.encode()).hexdigest()[:16]
    )
    return session.fingerprint


def outcome_of(result: Any) -> str:
    if type(result) is Raw:
        return "ok"
    if type(result) is CallToolResult:
        return "tool_error" if result.is_error else "ok"
    return "tool_error" if isinstance(result, dict) and is_failure(result) else "ok"


def _params(request: Request) -> Any:
    """Arguments of a request: its `params` where tools are methods."""
    params = request.params
    if isinstance(params, dict) and request.method in ("tools/call", "prompts/get"):
        return params.get("arguments", UNSET)
    return params


def _sent_params(request: Request) -> bytes:
    params = _params(request)
    return b"" if params is UNSET else encode(params)


def _subject(request: Request, revision: Revision) -> str:
    """Subject of a message that did not reach a tool: tool name or resource URI."""
    params = request.params
    if not revision.mcp and request.method != "tools/call":  # tools and services are methods
        return storable_text(request.method)
    name = params.get("name", params.get("uri")) if isinstance(params, dict) else None
    return storable_text(name) if isinstance(name, str) else ""


def _meant_call(request: Request, revision: Revision) -> tuple[str, str]:
    """Method and subject of a request; for call_tool the tool that it forwards to."""
    method, name = request.method, _subject(request, revision)
    arguments = _params(request)
    if not revision.mcp and method != "tools/call":
        method = "tools/call"
    if name == CALL and isinstance(arguments, dict) and isinstance(arguments.get("name"), str):
        name = storable_text(arguments["name"])
    return method, name


def _size(result: ToolResult | RelayedResult) -> int:
    """Bytes of content and structured content."""
    if isinstance(result, RelayedResult):
        return sum(len(memoryview(member)) for member in result.members.values())
    structure = result.structured_content
    size = len(memoryview(structure)) if isinstance(structure, Raw) else 0
    for item in result.content:
        if type(item) is TextContent:
            text = item.text
            size += len(text) if text.isascii() else len(text.encode())
        else:
            size += len(encode(item))
    return size
