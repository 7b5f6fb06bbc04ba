"""The wings of the product by name. Imports none of them: commands and a gateway without wings read
it, too."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from schemas.errors import ToolgateError

if TYPE_CHECKING:  # neither help of commands nor a gateway without wings imports more
    from config.settings import Settings
    from gateway.wings.interface import Wing
    from registry.database.migrate import Component
    from registry.embedding.search_kinds import Kinds


@dataclass(frozen=True, slots=True)
class WingRow:
    target: str  # module:attribute, of a Wing
    summary: str  # of its commands
    jobs: bool = False  # whether operations run as jobs: then the tables of jobs are needed
    tasks: bool = False  # whether it runs calls of any tool as tasks of MCP


WINGS: Mapping[str, WingRow] = {
    "memory": WingRow("gateway.wings.memory.wing:WING", "Memory of agents.", jobs=True),
    "events": WingRow(
        "gateway.wings.events.wing:WING",
        "Invocations that outlive requests and processes.",
        jobs=True,
        tasks=True,
    ),
    "agent": WingRow("gateway.wings.agent.wing:WING", "Conversations with an agent."),
    "knowledge": WingRow(
        "gateway.wings.knowledge.wing:WING", "Documents and what they tell.", jobs=True
    ),
    "librarian": WingRow(
        "gateway.wings.librarian.wing:WING",
        "Questions to whole libraries.",
        jobs=True,
    ),
    "code": WingRow("gateway.wings.code.wing:WING", "Programs over tools.", jobs=True),
    "a2a": WingRow("gateway.wings.a2a.wing:WING", "Agents for other agents."),
    "subregistry": WingRow("gateway.wings.subregistry.wing:WING", "An MCP registry."),
    "notifications": WingRow(
        "gateway.wings.notifications.wing:WING", "Messages to operators about incidents."
    ),
}
"""A name is that of a section of the settings, whose `enabled` switches the wing on; of the source
of its tools, whose names begin with it; and of its group of commands."""


def section(settings: "Settings", name: str) -> Any:
    """The settings of a wing."""
    return getattr(settings, name)


def enabled_wings(settings: "Settings") -> list[str]:
    """The names of the wings that are switched on."""
    return [name for name in WINGS if section(settings, name).enabled]


def with_jobs(settings: "Settings") -> list[str]:
    """The names of the enabled wings whose operations run as jobs."""
    return [name for name in enabled_wings(settings) if WINGS[name].jobs]


def with_tasks(settings: "Settings") -> str | None:
    """The name of the enabled wing that runs calls of any tool as tasks of MCP."""
    return next((name for name in enabled_wings(settings) if WINGS[name].tasks), None)


def load_wing(name: str) -> "Wing":
    """Raises ToolgateError if it cannot be imported, as without the packages of its extra."""
    module, _, attribute = WINGS[name].target.partition(":")
    try:
        wing: Wing = getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        raise ToolgateError(f"{name}.enabled: the wing cannot be imported: {error}") from error
    return wing


def load_wings(settings: "Settings") -> "list[Wing]":
    """Raises ToolgateError that names every wing that cannot be imported."""
    wings: list[Wing] = []
    broken: list[str] = []
    for name in enabled_wings(settings):
        try:
            wings.append(load_wing(name))
        except ToolgateError as error:
            broken.append(str(error))
    if broken:
        raise ToolgateError("\n  ".join(broken))
    return wings


def wing_mistakes(settings: "Settings", wing: "Wing") -> list[str]:
    """Mistakes in the section of a wing."""
    mistakes = wing.mistakes
    return [] if mistakes is None else list(mistakes(section(settings, wing.name)))


def mistakes(settings: "Settings") -> list[str]:
    """Mistakes that keep wings that are not optional from ever being opened."""
    texts: list[str] = []
    for name in enabled_wings(settings):
        if name in settings.wings.optional:
            continue
        try:
            texts += wing_mistakes(settings, load_wing(name))
        except ToolgateError as error:
            texts.append(str(error))
    return texts


def wing_components(settings: "Settings") -> "list[Component]":
    """The migrations of the wings that are switched on, in their order. Raises ToolgateError."""
    components = (component for wing in load_wings(settings) for component in components_of(wing))
    return list({component.name: component for component in components}.values())


def components_of(wing: "Wing") -> "list[Component]":
    """The migrations of a wing, after those of the wings that it refers to. Raises
    ToolgateError."""
    components = (*(load_wing(name).migrations for name in wing.refers_to), wing.migrations)
    return [component for component in components if component is not None]


def wing_kinds(settings: "Settings") -> "Kinds":
    """The kinds of search of the product and of the wings that are switched on. Raises
    ToolgateError."""
    from registry.embedding.search_kinds import search_kinds  # imports the client of the database

    return search_kinds(kind for wing in load_wings(settings) for kind in wing.kinds)
