"""Chunkers in WebAssembly: what they may do, what is made of broken ones, and how they are used."""

import base64
import os
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import wasmtime
from msgspec.structs import replace

from gateway.operations.problems import ProblemDetails
from gateway.wings.documents.chunking.chunks import ChunkingOptions
from gateway.wings.documents.reading.process_pool import ReadingWorkers
from gateway.wings.documents.reading.reading_limits import DEFAULT_LIMITS
from gateway.wings.documents.reading.wasm_chunkers import component_spans, spans_of, try_module
from gateway.wings.documents.reading.wasm_limits import ChunkerRefused, WasmLimits
from registry.database.postgres import Database
from tests.wings.documents.gaps import gaps
from tests.wings.knowledge.rig import KnowledgeRig, knowledge_settings, open_rig

pytestmark = pytest.mark.anyio

# Their time is not what is tested, but that they end: by fuel, or far below the time of a test.
LIMITS = WasmLimits(time_s=20)
EXAMPLES = Path(__file__).parents[3] / "examples" / "chunkers"
EXAMPLE = EXAMPLES / "recutils.wasm"
TOOLCHAIN = "CHUNKER_TOOLCHAIN"
LINES = (EXAMPLES / "lines.wat").read_text()  # a component
BOOKS = """\
# Books of the station
%rec: Book

Title: Herons of Lake Constance
Author: Otto Reed
Note: "Größe" \\ and reeds

Title: Terns
Author: Ida Sand
"""


def module(
    chunk: str, *, output: str = "", extra: str = "", analyze: str = "(i64.const 0)"
) -> bytes:
    """A chunker whose `tg_chunk` is WAT; `output` is at address 16."""
    escaped = output.replace("\\", "\\\\").replace('"', '\\"')
    return bytes(
        wasmtime.wat2wasm(f"""(module
          {extra}
          (memory (export "memory") 2)
          (data (i32.const 16) "{escaped}")
          (global $count (mut i32) (i32.const 0))
          (func (export "tg_abi") (result i32) (i32.const 1))
          (func (export "tg_alloc") (param i32) (result i32) (i32.const 65536))
          (func (export "tg_analyze") (param i32 i32) (result i64) {analyze})
          (func $self (export "tg_chunk") (param i32 i32 i32 i32) (result i64) {chunk}))""")
    )


def returning(output: str) -> bytes:
    return module(f"(i64.const {16 << 32 | len(output.encode())})", output=output)


def error_of(given: bytes, text: str = "hällo world", limits: WasmLimits = LIMITS) -> str:
    return try_module(given, [("a.rec", text)], ChunkingOptions(), limits).error


ENDLESS = "(loop (br 0)) (i64.const 0)"
REMEMBERS = """(global.set $count (i32.add (global.get $count) (i32.const 1)))
    (if (result i64) (i32.eq (global.get $count) (i32.const 1))
      (then (i64.const 0x0000001000000010)) (else (i64.const 0x0000001000000011)))"""


