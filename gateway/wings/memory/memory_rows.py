"""Memories as values: what is written, and what is read. Pure, but for the ids, which are random.

Errors are `ProblemDetails` of operations where a caller can mend them.
"""

import hashlib
import re
import secrets
import time
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from msgspec import Meta
from psycopg import sql

from config.value_types import HostId
from gateway.operations.operation import Time
from gateway.operations.problems import ProblemDetails, invalid
from schemas.jsonrpc import encode

Scope = Literal["session", "user", "agent", "org"]
SCOPES: tuple[Scope, ...] = ("session", "user", "agent", "org")
Kind = Literal[
    "fact", "preference", "summary", "learning", "state", "persona", "scratchpad", "turn", "chunk"
]
StoredKind = Kind | Literal["file", "entity"]
Trust = Literal["user", "admin", "agent", "tool", "inferred"]
ORGANISATION = "*"  # the owner of what the organisation knows
DEPTH = 32  # of metadata
# Members of sources that have a meaning here.
SOURCE_TEXTS = ("promoted", "entity", "document", "speaker", "turn", "session")

Place = tuple[Scope, str]
"""A scope and an owner within it."""

_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMemory:
    """A memory to be stored, checked and masked."""

    content: str
    kind: str = "fact"
    slot: str | None = None
    importance: float = 0.5
    confidence: float = 1.0
    pinned: bool = False
    keep: bool = False
    trust: Trust = "agent"
    source: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    valid_from: datetime | None = None  # None: now
    valid_to: datetime | None = None
    expires_s: float | None = None  # None: the session's, or never
    replaces: str | None = None  # id of what it supersedes
    audience: Sequence[str] = ()
    masked: Sequence[str] = ()
    dated: str = ""  # its date in words
    session: str | None = None  # the session in which it was written
    created: datetime | None = None  # of what is restored or promoted; None: now

    @property
    def hash(self) -> bytes:
        return content_hash(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """A memory as it is stored."""

    id: HostId
    scope: Scope
    owner: str
    subject: str | None
    agent: Annotated[str, Meta(max_length=256)] | None
    audience: Annotated[
        Sequence[Annotated[str, Meta(min_length=1, max_length=128)]], Meta(max_length=50)
    ]
    kind: StoredKind
    slot: Annotated[str, Meta(min_length=1, max_length=1024)] | None
    content: str
    importance: Annotated[float, Meta(ge=0, le=1)]
    confidence: Annotated[float, Meta(ge=0, le=1)]
    pinned: bool
    keep: bool
    masked: Sequence[str]
    trust: Trust
    session: Annotated[str, Meta(max_length=256)] | None
    source: Mapping[str, Any]
    metadata: Mapping[str, Any]
    valid_from: Time
    valid_to: Time | None
    created: Time
    retired: Time | None
    retired_by: Literal["slot", "update", "replaced", "cap", "expired"] | None
    superseded_by: HostId | None
    expires: Time | None
    version: Annotated[int, Meta(ge=1, le=2**53)]
    dated: Annotated[str, Meta(max_length=256)] = ""  # its date in words
    position: Annotated[int, Meta(ge=0, le=2**53)] | None = None  # of a turn, among its owner's
    ttl_s: Annotated[float, Meta(gt=0, le=1e9)] | None = None


# In the order of the fields of Memory.
COLUMNS = sql.SQL(
    "m.memory_id::text, m.scope, m.owner, m.subject, m.agent, m.audience, m.kind, m.slot,"
    " m.content, m.importance, m.confidence, m.pinned, m.keep, m.masked, m.trust, m.session,"
    " m.source, m.metadata, m.valid_from, m.valid_to, m.created_ts, m.retired_ts, m.retired_by,"
    " m.superseded_by::text, m.expires_ts, m.aggregate_version,"
    " m.dated, m.position, m.ttl_s"
)


def memory_of(row: Sequence[Any]) -> Memory:
    return Memory(**dict(zip(Memory.__dataclass_fields__, row, strict=True)))


def new_id() -> str:
    """An id that sorts by time (RFC 9562, version 7)."""
    value = time.time_ns() // 1_000_000 << 80 | secrets.randbits(80)
    value = value & ~(0xF << 76) | 7 << 76
    return str(UUID(int=value & ~(0x3 << 62) | 2 << 62))


def new_ids(count: int) -> list[str]:
    """Ids that sort in this order."""
    return sorted(new_id() for _ in range(count))


def normalise(content: str) -> str:
    """The content as it is compared with others: NFKC, lower case, white space collapsed."""
    return _SPACE.sub(" ", unicodedata.normalize("NFKC", content)).strip().casefold()


def content_hash(memory: "NewMemory | Memory") -> bytes:
    """SHA-256 of the content and its place: the same text in two files, slots, entities, documents
    or turns is not the same memory."""
    place: list[Any] = [memory.slot, memory.source.get("entity")]
    if memory.kind in ("file", "entity"):
        place.append(memory.kind)
    if memory.kind == "chunk":
        place += [memory.source.get(name) for name in ("document", "version", "chunk")]
    if memory.kind == "turn":
        place += [memory.source.get("session"), memory.source.get("turn") or str(memory.valid_from)]
    exact = memory.kind in ("file", "turn")
    text = memory.content if exact else normalise(memory.content)
    return hashlib.sha256(encode([text, *place])).digest()


def check_content(content: str, limit_bytes: int) -> None:
    """Raises ProblemDetails."""
    check_text(content, limit_bytes)
    if not any(unicodedata.category(character)[0] in "LNS" for character in content):
        raise invalid("content: expected words; it has only white space and punctuation")


def check_text(content: str, limit_bytes: int) -> None:
    """Raises ProblemDetails. Any text can be stored as a file."""
    if "\0" in content:
        raise invalid("content: expected text without NUL characters")
    try:
        size = len(content.encode())
    except UnicodeEncodeError as error:
        raise invalid("content: expected text without lone surrogates") from error
    if size > limit_bytes:
        raise too_large("content", size, limit_bytes, "memory.content_bytes")


def check_metadata(metadata: Mapping[str, Any], limit_bytes: int) -> None:
    """Raises ProblemDetails."""
    if _depth(metadata) > DEPTH:
        raise invalid(f"metadata: expected at most {DEPTH} levels")
    size = len(encode(metadata))
    if size > limit_bytes:
        raise too_large("metadata", size, limit_bytes, "memory.metadata_bytes")


def _depth(value: Any) -> int:
    level, deepest = [value], 0
    while level and deepest <= DEPTH:
        deepest += 1
        inner: list[Any] = []
        for member in level:
            members = member.values() if isinstance(member, Mapping) else member
            inner += [nested for nested in members if isinstance(nested, Mapping | list)]
        level = inner
    return deepest + bool(level)


def check_source(source: Mapping[str, Any]) -> None:
    """Raises ProblemDetails."""
    for name in SOURCE_TEXTS:
        if name in source and not isinstance(source[name], str):
            raise invalid(f"source.{name}: expected text")


def too_large(field: str, size: int, limit: int, setting: str) -> ProblemDetails:
    return ProblemDetails(
        413, "too-large", f"{field}: {size} bytes, expected at most {limit} ({setting})"
    )


def check_year(name: str, time: datetime) -> None:
    """Raises ProblemDetails. In other years, some zones leave the range of times."""
    if not 2 <= time.year <= 9990:
        raise invalid(f"{name}: expected a time between the years 2 and 9990")


def time_of(name: str, text: str | None) -> tuple[datetime | None, bool]:
    """A time in RFC 3339, and whether it had no zone: then it is in UTC. Raises
    ProblemDetails."""
    if text is None:
        return None, False
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise invalid(f"{name}: expected a time such as 2026-05-08T12:00:00Z") from error
    check_year(name, time)
    if time.tzinfo is None:
        return time.replace(tzinfo=UTC), True
    return time.astimezone(UTC), False
