"""The navigation of the console: what a visitor may read."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gateway.console.desk import ConsoleParts, Desk


@dataclass(frozen=True, slots=True)
class Place:
    title: str
    path: str
    icon: str
    needs: str  # operation that its page begins with
    for_operators: bool = False


GROUPS: Mapping[str, tuple[Place, ...]] = {
    "": (Place("Overview", "", "pulse", "getStatus"),),
    "Catalog": (
        Place("Tools", "tools", "tool", "listTools"),
        Place("Sources", "sources", "source", "listSources"),
        Place("Toolsets", "toolsets", "set", "listToolsets"),
        Place("Skills", "skills", "book", "listSkills"),
        Place("Agents", "agents", "agent", "listAgents"),
        Place("Embeddings", "embeddings", "vector", "getEmbeddings"),
    ),
    "Access": (
        Place("Approvals", "approvals", "inbox", "listApprovals"),
        Place("Policy", "policy", "shield", "listRules"),
        Place("API keys", "keys", "key", "listKeys"),
        Place("Revocations", "revocations", "ban", "listRevocations"),
        Place("Secrets", "secrets", "lock", "listSecrets"),
    ),
    "Operations": (
        Place("Audit log", "audit", "list", "searchAudit"),
        Place("Sessions", "sessions", "plug", "listSessions"),
        Place("Jobs", "jobs", "clock", "listJobs"),
        Place("Limits", "limits", "gauge", "getStatus", for_operators=True),
        Place("Health", "health", "heart", "getStatus"),
    ),
}


CHAT = Place("Chat", "chat", "chat", "agent_ask")  # of a wing


def navigation(parts: ConsoleParts, desk: Desk) -> Iterator[tuple[str, list[Place]]]:
    """The groups of places that the visitor may see; those of wings last."""
    for title, places in GROUPS.items():
        if seen := [one for one in places if _may_see(desk, one)]:
            yield title, seen
    if _may_see(desk, CHAT):
        yield "Agent", [CHAT]
    pages = [page for offer in parts.offers.values() for page in offer.pages]
    wings = [Place(one.title, one.path, "wing", one.lists) for one in pages if desk.may(one.lists)]
    if wings:
        yield "Wings", wings


def _may_see(desk: Desk, place: Place) -> bool:
    return desk.may(place.needs) and (desk.is_operator or not place.for_operators)
