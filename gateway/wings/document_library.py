"""The documents that one wing keeps, as another wing reads them for a caller."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Protocol

from msgspec import Meta, Struct

from gateway.context import Context
from gateway.operations.job_declarations import Job

Lines = tuple[int, int]  # the first and the last, from 1
PROSE_KINDS = frozenset({"text", "section"})  # of chunks
DATA_KINDS = PROSE_KINDS | {"record", "row"}  # those that are no source code
Role = Literal["define", "call", "import", "inherit", "link", "mention"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """Lines of the live version of a document, as its text has them. A search scores them."""

    collection: str
    path: str
    version: int
    lines: Lines
    text: str
    chunk: str = ""  # id of the chunk; "": lines that a caller chose
    kind: str = "text"
    header: str = ""  # headings or scopes that it stands in
    symbol: str = ""  # that it defines
    ordinal: int = 0  # in its document; of chunks, as the next members
    document: str = ""  # its id
    page: int | None = None
    visibility: str = ""  # of its symbol; of listed chunks, as what follows
    signature: str = ""
    embedding: Sequence[float] = ()  # where it was asked for and is there
    model: str = ""  # of the embedding
    score: float = 0.0
    words: float = 0.0  # a part of the score
    meaning: float | None = None  # the other part
    reference: int = 0  # its number in an answer

    @property
    def parts(self) -> Mapping[str, float]:
        """Parts of the score."""
        return {"words": round(self.words, 4), "meaning": round(self.meaning or 0.0, 4)}


class PassageView(Struct, frozen=True, omit_defaults=True):
    """Lines of a document, as clients see them."""

    collection: str
    path: str
    version: int
    lines: Lines
    text: str
    symbol: str = ""
    header: Annotated[str, Meta(description="headings or scopes that it stands in")] = ""
    score: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageQuery:
    text: str
    collections: Sequence[str] | None = None  # None: all that the caller may read
    path: str = ""  # glob; "": all
    limit: int = 10


@dataclass(frozen=True, slots=True)
class PassageHits:
    """Passages, best first. `note`: why some may be missing, or may not fit."""

    passages: Sequence[Passage] = ()
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryFile:
    collection: str
    path: str
    version: int
    bytes: int
    media_type: str
    language: str
    sha256: str  # of its text, in hexadecimal


@dataclass(frozen=True, slots=True, kw_only=True)
class SymbolQuery:
    """Definitions by name, or by what they are ("methods of what inherits X below src/")."""

    collections: Sequence[str] | None = None
    name: str = ""  # exact, or the last part of a dotted name; "": any
    kind: str = ""  # function, method, class, interface, struct, enum, trait, type, module, ...
    visibility: str = ""  # public, private or protected
    path: str = ""  # glob
    inherits: str = ""  # only what inherits this class, also over others, and what is defined in it
    limit: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class SymbolPlace:
    """Where a symbol is defined, or named by other code."""

    symbol: str  # of a reference: the name as it stands there
    role: Role
    collection: str
    path: str
    version: int
    lines: Lines
    quote: str  # its first line, which has the signature
    kind: str = ""
    visibility: str = ""
    scope: str = ""  # the symbol in whose definition it stands
    confidence: float = 1.0  # below 1: several definitions have the name


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLink:
    """Code of one file that names a symbol of another one, or of its own."""

    collection: str
    source: str  # path
    target: str  # path of the definition
    symbol: str
    kind: str
    lines: Lines  # of the definition
    quote: str  # its signature
    weight: float  # places that name it, shared by all definitions of the name


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadableCollection:
    """A collection that the caller may read."""

    id: str
    name: str
    writable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionStatus:
    """Searchable state of a collection."""

    name: str
    documents: Mapping[str, int]  # by the status of their last version
    chunks: int  # found by words
    embedded: int  # of them, found by meaning


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePlace:
    """Where files of a collection come from."""

    type: Literal["git", "url", "s3"]
    location: str
    ref: str = ""  # branch or tag; "": the default branch
    filter: tuple[str, ...] = ()  # patterns of .gitignore; (): all files
    folder: str = ""  # of their paths in the collection
    seen: str = ""  # `IngestedSource.seen` of the reading before; "": all is compared


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestedSource:
    """Outcomes of a source's files."""

    added: int
    changed: int
    unchanged: int
    deleted: int
    failed: Sequence[tuple[str, str]]  # path and reason; the first of them
    left_out: Sequence[tuple[str, str]]
    seen: str  # state of the source: a commit, or the validator of a URL; "": none


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedName:
    """A name in code, as a compiler resolved it. Lines and places in them count from 0."""

    symbol: str  # with its scopes: Flask.run
    whole: str  # with its modules, too: flask.app.Flask.run
    name: str  # its last part
    role: Literal["define", "call", "import"]
    kind: str
    line: int
    start: int
    end: int
    last: int  # line of a definition
    bases: Sequence[str] = ()  # names of what it implements


