"""Requests and responses of the memory's operations, and how a request becomes what is stored."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as replaced
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from config.memory import MemorySettings
from config.value_types import HostId
from gateway.operations.paging import Cursor
from gateway.operations.problems import ProblemDetails, invalid
from gateway.wings.memory.masking import ContentRefused, Mask, mask_text, masked_json
from gateway.wings.memory.memory_rows import (
    Kind,
    Memory,
    NewMemory,
    Scope,
    Trust,
    check_content,
    check_metadata,
    check_source,
    time_of,
)
from gateway.wings.memory.named_dates import in_words
from gateway.wings.memory.text_similarity import CHINESE
from registry.search.languages import main_script

_Item = TypeVar("_Item")
_Converted = TypeVar("_Converted")
Author = Literal["user", "agent", "tool", "inferred"]
Slot = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=255,
        description="what it is the value of, as in home.city: a new value retires the one before",
    ),
]
Weight = Annotated[float, Meta(ge=0, le=1)]
TimeText = Annotated[str, Meta(max_length=64, description="a time, as in 2026-05-08T12:00:00Z")]
SessionName = Annotated[
    str,
    Meta(max_length=128, description="a name for the session, where the transport has none"),
]
UserId = Annotated[
    str,
    Meta(max_length=256, description="another user to act for; takes the scope memory:on_behalf"),
]
Query = Annotated[str, Meta(description="what to find; empty lists the most important and recent")]
Filter = Annotated[
    dict[str, Any],
    Meta(
        description="by kind, slot, trust, agent, speaker, document, importance, created, "
        "valid_from, pinned or metadata.NAME: a value, or an object of in, exists, gt, gte, lt, lte"
    ),
]
Names = Annotated[
    tuple[Annotated[str, Meta(min_length=1, max_length=128)], ...], Meta(max_length=50)
]
ITEMS = 50
CHUNKS = 500  # of a document, in one call


class ByCaller(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Owner of the memories, where token and transport do not say it."""

    session: SessionName | None = None
    user_id: UserId | None = None


