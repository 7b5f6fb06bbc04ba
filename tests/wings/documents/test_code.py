"""Chunks of source code: definitions whole, scopes as headers, symbols and what they refer to."""

import pytest

from gateway.wings.documents.chunking.chunks import Chunk, ChunkingOptions
from gateway.wings.documents.chunking.chunks_by_kind import CODE, cut
from gateway.wings.documents.chunking.code_outline import outline
from tests.wings.documents.test_chunks import assert_covered, texts

PYTHON = '''\
"""Shapes."""

import math
from shapes.base import Shape as Base

LIMIT = 3


# A circle.
@register
class Circle(Base):
    """Round."""

    def area(self) -> float:
        """The surface."""
        return math.pi * self.radius ** 2

    def _grown(self, by: int) -> "Circle":
        return Circle(self.radius + by)


def unit() -> Circle:
    return Circle(1)
'''
GO = """package shapes

import "math"

// Circle is round.
type Circle struct {
	Radius float64
}

// Area is the surface.
func (c *Circle) Area() float64 {
	return math.Pow(c.Radius, 2)
}
"""
RUST = """use std::fmt;

/// A circle.
#[derive(Debug)]
pub struct Circle { radius: f64 }

impl fmt::Display for Circle {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result { write!(f, "o") }
}
"""
JAVA = """import java.util.List;

/** Round. */
public class Circle extends Shape implements Round {
    private double area(int x) { return Math.pow(x, 2); }
}
"""
TYPESCRIPT = """import { Shape } from './shape';

export class Circle extends Shape {
  private radius = 1;
  area(): number { return power(this.radius, 2); }
}

export const unit = () => new Circle();
interface Round { radius: number }
namespace Deep { export function inner() {} }
"""
CPP = """#include "shape.h"

namespace shapes {
template <class T> class Circle : public Shape {
  double area() { return pow(radius, 2); }
};
}

double Circle::grown(int by) { return by; }
typedef struct { int x; } Point;
"""


def symbols(chunks: tuple[Chunk, ...]) -> dict[str, tuple[str, str]]:
    return {one.symbol: (one.kind, one.visibility) for chunk in chunks for one in chunk.definitions}


def names_of(chunks: tuple[Chunk, ...], role: str) -> set[str]:
    return {one.name for chunk in chunks for one in chunk.mentions if one.role == role}


@pytest.mark.parametrize(
    ("media_type", "text", "expected", "inherits", "calls", "imports"),
    [
        (
            "text/x-python", PYTHON,
            {"Circle": ("class", "public"), "Circle.area": ("method", "public"),
             "Circle._grown": ("method", "private"), "unit": ("function", "public")},
            {"Base"}, {"Circle"}, {"math", "shapes.base", "Shape", "Base"},
        ),
        (
            "text/x-go", GO,
            {"Circle": ("type", "public"), "Circle.Area": ("method", "public")},
            set(), {"math.Pow"}, {"math"},
        ),
        (
            "text/x-rust", RUST,
            {"Circle": ("impl", "private"), "Circle.fmt": ("method", "private")},
            {"fmt::Display"}, {"write"}, {"std::fmt"},
        ),
        (
            "text/x-java", JAVA,
            {"Circle": ("class", "public"), "Circle.area": ("method", "private")},
            {"Shape", "Round"}, {"pow"}, {"java.util.List"},
        ),
        (
            "text/x-typescript", TYPESCRIPT,
            {"Circle": ("class", "public"), "Circle.area": ("method", ""),
             "unit": ("function", "public"), "Round": ("interface", ""), "Deep": ("module", ""),
             "Deep.inner": ("function", "public")},
            {"Shape"}, {"power", "Circle"}, {"./shape"},
        ),
        (
            "text/x-c++", CPP,
            {"shapes": ("module", ""), "shapes.Circle": ("class", ""),
             "shapes.Circle.area": ("method", ""), "Circle.grown": ("method", ""),
             "Point": ("type", "")},
            {"Shape"}, {"pow"}, {"shape.h"},
        ),
    ],
)  # fmt: skip
def test_definitions_and_their_references_are_found(
    media_type: str,
    text: str,
    expected: dict[str, tuple[str, str]],
    inherits: set[str],
    calls: set[str],
    imports: set[str],
) -> None:
    chunks = cut(text, media_type=media_type)
    assert_covered(text, chunks)
    assert symbols(chunks) == expected
    assert names_of(chunks, "inherit") == inherits
    assert names_of(chunks, "call") == calls
    assert names_of(chunks, "import") == imports