@pytest.mark.parametrize(
    ("given", "error"),
    [
        pytest.param(module(ENDLESS), "used all its fuel", id="endless loop"),
        pytest.param(
            module("(loop (memory.fill (i32.const 0) (i32.const 0) (i32.const 131072)) (br 0))"
                   "(i64.const 0)"), "used all its fuel", id="endless fill"),
        pytest.param(
            module("(loop (br_if 0 (i32.ge_s (memory.grow (i32.const 16)) (i32.const 0))))"
                   "unreachable"), "trapped: unreachable", id="memory bomb"),
        pytest.param(module("(call $self (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))"),
                     "calls itself too deeply", id="recursion"),
        pytest.param(module("(i64.const 0)", extra="(func $s (loop (br 0))) (start $s)"),
                     "used all its fuel", id="start function"),
        pytest.param(module("(i64.const 0)", extra='(import "env" "now" (func))'),
                     "imports env.now", id="import"),
        pytest.param(module("(i64.const 0x00ffffff00000010)"), "pointer beyond", id="pointer"),
        pytest.param(module("(i64.const -1)"), "returned 4294967295 bytes", id="length"),
        pytest.param(module("(i64.store (i32.const -8) (i64.const 0)) (i64.const 0)"),
                     "left its memory", id="store"),
        pytest.param(module("(i64.const 0)", analyze="(i64.const 0x0000001000000003)"),
                     "configuration that is no JSON", id="configuration"),
        pytest.param(module("(i64.const 0)", extra=r'(data (i32.const 40000) "\22\ff\22")',
                            analyze=f"(i64.const {40000 << 32 | 3})"),
                     "configuration that is no JSON", id="configuration in Latin-1"),
        pytest.param(module("(i64.const 0)", output=5000 * "[",
                            analyze=f"(i64.const {16 << 32 | 5000})"),
                     "configuration that is no JSON", id="deep configuration"),
        pytest.param(returning('[{"s":0,"e":12,"x":' + 5000 * "["), "no array of spans", id="deep"),
        pytest.param(returning('[{"s":0,"e":4},{"s":3,"e":12}]'), "overlapping", id="overlap"),
        pytest.param(returning('[{"s":0,"e":2},{"s":2,"e":12}]'), "cuts a character", id="UTF-8"),
        pytest.param(returning('[{"s":0,"e":6}]'), "left out the bytes from 6", id="rest"),
        pytest.param(returning('[{"s":7,"e":12}]'), "left out the bytes from 0 to 7", id="gap"),
        pytest.param(returning('[{"s":0,"e":13}]'), "from 0 to 13 of 12", id="end"),
        pytest.param(returning('[{"s":0,"e":12,"p":0}]'), "parent", id="parent"),
        pytest.param(returning('[{"s":-1,"e":12}]'), "no array of spans", id="negative"),
        pytest.param(returning('[{"s":0,"e":12,"m":{"symbol":"\\u0000"}}]'), "no array", id="NUL"),
        pytest.param(returning('[{"s":0,"e":12,"k":"No Kind"}]'), "no array", id="kind"),
        pytest.param(returning('{"error":"no\\u0000 header\\u001b"}'),
                     "cannot read it: no header", id="error"),
        pytest.param(returning('[{"s":0,"e":12,"m":{"symbol":"\\ud800"}}]'),
                     "no array", id="surrogate"),
        pytest.param(returning("[[["), "no array of spans", id="JSON"),
        pytest.param(module(REMEMBERS, output="[{\"s\":0,\"e\":12}]"), "second run", id="memory"),
        pytest.param(
            bytes(wasmtime.wat2wasm("(module)")), "exports no `memory`", id="no exports"),
        pytest.param(
            bytes(wasmtime.wat2wasm(
                '(module (memory (export "memory") 1)'
                ' (func (export "tg_abi") (result i64) (i64.const 1)))')),
            r"exports no function tg_abi() -> i32", id="other types"),
        pytest.param(b"\x7fELF compiled", "is no core module", id="compiled code"),
    ],
)  # fmt: skip
def test_broken_chunkers_are_refused(given: bytes, error: str) -> None:
    """Broken chunkers are refused (L09)."""
    assert error in error_of(given)


def component(chunk_file: str = "", **changes: str) -> bytes:
    """The example, with another `chunk-file`, whose code is WAT, and texts replaced."""
    start, end = LINES.index('(func (export "chunk-file")'), LINES.index("(core instance $core")
    function = f"""(func (export "chunk-file") (param i32 i32 i32 i32 i32 i32 i32 i32)
        (result i32) (local $at i32) {chunk_file}))"""
    text = LINES[:start] + function + LINES[end:] if chunk_file else LINES
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    return bytes(wasmtime.wat2wasm(text))


def list_chunks(place: int, count: int) -> str:
    """Code that returns a list of chunks."""
    return f"""(i32.store (i32.const 4) (i32.const {place}))
        (i32.store (i32.const 8) (i32.const {count})) (i32.const 0)"""


GROW = "(drop (memory.grow (i32.const 900)))"
# 100,000 chunks whose ids are the same 16 MiB.
ALIASES = f"""{GROW} (local.set $at (i32.const 1024))
    (loop (i32.store (local.get $at) (i32.const 0x800000))
      (i32.store offset=4 (local.get $at) (i32.const 0x1000000))
      (local.set $at (i32.add (local.get $at) (i32.const 64)))
      (br_if 0 (i32.lt_u (local.get $at) (i32.const 6401024))))
    {list_chunks(1024, 100_000)}"""


