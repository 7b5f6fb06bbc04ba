"""The tools of a run: which ones a model is offered, and how it calls them.

All calls go through the dispatcher for the caller, so that policy, limits, guardrails and audit
hold. What a tool says is data: it is marked with its source.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

import anyio
import msgspec
from msgspec import UNSET, Struct

from config.agent import AgentSettings
from gateway.context import Context
from gateway.policy.approval_gate import awaited_approval
from gateway.wings.agent.run_steps import PendingCall, Result
from gateway.wings.interface import CallTool, View
from gateway.wings.models.messages import ModelCall, ToolDefinition
from gateway.wings.models.tool_call_assembly import UnusableArguments, call_arguments
from registry.access.approvals import Approvals
from registry.catalog.catalog import Catalog
from registry.display.discovery_tools import DESCRIBER
from registry.display.profile_names import accepts
from registry.display.profiles import PLAIN
from registry.display.schema_summaries import shorten
from registry.display.token_budgets import CHARACTERS, tokens
from registry.names.tool_names import CODE_TOOLS, CODE_WING
from schemas.binding import Does, GatewayBinding
from schemas.errors import ConnectionRequired, Fault, RelayedFault, ToolgateError
from schemas.hybrid import ServiceFailed
from schemas.tool import TextContent, Tool, ToolResult

OWN: tuple[Does, ...] = ("search_tools", "describe_tools", "call_tool")  # offered to each model
CALLS = GatewayBinding("call_tool")
DESCRIBES = (GatewayBinding("search_tools"), GatewayBinding("describe_tools"))
WING = "agent"
DESCRIPTION_CHARACTERS = 240
FRAME_TOKENS = 10  # of a definition in a request, beside its members
ARGUMENTS_BYTES = 1 << 20


class FoundTool(Struct, frozen=True):
    name: str
    description: str = ""


class _Found(Struct, frozen=True):
    tools: tuple[FoundTool, ...] = ()


class _Unknown(Struct, frozen=True):
    near: tuple[str, ...] = ()


class _Told(Struct, frozen=True):
    """The tools that a search or a description names."""

    tools: tuple[FoundTool, ...] = ()
    unknown: tuple[_Unknown, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A call with the facts of the tool that it reaches, through `call_tool`, too."""

    call: ModelCall
    arguments: dict[str, Any]
    reached: str  # name of that tool; "": there is none
    reads_only: bool
    repeatable: bool  # may be made twice
    runs_program: bool = False

    def limit_calls(self, calls_left: int) -> "PlannedCall | None":
        """This run of a program with at most `calls_left` calls; None: its arguments are no
        object."""
        arguments = self.arguments
        if self.call.name == self.reached:
            return replace(self, arguments=_limit_calls(arguments, calls_left))
        inner = arguments.get("arguments")
        if not isinstance(inner, dict):
            return None
        return replace(self, arguments={**arguments, "arguments": _limit_calls(inner, calls_left)})


def _limit_calls(arguments: Mapping[str, Any], calls_left: int) -> dict[str, Any]:
    calls = arguments.get("calls", calls_left)
    return {**arguments, "calls": min(calls, calls_left) if isinstance(calls, int) else calls}