@dataclass(frozen=True, slots=True)
class RelatedFile:
    """A file that defines a name in a chunk, or that names what the chunk defines."""

    chunk: str  # "": the names that were asked for
    collection: str
    path: str
    passage: str  # id of the chunk with the definition, or the name
    share: float  # 1 / number of files that do so, for the name that fewest have


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedFile:
    """A file of an index of code."""

    path: str
    unit: Literal["utf-8", "utf-16", "utf-32"]  # of places in lines
    names: Sequence[IndexedName]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedCode:
    """Outcome of a code index."""

    files: int
    definitions: int
    references: int
    left_out: Sequence[tuple[str, str]]  # path and reason; the first of them


class Library(Protocol):
    """Every method is judged by what the caller of the context may read: what it may not is not
    there. All raise ProblemDetails."""

    async def collections(self, context: Context) -> Sequence[ReadableCollection]: ...

    async def status(
        self, context: Context, collections: Sequence[str] | None
    ) -> Sequence[CollectionStatus]: ...

    async def prepare(
        self, context: Context, collection: str, place: SourcePlace
    ) -> ReadableCollection:
        """The collection of a source, which is made if there is none. The caller may write to it,
        and the location is one that may be stored: without credentials."""
        ...

    async def ingest(
        self, context: Context, collection: ReadableCollection, place: SourcePlace, job: Job
    ) -> IngestedSource:
        """Store the files of a source, and delete those that it no longer has. A collection that
        is deleted meanwhile stays deleted."""
        ...

    async def index(
        self, context: Context, collection: str, files: Iterator[IndexedFile], *, folder: str = ""
    ) -> IndexedCode:
        """Store what an index says of files, below a folder of the collection. It replaces what
        was parsed of their texts, until these change. `files` is read in a thread."""
        ...

    async def search(self, context: Context, query: PassageQuery) -> PassageHits: ...

    async def files(
        self,
        context: Context,
        collections: Sequence[str] | None,
        *,
        path: str = "",
        after: str = "",
        limit: int = 1000,
    ) -> Sequence[LibraryFile]:
        """By collection and path. `after`: collection and path of the last one, joined by `/`."""
        ...

    async def chunks(
        self,
        context: Context,
        collection: str,
        *,
        path: str = "",
        after: tuple[str, int] = ("", -1),
        limit: int = 200,
        embeddings: bool = False,
    ) -> Sequence[Passage]:
        """All passages of a collection, by path and ordinal. `after`: those of the last one."""
        ...

    async def read(
        self, context: Context, collection: str, path: str, lines: Lines | None = None
    ) -> Passage: ...

    async def grep(
        self,
        context: Context,
        collections: Sequence[str] | None,
        pattern: str,
        *,
        path: str = "",
        limit: int = 100,
    ) -> Sequence[Passage]:
        """Lines that an RE2 expression matches."""
        ...

    async def records(
        self,
        context: Context,
        collections: Sequence[str] | None,
        record: str,
        *,
        path: str = "",
        limit: int = 100,
    ) -> Sequence[Passage]:
        """Parts of JSON, YAML and XML documents by the names that lead to them, as a glob:
        services/*/port. Elements of JSON have their number, items of YAML "-"."""
        ...

    async def symbols(self, context: Context, query: SymbolQuery) -> Sequence[SymbolPlace]: ...

    async def references(
        self, context: Context, collections: Sequence[str] | None, symbol: str, limit: int = 50
    ) -> Sequence[SymbolPlace]: ...

    async def links(
        self, context: Context, collections: Sequence[str] | None, *, path: str = ""
    ) -> Sequence[FileLink]:
        """The graph of references between the files of a repository, the heaviest first."""
        ...

    async def passages(self, context: Context, chunks: Sequence[str]) -> Sequence[Passage]:
        """Passages by the ids of their chunks, in no order."""
        ...

    async def related_files(
        self,
        context: Context,
        collections: Sequence[str] | None,
        chunks: Sequence[str],
        *,
        names: Sequence[str] = (),
        path: str = "",
    ) -> Sequence[RelatedFile]:
        """Files that define `names` or what the code of these chunks calls, imports or inherits,
        and files that do so with their definitions, but for names that many files define or
        have."""
        ...

    async def neighbors(
        self, context: Context, collections: Sequence[str] | None, name: str, limit: int = 20
    ) -> Sequence[tuple[str, float]]:
        """Names that passages mention beside this one, with the strength of their bond."""
        ...
