"""The memory of agents as a wing."""

import importlib.resources
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from config.memory import MemorySettings
from gateway.operations.operation import Operation
from gateway.operations.resource_view import ResourceView
from gateway.wings.interface import Wing, WingContributions, WingParts
from gateway.wings.memory.dialects.operations import file_operations, graph_operations
from gateway.wings.memory.erasure import PersonMemories
from gateway.wings.memory.lifecycle_operations import KeepingOperations
from gateway.wings.memory.masking import hook_of
from gateway.wings.memory.memory_search import KINDS
from gateway.wings.memory.metrics import MemoryGauges
from gateway.wings.memory.operations import MemoryOperations
from gateway.wings.memory.resources import MemoryResources
from gateway.wings.memory.subject_operations import subject_operations
from gateway.wings.memory.wiring import MemoryParts
from registry.database.migrate import Component
from schemas.errors import ToolgateError

MIGRATIONS = Component("memory", importlib.resources.files("gateway.wings.memory").joinpath("sql"))


@asynccontextmanager
async def open_memory(parts: WingParts) -> AsyncIterator[WingContributions]:
    memory = MemoryParts(
        parts.pool,
        parts.embedder,
        parts.settings,
        erased=parts.events.person_erased,
        models=parts.models,
    )
    parts.events.session_ended.subscribe(memory.retention.session_ended)
    items = MemoryResources(parts.call, graph="graph" in parts.settings.compat)
    yield WingContributions(
        operations=operations_of(memory),
        tasks=[memory.retention.run],
        collectors=[MemoryGauges(memory.store, memory.recaller, memory.retention)],
        resources=items.resources,
        prompts=items.prompts,
        call_ended=memory.notes.call_ended,
        pages=[PAGE],
        erasers=[PersonMemories(memory.eraser)],
    )


def operations_of(parts: MemoryParts) -> list[Operation]:
    operations = [*MemoryOperations(parts).operations, *KeepingOperations(parts).operations]
    if "graph" in parts.settings.compat:
        operations += graph_operations(parts)
    if "files" in parts.settings.compat:
        operations += file_operations(parts)
    return operations


def mistakes(settings: MemorySettings) -> Iterator[str]:
    """A sentence on a masking hook that cannot be loaded."""
    try:
        hook_of(settings.masking.hook)
    except ToolgateError as error:
        yield str(error)


PAGE = ResourceView(
    title="Memories",
    path="memory",
    lists="memory_list",
    columns=(
        ("content", "Text", "text"),
        ("scope", "Scope", "badge"),
        ("kind", "Kind", "badge"),
        ("trust", "Trust", "text"),
        ("created", "Created", "time"),
    ),
    shows="memory_get",
    key="id",
    acts=("memory_update", "memory_forget"),
    adds=("memory_add", "memory_promote"),
    also=(("History", "memory_history"),),
    icon="clock",
    empty="What agents remember of sessions, users and the organisation.",
)

WING = Wing(
    name="memory",
    title="Memory",
    open=open_memory,
    migrations=MIGRATIONS,
    kinds=KINDS,
    observes=lambda settings: settings.capture == "calls",
    admin=subject_operations,
    mistakes=mistakes,
    commands={
        "eval": ("gateway.cli.memory:evaluate", "Measure how well memories are found."),
        "export": ("gateway.cli.memory:export", "Export all that is held of a user."),
        "import": ("gateway.cli.memory:import_", "Import memories, or a graph."),
    },
)