def test_implementations_for_references_are_called_by_their_type() -> None:
    text = (
        "impl<'a> IntoIterator for &'a mut Map<K, V> { fn into_iter(self) {} }\n"
        "impl Read for &mut io::Lines { fn read(self) {} }\n"
        "impl Count for *const u8 { fn count(self) {} }\n"
    )
    found = symbols(cut(text, media_type="text/x-rust"))
    assert set(found) == {
        *("Map", "Map.into_iter", "io.Lines", "io.Lines.read", "u8", "u8.count"),
    }  # fmt: skip


def test_a_short_definition_is_one_chunk_with_its_comment_and_decorator() -> None:
    """A short definition is one chunk with its comment and decorator (L04)."""
    chunks = cut(PYTHON, media_type="text/x-python", path="src/shapes.py")
    assert [one.kind for one in chunks] == ["code", "class", "function"]
    assert texts(PYTHON, chunks)[1].startswith("# A circle.\n@register\nclass Circle(Base):")
    assert chunks[1].subjects[:2] == ("Circle", "Circle.area")
    assert chunks[0].subjects == ("shapes",)


def test_a_class_that_does_not_fit_is_cut_at_its_methods() -> None:
    chunks = cut(PYTHON, media_type="text/x-python", chunking=ChunkingOptions(size=120))
    found = [(one.symbol, one.kind, one.header, one.parent) for one in chunks[1:4]]
    assert found == [
        ("Circle", "class", "", None),
        ("Circle.area", "method", "class Circle(Base):", 1),
        ("Circle._grown", "method", "class Circle(Base):", 1),
    ]


def test_a_function_that_does_not_fit_is_cut_between_statements() -> None:
    body = "".join(
        f"    if x == {n}:\n        return call_{n}(\n            x)\n" for n in range(99)
    )
    text = f"def long(x):\n{body}"
    chunks = cut(text, media_type="text/x-python", chunking=ChunkingOptions(size=300))
    assert_covered(text, chunks)
    assert all(one.startswith("    if x") for one in texts(text, chunks)[1:])
    assert {one.header for one in chunks[1:]} == {"def long(x):"}
    assert {one.parent for one in chunks[1:]} == {0}
    assert [len(one.definitions) for one in chunks[:2]] == [1, 0]


@pytest.mark.parametrize("media_type", list(CODE))
@pytest.mark.parametrize(
    "text",
    [
        "def (:\n  class {{{ fn if", "(" * 10_000, "{" * 10_000, "a" * 50_000, "", "\ufeff",
        "class Größe: pass  # ü語\n", "x\r\ny\rz\n",
    ],
    ids=["syntax errors", "brackets", "braces", "one word", "empty", "mark", "unicode", "lines"],
)  # fmt: skip
def test_code_that_no_parser_likes_is_covered(media_type: str, text: str) -> None:
    assert_covered(text, cut(text, media_type=media_type))


def test_definitions_nested_deeper_than_a_call_stack() -> None:
    text = "".join(f"{' ' * n}def f{n}():\n" for n in range(1100)) + " " * 1100 + "pass\n"
    chunks = cut(text, media_type="text/x-python", chunking=ChunkingOptions(size=100))
    assert_covered(text, chunks)


ASSIGNED = {
    "javascript": (
        b"""
wing.flap = function flap(n) {};
exports.land = async () => {};
Bird.prototype.sing = function () {};
module.exports = { nest() {}, egg: { lay: () => 1 } };
hook(wing, 'tail', function tail() {});
const calls = { peep: function* () {} };
table[key] = function () {};
var size = 3;
list.forEach(function () {});
""",
        {"wing.flap", "land", "Bird.sing", "nest", "egg.lay", "tail", "calls.peep"},
    ),
    "typescript": (
        b"""
interface Nest { add(egg: Egg): void; size: number }
roof.open = (n: number) => n;
""",
        {"Nest", "Nest.add", "roof.open"},
    ),
    "go": (
        b"""package birds
var Fly = func(n int) error { return nil }
var (
	Land = func() {}
	size int = 3
)
type Bird interface {
	Sing(loud bool) error
	Nest
}
""",
        {"Fly", "Land", "Bird", "Bird.Sing"},
    ),
    "python": (
        b"""
fly = lambda n: n
size = 3
table['a'] = lambda: 1
class Bird:
    key = lambda self: self
""",
        {"fly", "Bird", "Bird.key"},
    ),
    "java": (
        b"""
interface Bird { void sing(int n); }
class Crow { Runnable caw = () -> {}; int n = 3; }
""",
        {"Bird", "Bird.sing", "Crow", "Crow.caw"},
    ),
    "cpp": (b"auto fly = [](int n) { return n; };\nint size = 3;\n", {"fly"}),
    "rust": (b"fn main() { let fly = |n: i32| n; let size = 3; }\n", {"main", "main.fly"}),
}


