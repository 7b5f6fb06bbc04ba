"""The result of every importer: a description as tools, and the outcome for each part."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from registry.importers.plain import plain
from registry.names.keywords import BY_NAME, VALUES
from schemas.mcp.snapshot import Eras, ItemKind, ServerFacts
from schemas.source import Outcome
from schemas.tool import ToolDraft

# Longer ones are manuals. A thousand tokens a tool is what a list of many tools can bear.
DESCRIPTION_LIMIT = 4096


def said(description: str) -> str:
    """What a description in HTML or Markdown says, and no more of it than a tool can bear."""
    return cut(plain(description))


def said_in(schema: Any) -> Any:
    """A JSON Schema whose descriptions are plain text."""
    if isinstance(schema, list):
        return [said_in(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {keyword: _keyword(keyword, value) for keyword, value in schema.items()}


def _keyword(keyword: str, value: Any) -> Any:
    if keyword == "description" and isinstance(value, str):
        return plain(value)
    if keyword in BY_NAME and isinstance(value, Mapping):
        return {name: said_in(one) for name, one in value.items()}
    return value if keyword in VALUES else said_in(value)


def cut(description: str) -> str:
    """At a space, so that no word or link is halved."""
    if len(description) <= DESCRIPTION_LIMIT:
        return description
    head = description[: DESCRIPTION_LIMIT - 1]
    return (head.rsplit(maxsplit=1)[0] if " " in head else head).rstrip() + "…"


@dataclass(frozen=True, slots=True)
class ItemDraft:
    """What an importer proposes; fields as in `schemas.mcp.snapshot.Item`."""

    kind: ItemKind
    key: str
    name: str  # that it gets if it can: the key, for a prompt made legal
    definition: dict[str, Any]
    eras: Eras = "both"

    @property
    def id(self) -> str:
        """Identity inside its source."""
        return f"{self.key}@{self.kind}"


@dataclass(frozen=True, slots=True)
class Imported:
    """A document as tools, with one outcome for each of its operations and items, in its order."""

    title: str | None
    version: str | None  # of the description, not of OpenAPI
    servers: tuple[str, ...]  # as stated, perhaps relative; variables replaced by their defaults
    drafts: tuple[ToolDraft, ...]
    outcomes: tuple[Outcome, ...]
    notes: tuple[str, ...] = ()  # on the document as a whole
    items: tuple[ItemDraft, ...] = ()  # prompts, resources and templates
    server: ServerFacts | None = None  # the MCP server that it is of