class Toolbox:
    def __init__(self, call: CallTool, view: View, settings: AgentSettings) -> None:
        self._call = call
        self._view = view
        self._settings = settings

    async def find(self, context: Context, text: str) -> Sequence[FoundTool]:
        """The tools that a search finds for this caller. Raises SearchFailed."""
        query = {"query": text[:500], "limit": self._settings.found_tools, "detail": "names"}
        result = await self._answer(context, "search_tools", query)
        structured = result.structured_content
        body = bytes(structured) if structured is not UNSET else text_for_model(result).encode()
        try:
            tools = msgspec.json.decode(body, type=_Found).tools
        except msgspec.DecodeError as error:
            raise SearchFailed("the search gave no list of tools") from error
        catalog = self._view(context)
        return [tool for tool in tools if not self._is_closed(catalog.find(tool.name))]

    async def ask_tool(self, context: Context, name: str, offered: Mapping[str, Any]) -> str:
        """Answer of a tool that settings name to the arguments of `offered` that it has,
        marked; "": nothing, or the caller does not see it. Raises SearchFailed."""
        tool = self._view(context).find_configured(name)
        if tool is None:
            return ""
        parameters = msgspec.json.decode(tool.input_schema).get("properties", {})
        arguments = {key: value for key, value in offered.items() if key in parameters}
        text = _result_text(await self._answer(context, tool.name, arguments))
        return mark_foreign(name, self._cut_text(text)) if text.strip() else ""

    async def _answer(
        self, context: Context, name: str, arguments: Mapping[str, Any]
    ) -> ToolResult:
        """Raises SearchFailed."""
        try:
            result = await self._call(context, name, arguments)
        except Fault as fault:
            raise SearchFailed(fault.message) from fault
        if result.is_error:
            raise SearchFailed(result.text[:200])
        return result

    def _is_closed(self, tool: Tool | None) -> bool:
        """Whether runs may not call a tool."""
        return _is_agent(tool) or (_is_program(tool) and not self._settings.code)

    def definitions(
        self, context: Context, names: Iterable[str], profile: str = PLAIN
    ) -> list[ToolDefinition]:
        """The gateway's own tools for finding others, then those of `names` that the caller sees,
        that the profile can express and that fit the budget. The order is stable, so that caches of
        providers hold."""
        catalog = self._view(context)
        tools = [catalog.own[name] for name in OWN if name in catalog.own]
        if self._settings.code:
            tools += filter(_is_program, map(catalog.get, CODE_TOOLS))
        offered = [
            definition
            for tool in tools
            if (definition := _definition(catalog, tool, tool.name, profile))
        ]
        room = self._settings.tool_tokens - sum(map(_size, offered))
        for name in dict.fromkeys(names):
            tool = catalog.find(name)
            if tool is None or name in (*OWN, *CODE_TOOLS) or self._is_closed(tool):
                continue
            definition = _definition(catalog, tool, name, profile)
            if definition is not None and (size := _size(definition)) <= room:
                offered.append(definition)
                room -= size
        return offered

    def plan(self, context: Context, call: ModelCall, *, cut: bool) -> PlannedCall:
        """`cut`: the answer ended at its limit, perhaps within this call. Raises
        UnusableArguments."""
        if not call.name:
            raise UnusableArguments("The call names no tool. Nothing was executed.")
        if cut and not call.arguments.strip():
            raise UnusableArguments("The answer ended before the arguments. Nothing was executed.")
        arguments = call_arguments(call, ARGUMENTS_BYTES)
        tool = _reached_tool(self._view(context), call.name, arguments)
        is_program = _is_program(tool)
        if is_program and not self._settings.code:
            raise UnusableArguments("Runs may not run programs here. Nothing was executed.")
        hints = tool.annotations if tool is not None else None
        reads = hints is not None and hints.read_only_hint is True
        again = reads or (hints is not None and hints.idempotent_hint is True)
        name = tool.name if tool is not None else ""
        # one after the other: each may make as many calls as the budget still has
        reads = reads and not is_program
        return PlannedCall(call, arguments, name, reads, again, is_program)

    async def make(
        self, context: Context, planned_call: PlannedCall, approvals: Approvals
    ) -> Result | PendingCall:
        """Make a call. What fails is a result, too: the model can react to it. `approvals`: of the
        caller's tenant. Raises ConnectionRequired."""
        call = planned_call.call
        try:
            result = await self._call(context, call.name, planned_call.arguments)
        except ConnectionRequired:
            raise
        except (RelayedFault, ServiceFailed) as fault:  # its words are another server's
            return self._result(planned_call, fault.message, is_error=True)
        except Fault as fault:
            return self.refusal(call, fault.message)
        principal = context.principal
        with anyio.CancelScope(shield=True):  # what was requested is stored, to be taken back
            approval = await awaited_approval(result, approvals, principal.id, planned_call.reached)
        if approval is not None:
            return PendingCall(call.id, approval.id, approval.expires)
        outside = self._tells_outside(context, planned_call, result)
        result_made = self._result(
            planned_call, text_for_model(result), is_error=result.is_error, outside=outside
        )
        inner = _count_calls(result) if planned_call.runs_program else 0
        return msgspec.structs.replace(result_made, inner_calls=inner)

    def describes_outside(self, context: Context, names: Iterable[str]) -> bool:
        """Whether others have written the names, descriptions or schemas of some of these tools."""
        catalog = self._view(context)
        tools = (catalog.find(name) for name in names)
        return any(tool is not None and _is_described_outside(catalog, tool) for tool in tools)

    def _tells_outside(
        self, context: Context, planned_call: PlannedCall, result: ToolResult
    ) -> bool:
        """Whether a result holds text from outside: those of the gateway's own searches hold what
        others have written of the tools that they name."""
        catalog = self._view(context)
        tool = catalog.find(planned_call.call.name)
        if tool is None or tool.binding not in DESCRIBES:
            return True
        try:
            structured = result.structured_content
            members = msgspec.json.decode(
                b"" if structured is UNSET else bytes(structured), type=_Told
            )
        except msgspec.DecodeError:  # an error, which may name any tool
            return any(_is_described_outside(catalog, tool) for tool in catalog.tools)
        near = (name for unknown in members.unknown for name in unknown.near)
        return self.describes_outside(context, [*(tool.name for tool in members.tools), *near])

    def refusal(self, call: ModelCall, text: str) -> Result:
        """The result of a call that was not executed."""
        return Result(call.id, f"Error: {text}", True, _plain_digest(call, text), made=False)

    def _result(
        self, planned_call: PlannedCall, content: str, *, is_error: bool, outside: bool = True
    ) -> Result:
        call, text = planned_call.call, self._cut_text(content)
        digest = _digest(planned_call, text)
        return Result(call.id, mark_foreign(call.name, text), is_error, digest, outside=outside)

    def _cut_text(self, text: str) -> str:
        limit = self._settings.result_tokens * CHARACTERS
        if len(text) <= limit:
            return text
        return f"{text[:limit]}\n[cut: {len(text) - limit:,} more characters]"


