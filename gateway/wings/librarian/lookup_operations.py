"""Operations that look things up in documents and code, without a model."""

from collections.abc import Sequence
from dataclasses import replace

from anyio import to_thread
from msgspec import convert

from config.librarian import LibrarianSettings
from gateway.operations.operation import Operation, OperationInput, OperationOutput
from gateway.operations.paging import cursor, place, unknown
from gateway.operations.problems import invalid
from gateway.wings.document_library import Passage, PassageQuery, PassageView, SymbolQuery
from gateway.wings.librarian.library_access import DATA, READ, LibraryAccess, context_of
from gateway.wings.librarian.member_texts import PASSAGES
from gateway.wings.librarian.passage_selection import (
    RELATING,
    identifiers,
    prefer_sources,
    rank_files,
)
from gateway.wings.librarian.repository_maps import draw_map
from gateway.wings.librarian.requests_and_views import (
    ChunkList,
    ChunkView,
    FilesFound,
    FileView,
    FindRecords,
    FindReferences,
    FindSymbols,
    GrepLibrary,
    LinesRead,
    ListChunks,
    ListFiles,
    MapLibrary,
    MapView,
    PassagesFound,
    ReadLibrary,
    SearchLibrary,
    SymbolsFound,
    SymbolView,
)

DIGITS = 9  # of the number of a chunk
REACH = 100  # passages that are ranked by their files
LAST = 2**31 - 1  # a line beyond the end of any document


