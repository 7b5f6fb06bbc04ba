"""describe_tool and describe_tools: the full descriptions that lists shorten. They are `Upstream`s
answering from the catalog, so they are checked, truncated and counted like other calls."""

import difflib
from bisect import bisect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from anyio import to_thread
from msgspec import Raw

from gateway.context import Context
from gateway.methods.lists import Lists
from registry.catalog.catalog import Catalog
from registry.display.profiles import SelectedProfile
from registry.display.schema_folding import Fold
from registry.display.schema_parts import MissingPart, part
from registry.display.schema_summaries import shorten
from registry.display.stubs import StubLanguage, fit_stubs, write_alias, write_comment
from registry.display.token_budgets import CHARACTERS
from registry.display.tool_shaper import FittedTools, ListedTool, ListingBudget, length
from schemas.errors import InvalidParams
from schemas.json_schema.references import has_references
from schemas.jsonrpc import decode_json, encode
from schemas.source import Source
from schemas.tool import TextContent, Tool, ToolResult

INLINE = 60_000  # characters of a schema whose references are replaced
NEAR = 100  # neighbours of an unknown name, each way, compared for similarity
NAMES = 20  # listed when a name is unknown
MORE = 320  # characters reserved for the note about omissions
AROUND = 40  # characters of JSON around a part
SMALLEST = 400  # characters of a schema: less would be useless

Json = dict[str, Any]


class Describe:
    def __init__(self, lists: Lists) -> None:
        self._lists = lists

    async def call(
        self, tool: Tool, _source: Source | None, arguments: Any, context: Context
    ) -> ToolResult:
        """Raises InvalidParams for a tool or part that is missing or hidden from the caller."""
        catalog, profile = self._lists.visible(context), self._lists.profile(context)
        # in a thread: schemas have megabytes and are searched for names similar to a wrong one
        return answer(await to_thread.run_sync(_one, catalog, profile, tool.name, arguments))


class DescribeSeveral:
    def __init__(self, lists: Lists, tokens: int) -> None:
        """`tokens`: size limit of an answer."""
        self._lists = lists
        self._tokens = tokens

    async def call(
        self, tool: Tool, _source: Source | None, arguments: Any, context: Context
    ) -> ToolResult:
        """Raises InvalidParams where none of the tools exists."""
        catalog, language = self._lists.search_basis(arguments, context)
        profile = self._lists.profile(context)
        ceiling = ListingBudget(self._tokens, self._lists.shaper, profile, tool.name)
        completed: Mapping[str, Tool] = {}
        if language is not None:
            tools = [_find_tool(catalog, name) for name in arguments["names"][:NAMES]]
            existing = [tool for tool in tools if tool is not None]
            complete_tools = await self._lists.complete(context.principal, existing)
            completed = {tool.id: tool for tool in complete_tools}
        describe = partial(_several, catalog, ceiling, arguments, language, completed=completed)
        value = await to_thread.run_sync(describe)
        return answer(value, language)


def answer(value: Json, language: StubLanguage | None = None) -> ToolResult:
    """The value as structured content, and as JSON or, with `language`, as the stubs in it."""
    encoded = encode(value)
    text = encoded.decode() if language is None else _stub_text(value, language)
    return ToolResult((TextContent(text),), Raw(encoded))


def _stub_text(value: Json, language: StubLanguage) -> str:
    """The stubs of tools, a line for each; all else of an answer as comments."""
    notes = [f"{entry['name']}: {entry['error']}" for entry in value["tools"] if "error" in entry]
    notes += [
        f"there is no tool {unknown['name']!r}{_instead(unknown['near'])}"
        for unknown in value.get("unknown", ())
    ]
    notes += [value[key] for key in ("note", "more") if key in value]
    lines = [entry["stub"] for entry in value["tools"] if "stub" in entry]
    return "\n".join((*lines, *(write_comment(note, language) for note in notes)))


