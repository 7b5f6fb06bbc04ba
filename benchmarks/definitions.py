"""Source code as knowledge: how well chunks keep definitions whole, and how well a definition is
found by what its documentation says.

The repositories are not part of this one. They are read from a folder (`--recall`) with
`code/NAME.tar.gz`, whatever their names; the rows are left out without them. A query is the first
sentence of a documentation, without the name of what it documents; documentations are taken out of
what is stored. They are docstrings of Python, `//` of Go, `///` of Rust, and `/** */` of JavaScript
and TypeScript.
"""

import hashlib
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.library import sent
from benchmarks.memories import await_vectors
from benchmarks.processes import pin
from benchmarks.rig import Rig
from benchmarks.table import Row, Target, missing
from benchmarks.toolgate import installation, serving
from gateway.wings.documents.chunking.chunks import Chunk, ChunkingOptions, CodeSymbol
from gateway.wings.documents.chunking.chunks_by_kind import CODE, cut
from gateway.wings.documents.chunking.code_grammars import parser
from gateway.wings.documents.reading.media_types import media_type

GOALS = {"flask": 80.0, "cobra": 84.0, "json": 70.0}
GOAL = 75.0  # of other repositories
QUERIES = 200
WORDS = 4  # of a query at least
DEPTHS = (5, 10)
TIMEOUT_S = 120.0
WHOLE, ALONE = 95.0, 90.0
_PYTHON = re.compile(r'[ \t]*[rRuU]?("""|\'\'\')(.*?)\1[ \t]*\n?', re.DOTALL)
_COMMENTS = re.compile(r"(?:^[ \t]*//[/!]?[^\n]*\n)+", re.MULTILINE)
_DOCUMENTS = {"text/x-go": "// ", "text/x-rust": "///"}  # how a line of documentation begins
_BLOCKS = re.compile(
    r"(?:\s*(?://[^\n]*\n|/\*(?:(?!\*/).)*\*/))*\s*(/\*\*(?:(?!\*/).)*\*/[ \t]*\n?)", re.DOTALL
)
_TAG = re.compile(r"^[ \t]*@(\w+)", re.MULTILINE)
_DESCRIBING = frozenset({"summary", "description", "remarks"})
_LINK = re.compile(r"\{@link\w*\s+([^}|]*)(?:\|[^}]*)?\}")
_FENCED = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_OTHERS = re.compile(  # files that are not measured
    r"(?:^|/)(?:tests?|__tests__|examples?|docs|fuzz|bench(?:es|marks?)?|fixtures|locale|dist"
    r"|node_modules)/|_test\.|\.(?:test|spec|d)\.|(?:^|/)test_"
)
_SENTENCE = re.compile(r"(?<=[.!?])\s|\n\s*\n")


@dataclass(frozen=True, slots=True)
class CodeFile:
    path: str
    media_type: str
    text: str


@dataclass(frozen=True, slots=True)
class Definition:
    """A definition, with what its documentation says first."""

    path: str
    symbol: str
    place: int  # among the definitions of its file, of which several may have its symbol
    query: str


def measure_definitions(rig: Rig, directory: Path | None) -> list[Row]:
    archives = sorted((directory / "code").glob("*.tar.gz")) if directory else []
    if not archives:
        return [missing("definitions of source code", "%", "no directory of code (--recall)")]
    cores = rig.cores.tested | rig.cores.load
    pin(0, cores)
    everywhere = replace(rig, cores=replace(rig.cores, tested=cores))
    rows: list[Row] = []
    try:
        for archive in archives:
            name = archive.name.removesuffix(".tar.gz")
            files = list(code_files(archive))
            rows += [*_chunk_rows(name, files), *_search_rows(everywhere, name, files)]
    finally:
        pin(0, rig.cores.load)
    return rows


