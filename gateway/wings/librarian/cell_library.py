"""Library as the code of research sees it: with the rights of the caller, and counted."""

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from config.librarian import ResearchSettings
from gateway.context import Context
from gateway.operations.problems import ProblemDetails
from gateway.wings.document_library import (
    Library,
    LibraryFile,
    Passage,
    PassageQuery,
    SymbolPlace,
    SymbolQuery,
)
from gateway.wings.librarian.part_answers import Asker
from gateway.wings.librarian.run_budget import LimitReached, RunLedger

RECORDED_BYTES = 64 << 20  # bytes of all answers of a run, which are recorded
Text = Annotated[str, Meta(max_length=2000)]
Number = Annotated[int, Meta(ge=1, le=1000)]
Line = Annotated[int, Meta(ge=1)] | None
# of the arguments, by name
_TYPES: dict[str, Any] = {
    "search": tuple[Text, Number, Text],
    "grep": tuple[Text, Text, Number],
    "files": tuple[Text, Text],
    "read": tuple[Text, Line, Line],
    "symbols": tuple[Text, Text, Text, Text],
    "refs": tuple[Text],
    "neighbors": tuple[Text],
    "context": tuple[()],
}


@dataclass(kw_only=True, slots=True)
class CellScope:
    """The rights and limits that all code of one run shares."""

    context: Context  # of the caller
    library: Library
    collections: Sequence[str]
    limits: ResearchSettings
    ledger: RunLedger
    asker: Asker  # it gets the passages that the code was given
    recorded: int = 0  # bytes of answers of the library


class CellLibrary:
    def __init__(self, scope: CellScope) -> None:
        self._scope = scope
        self._library = scope.library
        self._context = scope.context
        self._collections = scope.collections
        self._limits = scope.limits
        self._answers: dict[str, Callable[..., Awaitable[Any]]] = {
            "search": self._search,
            "grep": self._grep,
            "files": self._files,
            "read": self._read,
            "symbols": self._symbols,
            "refs": self._refs,
            "neighbors": self._neighbors,
            "context": self._whole,
        }

    async def answer(self, name: str, arguments: Sequence[Any]) -> dict[str, Any]:
        """`value`, or `error`: why there is none. Both are JSON."""
        if name not in _TYPES:
            return {"error": f"There is no {name[:100]}"}
        try:
            self._scope.ledger.count("lookups")
            typed_arguments = msgspec.convert(arguments, _TYPES[name])
            value = await self._answers[name](*typed_arguments)
        except msgspec.ValidationError as error:
            return {"error": f"{name}: {error}"}
        except LimitReached as error:
            return {"error": str(error)}
        except ProblemDetails as problem:
            if problem.status >= 500:
                raise
            return {"error": problem.detail}
        most = self._limits.context_bytes if name == "context" else self._limits.answer_bytes
        size = len(msgspec.json.encode(value))
        if name != "context":
            self._scope.recorded += size
        if self._scope.recorded > RECORDED_BYTES:
            return {"error": str(self._scope.ledger.limit_reached("lookups"))}
        if size > most:
            return {"error": f"{name}: the answer has more than {most} bytes; ask for less"}
        return {"value": value}

    def journal_answer(self, name: str, answer: dict[str, Any]) -> dict[str, Any]:
        """The answer as it is recorded: of the context its hash."""
        if name != "context" or "value" not in answer:
            return answer
        return {"value": hashlib.sha256(answer["value"].encode()).hexdigest()}

    async def _search(self, text: str, limit: int, path: str) -> Any:
        query = PassageQuery(text=text, collections=self._collections, path=path, limit=limit)
        return self._show_passages((await self._library.search(self._context, query)).passages)

    async def _grep(self, pattern: str, path: str, limit: int) -> Any:
        return self._show_passages(
            await self._library.grep(
                self._context, self._collections, pattern, path=path, limit=limit
            )
        )

    async def _files(self, path: str, after: str) -> Any:
        files = await self._library.files(self._context, self._collections, path=path, after=after)
        return [_file(file) for file in files]

    async def _read(self, path: str, first: int | None, last: int | None) -> str:
        lines = None if first is None and last is None else (first or 1, last or 10**9)
        problem = ProblemDetails(404, "not-found", f"There is no document {path[:100]!r}")
        for collection in self._collections:
            try:
                passage = await self._library.read(self._context, collection, path, lines)
            except ProblemDetails as error:
                if error.status != 404:
                    raise
                continue
            self._scope.asker.show([passage])
            return passage.text
        raise problem

    async def _symbols(self, name: str, kind: str, path: str, inherits: str) -> Any:
        query = SymbolQuery(
            collections=self._collections, name=name, kind=kind, path=path, inherits=inherits
        )
        return [_place(symbol) for symbol in await self._library.symbols(self._context, query)]

    async def _refs(self, symbol: str) -> Any:
        references = await self._library.references(self._context, self._collections, symbol)
        return [_place(reference) for reference in references]

    async def _neighbors(self, name: str) -> Any:
        return await self._library.neighbors(self._context, self._collections, name)

    async def _whole(self) -> str:
        files = await self._library.files(self._context, self._collections)
        size, most = sum(file.bytes for file in files), self._limits.context_bytes
        if size > most or len(files) >= 1000:
            text = f"The documents have {size} bytes, more than {most}: use lib"
            raise ProblemDetails(413, "too-large", text)
        texts = []
        for file in files:
            self._scope.ledger.count("lookups")
            passage = await self._library.read(self._context, file.collection, file.path)
            self._scope.asker.show([passage])
            texts.append(f"=== {file.path} ===\n{passage.text}")
        return "\n".join(texts)

    def _show_passages(self, passages: Sequence[Passage]) -> list[dict[str, Any]]:
        self._scope.asker.show(passages)
        return [_passage(passage) for passage in passages]


def _passage(passage: Passage) -> dict[str, Any]:
    members = asdict(passage)
    del members["chunk"]
    return members


def _file(file: LibraryFile) -> dict[str, Any]:
    members = asdict(file)
    del members["sha256"]
    return members


def _place(place: SymbolPlace) -> dict[str, Any]:
    return asdict(place)