def stubs_of(
    catalog: Catalog,
    tools: Sequence[ListedTool],
    room: int,
    *,
    language: StubLanguage,
    most: int,
) -> FittedTools:
    """Stubs of the tools in at most `room` characters, each of at most `most` tokens."""
    identifiers = ((catalog.identifier(listed.tool), listed) for listed in tools)
    by_identifier = {name: listed for name, listed in identifiers if name is not None}
    return fit_stubs(by_identifier, room, language=language, most=most)


def unknown_tool(name: str, catalog: Catalog) -> str:
    """Error text for an unknown tool name, with similar names."""
    return f"name: there is no tool {name[:100]!r}{_instead(near(name, catalog))}"


def near(name: str, catalog: Catalog) -> list[str]:
    return _near(name, [candidate.name for candidate in catalog.tools if candidate.name != name])


def _one(catalog: Catalog, profile: SelectedProfile, own_name: str, arguments: Json) -> Json:
    name, path = arguments["name"], arguments.get("path", "")
    tool = _find_tool(catalog, name)
    if tool is None:
        raise InvalidParams(unknown_tool(name, catalog))

    def readable(schema: Any) -> Any:
        return _readable(schema, profile, own_name)

    return _part(tool, path, readable) if path else _whole(tool, readable)


def _several(
    catalog: Catalog,
    ceiling: ListingBudget,
    arguments: Json,
    language: StubLanguage | None,
    *,
    completed: Mapping[str, Tool],
) -> Json:
    """`completed`: tools with more of their results, by their ids."""
    names = list(dict.fromkeys(arguments["names"]))
    tools_by_name = {name: _find_tool(catalog, name) for name in names[:NAMES]}
    if language is not None:  # programs do not call the gateway's own
        tools_by_name = {
            name: tool if tool is not None and catalog.identifier(tool) else None
            for name, tool in tools_by_name.items()
        }
    tools = [tool for tool in tools_by_name.values() if tool is not None]
    missing = [name for name, tool in tools_by_name.items() if tool is None]
    if not tools:
        near_by = unknown_tool(missing[0], catalog)
        raise InvalidParams(near_by.replace("name:", "names:", 1))
    unknown = [{"name": name[:100], "near": near(name, catalog)} for name in missing]
    unknown_part: Json = {"unknown": unknown} if unknown else {}
    room = ceiling.tokens * CHARACTERS - MORE - length(unknown_part)
    while room < SMALLEST and unknown:  # names may be long, and found tools matter more
        unknown.pop()
        room = ceiling.tokens * CHARACTERS - MORE - length(unknown_part)
    path = arguments.get("path", "")
    if path:
        descriptions, more = _parts(tools, path, ceiling, room, language=language)
    elif language is not None:
        listed = [ListedTool(completed.get(tool.id, tool), {}) for tool in tools]
        fitted = stubs_of(catalog, listed, room, language=language, most=ceiling.tokens)
        descriptions, more = fitted.entries, _rest(fitted.left_out)
    else:
        descriptions, more = _whole_descriptions(tools, ceiling, room)
    if len(names) > NAMES:
        more.append(f"Only the first {NAMES} names were read.")
    return {"tools": descriptions, **unknown_part, **({"more": " ".join(more)} if more else {})}


def _whole_descriptions(
    tools: list[Tool], ceiling: ListingBudget, room: int
) -> tuple[list[Json], list[str]]:
    """Descriptions of the tools, in `room` characters, and notes on omissions."""

    def readable(schema: Any) -> Any:
        return _readable(schema, ceiling.profile, ceiling.describer)

    descriptions = [_whole(tool, readable) for tool in tools]
    if sum(map(length, descriptions)) <= room:
        return descriptions, []
    for entry in descriptions:
        entry.pop("outputSchema", None)
    if sum(map(length, descriptions)) <= room:
        return descriptions, ["Output schemas are left out: ask for fewer tools."]
    fitted = ceiling.fit([ListedTool(tool, {}) for tool in tools], room, schemas=True)
    more = ["Shortened: ask for fewer tools, or for parts by their path."]
    return fitted.entries, [*more, *_rest(fitted.left_out)]


