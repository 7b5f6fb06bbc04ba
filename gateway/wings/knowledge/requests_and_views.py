"""Requests and responses of the knowledge's operations."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct, convert, structs

from config.knowledge import CollectionName
from config.value_types import END, HostId
from gateway.operations.paging import Cursor
from gateway.wings.document_library import Passage, PassageView
from gateway.wings.knowledge.caller_access import Access
from gateway.wings.knowledge.chunk_filters import ChunkFilter
from gateway.wings.knowledge.chunk_search import Mode
from gateway.wings.knowledge.collections import Collection, CollectionKind, OnSameSource
from gateway.wings.knowledge.documents import DocumentState
from gateway.wings.knowledge.entities import NamedRelation
from gateway.wings.knowledge.ingestion import SourceType
from gateway.wings.knowledge.wasm_chunker_store import StoredChunker

Collections = Annotated[
    tuple[CollectionName, ...], Meta(max_length=100, description="empty: all that you may read")
]
EntityName = Annotated[
    str, Meta(min_length=1, max_length=256, pattern=r"\S", description="a name, not blank")
]
DocumentPath = Annotated[
    str,
    Meta(
        pattern=r"^[^\x00-\x1f\x7f]+" + END,
        max_length=1024,
        description="a label of the document, as a path; never a file that is read",
    ),
]
PathPatterns = Annotated[
    tuple[Annotated[str, Meta(min_length=1, max_length=256)], ...],
    Meta(max_length=20, description="patterns as in .gitignore of what is wanted"),
]
PATH_BYTES = 1024  # more fit into no index
Grantee = Annotated[
    str,
    Meta(
        pattern=r"^(\*|(user|agent|scope):[^\x00-\x1f\x7f]{1,255})" + END,
        description="user:ID, agent:NAME, scope:NAME, or * for all",
    ),
]


class QueryKnowledge(Struct, frozen=True, forbid_unknown_fields=True):
    """A question, and where answers are sought."""

    query: Annotated[str, Meta(min_length=1, max_length=65_536)]
    collections: Annotated[
        tuple[CollectionName, ...],
        Meta(max_length=100, description="empty: all that you may read"),
    ] = ()
    mode: Annotated[
        Mode,
        Meta(
            description="naive: passages alone; mix: with what they mention; local: those with the "
            "same names first; global: spread over the graph; hybrid: local and global"
        ),
    ] = "mix"
    filter: ChunkFilter = ChunkFilter()
    limit: Annotated[int, Meta(ge=1, le=100)] = 10
    tokens: (
        Annotated[int, Meta(ge=1, le=1_000_000, description="of the answer, 4 characters each")]
        | None
    ) = None
    explain: Annotated[bool, Meta(description="show the parts of the scores")] = False
    names: Annotated[
        int, Meta(ge=0, le=1000, description="how many names in the passages to show")
    ] = 0
    answer: Annotated[
        bool, Meta(description="have the chat model of the settings answer from the passages")
    ] = False


class Evidence(PassageView, frozen=True, omit_defaults=True, kw_only=True):
    """A passage and its place: lines count from 1, both inclusive."""

    reference: int
    document: str
    score: float
    chunk: str
    kind: str
    page: int | None = None
    parts: Mapping[str, float] | None = None


class SourceReference(Struct, frozen=True):
    reference: int
    collection: str
    path: str


class NameView(Struct, frozen=True, omit_defaults=True):
    """A name in passages; `about`: those of them that are about it. Both are ids of chunks."""

    name: str
    type: str
    chunks: tuple[str, ...]
    about: tuple[str, ...]
    description: str = ""


class CitationView(Struct, frozen=True):
    """Words of a document that an answer follows from, found there; lines count from 1."""

    reference: int
    collection: str
    path: str
    version: int
    lines: tuple[int, int]
    quote: str


class AnswerView(Struct, frozen=True, omit_defaults=True):
    """An answer of a chat model, whose `[n]` are references. `incomplete`: why it ends early."""

    text: str
    citations: tuple[CitationView, ...]
    incomplete: str = ""


class RelationView(Struct, frozen=True):
    """A relation that chunks state, as a chat model read them: each was found there."""

    source: str
    target: str
    type: str
    description: str
    chunks: tuple[str, ...]


class KnowledgeFound(Struct, frozen=True, omit_defaults=True):
    """Passages, best first, and their sources. `omitted`: those that did not fit."""

    evidence: tuple[Evidence, ...]
    references: tuple[SourceReference, ...]
    omitted: int = 0
    note: str | None = None
    names: tuple[NameView, ...] = ()
    relations: tuple[RelationView, ...] = ()
    answer: AnswerView | None = None


class FindEntity(Struct, frozen=True, forbid_unknown_fields=True):
    """A name, and where it is looked up."""

    name: EntityName
    collections: Collections = ()
    type: Annotated[str, Meta(max_length=64, description="only mentions of this type")] | None = (
        None
    )
    limit: Annotated[int, Meta(ge=1, le=100)] = 20


class MentionView(Struct, frozen=True, omit_defaults=True):
    """A mention and its place. `role` subject: the passage is about it; `method`: what found it."""

    name: str
    role: str
    type: str
    collection: str
    document: str
    path: str
    lines: tuple[int, int]
    quote: str
    method: str = "rule"


class NeighbourView(Struct, frozen=True):
    """A name in the same passages; `npmi` from -1, never together, to 1, always."""

    name: str
    passages: int
    npmi: float


class EntityView(Struct, frozen=True, omit_defaults=True):
    """Passages about a name first, then those that mention it; and names beside it."""

    name: str
    passages: int
    mentions: tuple[MentionView, ...]
    near: tuple[NeighbourView, ...]
    relations: tuple[RelationView, ...] = ()
    merged: Annotated[
        tuple[str, ...], Meta(description="names that were merged with it, as they are compared")
    ] = ()
    senses: Annotated[
        tuple[str, ...], Meta(description="names that tell it from others of its name")
    ] = ()


class SplitNames(Struct, frozen=True, forbid_unknown_fields=True):
    """Names to detach from the canonical name `into`."""

    collection: CollectionName
    names: Annotated[tuple[EntityName, ...], Meta(min_length=1, max_length=100)]
    into: EntityName


class MergeNames(SplitNames, frozen=True, forbid_unknown_fields=True):
    confidence: Annotated[float, Meta(gt=0, le=1)] = 1.0


class NamesMerged(Struct, frozen=True):
    """How many names were merged, or split."""

    names: int


class ListNames(Struct, frozen=True, forbid_unknown_fields=True):
    collection: CollectionName | None = None
    prefix: Annotated[str, Meta(max_length=256)] = ""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    pairs: Annotated[
        bool, Meta(description="also which of the names stand in the same passages")
    ] = False


class NamePairView(Struct, frozen=True, omit_defaults=True):
    """Two names in the same passages. `type`: of a relation that a chat model read."""

    source: str
    target: str
    passages: int
    type: str = ""
    description: str = ""


class NameList(Struct, frozen=True, omit_defaults=True):
    """Names, those that most passages mention first."""

    items: tuple[str, ...]
    pairs: tuple[NamePairView, ...] = ()


class DeleteNames(Struct, frozen=True, forbid_unknown_fields=True):
    """Names that the graph of a collection is to lose."""

    collection: CollectionName
    names: Annotated[tuple[EntityName, ...], Meta(min_length=1, max_length=100)]
    relations: Annotated[
        bool, Meta(description="lose the relations of the names to each other alone")
    ] = False


class NamesDeleted(Struct, frozen=True):
    """How many names, or relations, there were."""

    names: int


class ListCommunities(Struct, frozen=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=100)] = 10
    names: Annotated[int, Meta(ge=1, le=100, description="names of each that are shown")] = 10


class SentenceView(Struct, frozen=True):
    """A sentence, and where it stands."""

    text: str
    document: str
    path: str
    line: int


class CommunityView(Struct, frozen=True):
    """Names that stand in the same passages. `name`: those that tell it from the others;
    `summary`: the sentences nearest to all that its passages say."""

    name: str
    size: int
    passages: int
    names: tuple[str, ...]
    summary: tuple[SentenceView, ...]


class CommunityList(Struct, frozen=True):
    """Communities, those that most passages mention first. `sampled`: only `passages` passages of
    a larger collection were read."""

    items: tuple[CommunityView, ...]
    passages: int
    sampled: bool


class FindPath(Struct, frozen=True, forbid_unknown_fields=True, rename={"source": "from"}):
    """Two names."""

    source: EntityName
    to: EntityName
    collections: Collections = ()
    limit: Annotated[int, Meta(ge=1, le=20)] = 3


class HopView(Struct, frozen=True, rename={"source": "from"}):
    """A passage that mentions both names: each mention is a citation."""

    source: str
    to: str
    evidence: tuple[MentionView, ...]


class PathView(Struct, frozen=True):
    hops: tuple[HopView, ...]


class PathsFound(Struct, frozen=True):
    """The shortest paths; none: the names are not joined by three passages."""

    paths: tuple[PathView, ...]


class AddDocument(Struct, frozen=True, forbid_unknown_fields=True):
    """A text to be stored in a collection, which is created if there is none of its name."""

    collection: CollectionName
    text: str
    path: Annotated[
        DocumentPath | None, Meta(description="a label; its extension says what kind of text it is")
    ] = None
    metadata: dict[str, Any] = {}
    kind: Annotated[CollectionKind, Meta(description="of a collection that is created")] = "mixed"
    replace: Annotated[
        bool, Meta(description="replace another text of the path, whatever the collection does")
    ] = False
    track_id: (
        Annotated[
            str,
            Meta(
                pattern=r"^insert_[0-9a-f]{32}" + END,
                description="insert_ and 32 hexadecimal digits that texts of one batch share",
            ),
        ]
        | None
    ) = None

    def __post_init__(self) -> None:
        _check_path(self.path or "")


class DocumentAdded(Struct, frozen=True, omit_defaults=True):
    """`changed`: false if the same text was there already. `skipped`: an exchange that says
    nothing, in a collection that leaves these out."""

    document: str
    path: str
    version: int
    chunks: int
    track_id: str
    changed: bool = True
    skipped: bool = False


class AddFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A file of any type that is known, or an archive of files."""

    collection: CollectionName
    path: DocumentPath
    data: Annotated[str, Meta(description="its bytes in base64")] | None = None

    def __post_init__(self) -> None:
        _check_path(self.path)


