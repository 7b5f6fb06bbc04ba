"""Indexes of code in SCIP: what a compiler resolved, in place of what was parsed."""

from collections.abc import AsyncIterator, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio import from_thread, to_thread
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from config.librarian import IndexLimits
from config.load import load
from gateway.context import Upload
from gateway.operations.problems import ProblemDetails
from gateway.wings.document_library import IndexedCode, Library, SymbolQuery
from gateway.wings.librarian.library_access import WRITE
from gateway.wings.librarian.scip_format import ScipRefused, read_index, symbol_of
from gateway.wings.librarian.scip_upload import CodeIndexes
from tests.fixtures_database import Cluster
from tests.fixtures_gateway import DEADLINE_S
from tests.recycling import Recycling
from tests.wings.identities import identity_of, input_of
from tests.wings.knowledge.rig import KnowledgeRig
from tests.wings.librarian.rig import shared_documents
from tests.wings.librarian.test_library import context

pytestmark = pytest.mark.anyio

FILES = {
    "app/a.py": "class A:\n    def run(self):\n        return 1\n",
    "app/b.py": "class B(Base):\n    def run(self):\n        return 2\n",
    "main.py": "from app.a import A\n\n\ndef start():\n    A().run()\n",
}
A, B = "scip-python python app 1 `app.a`/A#", "scip-python python app 1 `app.b`/B#"
DEFINES, REFERS, IMPORTS = 1, 0, 2
Place = tuple[str, Sequence[int], int]


def varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def message(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def document(path: str, places: Iterable[Place], *more: bytes) -> bytes:
    """A document of an index."""
    occurrences = [
        message(2, message(1, b"".join(map(varint, place))) + message(2, symbol.encode())
                + varint(3 << 3) + varint(roles))
        for symbol, place, roles in places
    ]  # fmt: skip
    return message(2, b"".join([message(1, path.encode()), *occurrences, *more]))


def relation(symbol: str, base: str) -> bytes:
    """A fact about a symbol: it implements another one."""
    related = message(1, base.encode()) + varint(3 << 3) + varint(1)
    return message(3, message(1, symbol.encode()) + message(4, related))


INDEX = b"".join([
    message(1, b""),
    document("app/a.py", [(A, [0, 6, 7], DEFINES), (f"{A}run().", [1, 8, 11], DEFINES)]),
    document("app/b.py", [(B, [0, 6, 7], DEFINES), (f"{B}run().", [1, 8, 11], DEFINES)],
             relation(B, "scip-python python lib 1 `lib`/Root#")),
    document("main.py", [
        (A, [0, 18, 19], IMPORTS), (A, [4, 4, 5], REFERS), (f"{A}run().", [4, 8, 11], REFERS),
        ("local 3", [4, 0, 1], REFERS),
        ("scip-python python app 1 `main`/start().", [3, 4, 9], DEFINES),
    ]),
])  # fmt: skip


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # with one event loop for the module


@pytest.fixture(scope="module")
async def rig(cluster: Cluster, with_documents: Recycling) -> AsyncIterator[KnowledgeRig]:
    async with shared_documents(cluster, with_documents) as rig:
        yield rig


@pytest.fixture
async def library(rig: KnowledgeRig) -> Library:
    ann = rig.caller()
    await ann("put_collection", collection="code", kind="code", grants={"user:bo": "read"})
    for path, text in FILES.items():
        await ann.add(text, collection="code", path=path)
    return rig.parts.library


def limits(**changes: int) -> IndexLimits:
    return replace(load(None, {}).librarian.index, **changes)


@pytest.mark.parametrize(
    ("limit", "name"), [("files", "files"), ("names", "names"), ("occurrences", "occurrences")]
)
def test_an_index_beyond_a_limit_is_refused_with_its_setting(limit: str, name: str) -> None:
    files = document("a.py", [(A, [0, 1, 2], DEFINES)] * 2) + document("b.py", [])
    with pytest.raises(ScipRefused, match=rf"librarian\.index\.{name}"):
        list(read_index(files, limits(**{limit: 1})))
    (named, empty) = read_index(files, limits(name_bytes=4))
    assert (named.path, named.names, empty.path) == ("a.py", [], "b.py"), "the name is too long"


async def index_data(
    library: Library, data: bytes, who: str = "ann", most: int = 100
) -> IndexedCode:
    return await library.index(context(who), "code", read_index(data, limits(occurrences=most)))


async def references(library: Library, symbol: str) -> list[tuple[str, int, float]]:
    found = await library.references(context(), ["code"], symbol)
    return [(one.path, one.lines[0], one.confidence) for one in found]


async def test_an_index_resolves_ambiguous_names(library: Library) -> None:
    """An index resolves ambiguous names (L08)."""
    assert ("main.py", 5, 0.5) in await references(library, "A.run")
    assert ("main.py", 5, 0.5) in await references(library, "B.run")

    found = await index_data(library, INDEX)
    assert (found.files, found.definitions, found.references) == (3, 5, 3)
    assert found.left_out == []
    assert await references(library, "A.run") == [("main.py", 5, 1.0)]
    assert await references(library, "app.a.A.run") == [("main.py", 5, 1.0)]
    assert await references(library, "B.run") == []
    (first, second) = await library.references(context(), ["code"], "A")
    assert [(one.role, one.quote, one.scope) for one in (first, second)] == [
        ("import", "from app.a import A", ""),
        ("call", "A().run()", "start"),
    ]

    (run,) = await library.symbols(context(), SymbolQuery(name="A.run"))
    assert (run.lines, run.quote, run.scope) == ((2, 3), "def run(self):", "A")
    heirs = await library.symbols(context(), SymbolQuery(inherits="Root"))
    assert [one.symbol for one in heirs] == ["B", "B.run"]
    assert [one.symbol for one in await library.symbols(context(), SymbolQuery(inherits="Base"))]
    links = await library.links(context(), ["code"])
    assert {(one.source, one.target) for one in links} == {("main.py", "app/a.py")}


async def test_a_changed_text_is_parsed_until_indexed_again(
    rig: KnowledgeRig, library: Library
) -> None:
    """A changed text is parsed until indexed again (L08)."""
    await index_data(library, INDEX)
    moved = "\n" + FILES["main.py"]
    await rig.caller().add(moved, collection="code", path="main.py")
    assert ("main.py", 6, 0.5) in await references(library, "B.run")
    found = await index_data(library, INDEX)
    assert found.left_out == [("main.py", "the index is of another version of its text")]
    assert ("main.py", 6, 0.5) in await references(library, "B.run")
    (run,) = await library.symbols(context(), SymbolQuery(name="A.run"))
    assert run.lines == (2, 3)


async def test_only_writers_may_upload_an_index(library: Library) -> None:
    """Only writers may upload an index (L24)."""
    for who in ("bo", "cy"):
        with pytest.raises(ProblemDetails) as refused:
            await index_data(library, INDEX, who)
        assert refused.value.status in (403, 404)
    stray = document("none.py", [(A, [0, 0, 1], DEFINES)])
    found = await index_data(library, stray)
    assert found.left_out == [("none.py", "the collection has no such document")]


async def test_repeated_entries_of_an_index_are_stored_once(
    rig: KnowledgeRig, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = document("app/b.py", [(B, [0, 6, 7], DEFINES)] * 3, relation(B, A))
    found = await index_data(library, again * 2)
    assert (found.files, found.definitions) == (1, 1)
    assert found.left_out == [("app/b.py", "the index has it twice")]
    moved = document("app/b.py", [(B, [0, at, at + 1], DEFINES) for at in (6, 6, 7)])
    monkeypatch.setattr("gateway.wings.knowledge.scip_store.FITTING", 0.5)
    monkeypatch.setattr("gateway.wings.knowledge.scip_store.BATCH", 1)
    assert (await index_data(library, moved)).definitions == 2
    bases = await rig.rows(
        "SELECT bases FROM knowledge_resolved_t WHERE name = 'B' ORDER BY ordinal"
    )
    assert bases == [(["Base"],), ([],)]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not an index",
        INDEX[:-3],
        b"\xff" * 20,
        message(1, b"") + b"\x13",
        document("a.py", [(A, [0, 1, 2, 3, 4], DEFINES)]),
        document("a.py", [(A, [0, 1, 2], DEFINES)] * 101),
        message(2, b"") * 50_001,
    ],
)
def test_bytes_that_are_no_index_are_refused(data: bytes) -> None:
    with pytest.raises(ScipRefused):
        list(read_index(data, limits(occurrences=100)))


