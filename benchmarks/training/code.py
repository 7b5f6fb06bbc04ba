"""Source code for training: what a documentation says, and the definition that it stands at.

A folder of Go, Rust or Python is read as text, nothing of it is run. The text of a definition is
that of the product's chunks of code: the name of its file, its symbol, and the words of its lines.
"""

import ast
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.training.data import Pair
from benchmarks.training.sets import BadTrainingSet, TrainingTool, seeded
from registry.embedding.texts import identifier_words

WORDS = 4, 40  # of a first sentence
BODY = 1200  # characters of a definition; a model reads the words of some 300
PER_FOLDER = 4000
NAMED = 0.3  # share of the requests that keep the name of the definition
_TESTS = re.compile(
    r"(?:^|/)(?:site-packages|tests?|testdata|benches|examples|idlelib|vendor)/|_test\.|(?:^|/)test_"
)
_GO = re.compile(
    r"(?P<doc>(?:^//[^\n]*\n)+)"
    r"^(?P<head>(?:func(?:[ ]\([^)\n]*\))?|type)[ ](?P<name>\w+))",
    re.MULTILINE,
)
_RUST = re.compile(
    r"(?P<doc>(?:^[ \t]*///[^\n]*\n)+)(?:^[ \t]*#!?\[[^\n]*\n)*"
    r"(?P<head>^[ \t]*(?:pub(?:\([^)\n]*\))?[ ])?"
    r"(?:(?:default|const|async|unsafe|extern(?:[ ]\"\w+\")?)[ ])*"
    r"(?:fn|struct|enum|trait|type|union|macro_rules!)[ ](?P<name>\w+))",
    re.MULTILINE,
)
_IMPL = re.compile(r"^impl(?:<[^\n]*?>)?[ ](?:[\w:<>', &]+[ ]for[ ])?(?P<name>\w+)", re.MULTILINE)
_SENTENCE = re.compile(r"(?<=[.!?])\s|\n\s*\n")
_MARKS = re.compile(r"^[ \t]*//[/!]?|[`*]|\[|\](?:\([^)]*\))?", re.MULTILINE)


@dataclass(frozen=True)
class Documented:
    path: str
    symbol: str
    sentence: str
    code: str


def code_pairs(folder: Path, seed: int) -> list[Pair]:
    """A pair for each documented definition below `folder`. Raises BadTrainingSet."""
    chance = seeded(f"{seed} {folder.name}")
    definitions = list(documented(folder))
    if not definitions:
        raise BadTrainingSet(f"{folder}: no documented definition of Go, Rust or Python in it")
    chosen = chance.sample(definitions, min(PER_FOLDER, len(definitions)))
    return [_pair(entry, f"code {folder.name}", chance) for entry in chosen]


def documented(folder: Path) -> Iterator[Documented]:
    """The documented definitions of the files below a folder, tests left out."""
    readers = {".go": _go, ".rs": _rust, ".py": _python}
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder).as_posix()
        read_symbols = readers.get(path.suffix)
        if read_symbols is None or not path.is_file() or _TESTS.search(relative):
            continue
        for symbol, documentation, code in read_symbols(
            path.read_text(encoding="utf-8", errors="ignore")
        ):
            sentence = _first(documentation, symbol.rpartition(".")[2])
            if WORDS[0] <= len(sentence.split()) <= WORDS[1]:
                yield Documented(relative, symbol, sentence, code)


def _pair(entry: Documented, group: str, chance: random.Random) -> Pair:
    tool = definition(entry, group)
    named = f"{_name(entry)} {entry.sentence}"
    request = named if chance.random() < NAMED else asked(entry)
    return Pair(request, tool, frozenset((tool.id,)), group, distinct=True)


def definition(entry: Documented, group: str) -> TrainingTool:
    """A definition as a tool, with the text of a chunk of code."""
    return TrainingTool(
        id=f"{group} {entry.path} {entry.symbol}",
        name=entry.symbol,
        description=identifier_words_of(entry.code),
        source=Path(entry.path).stem,
        tags=(),
        parameters=(),
        parameter_texts=(),
    )


def asked(entry: Documented) -> str:
    """Description of a definition, without its name."""
    name = _name(entry).replace(" ", "")
    return " ".join(word for word in entry.sentence.split() if word.strip(".,:;()") != name)


def _name(entry: Documented) -> str:
    return identifier_words(entry.symbol.rpartition(".")[2])


def identifier_words_of(code: str) -> str:
    """The words of code as the product embeds them."""
    return " ".join(identifier_words(part) for part in re.split(r"\s+", code) if part)


def _first(documentation: str, name: str) -> str:
    """Its first sentence without marks, and without the name where it begins with it."""
    plain = _MARKS.sub("", documentation).strip()
    first = " ".join(_SENTENCE.split(plain, maxsplit=1)[0].split())
    return re.sub(rf"\A{re.escape(name)}\b\s*", "", first)


def _go(text: str) -> Iterator[tuple[str, str, str]]:
    for match in _GO.finditer(text):
        receiver = re.search(r"\([^)]*?(\w+)(?:\[[^\]]*\])?\)", match["head"])
        symbol = f"{receiver[1]}.{match['name']}" if receiver else match["name"]
        yield symbol, match["doc"], _body(text, match.start("head"))


def _rust(text: str) -> Iterator[tuple[str, str, str]]:
    scopes = [(match.start(), match["name"]) for match in _IMPL.finditer(text)]
    for match in _RUST.finditer(text):
        inside = match["head"][:1] in " \t"
        scope = next((name for at, name in reversed(scopes) if at < match.start()), "")
        symbol = f"{scope}.{match['name']}" if inside and scope else match["name"]
        yield symbol, match["doc"], _body(text, match.start("head"))


def _body(text: str, start: int) -> str:
    """From `start` to the line that closes what its first line opens, as far as is read."""
    part = text[start : start + BODY]
    indent = part[: len(part) - len(part.lstrip(" \t"))]
    head, line, lines_below = part.partition("\n")
    if not head.rstrip().endswith(("{", "(", ",")):
        return head
    end = re.search(rf"^{indent}[}})]", lines_below, re.MULTILINE)
    return head + line + (lines_below[: end.end()] if end else lines_below)


def _python(text: str) -> Iterator[tuple[str, str, str]]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    yield from _defined(tree, "", text.splitlines(keepends=True))


def _defined(node: ast.AST, scope: str, lines: list[str]) -> Iterator[tuple[str, str, str]]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        symbol = f"{scope}.{child.name}" if scope else child.name
        first = child.body[0]
        if documentation := ast.get_docstring(child):
            head = "".join(lines[child.lineno - 1 : first.lineno - 1])
            body = "".join(lines[first.end_lineno : child.end_lineno])
            yield symbol, documentation, (head + body)[:BODY]
        yield from _defined(child, symbol, lines)
