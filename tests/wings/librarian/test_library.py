"""The documents as other wings read them."""

from typing import Any

import pytest

from gateway.context import Context
from gateway.operations.problems import ProblemDetails
from gateway.wings.document_library import Library, PassageQuery, SymbolQuery
from registry.database.postgres import Database
from schemas.mcp.revisions import JSON_RPC
from tests.wings.identities import OTHER, identity_of
from tests.wings.knowledge.rig import SCOPES, KnowledgeRig, knowledge_settings, open_rig

pytestmark = pytest.mark.anyio

APP = '''"""An application."""

from base import Scaffold


class App(Scaffold):
    """Serves requests."""

    def run(self, port: int) -> None:
        self.open(port)

    def _close(self) -> None:
        pass


def make() -> App:
    return App()
'''
BASE = """class Scaffold(Root):
    def open(self, port):
        return port


class Other:
    def run(self):
        pass
"""
MAIN = """import app

found = app.make()
found.run(80)
app.App.run(found, 81)
"""
FILES = {"src/app.py": APP, "src/base.py": BASE, "main.py": MAIN, "guide.md": "# Guide\nRun it.\n"}


def context(subject: str | None = "ann", **more: Any) -> Context:
    return Context(identity_of(subject, SCOPES, **more), JSON_RPC, "1")


@pytest.fixture
async def library(rig: KnowledgeRig) -> Library:
    ann = rig.caller()
    await ann("put_collection", collection="code", kind="code", grants={"user:bo": "read"})
    await ann("put_collection", collection="own", kind="code")
    for path, text in FILES.items():
        await ann.add(text, collection="code", path=path)
        await ann.add(text, collection="own", path=path)
    return rig.parts.library


async def test_symbols_are_found_by_name_kind_and_place(library: Library) -> None:
    """Symbols are found by name kind and place (L08)."""

    async def find_symbols(**query: Any) -> list[tuple[str, str, tuple[int, int]]]:
        asked = SymbolQuery(collections=["code"], **query)
        symbols = await library.symbols(context(), asked)
        return [(one.symbol, one.path, one.lines) for one in symbols]

    app, other = ("App.run", "src/app.py", (9, 10)), ("Other.run", "src/base.py", (7, 8))
    assert await find_symbols(name="run") == [app, other]
    assert await find_symbols(name="App.run") == [app]
    assert await find_symbols(name="App::run", kind="method") == [app]
    assert await find_symbols(name="pp.run") == []
    assert [one[0] for one in await find_symbols(kind="class")] == ["App", "Scaffold", "Other"]
    assert [one[0] for one in await find_symbols(kind="class", path="src/b*")] == [
        "Scaffold",
        "Other",
    ]


async def test_symbols_of_subclasses_are_found_by_inheritance(library: Library) -> None:
    """Symbols of subclasses are found by inheritance (L27)."""

    async def find_symbols(**query: Any) -> list[str]:
        asked = SymbolQuery(collections=["code"], inherits="Root", **query)
        return [one.symbol for one in await library.symbols(context(), asked)]

    assert await find_symbols(kind="method", visibility="public", path="src/**") == [
        "App.run",
        "Scaffold.open",
    ]
    assert await find_symbols(kind="method", visibility="private") == ["App._close"]
    assert await find_symbols(kind="class") == ["App", "Scaffold"]
    assert await find_symbols(kind="method", path="lib/**") == []


async def test_files_that_chunks_name_are_found_for_readers_alone(library: Library) -> None:
    chunks = [one.chunk for one in await library.chunks(context(), "code", path="main.py")]
    for who, expected in (("ann", [("src/app.py", 1.0), ("src/base.py", 0.5)]), ("cy", [])):
        files = await library.related_files(context(who), None, chunks)
        assert [(file.path, file.share) for file in files] == expected
        assert {file.collection for file in files} <= {"code"}
    files = await library.related_files(context(), None, chunks, path="src/b*")
    assert [file.path for file in files] == ["src/base.py"]


async def test_related_files_define_or_call_a_name(library: Library) -> None:
    async def find_related(path: str) -> list[tuple[str, str, str, float]]:
        chunks = {one.chunk: one for one in await library.chunks(context(), "code", path=path)}
        files = await library.related_files(context(), None, list(chunks))
        shown = {one.chunk: one for one in await library.passages(
            context(), [file.passage for file in files])}  # fmt: skip
        assert not await library.passages(context("cy"), list(shown))
        return sorted(
            (chunks[file.chunk].symbol, file.path, shown[file.passage].symbol, file.share)
            for file in files
        )

    assert await find_related("main.py") == [
        ("", "src/app.py", "make", 1.0), ("", "src/base.py", "Other", 0.5),
    ]  # fmt: skip
    assert await find_related("src/base.py") == [("Scaffold", "src/app.py", "", 1.0)]