def code_files(archive: Path) -> Iterator[CodeFile]:
    with tarfile.open(archive) as tar:
        for member in tar:
            file = tar.extractfile(member) if member.isreg() else None
            data = file.read() if file else b""
            kind = media_type(member.name, data)
            if kind in CODE and data.strip() and not _OTHERS.search(member.name):
                yield CodeFile(member.name.removeprefix("./"), kind, data.decode())


def _chunk_rows(name: str, files: Sequence[CodeFile]) -> Iterator[Row]:
    unbroken = definitions = alone = code = total = 0
    for file in files:
        chunks = cut(file.text, media_type=file.media_type, path=file.path)
        total += len(chunks)
        for chunk in chunks:
            definitions += len(chunk.definitions)
            unbroken += sum(definition.end <= chunk.end for definition in chunk.definitions)
            code += 1
            alone += parses_alone(file, chunk)
    note = f"{len(files)} files, {total:,} chunks, {definitions:,} definitions"
    goal = (Target("least", WHOLE),)
    yield Row(f"{name}: definitions in one chunk", _share(unbroken, definitions), "%", targets=goal,
              note=note)  # fmt: skip
    goal = (Target("least", ALONE),)
    yield Row(f"{name}: chunks that parse alone", _share(alone, code), "%", targets=goal)


def _share(part: int, total: int) -> float:
    return 100 * part / total if total else 0.0


def parses_alone(file: CodeFile, chunk: Chunk) -> bool:
    """Whether a chunk is a program, with its header before and the brackets that it leaves open
    closed."""
    reader = parser(CODE[file.media_type])
    body = file.text.encode()[chunk.start : chunk.end].decode()
    header = "".join(f"{line}\n" for line in chunk.header.splitlines())
    if not header:
        indent = len(body) - len(body.lstrip(" \t"))
        body = "\n".join(line[indent:] if not line[:indent].strip() else line
                         for line in body.splitlines())  # fmt: skip
    text = header + body
    open_ = max(text.count("{") - text.count("}"), 0)
    extra = max(text.count("}") - text.count("{"), 0)
    candidates = [text + "\n}" * open_, "{" * extra + text, text, text + "\n    pass"]
    return reader is not None and any(
        not reader.parse(f"{candidate}\n".encode()).root_node.has_error for candidate in candidates
    )


def _search_rows(rig: Rig, name: str, files: Sequence[CodeFile]) -> Iterator[Row]:
    stripped = [stripped_of(file) for file in files]
    asked = sorted(
        (definition for _, definitions in stripped for definition in definitions),
        key=lambda target: hashlib.sha256(f"{target.path}{target.symbol}".encode()).digest(),
    )[:QUERIES]
    spans = {file.path: definitions_of(file) for file, _ in stripped}
    hits = dict.fromkeys(DEPTHS, 0)
    settings = {"knowledge": {"enabled": True}}
    with (
        installation(rig, f"definitions-{name}", {}, settings) as site,
        serving(rig, site) as child,
    ):
        rig.say(f"definitions: storing {len(files)} files of {name}")
        with closing(HTTPConnection("127.0.0.1", child.port, timeout=TIMEOUT_S)) as connection:
            for file, _ in stripped:
                body = {"collection": name, "path": file.path, "text": file.text,
                        "kind": "code"}  # fmt: skip
                _posted(connection, "/documents", body)
        await_vectors(site)
        with closing(HTTPConnection("127.0.0.1", child.port, timeout=TIMEOUT_S)) as connection:
            for question in asked:
                rank = _rank(connection, name, question, spans[question.path])
                for depth in DEPTHS:
                    hits[depth] += rank <= depth
    for depth in DEPTHS:
        goal = (Target("least", GOALS.get(name, GOAL)),) if depth == DEPTHS[-1] else ()
        note = f"{len(asked)} first sentences of documentations"
        yield Row(f"{name}: definition found, R@{depth}", _share(hits[depth], len(asked)), "%",
                  targets=goal, note=note)  # fmt: skip


