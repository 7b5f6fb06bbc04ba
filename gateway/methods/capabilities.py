"""Capabilities that an endpoint announces to clients of one revision.

The endpoint has every capability that one of its servers has, in either era; but tasks and
extensions, which are not translated, only from servers of the client's own era, if relayed.
"""

from collections.abc import Iterator
from typing import Any

from registry.catalog.catalog import Catalog
from registry.catalog.tool_lists import relays_tasks
from schemas.errors import MethodNotFound
from schemas.jsonrpc import decode_members
from schemas.mcp.messages import TASKS_EXTENSION, ListKind
from schemas.mcp.revisions import Revision
from schemas.mcp.snapshot import ServerFacts
from schemas.tool import Tool

Json = dict[str, Any]

SKILLS_EXTENSION = "io.modelcontextprotocol/skills"


def capabilities(catalog: Catalog, revision: Revision) -> Json:
    """The gateway's capabilities, as `initialize` and `server/discover` return them."""
    offered: Json = {"tools": {"listChanged": True}}
    if offers(catalog, "prompts"):
        offered["prompts"] = {"listChanged": True}
    if offers(catalog, "resources"):
        tells = any(subscribes(facts) for facts in catalog.servers.values())
        offered["resources"] = {"listChanged": True, **({"subscribe": True} if tells else {})}
    elif keeps_answers(catalog):
        offered["resources"] = {}
    if offers(catalog, "logging"):
        offered["logging"] = {}
    if offers(catalog, "completions") and revision.annotations:
        offered["completions"] = {}
    if revision.tasks and (tasks := _tasks(catalog)) is not None:
        offered["tasks"] = tasks
    if extensions := _extensions(catalog, revision):
        offered["extensions"] = extensions
    return offered


def announced_lists(catalog: Catalog) -> list[ListKind]:
    """The lists for which clients get list_changed notifications."""
    kinds: tuple[ListKind, ...] = ("prompts", "resources")
    return ["tools", *(kind for kind in kinds if offers(catalog, kind))]


def offers(catalog: Catalog, capability: str) -> bool:
    """Whether a server of the catalog, an agent, or the catalog's skills, provide the
    capability."""
    if capability in ("prompts", "resources", "skills") and _lists_skills(catalog):
        return True
    if capability == "logging" and any(source.facts.logs for source in catalog.sources.values()):
        return True
    return any(has(facts, capability) for facts in catalog.servers.values())


def keeps_answers(catalog: Catalog) -> bool:
    """Whether truncated tool answers may be stored and served as resources of the gateway."""
    return any(source.facts.keeps_answers for source in catalog.sources.values())


def has(facts: ServerFacts, capability: str) -> bool:
    return any(capability in announced for announced in _of_eras(facts))


def subscribes(facts: ServerFacts) -> bool:
    """Whether the server announces updates of its resources."""
    stated = (announced.get("resources") for announced in _of_eras(facts))
    return any(
        isinstance(resources, dict) and resources.get("subscribe") is True for resources in stated
    )


def require(catalog: Catalog, capability: str, method: str) -> None:
    """Raises MethodNotFound for a method of a capability that is not announced."""
    ours = capability == "resources" and keeps_answers(catalog)
    if not ours and not offers(catalog, capability):
        raise MethodNotFound(f"Method not found: {method}: no server here has {capability}")


def check_task(catalog: Catalog, tool: Tool) -> None:
    """Check that a tool may run as a task of 2025-11-25. Raises MethodNotFound for a tool that
    does not declare task support; where tasks are not announced, the request for one is ignored."""
    if _tasks(catalog) is None:
        return
    definition = decode_members(tool.definition) if tool.definition is not None else {}
    support = bytes(definition.get("execution", b""))
    listed = relays_tasks(catalog.servers.get(tool.source))
    if not listed or not any(word in support for word in (b'"optional"', b'"required"')):
        raise MethodNotFound(f"{tool.name[:100]} does not run as a task")


def _of_eras(facts: ServerFacts) -> Iterator[Json]:
    yield facts.handshake_capabilities
    yield facts.stateless_capabilities


def _tasks(catalog: Catalog) -> Json | None:
    """The tasks capability of 2025-11-25; None where neither the gateway nor a server has it."""
    if catalog.own_tasks is not None:
        return dict(catalog.own_tasks.capability)
    having = [facts for facts in catalog.servers.values() if relays_tasks(facts)]
    if not having:
        return None
    cancels = any("cancel" in facts.handshake_capabilities["tasks"] for facts in having)
    return {**({"cancel": {}} if cancels else {}), "requests": {"tools": {"call": {}}}}


def _extensions(catalog: Catalog, revision: Revision) -> Json:
    """Settings of each announced extension, by identifier."""
    extensions: Json = {}
    if revision.result_type and (tasks := _tasks_extension(catalog)) is not None:
        extensions[TASKS_EXTENSION] = tasks
    if _lists_skills(catalog):
        extensions[SKILLS_EXTENSION] = {"directoryRead": True}
    return extensions


def _lists_skills(catalog: Catalog) -> bool:
    return catalog.skills.listed and len(catalog.skills) > 0


def _tasks_extension(catalog: Catalog) -> Any:
    """The settings of the tasks extension; None where neither the gateway nor a server has it."""
    if catalog.own_tasks is not None:
        return {}
    for facts in catalog.servers.values():
        extensions = facts.stateless_capabilities.get("extensions")
        if isinstance(extensions, dict) and TASKS_EXTENSION in extensions:
            return extensions[TASKS_EXTENSION]
    return None
