"""The navigation of the console: what a visitor may read."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from config.settings import Settings
from gateway.console.visitor_operations import ConsoleOperations, ConsoleParts
from gateway.wings.table import WINGS


@dataclass(frozen=True, slots=True)
class Place:
    title: str
    path: str
    icon: str
    needs: str  # operation that its page begins with
    for_operators: bool = False
    has_content: Callable[[Settings], bool] = lambda _settings: True


def _has_registries(settings: Settings) -> bool:
    return bool(settings.registries)


GROUPS: Mapping[str, tuple[Place, ...]] = {
    "": (Place("Overview", "", "pulse", "getStatus"),),
    "Catalog": (
        Place("Tools", "tools", "tool", "listTools"),
        Place("Prompts", "prompts", "chat", "listTools"),
        Place("Resources", "resources", "file", "listTools"),
        Place("Sources", "sources", "source", "listSources"),
        Place("Registries", "catalog", "globe", "searchCatalog", has_content=_has_registries),
        Place("Toolsets", "toolsets", "set", "listToolsets"),
        Place("Skills", "skills", "book", "listSkills"),
        Place("Agents", "agents", "agent", "listAgents"),
        Place("Search", "search", "search", "getEmbeddings"),
        Place("Connect", "connect", "plug", "listToolsets"),
    ),
    "Access": (
        Place("Approvals", "approvals", "inbox", "listApprovals"),
        Place("Policy", "policy", "shield", "listRules"),
        Place("API keys", "keys", "key", "listKeys"),
        Place("Users", "users", "person", "listUsers"),
        Place("People", "people", "people", "listPeople"),
        Place("Logins", "logins", "door", "listLogins"),
        Place("Clients", "clients", "app", "listClients", for_operators=True),
        Place("Connections", "connections", "link", "listConnections"),
        Place("Revocations", "revocations", "ban", "listRevocations"),
        Place("Secrets", "secrets", "lock", "listSecrets"),
    ),
    "Operations": (
        Place("Live calls", "live", "eye", "searchAudit"),
        Place("Audit log", "audit", "list", "searchAudit"),
        Place("Costs", "costs", "vector", "sumCosts"),
        Place("Sessions", "sessions", "plug", "listSessions"),
        Place("Jobs", "jobs", "clock", "listJobs"),
        Place("Notifications", "notifications", "bell", "listTargets"),
        Place("Incidents", "incidents", "flag", "listIncidents"),
        Place("Limits", "limits", "gauge", "getStatus", for_operators=True),
        Place("Backups", "backups", "source", "listBackups", for_operators=True),
        Place("Erasures", "erasures", "cross", "listErasures"),
        Place("Health", "health", "heart", "getStatus"),
    ),
}


OF_WINGS: Mapping[str, tuple[Place, ...]] = {
    "agent": (Place("Chat", "chat", "chat", "agent_ask"),),
    "events": (Place("Tasks", "tasks", "clock", "events_list"),),
    "code": (Place("Programs", "programs", "tool", "code_run"),),
    "knowledge": (Place("Ask the documents", "ask", "search", "knowledge_query"),),
}
"""Pages that the console itself has for a wing, by its name."""

WING_TITLES: Mapping[str, str] = {"a2a": "A2A"}
"""Titles of wings that are not written as their names."""


def navigation(
    parts: ConsoleParts, operations: ConsoleOperations
) -> Iterator[tuple[str, list[Place]]]:
    """The groups of places that the visitor may see; those of wings last."""
    settings = parts.settings()
    for title, places in GROUPS.items():
        if visible_places := [
            place for place in places if place.has_content(settings) and _may_see(operations, place)
        ]:
            yield title, visible_places
    for name in sorted(parts.offers, key=_place_of_wing):
        offer = parts.offers[name]
        pages = [Place(place.title, place.path, place.icon, place.lists) for place in offer.pages]
        if visible_places := [
            place for place in (*OF_WINGS.get(name, ()), *pages) if _may_see(operations, place)
        ]:
            yield title_of_wing(name), visible_places


def title_of_wing(name: str) -> str:
    return WING_TITLES.get(name, name.capitalize())


def _place_of_wing(name: str) -> int:
    """The same at each start, in whatever order wings open."""
    return list(WINGS).index(name) if name in WINGS else len(WINGS)


def _may_see(operations: ConsoleOperations, place: Place) -> bool:
    return operations.may(place.needs) and (operations.is_operator or not place.for_operators)