async def test_files_that_define_a_name_are_related(library: Library) -> None:
    for collections, found in ((["own"], ["own"]), (None, ["code", "own"])):
        files = await library.related_files(context(), collections, [], names=["make", "nothing"])
        assert [(file.chunk, file.collection) for file in files] == [("", name) for name in found]
        assert {(file.path, file.share) for file in files} == {("src/app.py", 1.0)}


async def test_names_of_many_definitions_link_no_files(library: Library, rig: KnowledgeRig) -> None:
    """A search that reads all definitions takes 6 s for 60 names with 9,000 each."""
    ann = rig.caller()
    methods = "".join(f"class C{n}:\n    def hot(self): pass\n" for n in range(100))
    await ann.add(methods, collection="code", path="hot.py")
    await ann.add("def cold(): pass\n", collection="code", path="cold.py")
    await ann.add("hot()\ncold()\n", collection="code", path="calls.py")
    chunks = [one.chunk for one in await library.chunks(context(), "code", path="calls.py")]
    files = await library.related_files(context(), None, chunks)
    assert [(file.path, file.share) for file in files] == [("cold.py", 1.0)]


async def test_data_records_are_found_by_path(library: Library, rig: KnowledgeRig) -> None:
    """Data records are found by path (L27)."""
    ann = rig.caller()
    deploy = '{"services": {\n  "web": {"port": 80},\n  "api": {\n    "port": 81}}}'
    for path, text in (
        ("deploy.json", deploy),
        ("conf/deploy.yaml", "services:\n  db:\n    port: 82\n"),
        ("conf/deploy.xml", "<services>\n<mail><port>83</port></mail></services>"),
        ("port.md", "services/web/port"),
    ):
        await ann.add(text, collection="code", path=path)

    async def find_records(record: str, who: str = "ann", **more: Any) -> list[Any]:
        parts = await library.records(context(who), ["code"], record, **more)
        return [(one.path, one.symbol, one.lines, one.text) for one in parts]

    api = ("deploy.json", "services/api/port", (4, 4), '"port": 81')
    yaml = ("conf/deploy.yaml", "services/db/port", (3, 3), "port: 82")
    assert (
        await find_records("services/api/port") == await find_records("/services/a*/port") == [api]
    )
    assert len(await find_records("services/*/port")) == 4
    assert await find_records("**/port", path="conf/*.yaml") == [yaml]
    assert await find_records("**", path="conf/*.yaml", limit=1)
    assert [one[2] for one in await find_records("services/api")] == [(3, 4)]
    assert await find_records("services/*/name") == await find_records("**/port", who="cy") == []
    for wrong in ("", "/", "x" * 257, "*" * 41):
        with pytest.raises(ProblemDetails, match="record: expected"):
            await find_records(wrong)


async def test_texts_are_searched_for_so_long(library: Library, rig: KnowledgeRig) -> None:
    await rig.caller().add('{"port": 80}', collection="code", path="deploy.json")
    async with open_rig(rig.database, knowledge_settings(grep_timeout_s=1e-6)) as hurried:
        read = hurried.parts.library
        with pytest.raises(ProblemDetails, match="took too long"):
            await read.records(context(), ["code"], "none")
        with pytest.raises(ProblemDetails, match="took too long"):
            await read.grep(context(), ["code"], "none")


async def test_references_have_their_line_and_a_confidence(library: Library) -> None:
    """References have their line and a confidence (L08)."""
    places = await library.references(context(), ["code"], "App.run")
    found = [(one.path, one.lines[0], one.quote, one.confidence) for one in places]
    assert found == [
        ("main.py", 5, "app.App.run(found, 81)", 1.0),
        ("main.py", 4, "found.run(80)", 0.5),
    ]
    (base, made, *_) = await library.references(context(), ["code"], "Scaffold")
    assert {(one.role, one.lines[0]) for one in (base, made)} == {("import", 3), ("inherit", 6)}
    (made, *_) = await library.references(context(), ["code"], "App")
    assert (made.scope, made.quote, made.role) == ("make", "return App()", "call")
    assert await library.references(context(), ["code"], " ") == []


