"""Cost of regular expressions in the libraries of CEL, which compiles that of `matches` each
time, and of JSON Schema: in the steps of `schemas.cel_expressions`, measured and rounded up. Pure.

Counted repetitions are expanded when a pattern is compiled, so nested ones multiply; Unicode
classes, `\\w` above all, are hundreds of states each.
"""

import re
from typing import NamedTuple

SATURATION = 1 << 62  # saturation: more makes no difference

_ALWAYS = 500  # fixed cost of any pattern
_LETTER = 10  # to compile a letter
_SMALL = 500  # `\d`, `\s`, `.` and `[^a]`
_LARGE = 3_000  # `\w`, `\p{L}` and the like
_MANY = 32  # large classes; with so many each takes twice as long
_CASE_FACTOR = 10  # factor for case-insensitive patterns
_SCAN_COST = 10  # each letter per unit of text size

_SMALL_OF_SCHEMA, _LARGE_OF_SCHEMA = 50, 50  # there `\w` is ASCII, except with look-around

_REPETITION = re.compile(r"\{\s*(\d*)\s*(?:,\s*(\d*)\s*)?\}")
_FLAGS = re.compile(r"\(\?([a-zA-Z-]*)")
_NAMED_CLASS = re.compile(r"\\[pP]\{[^}]*\}")
_LOOKS = re.compile(r"\(\?<?[=!]")
_REFERS = re.compile(r"\\[1-9k]")  # back-reference to a group
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


class UnboundedPattern(Exception):
    """The pattern has no cost bound; the message gives the reason."""


def matching_steps(literal: str, size: int) -> int:
    """Steps to compile the pattern in a CEL literal and search for it in a text of this size.
    Raises Unbounded."""
    pattern = _literal_value(literal)
    flags = "".join(_FLAGS.findall(pattern))
    if "x" in flags:
        raise UnboundedPattern("the pattern of `matches` may not have the flag x")
    weight = _Scanner(pattern).whole()
    large = _LARGE * weight.large * (1 + weight.large // _MANY)
    compiled = _LETTER * weight.letters + large + _SMALL * weight.small
    folded = _CASE_FACTOR if "i" in flags else 1
    return min(_ALWAYS + folded * compiled + _SCAN_COST * weight.letters * (1 + size), SATURATION)


class SchemaPattern(NamedTuple):
    """Cost of a JSON Schema `pattern`. Its engine is linear in the text, except for look-around,
    which may scan the rest of the text at each character."""

    compiling: int  # steps
    letters: int  # with repetitions expanded: steps for each character
    lookaround_letters: int  # those that may be tried from each character to the end

    def matching(self, characters: int) -> int:
        return characters * (self.letters + self.lookaround_letters * characters)


def schema_pattern(pattern: str) -> SchemaPattern:
    scanner = _Scanner(pattern)
    weight = scanner.whole()
    lookaround_letters = weight.letters if _REFERS.search(pattern) else scanner.lookaround_letters
    wide = _LARGE if lookaround_letters or re.search(r"\\[pP]", pattern) else _LARGE_OF_SCHEMA
    compiling = _LETTER * weight.letters + wide * weight.large + _SMALL_OF_SCHEMA * weight.small
    return SchemaPattern(
        min(_ALWAYS + compiling, SATURATION), max(weight.letters, 1), lookaround_letters
    )


def _literal_value(literal: str) -> str:
    """The string value of a CEL literal."""
    prefix = literal[: len(literal) - len(literal.lstrip("rRbB"))]
    body = literal[len(prefix) :]
    quotes = 3 if body[:3] in ('"""', "'''") else 1
    body = body[quotes:-quotes]
    if prefix.strip("bB"):
        return body
    if re.search(r"\\[xXuU0-9]", body.replace("\\\\", "")):
        raise UnboundedPattern(
            "the pattern of `matches` is written without escapes such as \\u0041"
        )
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), body, flags=re.DOTALL)


class _Weight(NamedTuple):
    letters: int = 0
    large: int = 0
    small: int = 0

    def plus(self, weight: "_Weight") -> "_Weight":
        return _Weight(*(a + b for a, b in zip(self, weight, strict=True)))

    def times(self, number: int) -> "_Weight":
        return _Weight(*(min(weight * number, SATURATION) for weight in self))


class _Scanner:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._groups: list[_Weight] = []  # the weight before each open group
        self._lookaround: list[bool] = []  # whether each open group is look-around
        self.lookaround_letters = 0  # letters inside look-around
        self._all = _Weight()
        self._last = _Weight()  # the operand of a following repetition; counted in `_all`

    def whole(self) -> _Weight:
        at = 0
        while at < len(self._pattern):
            at = self._step(at)
        while self._groups:
            self._close()
        return self._all

    def _step(self, at: int) -> int:
        """Parse one step at `at`; returns where the next one begins."""
        character = self._pattern[at]
        if character == "(":
            self._groups.append(self._all)
            self._lookaround.append(_LOOKS.match(self._pattern, at) is not None)
            self._all = self._last = _Weight()
        elif character == ")" and self._groups:
            self._close()
        elif repeated := _REPETITION.match(self._pattern, at):
            numbers = [int(number[:9]) for number in repeated.groups() if number]
            more = self._last.times(max(0, max(numbers, default=1) - 1))
            self._all, self._last = self._all.plus(more), self._last.plus(more)
            return repeated.end()
        else:
            end = self._atom_end(at)
            self._last = _weight(self._pattern[at:end])
            self._all = self._all.plus(self._last)
            return end
        return at + 1

    def _close(self) -> None:
        self._last = self._all
        if self._lookaround.pop():
            self.lookaround_letters = min(self.lookaround_letters + self._last.letters, SATURATION)
        self._all = self._groups.pop().plus(self._last)

    def _atom_end(self, at: int) -> int:
        if self._pattern[at] == "\\":
            named = _NAMED_CLASS.match(self._pattern, at)
            return named.end() if named else at + 2
        if self._pattern[at] != "[":
            return at + 1
        depth = 0
        for match in re.finditer(r"\\.|\[\^?\]?|\]", self._pattern[at:], re.DOTALL):
            depth += match[0].startswith("[") - (match[0] == "]")
            if depth == 0:
                return at + match.end()
        return len(self._pattern)


def _weight(atom: str) -> _Weight:
    large = len(re.findall(r"\\[wWDSpPbB]", atom))
    small = len(re.findall(r"\\[ds]|\[\^", atom)) + (atom == ".")
    return _Weight(max(1, len(atom) // 4), large, small)