class LookupOperations:
    def __init__(self, access: LibraryAccess, settings: LibrarianSettings) -> None:
        self._access = access
        self._settings = settings

    @property
    def operations(self) -> tuple[Operation, ...]:
        return (
            Operation(
                "librarian_search", "POST", "/search",
                "Find passages of documents and code, by words and meaning.", READ, self.search,
                PassagesFound, body=SearchLibrary, members=PASSAGES, details=DATA,
            ),
            Operation(
                "librarian_grep", "POST", "/grep",
                "Find the lines of documents and code that a regular expression matches.", READ,
                self.grep, PassagesFound, body=GrepLibrary, details=DATA,
            ),
            Operation(
                "librarian_records", "POST", "/records",
                "Find the parts of JSON, YAML and XML documents by the names that lead to them.",
                READ, self.records, PassagesFound, body=FindRecords, details=DATA,
            ),
            Operation(
                "librarian_read", "POST", "/read", "Read lines of a document, by its path.", READ,
                self.read, LinesRead, body=ReadLibrary, details=DATA,
            ),
            Operation(
                "librarian_files", "POST", "/files", "List the documents of collections.", READ,
                self.files, FilesFound, body=ListFiles,
            ),
            Operation(
                "librarian_chunks", "POST", "/chunks",
                "List all passages of a collection, as for an export.", READ, self.chunks,
                ChunkList, body=ListChunks, details=DATA,
            ),
            Operation(
                "librarian_symbols", "POST", "/symbols",
                "Find definitions in code by name, kind, visibility, base class and path.", READ,
                self.symbols, SymbolsFound, body=FindSymbols, details=DATA,
            ),
            Operation(
                "librarian_references", "POST", "/references",
                "Find where code calls, imports or inherits a symbol.", READ, self.references,
                SymbolsFound, body=FindReferences, details=DATA,
            ),
            Operation(
                "librarian_map", "POST", "/map",
                "Show the definitions of a repository that its code refers to most.", READ,
                self.map, MapView, body=MapLibrary, details=DATA,
            ),
        )  # fmt: skip

    async def search(self, request: OperationInput) -> OperationOutput:
        body: SearchLibrary = request.body
        query = PassageQuery(
            text=body.query,
            collections=body.collections or None,
            path=body.path,
            limit=REACH,
        )
        hits = await self._access.library.search(context_of(request), query)
        ranked = prefer_sources(body.query, hits.passages)
        if body.by == "file" and ranked:
            ranked = await self._best_of_files(request, ranked)
        return _passages(ranked[: body.limit], hits.note)

    async def _best_of_files(
        self, request: OperationInput, hits: Sequence[Passage]
    ) -> list[Passage]:
        """The best passage of each file, the best files first."""
        context, body, library = context_of(request), request.body, self._access.library
        best = [hit.chunk for hit in hits[:RELATING]]
        related = await library.related_files(
            context,
            body.collections or None,
            best,
            names=identifiers(body.query),
            path=body.path,
        )
        files = rank_files(hits, body.limit, related)
        passages = {hit.chunk: hit for hit in hits}
        if missing := [chunk for chunk, _ in files if chunk not in passages]:
            passages |= {
                passage.chunk: passage for passage in await library.passages(context, missing)
            }
        return [
            replace(passages[chunk], score=score) for chunk, score in files if chunk in passages
        ]

    async def grep(self, request: OperationInput) -> OperationOutput:
        body: GrepLibrary = request.body
        passages = await self._access.library.grep(
            context_of(request),
            body.collections or None,
            body.pattern,
            path=body.path,
            limit=body.limit,
        )
        return _passages(passages)

    async def records(self, request: OperationInput) -> OperationOutput:
        body: FindRecords = request.body
        names = body.collections or None
        records = await self._access.library.records(
            context_of(request), names, body.record, path=body.path, limit=body.limit
        )
        return _passages(records)

    async def read(self, request: OperationInput) -> LinesRead:
        body: ReadLibrary = request.body
        last = LAST if body.last is None else body.last
        if last < body.first:
            raise invalid(f"last: expected at least first ({body.first}), found {last}")
        passage = await self._access.library.read(
            context_of(request), body.collection, body.path, (body.first, last)
        )
        return _within(passage, self._settings.read_bytes)

    async def files(self, request: OperationInput) -> FilesFound:
        body: ListFiles = request.body
        files = await self._access.library.files(
            context_of(request),
            body.collections or None,
            path=body.path,
            after=body.after,
            limit=body.limit + 1,
        )
        page = files[: body.limit]
        more = f"{page[-1].collection}/{page[-1].path}" if len(files) > len(page) else ""
        return FilesFound(convert(page, tuple[FileView, ...], from_attributes=True), more)

    async def chunks(self, request: OperationInput) -> ChunkList:
        body: ListChunks = request.body
        ordinal, _, path = place(body.after).partition(" ")
        if ordinal and (not ordinal.isdecimal() or len(ordinal) > DIGITS):
            raise unknown()
        after = (path, int(ordinal)) if ordinal else ("", -1)
        chunks = await self._access.library.chunks(
            context_of(request),
            body.collection,
            path=body.path,
            after=after,
            limit=body.limit + 1,
            embeddings=body.embeddings,
        )
        page = chunks[: body.limit]
        last = page[-1] if len(chunks) > len(page) else None
        more = cursor(f"{last.ordinal} {last.path}") if last else ""
        return ChunkList(tuple(map(ChunkView.of, page)), more)

    async def symbols(self, request: OperationInput) -> SymbolsFound:
        body: FindSymbols = request.body
        query = convert(body, SymbolQuery, from_attributes=True)
        query = replace(query, collections=body.collections or None)
        symbols = await self._access.library.symbols(context_of(request), query)
        return SymbolsFound(convert(symbols, tuple[SymbolView, ...], from_attributes=True))

    async def references(self, request: OperationInput) -> SymbolsFound:
        body: FindReferences = request.body
        references = await self._access.library.references(
            context_of(request), body.collections or None, body.symbol, body.limit
        )
        return SymbolsFound(convert(references, tuple[SymbolView, ...], from_attributes=True))

    async def map(self, request: OperationInput) -> OperationOutput:
        body: MapLibrary = request.body
        links = await self._access.library.links(
            context_of(request), [body.collection], path=body.path
        )
        tokens = body.tokens or self._settings.map_tokens
        repository_map = await to_thread.run_sync(draw_map, links, body.focus, tokens)
        value = MapView(
            repository_map.text,
            repository_map.files,
            repository_map.symbols,
            repository_map.omitted,
        )
        return OperationOutput(value, text=repository_map.text)


def _passages(passages: Sequence[Passage], note: str | None = None) -> OperationOutput:
    """With a text for models: each passage below its place."""
    texts = [
        f"{passage.collection}/{passage.path}:{passage.lines[0]}-{passage.lines[1]}\n{passage.text}"
        for passage in passages
    ]
    text = "\n\n".join([f"Note: {note}"] * bool(note) + texts)
    views = convert(passages, tuple[PassageView, ...], from_attributes=True)
    return OperationOutput(PassagesFound(views, note), text=text)


def _within(passage: Passage, limit: int) -> LinesRead:
    """As many whole lines as fit; of a first line that does not, its beginning."""
    first, last = passage.lines
    data, text, more = passage.text.encode(), passage.text, 0
    if len(data) > limit:
        last_line_end = data[:limit].rfind(b"\n") + 1
        text = data[: last_line_end or limit].decode(errors="ignore")
        line_count = max(text.count("\n"), 1)
        more = first + line_count if first + line_count <= last else 0
        last = first + line_count - 1
    return LinesRead(passage.collection, passage.path, passage.version, (first, last), text, more)