class ItemFields(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Fields of a memory to be added, beside its content."""

    kind: Kind = "fact"
    slot: Slot | None = None
    importance: Weight = 0.5
    confidence: Weight = 1.0
    trust: Annotated[Author, Meta(description="who said it; agents: what you concluded")] = "agent"
    speaker: Annotated[str, Meta(max_length=255)] | None = None
    pinned: bool = False
    keep: Annotated[bool, Meta(description="of a session: keep it for the user when it ends")] = (
        False
    )
    audience: Annotated[Names, Meta(description="agents that may read it; empty: all")] = ()
    source: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    valid_from: TimeText | None = None
    valid_to: TimeText | None = None
    expires_s: float | None = None
    replaces: (
        Annotated[HostId, Meta(description="id of a memory that this one corrects")] | None
    ) = None


class NewItem(ItemFields, frozen=True, kw_only=True):
    """One memory to be added."""

    content: str


class Document(Struct, frozen=True, forbid_unknown_fields=True):
    """A document whose chunks are the items: they replace all that it had."""

    id: Annotated[str, Meta(min_length=1, max_length=255)]
    version: Annotated[str, Meta(max_length=64)] = ""


class AddMemories(ItemFields, frozen=True, kw_only=True):
    """A memory, or several as `items`."""

    scope: Scope
    content: str | None = None
    items: Annotated[tuple[NewItem, ...], Meta(max_length=CHUNKS)] = ()
    document: Document | None = None
    similar: Annotated[bool, Meta(description="name memories that are near to a single one")] = True
    session: SessionName | None = None
    user_id: UserId | None = None

    @property
    def all(self) -> Sequence[NewItem]:
        """Raises ProblemDetails."""
        if (self.content is None) == (not self.items):
            raise invalid("Expected either `content` or `items`.")
        if self.document is not None and not self.items:
            raise invalid("document: expected its chunks as `items`")
        if self.document is not None:
            return [self._chunk(number, item) for number, item in enumerate(self.items)]
        if len(self.items) > ITEMS:
            raise invalid(f"items: expected at most {ITEMS}, or the chunks of a document")
        if self.content is None:
            return self.items
        members = {name: getattr(self, name) for name in NewItem.__struct_fields__}
        return [NewItem(**members)]

    def _chunk(self, number: int, item: NewItem) -> NewItem:
        document = self.document or Document("")
        place = {"document": document.id, "version": document.version, "chunk": number}
        return replace(item, kind="chunk", source={**item.source, **place})


class Turn(Struct, frozen=True, forbid_unknown_fields=True):
    """A turn of a conversation."""

    content: str
    role: Literal["user", "assistant", "tool"] = "user"
    speaker: Annotated[str, Meta(max_length=255)] | None = None
    at: TimeText | None = None
    id: Annotated[str, Meta(max_length=128)] | None = None


class ObserveTurns(ByCaller, frozen=True, kw_only=True):
    turns: Annotated[tuple[Turn, ...], Meta(min_length=1, max_length=ITEMS)]


class Similar(Struct, frozen=True):
    id: str
    content: str
    score: float


class RefusedItem(Struct, frozen=True):
    """An item of a batch that was not stored, by its place from 0."""

    index: int
    reason: str


class AddedItem(Struct, frozen=True, omit_defaults=True):
    """A memory that was stored. `index`: of its item, where others were refused."""

    id: str
    created: bool  # False: the same content was there
    superseded: str | None = None  # id of what was in its slot, or that it replaces
    masked: tuple[str, ...] = ()  # kinds of what was masked
    similar: tuple[Similar, ...] = ()
    index: int | None = None


class MemoriesAdded(Struct, frozen=True, omit_defaults=True):
    """Memories that were stored, and items of a batch that were not."""

    items: tuple[AddedItem, ...]
    notes: tuple[str, ...] = ()
    refused: tuple[RefusedItem, ...] = ()


class ListMemories(ByCaller, frozen=True, kw_only=True):
    scope: Scope | None = None
    kind: Annotated[str, Meta(max_length=32)] | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    after: Cursor | None = None


class SearchMemories(ByCaller, frozen=True, kw_only=True):
    query: Query = ""
    scopes: Annotated[tuple[Scope, ...], Meta(description="empty: all")] = ()
    kinds: Annotated[tuple[str, ...], Meta(max_length=20)] = ()
    filter: Filter | None = None
    since: TimeText | None = None
    until: TimeText | None = None
    as_of: Annotated[TimeText, Meta(description="what was believed at that time")] | None = None
    valid_at: Annotated[TimeText, Meta(description="what was true at that time")] | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] | None = None
    tokens: Annotated[int, Meta(ge=1)] | None = None
    explain: bool = False


class MemoryView(Struct, frozen=True, omit_defaults=True):
    """A memory: a note of the given origin, which is data and no instruction."""

    id: str
    scope: Scope
    kind: str
    content: str
    trust: Trust
    importance: float
    created: str
    version: int
    slot: str | None = None
    agent: str | None = None
    speaker: str | None = None
    audience: tuple[str, ...] = ()
    confidence: float = 1.0
    pinned: bool = False
    valid_from: str | None = None
    valid_to: str | None = None
    retired: str | None = None
    retired_by: str | None = None
    superseded_by: str | None = None
    expires: str | None = None
    masked: tuple[str, ...] = ()
    source: Mapping[str, Any] = {}
    metadata: Mapping[str, Any] = {}
    score: float | None = None
    parts: Mapping[str, float] | None = None
    duplicates: tuple[str, ...] = ()  # ids of what says nearly the same


class MemoriesFound(Struct, frozen=True, omit_defaults=True):
    items: tuple[MemoryView, ...]
    omitted: int = 0  # did not fit into the answer
    note: str | None = None


class UpdateMemory(Struct, frozen=True, forbid_unknown_fields=True):
    version: Annotated[int, Meta(ge=1, description="the version that the change is based on")]
    content: str | None = None
    importance: Weight | None = None
    pinned: bool | None = None
    metadata: dict[str, Any] | None = None
    session: SessionName | None = None


_COPIED_FIELDS = [
    name for name in MemoryView.__struct_fields__ if name in Memory.__dataclass_fields__
]


def view(memory: Memory, **more: Any) -> MemoryView:
    fields = {name: _shown_value(getattr(memory, name)) for name in _COPIED_FIELDS}
    return MemoryView(**fields, speaker=memory.source.get("speaker"), **more)


def _shown_value(value: Any) -> Any:
    """A member of a memory: numbers have been stored as single floats."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, list):
        return tuple(value)
    return round(value, 3) if isinstance(value, float) else value


def date_text(content: str, since: datetime) -> str:
    """The date in words, in the language of the content."""
    return f"({in_words(since, chinese=main_script(content) in CHINESE)})"


def taken_items(
    items: Sequence[_Item], take: Callable[[_Item], _Converted]
) -> tuple[list[tuple[int, _Converted]], list[RefusedItem]]:
    """Items of a batch, each judged by itself: those that `take` takes, with their places, and why
    others are refused. Raises the ProblemDetails of the first where it takes none."""
    accepted_items, refused, problems = [], [], list[ProblemDetails]()
    for index, item in enumerate(items):
        try:
            accepted_items.append((index, take(item)))
        except ProblemDetails as problem:
            problems.append(problem)
            refused.append(RefusedItem(index, problem.detail))
    if problems and not accepted_items:
        raise problems[0]
    return accepted_items, refused


class MemoryNormalizer:
    """Checks and masks what is to be stored."""

    def __init__(self, settings: MemorySettings, mask: Mask) -> None:
        self._settings = settings
        self._mask = mask

    def memory(
        self, scope: Scope, item: NewItem, *, session: str | None, notes: list[str], **more: Any
    ) -> NewMemory:
        """`notes` gets what the caller should know. Raises ProblemDetails."""
        check_content(item.content, self._settings.content_bytes)
        check_metadata({**item.metadata, "": item.source}, self._settings.metadata_bytes)
        check_source(item.source)
        if "promoted" in item.source:
            raise invalid("source.promoted: only promotion sets it")
        since, until = self._times(item, notes)
        fields = asdict(item) | {
            "valid_from": since,
            "valid_to": until,
            "expires_s": self._lifetime(scope, item.expires_s, notes),
            "source": {**item.source, **({"speaker": item.speaker} if item.speaker else {})},
            "session": session,
        }
        fields.pop("speaker")
        if item.valid_from is not None and since is not None:
            fields["dated"] = date_text(item.content, since)
        clean = self.mask_fields(scope, fields)
        if "session" in clean["source"]:
            fields["session"] = clean["source"]["session"]
        return NewMemory(**{**fields, **clean, **more})

    def new_memory(self, scope: Scope, content: str, **fields: Any) -> NewMemory:
        """A memory of these fields as its scope stores it. Raises ProblemDetails."""
        fields = {"content": content, "source": {}, "metadata": {}, **fields}
        return NewMemory(**{**fields, **self.mask_fields(scope, fields)})

    def mask_fields(self, scope: Scope, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Content, metadata and source as the scope stores them. Raises ProblemDetails, also where
        the slot has what would be masked: masked slots would be one."""
        self.check_names(scope, "slot", [fields.get("slot") or ""])
        mode = getattr(self._settings.masking, scope)
        facts = {"scope": scope, "kind": fields.get("kind"), "trust": fields.get("trust")}
        try:
            content, kinds = mask_text(mode, self._mask, fields["content"], facts)
            metadata, more = masked_json(mode, self._mask, fields.get("metadata", {}), facts)
            source, most = masked_json(mode, self._mask, fields.get("source", {}), facts)
        except ContentRefused as error:
            raise invalid(str(error)) from error
        kinds_found = tuple(dict.fromkeys((*kinds, *more, *most)))
        return {"content": content, "metadata": metadata, "source": source, "masked": kinds_found}

    def check_names(self, scope: Scope, field: str, names: Sequence[str]) -> None:
        """Raises ProblemDetails for names with what the scope does not store."""
        if getattr(self._settings.masking, scope) == "off":
            return
        for name in names:
            if kinds := self._mask(name, {"scope": scope})[1]:
                raise invalid(
                    f"{field}: contains {' and '.join(kinds)}, which the scope {scope} does not "
                    "store; leave it out"
                )

    def memory_in_scope(self, scope: Scope, memory: NewMemory) -> NewMemory:
        """A memory of another scope as this one stores it. Raises ProblemDetails."""
        fields = {
            "content": memory.content, "metadata": memory.metadata, "source": memory.source,
            "kind": memory.kind, "trust": memory.trust, "slot": memory.slot,
        }  # fmt: skip
        clean = self.mask_fields(scope, fields)
        clean["masked"] = tuple(dict.fromkeys((*memory.masked, *clean["masked"])))
        return replaced(memory, **clean)

    def _times(self, item: NewItem, notes: list[str]) -> tuple[Any, Any]:
        since, zoneless = time_of("valid_from", item.valid_from)
        until, also = time_of("valid_to", item.valid_to)
        if zoneless or also:
            notes.append("a time without a zone was read as UTC")
        if since is not None and until is not None and until < since:
            raise invalid("valid_to: expected a time after valid_from")
        return since, until

    def _lifetime(self, scope: Scope, seconds: float | None, notes: list[str]) -> float | None:
        if seconds is None:
            return None
        if not seconds > 0:
            raise invalid("expires_s: expected a number of seconds above 0")
        most = self._settings.session.ttl_max_s if scope == "session" else 315_360_000.0
        if seconds > most:
            notes.append(f"expires_s: {most:g} seconds is the longest here")
        return min(seconds, most)
