"""What every importer gives: a description as tools, and what became of each part of it."""

from dataclasses import dataclass

from registry.sources.items import ItemDraft
from schemas.mcp.snapshot import ServerFacts
from schemas.source import Outcome
from schemas.tool import ToolDraft


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