class IngestSource(Struct, frozen=True, forbid_unknown_fields=True):
    """A source of files. What it no longer has is deleted; what has not changed is not read."""

    collection: CollectionName
    type: SourceType
    location: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=2048,
            description="a URL without credentials, or s3://BUCKET/PREFIX?region=...&endpoint=...",
        ),
    ]
    ref: Annotated[str, Meta(max_length=255, description="git: a branch or a tag")] = ""
    filter: PathPatterns = ()
    below: Annotated[str, Meta(max_length=255, description="a folder for its paths")] = ""


class UnreadView(Struct, frozen=True):
    path: str
    reason: str


class FilesIngested(Struct, frozen=True):
    """`failed`: files that cannot be read, whose older version goes on; `left_out`: others.
    `track_id`: of the last document that was stored."""

    added: int
    changed: int
    unchanged: int
    deleted: int
    failed: tuple[UnreadView, ...] = ()
    left_out: tuple[UnreadView, ...] = ()
    track_id: str = ""


class PutCollection(Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of a collection, and whom it grants access; without grants those stay."""

    kind: CollectionKind = "mixed"
    description: Annotated[str, Meta(max_length=2000)] = ""
    on_same_source: (
        Annotated[
            OnSameSource,
            Meta(
                description="another text of a path is a new version (default), is appended "
                "(default for conversations), or refused"
            ),
        ]
        | None
    ) = None
    skip_trivial: Annotated[bool, Meta(description="leave out greetings in conversations")] = False
    grants: Annotated[dict[Grantee, Access], Meta(max_length=1000)] | None = None


class CollectionView(Struct, frozen=True, omit_defaults=True):
    name: str
    kind: CollectionKind
    owner: str
    on_same_source: OnSameSource
    documents: int
    description: str = ""
    skip_trivial: bool = False
    grants: Mapping[str, Access] = {}
    statuses: Mapping[str, int] = {}
    extraction: Annotated[
        Mapping[str, int], Meta(description="documents that the chat model has read, or is to")
    ] = {}

    @classmethod
    def of(
        cls,
        collection: Collection,
        statuses: Mapping[str, int] | None = None,
        extraction: Mapping[str, int] | None = None,
    ) -> "CollectionView":
        return cls(
            collection.name,
            collection.kind,
            collection.owner,
            collection.on_same_source,
            collection.documents,
            collection.description,
            collection.skip_trivial,
            collection.grants,
            statuses or {},
            extraction or {},
        )


class CollectionList(Struct, frozen=True):
    items: tuple[CollectionView, ...]


class ChunkerSample(Struct, frozen=True, forbid_unknown_fields=True):
    """A text that the chunker has to cut."""

    path: DocumentPath
    text: Annotated[str, Meta(min_length=1, max_length=65_536)]


class PutChunker(Struct, frozen=True, forbid_unknown_fields=True):
    """A chunker for the documents of a collection that patterns match; no patterns: all. It is
    tried with the samples, and stored if it cuts them as it has to."""

    module: Annotated[str, Meta(description="a core module of WebAssembly in base64")]
    samples: Annotated[tuple[ChunkerSample, ...], Meta(min_length=3, max_length=20)]
    paths: PathPatterns = ()


class ChunkerList(Struct, frozen=True):
    items: tuple[StoredChunker, ...]


class ListDocuments(Struct, frozen=True, forbid_unknown_fields=True):
    collection: CollectionName | None = None
    track_id: Annotated[str, Meta(max_length=128)] | None = None
    after: Cursor | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    begin: Annotated[
        int, Meta(ge=0, le=1000, description="characters of the beginning of each text to show")
    ] = 0


class ExtractionView(Struct, frozen=True, omit_defaults=True):
    """How far a chat model has read the live version of a document."""

    status: str
    attempt: int = 0
    error: str | None = None
    next: datetime | None = None


class DocumentView(Struct, frozen=True, omit_defaults=True):
    """A document with the status of its last version; `live`: the version that is found."""

    document: str
    collection: str
    path: str
    status: str
    version: int
    live: int
    bytes: int
    chunks: int
    media_type: str
    track_id: str
    created: datetime
    changed: datetime
    metadata: Mapping[str, Any] = {}
    error: str | None = None
    extraction: ExtractionView | None = None
    note: str | None = None  # why it was not read as its type is
    begin: str | None = None  # of its text

    @classmethod
    def of(cls, row: DocumentState, *, is_read: bool = False) -> "DocumentView":
        """`is_read`: by a chat model."""
        next_ = row.next if row.extraction == "waiting" else None
        return cls(
            row.id,
            row.collection,
            row.path,
            row.status,
            row.version,
            row.live,
            row.bytes,
            row.chunks,
            row.media_type,
            row.track_id,
            row.created,
            row.changed,
            row.metadata,
            row.error,
            ExtractionView(row.extraction, row.attempt, row.failure, next_) if is_read else None,
            row.note,
            row.begin,
        )


class DocumentList(Struct, frozen=True, omit_defaults=True):
    items: tuple[DocumentView, ...]
    next: str = ""


class ReadDocumentLines(Struct, frozen=True, forbid_unknown_fields=True):
    first: Annotated[int, Meta(ge=1)] = 1
    last: Annotated[int, Meta(ge=1)] | None = None


class DocumentLines(Struct, frozen=True):
    """Lines of the text of a document, from 1, both inclusive; `total`: of all its lines."""

    document: str
    path: str
    version: int
    lines: tuple[int, int]
    total: int
    text: str


class DeleteDocuments(Struct, frozen=True, forbid_unknown_fields=True):
    """The documents of a collection to delete, by their ids."""

    collection: CollectionName
    documents: Annotated[tuple[HostId, ...], Meta(min_length=1, max_length=1000)]


class DocumentsDeleted(Struct, frozen=True):
    documents: int


def _check_path(path: str) -> None:
    """Raises ValueError."""
    if len(path.encode(errors="replace")) > PATH_BYTES:
        raise ValueError(f"path: expected at most {PATH_BYTES} bytes in UTF-8")


def evidence(chunk: Passage, reference: int, *, explain: bool) -> Evidence:
    view = convert(replace(chunk, reference=reference), Evidence, from_attributes=True)
    return view if explain else structs.replace(view, parts=None)


def relation_view(row: NamedRelation) -> RelationView:
    return RelationView(row.source, row.target, row.type, row.description, tuple(row.chunks))