UNKNOWN = varint(15 << 3) + b"\0"  # a field of two bytes that the format does not have


@pytest.mark.parametrize(
    "data",
    [
        UNKNOWN * 2000 + INDEX,
        document("a.py", [], UNKNOWN * 2000),
        document("a.py", [], message(2, UNKNOWN * 2000)),
        document("a.py", [], message(3, UNKNOWN * 2000)),
        document("a.py", [], *[message(2, UNKNOWN * 20)] * 100),
    ],
    ids=["index", "document", "occurrence", "symbol", "occurrences"],
)
def test_fields_that_the_format_does_not_have_are_counted(data: bytes) -> None:
    """Fields of two bytes took half a second of a thread for each megabyte (mending 10)."""
    with pytest.raises(ScipRefused, match=r"more than 2000 fields \(librarian\.index\.fields\)"):
        list(read_index(data, limits(fields=2000)))


async def test_reading_one_document_ends_with_its_caller() -> None:
    """A client that leaves is noticed within a document, not only between two (mending 10)."""
    begun, checks = anyio.Event(), 0

    def check() -> None:
        nonlocal checks
        checks += 1
        from_thread.run_sync(begun.set)
        from_thread.check_cancelled()

    files = read_index(document("a.py", [], UNKNOWN * 300_000), limits(), check)

    async def read_next() -> None:
        await to_thread.run_sync(next, files, None)

    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as group:
            group.start_soon(read_next)
            await begun.wait()
            group.cancel_scope.cancel()
    assert checks < 30


@given(st.binary(max_size=200), st.integers(0, len(INDEX)))
def test_no_bytes_break_the_reader(data: bytes, at: int) -> None:
    for broken in (data, INDEX[:at] + data + INDEX[at:]):
        try:
            assert all(one.path for one in read_index(broken, limits()))
        except ScipRefused:
            continue


@pytest.mark.parametrize(
    ("text", "symbol"),
    [
        (f"{A}run().", "app.a.A.run"),
        ("s m p 1 src/`a b.ts`/f(+1).", "src.a b.ts.f"),
        ("s  x m p 1 a/B#", "a.B"),
        ("local 1", None),
        (f"{A}run().(x)", None),
        ("s m p 1 `a`/__init__:", None),
        ("s m p 1 " + "`" * 1000, None),
        ("s m", None),
    ],
)
def test_names_of_symbols(text: str, symbol: str | None) -> None:
    found = symbol_of(text)
    assert (None if found is None else found.whole) == symbol


def test_relationships_that_are_no_bases_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Relationships of a symbol are counted whether they name a base or not: 10 MB of empty ones
    took 11 s of a thread (mending 10)."""
    names: list[str] = []
    monkeypatch.setattr("gateway.wings.librarian.scip_format.symbol_of", names.append)
    facts = message(3, message(1, B.encode()) + message(4, b"") * 1000)
    assert len(list(read_index(document("a.py", [], facts), limits()))) == 1
    assert len(names) == 100


async def test_indexes_are_read_sequentially() -> None:
    """Large indexes of one caller do not keep the threads of all others (mending 10)."""
    reading, most = 0, 0

    class Slow:
        async def index(self, *_: Any, **__: Any) -> IndexedCode:
            nonlocal reading, most
            reading += 1
            most = max(most, reading)
            await anyio.lowlevel.checkpoint()
            reading -= 1
            return IndexedCode(files=0, definitions=0, references=0, left_out=[])

    settings = load(None, {}).librarian
    shelves: Any = SimpleNamespace(library=Slow())
    parts: Any = SimpleNamespace(settings=settings)
    indexes = CodeIndexes(parts, shelves)
    [operation] = indexes.operations
    asked = input_of(operation, identity_of("ann", frozenset({WRITE})), {"collection": "code"})
    assert asked.context is not None
    asked.context.upload = Upload(INDEX)
    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(operation.handle, asked)
    assert most == 1