@pytest.mark.parametrize("language", ASSIGNED)
def test_functions_that_are_assigned_are_definitions(language: str) -> None:
    """Functions that a member, a variable or an object gets, and methods of interfaces, are
    symbols (mending 38)."""
    code, names = ASSIGNED[language]
    assert {one.symbol for one in outline(code, language).root.all() if one.symbol} == names


def test_comments_before_an_assigned_function_are_part_of_the_function() -> None:
    """The comment above an assignment is a part of the function (mending 38)."""
    code = b"var a = 1;\n\n// Sends an answer.\nres.send = function (body) {\n  return 1;\n};\n"
    (scope,) = outline(code, "javascript").root.inner
    assert code[scope.start : scope.end].startswith(b"// Sends an answer.")
    assert scope.signature == "res.send = function (body) {"


@pytest.mark.parametrize(
    ("language", "code", "names"),
    [
        (
            "typescript",
            b"export const LIMIT = 5, egg = { lay() {} };\nexport const { a } = f();\nlet own = 3;",
            ["LIMIT", "egg", "egg.lay"],
        ),
        ("rust", b'pub const LIMIT: u8 = 5;\nstatic NAME: &str = "a";\n', ["LIMIT", "NAME"]),
    ],
)
def test_constants_are_definitions(language: str, code: bytes, names: list[str]) -> None:
    """Exported constants of TypeScript and constants of Rust are symbols (issue 43, item 5)."""
    assert [scope.symbol for scope in outline(code, language).root.all()][1:] == names


@pytest.mark.parametrize(
    ("language", "code", "visibilities"),
    [
        ("typescript", b"export const LOW = 1, HIGH = 5;", {"LOW": "public", "HIGH": "public"}),
        (
            "rust",
            b"static mut X: u8 = 1;\npub static Y: u8 = 1;\nconst Z: u8 = 1; const _: u8 = Z;\n",
            {"X": "private", "Y": "public", "Z": "private"},
        ),
    ],
)
def test_constants_have_a_visibility(
    language: str, code: bytes, visibilities: dict[str, str]
) -> None:
    """Constants without a name, which only assert something, are no symbols."""
    scopes = [*outline(code, language).root.all()][1:]
    assert {scope.symbol: scope.visibility for scope in scopes} == visibilities


def test_implementations_of_traits_and_tests_of_rust_are_secondary() -> None:
    text = (
        "impl Map { fn len(&self) {} }\nimpl Debug for Map { fn fmt(&self) {} }\n"
        "#[tokio::test]\nasync fn sends() {}\n/// #[test]\nfn main() {}\n"
        "#[cfg(test)]\nmod tests { fn inner() {} }\n"
    )
    scopes = [*outline(text.encode(), "rust").root.all()]
    secondary = [scope.symbol for scope in scopes if scope.is_secondary]
    assert secondary == ["Map", "Map.fmt", "sends", "tests", "tests.inner"]
    chunks = cut(text, media_type="text/x-rust")
    assert [chunk.weight for chunk in chunks] == [None, 0.8, 0.8, None, 0.8]


def test_members_that_begin_with_brackets_need_no_semicolons() -> None:
    text = b"""export interface Respond {
  (data: Data): Response // the body
  /** With its status. */
  <T>(data: T, status: number): Response
  [name: string]: unknown
}

export class Context<E = any> {
  body: Respond = (data) => this.make(data)
}
"""
    scopes = outline(text, "typescript").root.all()
    assert [scope.symbol for scope in scopes][1:] == ["Respond", "Context", "Context.body"]


def test_overloads_are_one_definition_with_their_implementation() -> None:
    text = """/** Finds an egg. */
export function find(n: number): Egg
export function find(name: string): Egg
export function find(key: any) { return eggs.get(key) }
class Nest {
  add(egg: Egg): void
  add(egg: Egg, at: number): void
  add(egg: Egg, at = 0) {}
  get size() { return 1 }
  set size(n) {}
}
"""
    chunks = cut(text, media_type="text/x-typescript")
    assert [(one.start_line, one.end_line) for one in chunks] == [(1, 4), (5, 11)]
    definitions = [(one.symbol, one.start_line) for one in chunks[1].definitions]
    assert definitions == [("Nest", 5), ("Nest.add", 6), ("Nest.size", 9), ("Nest.size", 10)]
    assert chunks[0].definitions[0].signature == "export function find(n: number): Egg"


def test_signatures_have_no_lines_of_comments() -> None:
    text = b"export class Context<\n  // eslint-disable-next-line\n  E = any,\n> {\n  #a = 1\n}\n"
    (scope,) = outline(text, "typescript").root.inner
    assert scope.signature == "export class Context< E = any, > {"