@pytest.mark.parametrize(
    ("given", "error"),
    [
        pytest.param(component(ENDLESS.replace("i64", "i32")), "used all its fuel", id="loop"),
        pytest.param(component("unreachable"), "trapped: unreachable", id="trap"),
        pytest.param(
            component("(loop (br_if 0 (i32.ge_s (memory.grow (i32.const 16)) (i32.const 0))))"
                      "unreachable"), "trapped: unreachable", id="memory bomb"),
        pytest.param(component(**{'"memory") 1)': '"memory") 9000)'}),
                     "memory minimum size of 9000 pages exceeds memory limits", id="memory"),
        pytest.param(component(**{"(core instance $core":
                                  "(core instance (instantiate $code)) (core instance $core"}),
                     "memory count too high", id="two memories"),
        pytest.param(component(f"{GROW} {list_chunks(1024, 900_000)}"),
                     "returned too much", id="output"),
        pytest.param(component(ALIASES), "returned too much", id="one text many times"),
        pytest.param(component(list_chunks(-64, 9)), "out of bounds", id="pointer"),
        pytest.param(component(f"(i32.store8 (i32.const 0) (i32.const 7)) {list_chunks(0, 0)}"),
                     "discriminant", id="no result"),
        pytest.param(component(f"(i32.store8 (i32.const 9999) (i32.const 255)) (i32.store"
                               f" (i32.const 1024) (i32.const 9999)) (i32.store (i32.const 1028)"
                               f" (i32.const 1)) {list_chunks(1024, 1)}"), "utf-8", id="UTF-8"),
        pytest.param(component(list_chunks(1024, 1)), "no array of spans", id="kind"),
        pytest.param(component(list_chunks(0, 0)), "left out the bytes from 0", id="nothing"),
        pytest.param(component(**{"(component\n": '(component (import "now" (func))\n'}),
                     "imports now, expected no imports", id="import"),
        pytest.param(
            component(**{"(component\n": '(component (import "wasi:cli/run@0.2.0" (instance))\n'}),
            "imports wasi:cli/run@0.2.0", id="empty import"),
        pytest.param(component(**{'"preserve-context" bool': '"preserve-context" u8'}),
                     "exports no function analyze: func(sample: string", id="other type"),
        pytest.param(component(**{"@1.0.0": "@2.0.0"}), "exports no interface toolgate:librarian",
                     id="other version"),
        pytest.param(bytes(wasmtime.wat2wasm("(component)")), "exports no interface", id="empty"),
        pytest.param(component()[:-20], "is no component", id="cut off"),
        pytest.param(b"\0asm\r\0\1\0" + b"\xff" * 99, "is no component", id="noise"),
    ],
)  # fmt: skip
def test_broken_components_are_refused(given: bytes, error: str) -> None:
    assert error in error_of(given)


def chunk_of(start: int, end: int, **changes: Any) -> dict[str, Any]:
    empty = {"id": "", "content": None, "metadata": [], "parent-id": None, "children": []}
    return {**empty, "start": start, "end": end, "kind": "record", **changes}


def test_chunks_of_a_component_name_each_other() -> None:
    parts = [
        chunk_of(0, 2, id="a", content="ab", children=["b"], metadata=[("symbol", "A"), ("x", "")]),
        chunk_of(2, 4, id="b", **{"parent-id": "a"}),
    ]
    first, second = component_spans(parts, b"abcd")
    assert (first.m.symbol, second.p) == ("A", 0)
    for number, changes in (
        (0, {"content": "xy"}), (0, {"parent-id": "b"}), (0, {"children": ["c"]}),
        (0, {"children": ["a"]}), (1, {"id": "a"}),
    ):  # fmt: skip
        broken = list(parts)
        broken[number] = {**parts[number], **changes}
        with pytest.raises(ChunkerRefused, match=f"gave span {number} "):
            component_spans(broken, b"abcd")


def test_a_component_that_fuel_does_not_end_is_ended_by_time() -> None:
    limits = replace(LIMITS, fuel=2**62, time_s=0.1)
    endless = component(ENDLESS.replace("i64", "i32"))
    assert "did not end in time" in error_of(endless, limits=limits)


def test_a_chunker_of_another_abi_is_refused() -> None:
    text = EXAMPLE.read_bytes()
    other = bytes(
        wasmtime.wat2wasm("""(module (memory (export "memory") 1)
          (func (export "tg_abi") (result i32) (i32.const 2))
          (func (export "tg_alloc") (param i32) (result i32) (i32.const 0))
          (func (export "tg_analyze") (param i32 i32) (result i64) (i64.const 0))
          (func (export "tg_chunk") (param i32 i32 i32 i32) (result i64) (i64.const 0)))""")
    )
    assert error_of(other) == "has version 2 of the ABI, expected 1 (sample a.rec)"
    assert error_of(text) == ""


def test_a_chunker_that_fuel_does_not_end_is_ended_by_time() -> None:
    limits = replace(LIMITS, fuel=2**62, time_s=0.1)
    assert "did not end in time" in error_of(module(ENDLESS), limits=limits)