def _rest(left_out: int) -> list[str]:
    return [f"There was no room for the last {left_out}."] if left_out else []


def _parts(
    tools: list[Tool],
    path: str,
    ceiling: ListingBudget,
    room: int,
    *,
    language: StubLanguage | None,
) -> tuple[list[Json], list[str]]:
    """The same for the parts of their input schemas at `path`. Raises InvalidParams where no tool
    has that path."""
    descriptions: list[Json] = []
    for place, tool in enumerate(tools):
        remaining = _rest(len(tools) - place)
        if room < SMALLEST:
            return descriptions, remaining
        share = max(room // (len(tools) - place), SMALLEST) - len(tool.name) - len(path) - AROUND
        fold = Fold(share, "A longer path tells the rest.", ceiling.profile.profile.references)
        try:
            if language is None:
                entry = _part(tool, path, partial(_fold_schema, fold))
            else:
                name = f"{tool.name}.{path}"
                alias = partial(write_alias, name, language=language, limit=share * 3 // 4)
                entry = _part(tool, path, alias, "stub")
        except InvalidParams as fault:
            entry = {"name": tool.name, "error": shorten(fault.message, SMALLEST // 2)}
        if length(entry) > room:
            return descriptions, remaining
        descriptions.append(entry)
        room -= length(entry)
    if all("error" in told_entry for told_entry in descriptions):
        raise InvalidParams(descriptions[0]["error"])
    return descriptions, []


def _fold_schema(fold: Fold, schema: Any) -> Any:
    fits = length(schema) <= fold.limit and (fold.references or not has_references(encode(schema)))
    return schema if fits else fold(schema).schema


def _find_tool(catalog: Catalog, name: str) -> Tool | None:
    tool = catalog.find(name)
    if tool is None or name in (tool.name, *tool.aliases):
        return tool
    return replace(tool, name=name)  # as the client's list has it


def _whole(tool: Tool, readable: Callable[[Any], Any]) -> Json:
    description: Json = {
        "name": tool.name,
        **({"title": tool.title} if tool.title else {}),
        "description": tool.description,
        "inputSchema": readable(decode_json(bytes(tool.input_schema))),
    }
    if tool.output_schema is not None:
        description["outputSchema"] = readable(decode_json(bytes(tool.output_schema)))
    return description


def _part(tool: Tool, path: str, readable: Callable[[Any], Any], key: str = "schema") -> Json:
    schema = decode_json(bytes(tool.input_schema))
    if not isinstance(schema, dict):
        raise InvalidParams(f"path: the input schema of {tool.name} has no parts")
    try:
        inner = part(schema, path)
    except MissingPart as missing:
        there = _near(missing.step, missing.known)
        text = f"path: there is no {missing.step[:100]!r} in the input schema of {tool.name}"
        raise InvalidParams(f"{text}{_instead(there or missing.known[:NAMES])}") from missing
    return {"name": tool.name, "path": path, key: readable(inner)}


def _readable(schema: Any, profile: SelectedProfile, name: str) -> Any:
    """Inline references for models that must not see one: Gemini reads a `$ref` in a function
    result as the name of an attached part, and refuses (hermes-agent #100441)."""
    if profile.profile.references or not isinstance(schema, dict):
        return schema
    return Fold(INLINE, f"Call {name} with its path for all.", references=False)(schema).schema


def _near(name: str, names: list[str]) -> list[str]:
    """Similar names among its neighbours in sort order: a comparison with thousands takes a
    second."""
    order = sorted(names)
    at = bisect(order, name)
    return difflib.get_close_matches(name[:100], order[max(0, at - NEAR) : at + NEAR], n=3)


def _instead(names: list[str]) -> str:
    return f"; there is {', '.join(names)}" if names else ""
