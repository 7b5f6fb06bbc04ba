"""The tools of other memories as operations: only tools, by the names that their clients call."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from msgspec import Struct

from gateway.operations.operation import Operation, OperationInput, OperationOutput
from gateway.operations.problems import ProblemDetails
from gateway.wings.memory.caller_owners import READ, WRITE
from gateway.wings.memory.dialects import mcp_graph
from gateway.wings.memory.dialects.anthropic_files import FileCommand, FileTool
from gateway.wings.memory.dialects.mcp_graph import GraphTools, KnowledgeGraph, size_of, text_of
from gateway.wings.memory.dialects.stores import MemoryFiles, MemoryGraph
from gateway.wings.memory.wiring import MemoryParts
from schemas.tool import Annotations

# Tool, what it does, scope, type of its arguments, type of its answer.
GRAPH: tuple[tuple[str, str, str, type[Struct] | None, type[Struct]], ...] = (
    ("create_entities", "Create entities in the knowledge graph.", WRITE,
     mcp_graph.NewEntities, mcp_graph.NewEntities),
    ("create_relations", "Create relations between entities, worded in active voice.", WRITE,
     mcp_graph.NewRelations, mcp_graph.NewRelations),
    ("add_observations", "Add observations to entities that exist.", WRITE,
     mcp_graph.NewObservations, mcp_graph.Added),
    ("delete_entities", "Delete entities with their relations.", WRITE,
     mcp_graph.EntityNames, mcp_graph.Deleted),
    ("delete_observations", "Delete observations of entities.", WRITE,
     mcp_graph.Deletions, mcp_graph.Deleted),
    ("delete_relations", "Delete relations.", WRITE, mcp_graph.NewRelations, mcp_graph.Deleted),
    ("read_graph", "Read the whole knowledge graph.", READ, None, mcp_graph.KnowledgeGraph),
    ("search_nodes", "Find entities by words in their names, types and observations.", READ,
     mcp_graph.NodeQuery, mcp_graph.KnowledgeGraph),
    ("open_nodes", "Show entities by their names.", READ,
     mcp_graph.NodeNames, mcp_graph.KnowledgeGraph),
)  # fmt: skip

ADDS = Annotations(
    read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False
)
DELETES = Annotations(
    read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False
)
READS = Annotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)
GRAPH_HINTS = {  # of the reference server, by the verb of a tool
    "create": ADDS, "add": ADDS, "delete": DELETES,
    "read": READS, "search": READS, "open": READS,
}  # fmt: skip


def graph_operations(parts: MemoryParts) -> Iterator[Operation]:
    for name, summary, scope, body, gives in GRAPH:
        yield Operation(
            f"memory_graph_{name}", "POST", "", summary, scope,
            _graph_tool(name, parts), gives, body=body, tool=name,
            hints=GRAPH_HINTS[name.partition("_")[0]],
        )  # fmt: skip


def _graph_tool(
    name: str, parts: MemoryParts
) -> Callable[[OperationInput], Awaitable[OperationOutput]]:
    async def run(request: OperationInput) -> OperationOutput:
        tool = getattr(GraphTools(MemoryGraph(parts, parts.reader(request))), name)
        answer: Any = await (tool() if request.body is None else tool(request.body))
        limit = parts.settings.graph_bytes
        if isinstance(answer, KnowledgeGraph) and (size := size_of(answer)) > limit:
            text = f"The answer would have {size} bytes, at most {limit} (memory.graph_bytes)"
            raise ProblemDetails(413, "too-large", f"{text}: name some entities with open_nodes.")
        return OperationOutput(answer, text=text_of(answer))

    return run


def file_operations(parts: MemoryParts) -> Iterator[Operation]:
    async def run(request: OperationInput) -> OperationOutput:
        tool = FileTool(
            MemoryFiles(parts, parts.reader(request)), overwrites=parts.settings.overwrite_files
        )
        return OperationOutput(None, text=await tool.run(request.body))

    yield Operation(
        "memory_files", "POST", "", "View and change the files below /memories.", WRITE, run,
        body=FileCommand, tool="memory",
        details="Commands: view, create, str_replace, insert, delete, rename.",
    )  # fmt: skip