def _reached_tool(catalog: Catalog, name: str, arguments: Mapping[str, Any]) -> Tool | None:
    """The tool that a call reaches, through `call_tool`, too."""
    tool, inner = catalog.find(name), arguments.get("name")
    if tool is not None and tool.binding == CALLS and isinstance(inner, str):
        return catalog.find(inner)
    return tool


def _is_described_outside(catalog: Catalog, tool: Tool) -> bool:
    source = catalog.sources.get(tool.source)
    return source is not None and source.is_described_outside


def _is_program(tool: Tool | None) -> TypeGuard[Tool]:
    """Whether a tool runs programs."""
    return tool is not None and tool.name in CODE_TOOLS and tool.binding.wing == CODE_WING


class _Program(Struct, frozen=True):
    made: Mapping[str, int] = {}


def _count_calls(result: ToolResult) -> int:
    """The calls that a program has made."""
    structured = result.structured_content
    try:
        end = msgspec.json.decode(
            b"{}" if structured is UNSET else bytes(structured), type=_Program
        )
    except msgspec.DecodeError:
        return 0
    return sum(end.made.values())


def _is_agent(tool: Tool | None) -> bool:
    """Whether a tool is the agent's own. Its runs may not call it: they would begin runs without
    end, and what a tool says could read conversations or erase them."""
    return tool is not None and tool.source == WING


class SearchFailed(ToolgateError):
    """The initial search gave nothing that can be used."""


def mark_foreign(source: str, text: str) -> str:
    """Text from outside, delimited and labelled: data, whatever it says. The delimiters have a
    number that is a digest of the text, so that no text can hold its own, and a run that is
    replayed has the same."""
    name = "".join(
        character if character.isalnum() or character in "_-." else "_"
        for character in source[:128]
    )
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    boundary = f"data-{digest[:16]}"
    return (
        f'<{boundary} source="{name}" trusted="no">\n{_ENDS.sub(_ESCAPED_TAG, text)}\n</{boundary}>'
    )


_ENDS = re.compile(r"<\s*/\s*(data)", re.IGNORECASE)
_ESCAPED_TAG = r"<\\/\1"


def _result_text(result: ToolResult) -> str:
    """The member `text` of a result that has one, or all of it; "": nothing was found."""
    if result.structured_content is not UNSET:
        content = msgspec.json.decode(bytes(result.structured_content))
        if isinstance(content, dict) and isinstance(content.get("text"), str):
            return str(content["text"])
        if isinstance(content, dict) and all(
            value == [] or name == "note" for name, value in content.items()
        ):
            return ""
    return text_for_model(result)


def text_for_model(result: ToolResult) -> str:
    """The content of a result as a model reads it, with a mark for each content that is no text."""
    parts = [
        part.text if isinstance(part, TextContent) else f"[{_kind(part)}, not shown]"
        for part in result.content
    ]
    if not parts and result.structured_content is not UNSET:
        return bytes(result.structured_content).decode("utf-8", "replace")
    return "\n".join(parts)


def _kind(content: Any) -> str:
    return str(getattr(content, "mime_type", "") or type(content).__struct_config__.tag)


def _definition(catalog: Catalog, tool: Tool, name: str, profile: str) -> ToolDefinition | None:
    """A tool as the provider of a model accepts it, under a name that it accepts; None: the profile
    cannot express it, so that the model has to call it through `call_tool`."""
    profiles = catalog.shaper.profiles
    chosen = profiles.profile(profile) or profiles.default
    if chosen.profile.names_fold or not accepts(msgspec.structs.replace(chosen, prefix=""), name):
        name = catalog.display_name(tool, chosen)
    expressed = catalog.shaper.express(tool, chosen, DESCRIBER.name)
    if expressed.left_out is not None:
        return None
    text = expressed.tool.description
    description = text if _is_program(tool) else shorten(text, DESCRIPTION_CHARACTERS)
    return ToolDefinition(name, description, expressed.tool.input_schema)


def _size(tool: ToolDefinition) -> int:
    """Tokens of a definition as requests have it, in the longest of the dialects."""
    return tokens(msgspec.json.encode(tool)) + FRAME_TOKENS


def _digest(planned_call: PlannedCall, text: str) -> str:
    written = msgspec.json.encode(
        [planned_call.call.name, planned_call.arguments, text], order="sorted"
    )
    return hashlib.sha256(written).hexdigest()[:16]


def _plain_digest(call: ModelCall, text: str) -> str:
    written = msgspec.json.encode([call.name, call.arguments, text])
    return hashlib.sha256(written).hexdigest()[:16]
