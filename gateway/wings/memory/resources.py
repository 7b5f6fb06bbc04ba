"""Resources and prompts of the memory. Their texts are those of operations, which are called as the
caller may call them."""

from collections.abc import Mapping

import msgspec

from gateway.context import Context
from gateway.wings.abc import CallTool, WingPrompt, WingResource
from schemas.tool import ToolResult

JSON = "application/json"


class MemoryResources:
    def __init__(self, call: CallTool, *, graph: bool) -> None:
        """`graph`: whether there are the tools of the reference memory server."""
        self._call = call
        self._graph = graph

    @property
    def resources(self) -> list[WingResource]:
        found = [
            WingResource(
                uri="memory://context",
                name="memory context",
                description="What is pinned, personas, slots and preferences, as text for a "
                "prompt: data, no instructions.",
                read=self._context,
            ),
            WingResource(
                uri="memory://user",
                name="user memories",
                description="The newest memories of the user.",
                read=self._user,
                media_type=JSON,
            ),
            WingResource(
                uri="memory://session/{id}",
                name="session memories",
                description="The newest memories of a session that the caller named.",
                read=self._session,
                media_type=JSON,
            ),
            WingResource(
                uri="memory://item/{id}",
                name="memory",
                description="One memory.",
                read=self._item,
                media_type=JSON,
            ),
        ]
        if self._graph:
            found.append(
                WingResource(
                    uri="memory://knowledge-graph",
                    name="knowledge-graph",
                    description="The whole knowledge graph.",
                    read=self._whole_graph,
                    media_type=JSON,
                )
            )
        return found

    @property
    def prompts(self) -> list[WingPrompt]:
        return [
            WingPrompt(
                name="remember",
                description="Have something kept in memory.",
                arguments={"what": "what to remember"},
                text=_remember,
            ),
            WingPrompt(
                name="recall",
                description="Answer with what memory has.",
                arguments={"question": "what to find"},
                text=self._recall,
            ),
        ]

    async def _context(self, context: Context, _uri: str) -> str | None:
        result = await self._call(context, "memory_context", {})
        return _member(result, "text")

    async def _user(self, context: Context, _uri: str) -> str | None:
        return _text(await self._call(context, "memory_list", {"scope": "user"}))

    async def _session(self, context: Context, uri: str) -> str | None:
        given = {"scope": "session", "session": _last(uri)}
        return _text(await self._call(context, "memory_list", given))

    async def _item(self, context: Context, uri: str) -> str | None:
        return _text(await self._call(context, "memory_get", {"memory": _last(uri)}))

    async def _whole_graph(self, context: Context, _uri: str) -> str | None:
        return _text(await self._call(context, "read_graph", {}))

    async def _recall(self, context: Context, arguments: Mapping[str, str]) -> str:
        result = await self._call(context, "memory_context", {"query": arguments["question"]})
        notes = _member(result, "text") or "Nothing is remembered of this."
        return f"{notes}\n\nWith these notes, as far as they help, answer: {arguments['question']}"


async def _remember(_context: Context, arguments: Mapping[str, str]) -> str:
    return (
        "Keep the following with memory_add, one memory for each fact, in the scope user; give "
        f"values that can change their slot, such as home.city:\n\n{arguments['what']}"
    )


def _last(uri: str) -> str:
    return uri.rpartition("/")[2]


def _text(result: ToolResult) -> str | None:
    """The text of a result; None: it failed, as for what the caller may not read."""
    structured = result.structured_content
    if result.is_error or not isinstance(structured, msgspec.Raw):
        return None
    return bytes(structured).decode()


def _member(result: ToolResult, name: str) -> str | None:
    text = _text(result)
    return None if text is None else str(msgspec.json.decode(text).get(name, ""))
