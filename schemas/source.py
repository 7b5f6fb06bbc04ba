"""Sources: the documents and servers that tools come from."""

from dataclasses import dataclass
from typing import Literal

OutcomeStatus = Literal["imported", "degraded", "skipped", "excluded"]


@dataclass(frozen=True, slots=True)
class Source:
    """One row of `api_t`: where tools came from and where their calls go."""

    id: str  # UUID
    name: str  # unique in its tenant; [a-z0-9][a-z0-9_-]{0,62}
    kind: str  # "openapi"
    location: str  # path or URL of the description
    base_url: str | None  # where calls go; None while nobody said and the document does not
    base_url_trusted: bool  # False: it stands in the document only, so SSRF guards apply to it
    title: str | None = None
    version: str | None = None  # info.version of the document
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    tool_count: int = 0
    updated: str = ""  # ISO 8601
    digest: str | None = None  # of the document, as the importer names it


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one operation on import."""

    key: str  # /pets/{id}@get
    operation: str  # operationId, or "GET /pets/{id}"
    name: str | None  # name of the tool; None when there is none
    status: OutcomeStatus
    reason: str | None = None  # why degraded, skipped or excluded