def _rank(
    connection: HTTPConnection,
    collection: str,
    question: Definition,
    definitions: Sequence[CodeSymbol],
) -> int:
    """The rank of the definition among what is found; one past all if it is not."""
    target = definitions[question.place]
    body = {"query": question.query, "collections": [collection], "limit": DEPTHS[-1],
            "tokens": 1_000_000}  # fmt: skip
    evidence = _posted(connection, "/query", body)["evidence"]
    ranks = (
        at
        for at, passage in enumerate(evidence, 1)
        if passage["path"] == question.path
        and passage["lines"][0] <= target.end_line
        and passage["lines"][1] >= target.start_line
    )
    return next(ranks, DEPTHS[-1] + 1)


def _posted(connection: HTTPConnection, path: str, body: Mapping[str, object]) -> Any:
    return sent(connection, "POST", f"/knowledge/v1{path}", msgspec.json.encode(body))


def definitions_of(file: CodeFile) -> list[CodeSymbol]:
    """All definitions of a file, in order."""
    chunks = cut(file.text, media_type=file.media_type, chunking=ChunkingOptions(size=10**9))
    return [definition for chunk in chunks for definition in chunk.definitions]


def stripped_of(file: CodeFile) -> tuple[CodeFile, list[Definition]]:
    """A file without documentations, and the definitions that had one."""
    data, definitions = file.text.encode(), []
    removed: list[tuple[int, int]] = []
    for place, symbol in enumerate(definitions_of(file)):
        text = data[symbol.start : symbol.end].decode()
        span = _documentation(file.media_type, text)
        if span is None:
            continue
        documentation = text[slice(*span)]
        start = symbol.start + len(text[: span[0]].encode())
        removed.append((start, start + len(documentation.encode())))
        name = symbol.symbol.rpartition(".")[2]
        query = _query(documentation, name)
        if len(query.split()) >= WORDS:
            definitions.append(Definition(file.path, symbol.symbol, place, query))
    for start, end in sorted(set(removed), reverse=True):
        data = data[:start] + data[end:]
    return replace(file, text=data.decode()), definitions


def _documentation(type_: str, text: str) -> tuple[int, int] | None:
    """Span of the documentation in the text of a definition."""
    if type_ == "text/x-python":
        match = _docstring(text)
        return match.span() if match else None
    if type_ in _DOCUMENTS:
        match = _COMMENTS.match(text)
        is_documentation = match and match[0].lstrip().startswith(_DOCUMENTS[type_])
        return match.span() if match and is_documentation else None
    match = _BLOCKS.match(text)
    return match.span(1) if match else None


def _docstring(text: str) -> re.Match[str] | None:
    body = re.search(r":[ \t]*(?:#[^\n]*)?\n", text)
    while body and (match := _PYTHON.match(text, body.end())) is None:
        head = text[: body.end()]
        if head.count("(") == head.count(")"):
            return None
        body = re.compile(r":[ \t]*(?:#[^\n]*)?\n").search(text, body.end())
    return match if body else None


def _query(documentation: str, name: str) -> str:
    """Its first sentence without markup and the name."""
    if documentation.startswith("/**"):
        documentation = _description(documentation)
    plain = re.sub(r"^[ \t]*//[/!]?|[\"'`*]{2,3}|:\w+:|`", " ", documentation, flags=re.MULTILINE)
    first = _SENTENCE.split(plain.strip(), maxsplit=1)[0]
    words = [word for word in first.split() if word.strip(".,:;()[]").lower() != name.lower()]
    return " ".join(words)[:400]


def _description(block: str) -> str:
    """The text of a `/** */` before its tags, else that of the first tag that describes."""
    lines = re.sub(r"^[ \t]*\*(?!/)", "", block.strip()[3:-2], flags=re.MULTILINE)
    text, *tagged = _TAG.split(_LINK.sub(r"\1", _FENCED.sub("", lines)))
    pairs = zip(tagged[::2], tagged[1::2], strict=True)
    texts = (text, *(described for tag, described in pairs if tag in _DESCRIBING))
    return next((described for described in texts if described.strip()), "")