def test_the_number_and_the_size_of_chunks_are_limited() -> None:
    with pytest.raises(ChunkerRefused, match="returned 500000 spans"):
        spans_of(b"[" + b",".join([b'{"s":0,"e":1}'] * 500_000) + b"]", LIMITS)
    many = component(list_chunks(1024, 11))
    assert "returned 11 spans" in error_of(many, limits=replace(LIMITS, chunks=10))
    ten_million = "(i64.const 0x0000000008000000)"  # as JSON 130 MB
    assert "expected at most 16777216" in error_of(module(ten_million))
    text = "x" * 3000
    assert "3000 characters" in error_of(returning(f'[{{"s":0,"e":{len(text)}}}]'), text)


def test_the_example_cuts_records() -> None:
    text = BOOKS + "\nTitle: Long\n" + "Note: many words\n" * 300
    report = try_module(EXAMPLE.read_bytes(), [("books.rec", text)], ChunkingOptions(), LIMITS)
    assert report.error == ""
    [sample] = report.samples
    assert sample.chunks == 5  # two records, and one in three parts


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


async def test_a_chunker_process_survives_a_failure() -> None:
    workers = ReadingWorkers(1, replace(DEFAULT_LIMITS, parse_s=60.0, cut_s=60.0), LIMITS)
    found = await workers.read("b.rec", BOOKS.encode(), chunker=EXAMPLE.read_bytes())
    assert [(one.kind, one.symbol) for one in found.chunks] == [
        ("record", "Herons of Lake Constance"), ("record", "Terns"),
    ]  # fmt: skip
    assert "Größe" in [one.name for one in found.chunks[0].mentions]
    [worker] = workers._idle
    broken = await workers.read("b.rec", BOOKS.encode(), chunker=module(ENDLESS))
    assert broken.note == (
        "it was cut as plain text: its chunker used all its fuel: it does not end, or is too slow"
    )
    assert not gaps(broken.chunks, len(BOOKS.encode()) - 1)
    assert workers._idle == [worker]
    await workers.close()


def chunker(given: bytes, **more: Any) -> dict[str, Any]:
    samples = [{"path": f"{number}.rec", "text": BOOKS} for number in range(3)]
    return {"module": base64.b64encode(given).decode(), "samples": samples, **more}


async def put(rig: KnowledgeRig, given: bytes, subject: str = "ann", **more: Any) -> Any:
    arguments = {"collection": "books", "chunker": "recutils", **chunker(given, **more)}
    return await rig.caller(subject)("put_chunker", **arguments)


@pytest.fixture
async def books(database: Database) -> AsyncIterator[KnowledgeRig]:
    chunkers = replace(knowledge_settings().chunkers, time_s=20)
    async with open_rig(database, knowledge_settings(chunkers=chunkers)) as rig:
        await rig.caller()("put_collection", collection="books")
        yield rig


async def kinds(rig: KnowledgeRig, path: str) -> list[str]:
    rows = await rig.rows(
        "SELECT kind FROM knowledge_chunk_t JOIN knowledge_document_t USING (host_id, document_id)"
        " WHERE path = %s ORDER BY ordinal", path,
    )  # fmt: skip
    return [kind for (kind,) in rows]


async def test_a_chunker_cuts_the_documents_of_its_patterns(books: KnowledgeRig) -> None:
    """A chunker cuts the documents of its patterns (L03)."""
    ann = books.caller()
    await ann.add(BOOKS, "books", path="old.rec")
    view = await put(books, EXAMPLE.read_bytes(), paths=["*.rec"])
    assert [one.chunks for one in view.report.samples] == [2, 2, 2]
    for path in ("a.rec", "deep/b.rec", "c.txt"):
        await ann.add(BOOKS, "books", path=path)
    assert await kinds(books, "deep/b.rec") == ["record", "record"]
    assert await kinds(books, "c.txt") == ["text"]
    assert await kinds(books, "old.rec") == ["text"]
    assert (await ann.add(BOOKS, "books", path="old.rec")).changed  # since it is cut otherwise
    assert await kinds(books, "old.rec") == ["record", "record"]
    assert not (await ann.add(BOOKS, "books", path="a.rec")).changed
    [listed] = (await ann("chunkers", collection="books")).items
    assert (listed.name, listed.paths) == ("recutils", ("*.rec",))
    found = await ann("query", query="Otto Reed", filter={"paths": ["a.rec"]})
    assert found.evidence[0].symbol == "Herons of Lake Constance"