async def test_symbols_and_references_follow_the_present_version(
    library: Library, rig: KnowledgeRig
) -> None:
    ann = rig.caller()
    moved = await ann.add("\n\n" + BASE, collection="code", path="src/base.py")
    assert moved.changed
    (found,) = await library.symbols(context(), SymbolQuery(collections=["code"], name="Other"))
    assert (found.lines, found.version) == ((8, 10), 2)
    await ann.add("x = 1\n", collection="code", path="src/base.py")
    assert not await library.symbols(context(), SymbolQuery(collections=["code"], name="Other"))
    await ann("delete", collection="code", documents=[moved.document])
    assert {one.path for one in await library.files(context(), ["code"])} == {
        "src/app.py",
        "main.py",
        "guide.md",
    }


async def test_files_are_paged_and_selected_by_pattern(library: Library) -> None:
    first = await library.files(context(), ["code"], limit=2)
    last = first[-1]
    rest = await library.files(context(), ["code"], after=f"{last.collection}/{last.path}")
    assert [one.path for one in (*first, *rest)] == sorted(FILES)
    assert [one.path for one in await library.files(context(), ["code"], path="*.md")] == [
        "guide.md"
    ]


async def test_reading_gives_the_lines_asked_for(library: Library) -> None:
    found = await library.read(context(), "code", "main.py", (3, 4))
    assert (found.text, found.lines) == ("found = app.make()\nfound.run(80)\n", (3, 4))
    assert (await library.read(context(), "code", "main.py", (5, 99))).lines == (5, 5)
    assert (await library.read(context(), "code", "src/app.py")).text == APP
    for path, lines, status in (
        ("no.py", None, 404),
        ("main.py", (0, 3), 422),
        ("main.py", (6, 9), 422),
    ):
        with pytest.raises(ProblemDetails) as caught:
            await library.read(context(), "code", path, lines)
        assert caught.value.status == status


async def test_grep_finds_each_matching_line_once(library: Library) -> None:
    async def grep_lines(pattern: str, **more: Any) -> list[tuple[str, int]]:
        lines = await library.grep(context(), ["code"], pattern, **more)
        return [(one.path, one.lines[0]) for one in lines]

    assert await grep_lines(r"run\(") == [
        ("main.py", 4),
        ("main.py", 5),
        ("src/app.py", 9),
        ("src/base.py", 7),
    ]
    assert await grep_lines(r"^def \w+", path="src/*") == [("src/app.py", 16)]
    assert await grep_lines(r"(?s)class.*pass") == []  # no match spans lines
    assert len(await grep_lines(".", limit=3)) == 3
    for pattern in ("", "(", "x" * 2000):
        with pytest.raises(ProblemDetails, match="pattern"):
            await grep_lines(pattern)


async def test_grep_refuses_to_read_beyond_its_limit(database: Database) -> None:
    async with open_rig(database, knowledge_settings(grep_bytes=20)) as rig:
        await rig.caller().add("0123456789abcdef", path="a.txt")
        library = rig.parts.library
        assert len(await library.grep(context(), None, "f$")) == 1
        await rig.caller().add("0123456789abcdef", path="b.txt")
        with pytest.raises(ProblemDetails, match=r"knowledge\.grep_bytes"):
            await library.grep(context(), None, "f$")
        assert len(await library.grep(context(), None, "f$", path="b*")) == 1


async def test_links_join_files_by_symbol_names(library: Library) -> None:
    links = await library.links(context(), ["code"])
    found = {(one.source, one.target, one.symbol) for one in links}
    assert {("main.py", "src/app.py", "make"), ("src/app.py", "src/base.py", "Scaffold")} <= found


async def test_neighbors_are_named_beside_a_name(library: Library) -> None:
    names = [name for name, _ in await library.neighbors(context(), ["code"], "Scaffold")]
    assert "App" in names


async def test_collections_without_a_grant_are_invisible(library: Library) -> None:
    """Collections without a grant are invisible (L24)."""
    for who in (context("bo"), context("cy"), context(None), context("ann", tenant=OTHER)):
        reads = who.principal.id == "bo"
        shelves = [one.name for one in await library.collections(who)]
        assert shelves == (["code"] if reads else [])
        hits = await library.search(who, PassageQuery(text="run"))
        seen = {one.collection for one in hits.passages}
        seen |= {one.collection for one in await library.files(who, None)}
        seen |= {one.collection for one in await library.grep(who, None, "run")}
        seen |= {one.collection for one in await library.symbols(who, SymbolQuery(name="run"))}
        seen |= {one.collection for one in await library.references(who, None, "run")}
        seen |= {one.collection for one in await library.links(who, None)}
        assert seen == ({"code"} if reads else set())
        assert bool(await library.neighbors(who, ["own"], "Scaffold")) is False
        with pytest.raises(ProblemDetails, match="no document"):
            await library.read(who, "own", "main.py")
