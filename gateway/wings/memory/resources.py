"""Resources and prompts of the memory. Their texts are those of operations, which are called as the
caller may call them."""

from collections.abc import Mapping

import msgspec

from gateway.context import Context
from gateway.wings.interface import CallTool, WingPrompt, WingResource, structure_of
from schemas.tool import ToolResult

JSON = "application/json"
# URI, name and description; the tool that is called, and its arguments, "": the end of the URI.
ToolResource = tuple[tuple[str, str, str], str, Mapping[str, str]]
RESOURCES: tuple[ToolResource, ...] = (
    (("memory://user", "user memories", "The newest memories of the user."),
     "memory_list", {"scope": "user"}),
    (("memory://session/{id}", "session memories",
      "The newest memories of a session that the caller named."),
     "memory_list", {"scope": "session", "session": ""}),
    (("memory://item/{id}", "memory", "One memory."), "memory_get", {"memory": ""}),
)  # fmt: skip
GRAPH: ToolResource = (
    ("memory://knowledge-graph", "knowledge-graph", "The whole knowledge graph."),
    "read_graph",
    {},
)


class MemoryResources:
    def __init__(self, call: CallTool, *, graph: bool) -> None:
        """`graph`: whether there are the tools of the reference memory server."""
        self._call = call
        self._graph = graph

    @property
    def resources(self) -> list[WingResource]:
        context = WingResource(
            uri="memory://context",
            name="memory context",
            description="What is pinned, personas, slots and preferences, as text for a prompt: "
            "data, no instructions.",
            read=self._context,
        )
        resources = [context, *(self._resource(*row) for row in RESOURCES)]
        if self._graph:
            resources.append(self._resource(*GRAPH))
        return resources

    def _resource(
        self, description_parts: tuple[str, str, str], tool: str, arguments: Mapping[str, str]
    ) -> WingResource:
        uri, name, description = description_parts

        async def read_memory(context: Context, uri: str) -> str | None:
            last = uri.rpartition("/")[2]
            call_arguments = {argument: value or last for argument, value in arguments.items()}
            return _text(await self._call(context, tool, call_arguments))

        return WingResource(
            uri=uri, name=name, description=description, read=read_memory, media_type=JSON
        )

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

    async def _recall(self, context: Context, arguments: Mapping[str, str]) -> str:
        result = await self._call(context, "memory_context", {"query": arguments["question"]})
        notes = _member(result, "text") or "Nothing is remembered of this."
        return f"{notes}\n\nWith these notes, as far as they help, answer: {arguments['question']}"


async def _remember(_context: Context, arguments: Mapping[str, str]) -> str:
    return (
        "Keep the following with memory_add, one memory for each fact, in the scope user; give "
        f"values that can change their slot, such as home.city:\n\n{arguments['what']}"
    )


def _text(result: ToolResult) -> str | None:
    """The text of a result; see `structure_of`."""
    structure = structure_of(result)
    return None if structure is None else bytes(structure).decode()


def _member(result: ToolResult, name: str) -> str | None:
    text = _text(result)
    return None if text is None else str(msgspec.json.decode(text).get(name, ""))