async def test_a_file_that_its_chunker_fails_at_is_degraded_to_text(books: KnowledgeRig) -> None:
    """It cuts the samples, and breaks on other files."""
    picky = f'[{{"s":0,"e":{len(BOOKS.encode())}}}]'
    await put(books, returning(picky))
    ann = books.caller()
    await ann.add("The heron nests in reeds.", "books", path="x.rec")
    assert await ann.find_texts("heron") == ["The heron nests in reeds."]
    [document] = (await ann("documents", collection="books")).items
    assert document.status == "processed"
    assert document.note.startswith("it was cut as plain text: its chunker returned span 0 from 0")


@pytest.mark.skipif(
    TOOLCHAIN not in os.environ,
    reason=f"{TOOLCHAIN} names no folder with bin/python-zig and node_modules of jco",
)
def test_a_component_is_made_of_c_by_the_commands_of_the_guide(tmp_path: Path) -> None:
    tools = Path(os.environ[TOOLCHAIN])
    for name in ("lines.c", "component.mjs", "chunker.wit"):
        shutil.copy(EXAMPLES / name, tmp_path)
    (tmp_path / "node_modules").symlink_to(tools / "node_modules")
    (command,) = re.findall(r"^ {4}python-zig (.*)$", (EXAMPLES / "README.md").read_text(), re.M)
    for one in ([tools / "bin/python-zig", *command.split()], ["node", "component.mjs"]):
        subprocess.run(one, cwd=tmp_path, check=True, timeout=300)
    samples = [("a.rec", "Heron\n\nTérn\n"), ("b.rec", "x"), ("c.rec", "a b\n" * 100)]
    report = try_module((tmp_path / "lines.wasm").read_bytes(), samples, ChunkingOptions(), LIMITS)
    assert (report.error, [one.chunks for one in report.samples]) == ("", [2, 1, 100])
    error = error_of((tmp_path / "lines.wasm").read_bytes(), "x" * 2001)
    assert "a line is longer than a chunk may be" in error


async def test_a_component_cuts_documents_or_falls_back_to_text(books: KnowledgeRig) -> None:
    view = await put(books, component())
    assert [one.chunks for one in view.report.samples] == [7, 7, 7]
    ann = books.caller()
    await ann.add("Héron\n\nTern\n", "books", path="a.rec")
    assert await kinds(books, "a.rec") == ["line", "line"]
    assert await ann.find_texts("tern") == ["Tern"]
    await ann.add("heron " * 400, "books", path="b.rec")
    notes = {one.path: one.note for one in (await ann("documents", collection="books")).items}
    assert notes["b.rec"] == (
        "it was cut as plain text: its chunker cannot read it: a line is longer than a chunk may be"
    )
    assert not notes["a.rec"]


REFUSED: tuple[tuple[dict[str, Any], str], ...] = (
    ({"module": "no base64!"}, "module: expected base64"),
    ({"module": base64.b64encode(b"0" * (2**20 + 1)).decode()}, "expected at most 1048576"),
    ({"module": base64.b64encode(module(ENDLESS)).decode()}, "used all its fuel"),
    ({"samples": [{"path": "a", "text": "x"}] * 2}, "samples"),
    ({"samples": [{"path": "a", "text": "x\0"}] * 3}, "without NUL"),
    ({"paths": ["["]}, "no pattern of .gitignore"),
)


async def test_invalid_chunkers_are_refused(books: KnowledgeRig) -> None:
    """Invalid chunkers are refused (L10)."""
    ann = books.caller()
    for changes, message in REFUSED:
        given = {**chunker(EXAMPLE.read_bytes()), **changes}
        with pytest.raises(ProblemDetails) as refused:
            await ann("put_chunker", collection="books", chunker="x", **given)
        assert refused.value.status == 422
        assert message in str(refused.value)
    assert (await ann("chunkers", collection="books")).items == ()


async def test_administrators_of_a_collection_alone_choose_its_chunkers(
    books: KnowledgeRig,
) -> None:
    await books.caller()("put_collection", collection="books", grants={"user:bo": "write"})
    await put(books, EXAMPLE.read_bytes())
    with pytest.raises(ProblemDetails, match="403"):
        await put(books, EXAMPLE.read_bytes(), "bo")
    with pytest.raises(ProblemDetails, match="403"):
        await books.caller("bo")("delete_chunker", collection="books", chunker="recutils")
    with pytest.raises(ProblemDetails, match="404"):
        await books.caller("cy")("chunkers", collection="books")
    await books.caller()("delete_chunker", collection="books", chunker="recutils")
    assert await books.rows("SELECT FROM knowledge_chunker_t") == []
    with pytest.raises(ProblemDetails, match="404"):
        await books.caller()("delete_chunker", collection="books", chunker="recutils")
