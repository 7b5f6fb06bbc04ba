"""The result of every importer: a description as tools, and the outcome for each part."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from registry.importers.plain_text import plain
from schemas.json_schema.walk import INSIDE, rewrite
from schemas.mcp.snapshot import Eras, ItemKind, ServerFacts
from schemas.source import DescribedLogin, Outcome
from schemas.tool import ToolDraft

# Longer ones are manuals. A list of many tools can afford a thousand tokens per tool.
DESCRIPTION_LIMIT = 4096
NOTES_LIMIT = 5  # per outcome; a person reads no more
SCHEMAS_LIMIT_BYTES = 2**26  # default of imports.schemas_limit_bytes


def plain_description(description: str) -> str:
    """A description in HTML or Markdown as plain text, cut to `DESCRIPTION_LIMIT`."""
    return truncate(plain(description))


def with_plain_descriptions(schema: Any) -> Any:
    """A JSON Schema with its descriptions converted to plain text."""
    return rewrite(schema, _plain_text)


def _plain_text(keyword: str, value: Any) -> Any:
    return plain(value) if keyword == "description" and isinstance(value, str) else INSIDE


def truncate(description: str) -> str:
    """Truncate to `DESCRIPTION_LIMIT`, at a space, so that no word or link is halved."""
    if len(description) <= DESCRIPTION_LIMIT:
        return description
    head = description[: DESCRIPTION_LIMIT - 1]
    return (head.rsplit(maxsplit=1)[0] if " " in head else head).rstrip() + "…"


@dataclass(frozen=True, slots=True)
class ItemDraft:
    """A proposed item of an importer; fields as in `schemas.mcp.snapshot.Item`."""

    kind: ItemKind
    key: str
    name: str  # preferred: the key, for a prompt made legal
    definition: dict[str, Any]
    eras: Eras = "both"

    @property
    def id(self) -> str:
        """Identity inside its source."""
        return f"{self.key}@{self.kind}"


@dataclass(frozen=True, slots=True)
class ImportedDescription:
    """The result of an import: tools, and an outcome for each operation and item, in document
    order."""

    title: str | None
    version: str | None  # of the description, not of OpenAPI
    servers: tuple[str, ...]  # as stated, perhaps relative; variables replaced by defaults
    drafts: tuple[ToolDraft, ...]
    outcomes: tuple[Outcome, ...]
    notes: tuple[str, ...] = ()  # on the document as a whole
    items: tuple[ItemDraft, ...] = ()  # prompts, resources and resource templates
    server: ServerFacts | None = None  # the MCP server, if it was imported from one
    logins: Mapping[str, DescribedLogin] = field(default_factory=dict)  # by security scheme


def join_notes(notes: Iterable[str]) -> str | None:
    """The reason of an outcome: different notes, the first ones named."""
    reasons = list(dict.fromkeys(notes))
    more = len(reasons) - NOTES_LIMIT
    named = "; ".join(reasons[:NOTES_LIMIT])
    return f"{named}; and {more} more" if more > 0 else named or None
