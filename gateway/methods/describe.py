"""describe_tool: what lists leave out of a tool. An upstream like any other, though the answer is
in the catalog; so it is checked, cut and counted as calls are."""

import difflib
from bisect import bisect
from dataclasses import replace
from typing import Any

from anyio import to_thread
from msgspec import Raw

from gateway.context import Context
from gateway.methods.lists import Lists
from registry.catalog import Catalog
from registry.describing import Missing, part
from registry.folding import Fold
from registry.profiles import Chosen
from schemas.errors import InvalidParams
from schemas.jsonrpc import decode_json, encode
from schemas.source import Source
from schemas.tool import TextContent, Tool, ToolResult

INLINE = 60_000  # characters of a schema whose references are replaced
NEAR = 100  # names before and behind a wrong one that it may have been meant for
NAMES = 20  # of what there is, where something is not

Json = dict[str, Any]


class Describe:
    def __init__(self, lists: Lists) -> None:
        self._lists = lists

    async def call(
        self, tool: Tool, _source: Source | None, arguments: Any, context: Context
    ) -> ToolResult:
        """Raises InvalidParams for what is not there, or not for the caller to see."""
        catalog, chosen = self._lists.visible(context), self._lists.profile(context)
        # in a thread: schemas have megabytes, and are searched for what resembles a wrong name
        text = await to_thread.run_sync(_told, catalog, chosen, tool.name, arguments)
        return ToolResult((TextContent(text.decode()),), Raw(text))


def _told(catalog: Catalog, chosen: Chosen, called: str, arguments: Json) -> bytes:
    name, path = arguments["name"], arguments.get("path", "")
    found = catalog.find(name, chosen)
    if found is None:
        near = _near(name, [one.name for one in catalog.tools])
        raise InvalidParams(f"name: there is no tool {name[:100]!r}{_instead(near)}")
    if name not in (found.name, *found.aliases):
        found = replace(found, name=name)  # as the client's list has it
    return encode(_part(found, path, chosen, called) if path else _whole(found, chosen, called))


def _whole(found: Tool, chosen: Chosen, called: str) -> Json:
    told: Json = {
        "name": found.name,
        **({"title": found.title} if found.title else {}),
        "description": found.description,
        "inputSchema": _readable(decode_json(bytes(found.input_schema)), chosen, called),
    }
    if found.output_schema is not None:
        output = decode_json(bytes(found.output_schema))
        told["outputSchema"] = _readable(output, chosen, called)
    return told


def _part(found: Tool, path: str, chosen: Chosen, called: str) -> Json:
    schema = decode_json(bytes(found.input_schema))
    if not isinstance(schema, dict):
        raise InvalidParams(f"path: the input schema of {found.name} has no parts")
    try:
        inner = part(schema, path)
    except Missing as missing:
        there = _near(missing.step, missing.known)
        text = f"path: there is no {missing.step[:100]!r} in the input schema of {found.name}"
        raise InvalidParams(f"{text}{_instead(there or missing.known[:NAMES])}") from missing
    return {"name": found.name, "path": path, "schema": _readable(inner, chosen, called)}


def _readable(schema: Any, chosen: Chosen, called: str) -> Any:
    """For models that must not see a reference: Gemini takes one in the result of a function for a
    name of something that came with it, and refuses (hermes-agent #100441)."""
    if chosen.profile.references or not isinstance(schema, dict):
        return schema
    return Fold(INLINE, f"Call {called} with its path for all.", references=False)(schema).schema


def _near(name: str, names: list[str]) -> list[str]:
    """Names like it, of those that stand around it in their order: to compare it with thousands
    takes a second."""
    order = sorted(names)
    at = bisect(order, name)
    return difflib.get_close_matches(name[:100], order[max(0, at - NEAR) : at + NEAR], n=3)


def _instead(names: list[str]) -> str:
    return f"; there is {', '.join(names)}" if names else ""
