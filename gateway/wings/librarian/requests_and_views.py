"""Requests and responses of the librarian's operations on documents and code."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Raw, Struct

from config.knowledge import CollectionName
from config.value_types import END
from gateway.operations.operation import Time
from gateway.operations.paging import Cursor
from gateway.wings.document_library import Lines, Passage, PassageView, Role

Collections = Annotated[
    tuple[CollectionName, ...], Meta(max_length=100, description="empty: all that you may read")
]
Glob = Annotated[
    str,
    Meta(
        max_length=256,
        description="a pattern of paths: * within a folder, ** across folders; empty: all",
    ),
]
DocumentPath = Annotated[
    str, Meta(min_length=1, max_length=1024, description="the path of a document")
]
SymbolName = Annotated[
    str,
    Meta(max_length=512, description="the name of a symbol, perhaps with its scopes: Flask.run"),
]
Question = Annotated[str, Meta(min_length=1, max_length=65_536)]
Line = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class SearchLibrary(Struct, frozen=True, forbid_unknown_fields=True):
    query: Question
    collections: Collections = ()
    path: Glob = ""
    limit: Annotated[int, Meta(ge=1, le=100)] = 10
    by: Annotated[
        Literal["passage", "file"],
        Meta(description="file: the best passage of each file, by its passages and related files"),
    ] = "passage"


class GrepLibrary(Struct, frozen=True, forbid_unknown_fields=True):
    pattern: Annotated[
        str, Meta(min_length=1, max_length=1000, description="a regular expression of RE2")
    ]
    collections: Collections = ()
    path: Glob = ""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class FindRecords(Struct, frozen=True, forbid_unknown_fields=True):
    record: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=256,
            description="names that lead to a part, as a pattern: services/*/port, **/port;"
            " elements of JSON have their number, items of YAML -",
        ),
    ]
    collections: Collections = ()
    path: Glob = ""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class PassagesFound(Struct, frozen=True, omit_defaults=True):
    """Passages. `note`: why some may be missing, or may not fit."""

    passages: tuple[PassageView, ...]
    note: str | None = None


class ReadLibrary(Struct, frozen=True, forbid_unknown_fields=True):
    collection: CollectionName
    path: DocumentPath
    first: Line = 1
    last: Line | None = None  # None: the end of the document


class LinesRead(Struct, frozen=True, omit_defaults=True):
    """Lines of the present version of a document."""

    collection: str
    path: str
    version: int
    lines: Lines
    text: str
    next: Annotated[int, Meta(description="the line from which to read on; absent: none")] = 0


class ListFiles(Struct, frozen=True, forbid_unknown_fields=True):
    collections: Collections = ()
    path: Glob = ""
    after: Annotated[
        str, Meta(max_length=1200, description="`next` of the page before, unchanged")
    ] = ""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 200


class FileView(Struct, frozen=True):
    collection: str
    path: str
    version: int
    bytes: int
    media_type: str
    sha256: str


class FilesFound(Struct, frozen=True, omit_defaults=True):
    files: tuple[FileView, ...]
    next: str = ""


class ListChunks(Struct, frozen=True, forbid_unknown_fields=True):
    collection: CollectionName
    path: Glob = ""
    after: Cursor | None = None
    limit: Annotated[int, Meta(ge=1, le=500)] = 100
    embeddings: Annotated[bool, Meta(description="with their vectors, of those that have one")] = (
        False
    )


class ChunkView(Struct, frozen=True, omit_defaults=True):
    """A passage as it is stored."""

    id: str
    collection: str
    path: str
    version: int
    lines: Lines
    kind: str
    text: str
    header: str = ""
    symbol: str = ""
    visibility: str = ""
    signature: str = ""
    embedding: Sequence[float] = ()
    model: Annotated[str, Meta(description="of the embedding")] = ""

    @classmethod
    def of(cls, passage: Passage) -> "ChunkView":
        members = {name: getattr(passage, name) for name in cls.__struct_fields__ if name != "id"}
        return cls(id=passage.chunk, **members)


class ChunkList(Struct, frozen=True, omit_defaults=True):
    chunks: tuple[ChunkView, ...]
    next: str = ""


class FindSymbols(Struct, frozen=True, forbid_unknown_fields=True):
    """Conditions on definitions, all of which hold: "public methods of classes that inherit X
    below src" is {"kind": "method", "visibility": "public", "inherits": "X", "path": "src/**"}."""

    name: SymbolName = ""
    kind: Annotated[
        str,
        Meta(
            max_length=40,
            description="function, method, class, interface, struct, enum, trait, type, module",
        ),
    ] = ""
    visibility: Annotated[
        str,
        Meta(
            pattern=r"^(public|private|protected)?" + END,
            description="public, private, protected, or nothing: as the language has",
        ),
    ] = ""
    inherits: Annotated[
        str, Meta(max_length=512, description="a class; what inherits it, and what that defines")
    ] = ""
    path: Glob = ""
    collections: Collections = ()
    limit: Annotated[int, Meta(ge=1, le=500)] = 50


class FindReferences(Struct, frozen=True, forbid_unknown_fields=True):
    symbol: Annotated[SymbolName, Meta(min_length=1)]
    collections: Collections = ()
    limit: Annotated[int, Meta(ge=1, le=500)] = 50


class SymbolView(Struct, frozen=True, omit_defaults=True):
    """Where a symbol is defined, or where code names it."""

    symbol: str
    role: Role
    collection: str
    path: str
    version: int
    lines: Lines
    quote: Annotated[str, Meta(description="its signature, or the line that names it")]
    kind: str = ""
    visibility: str = ""
    scope: Annotated[str, Meta(description="the symbol in whose definition it stands")] = ""
    confidence: Annotated[float, Meta(description="below 1: several definitions have the name")] = (
        1.0
    )


class SymbolsFound(Struct, frozen=True):
    symbols: tuple[SymbolView, ...]


class MapLibrary(Struct, frozen=True, forbid_unknown_fields=True):
    collection: CollectionName
    focus: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=512)], ...],
        Meta(max_length=20, description="paths or symbols, around which the map is drawn"),
    ] = ()
    path: Glob = ""
    tokens: Annotated[int, Meta(ge=100, le=100_000)] | None = None


class MapView(Struct, frozen=True):
    """The most referenced definitions of a repository, by file."""

    text: str
    files: int
    symbols: int
    omitted: Annotated[int, Meta(description="symbols that did not fit")]


class QuestionPaging(Struct, frozen=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    before: Time | None = None


class QuestionView(Struct, frozen=True):
    """`shown`: collection, path, version, first and last line of what a model was shown."""

    created: datetime
    principal: str
    operation: str
    request_id: str
    question: str
    collections: tuple[str, ...]
    model: str
    shown: Raw


class QuestionList(Struct, frozen=True):
    questions: tuple[QuestionView, ...]
