"""Predicates: expressions that compare members with literals, as Python functions. Pure.

The library takes 5 to 30 us for an evaluation, most of it to convert values; a predicate takes 1.
It decides only what it is certain of: it checks every value that the library would convert, and
leaves anything else to the library, such as a missing member, a map, types that differ, or a text
that is no Unicode. So an error is always the library's.
"""

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from schemas.cel_syntax import Node

Parts = dict[str, "Parts | None"]
"""Tree of the members of a variable that an expression uses; None: the whole value."""

_Leaves = Sequence[Any]  # the values of the members, by position
_Test = Callable[[_Leaves], bool]
_Path = tuple[str, tuple[str, ...]]  # variable and members


class _Absent:
    """Type of the value of a member that is not there."""


_ABSENT: Final = _Absent()
_LEAST, _MOST = -(2**63), 2**63 - 1  # integers of CEL
_EXACT = 2**53  # up to which an integer compares with a double as in mathematics
_INTEGER = re.compile(r"[0-9]{1,18}")
_DOUBLE = re.compile(r"[0-9]{1,15}\.[0-9]{1,15}")
_TEXT = re.compile(r"'[^'\\]*'|\"[^\"\\]*\"")
_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_OF_TEXTS: Mapping[str, Callable[[str, str], bool]] = {
    "startsWith": str.startswith,
    "endsWith": str.endswith,
    "contains": operator.contains,
}


class _NotSimple(Exception):
    """The expression has a part that predicates do not cover."""


class _Unsure(Exception):
    """The values have no certain answer."""


class Predicate:
    """An expression as a function of its variables: true, false, or None where the library has to
    decide."""

    __slots__ = ("_paths", "_test")

    def __init__(self, paths: Sequence[_Path], test: _Test) -> None:
        self._paths = tuple(paths)
        self._test = test

    @classmethod
    def of(cls, tree: Node, parts: Mapping[str, Parts | None]) -> "Predicate | None":
        """The predicate of an expression; None if it is not simple. `parts`: what of its variables
        the library would get."""
        compiler = _Compiler()
        try:
            test = compiler.test(tree)
        except _NotSimple:
            return None
        return cls(compiler.paths, test) if set(compiler.paths) == set(_paths_of(parts)) else None

    def __call__(self, values: Mapping[str, Any]) -> bool | None:
        leaves = []
        for variable, members in self._paths:
            value = values.get(variable, _ABSENT)
            if value is _ABSENT:
                return None
            for member in members:
                if type(value) is not dict:
                    return None
                value = value.get(member, _ABSENT)
            if not _is_certain(value):
                return None
            leaves.append(value)
        try:
            return self._test(leaves)
        except _Unsure:
            return None


def _is_certain(value: Any) -> bool:
    """Whether the library converts `value` to the same value."""
    kind = type(value)
    if kind is str:
        return value.isascii() or _is_unicode(value)
    if kind is int:
        return bool(_LEAST <= value <= _MOST)
    if kind is float:
        return not math.isnan(value)
    if kind is list:
        return all(type(text) is str and (text.isascii() or _is_unicode(text)) for text in value)
    return kind is bool or value is None or value is _ABSENT


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _paths_of(parts: Mapping[str, Parts | None]) -> list[_Path]:
    """The members of all variables that the library would get."""

    def below(variable: str, members: tuple[str, ...], inner: Parts | None) -> list[_Path]:
        if inner is None:
            return [(variable, members)]
        return [
            path
            for name, rest in inner.items()
            for path in below(variable, (*members, name), rest or None)
        ]

    return [path for variable, inner in parts.items() for path in below(variable, (), inner)]


class _Compiler:
    """Compiles a tree; `paths` are the members that it came upon."""

    def __init__(self) -> None:
        self.paths: list[_Path] = []

    def test(self, node: Node) -> _Test:
        """A function that is true or false of the leaves. Raises _NotSimple."""
        if node.kind == "has":
            return self._has(node)
        if node.kind in ("name", "member"):
            return _is_true(self._leaf(node))
        if node.kind == "method":
            return self._method(node)
        if node.kind != "call":
            raise _NotSimple
        match node.name, node.parts:
            case "&&", parts:
                return _all([self.test(part) for part in parts])
            case "||", parts:
                return _any([self.test(part) for part in parts])
            case "!", (part,):
                return _not(self.test(part))
            case "in", (one, many):
                return self._membership(one, many)
            case name, (left, right) if name in _COMPARISONS:
                return self._comparison(_COMPARISONS[name], left, right)
        raise _NotSimple

    def _has(self, node: Node) -> _Test:
        if len(node.parts) != 1 or node.parts[0].kind != "member":
            raise _NotSimple
        leaf = self._leaf(node.parts[0])
        return lambda leaves: leaves[leaf] is not _ABSENT

    def _method(self, node: Node) -> _Test:
        if node.name not in _OF_TEXTS or len(node.parts) != 2:
            raise _NotSimple
        text, literal = node.parts
        return _of_text(_OF_TEXTS[node.name], self._leaf(text), _text(literal))

    def _comparison(self, compare: Callable[[Any, Any], bool], left: Node, right: Node) -> _Test:
        is_equality = compare in (operator.eq, operator.ne)
        comparable = (str, int, float, bool) if is_equality else (str, int, float)
        if right.kind in ("name", "member"):
            return _comparison(compare, self._leaf(left), self._leaf(right), comparable)
        return _compared_with(compare, self._leaf(left), _literal(right), comparable)

    def _membership(self, item: Node, many: Node) -> _Test:
        if many.kind == "list":
            return _one_of(self._leaf(item), [_literal(part) for part in many.parts])
        if item.kind == "literal":
            return _has_text(_text(item), self._leaf(many))
        return _has_member(self._leaf(item), self._leaf(many))

    def _leaf(self, node: Node) -> int:
        """Position of the leaf of a variable or a member. Raises _NotSimple."""
        members: list[str] = []
        while node.kind == "member":
            members.append(node.name)
            (node,) = node.parts
        if node.kind != "name":
            raise _NotSimple
        path = node.name, tuple(reversed(members))
        if path not in self.paths:
            self.paths.append(path)
        return self.paths.index(path)


def _all(tests: Sequence[_Test]) -> _Test:
    def holds(leaves: _Leaves) -> bool:
        for test in tests:  # noqa: SIM110 - all() with a generator takes twice as long
            if not test(leaves):
                return False
        return True

    return holds


def _any(tests: Sequence[_Test]) -> _Test:
    def holds(leaves: _Leaves) -> bool:
        for test in tests:  # noqa: SIM110
            if test(leaves):
                return True
        return False

    return holds


def _not(test: _Test) -> _Test:
    return lambda leaves: not test(leaves)


def _is_true(leaf: int) -> _Test:
    def holds(leaves: _Leaves) -> bool:
        value = leaves[leaf]
        if value is True or value is False:
            return bool(value)
        raise _Unsure

    return holds


def _compared_with(
    compare: Callable[[Any, Any], bool], leaf: int, literal: Any, comparable: Sequence[type]
) -> _Test:
    kind = type(literal)
    if kind not in comparable:
        raise _NotSimple

    def holds(leaves: _Leaves) -> bool:
        value = leaves[leaf]
        if type(value) is kind or _are_numbers(value, literal):
            return compare(value, literal)
        raise _Unsure

    return holds


def _comparison(
    compare: Callable[[Any, Any], bool], first: int, second: int, comparable: Sequence[type]
) -> _Test:
    def holds(leaves: _Leaves) -> bool:
        left, right = leaves[first], leaves[second]
        kind = type(left)
        if (kind is type(right) and kind in comparable) or _are_numbers(left, right):
            return compare(left, right)
        raise _Unsure

    return holds


def _are_numbers(left: Any, right: Any) -> bool:
    """Whether one is a double and the other an integer that a double holds exactly."""
    if type(left) is float and type(right) is int:
        return -_EXACT <= right <= _EXACT
    return type(left) is int and type(right) is float and -_EXACT <= left <= _EXACT


def _one_of(leaf: int, literals: Sequence[Any]) -> _Test:
    kinds = {type(literal) for literal in literals}
    if kinds != {str} and kinds != {int}:
        raise _NotSimple
    (kind,), among = kinds, frozenset(literals)

    def holds(leaves: _Leaves) -> bool:
        value = leaves[leaf]
        if type(value) is not kind:
            raise _Unsure
        return value in among

    return holds


def _has_text(text: str, leaf: int) -> _Test:
    def holds(leaves: _Leaves) -> bool:
        value = leaves[leaf]
        if type(value) is not list:
            raise _Unsure
        return text in value

    return holds


def _has_member(leaf: int, of: int) -> _Test:
    def holds(leaves: _Leaves) -> bool:
        value, many = leaves[leaf], leaves[of]
        if type(many) is not list or type(value) is not str:
            raise _Unsure
        return value in many

    return holds


def _of_text(check: Callable[[str, str], bool], leaf: int, literal: str) -> _Test:
    def holds(leaves: _Leaves) -> bool:
        value = leaves[leaf]
        if type(value) is not str:
            raise _Unsure
        return check(value, literal)

    return holds


def _literal(node: Node) -> Any:
    """The value of a literal. Raises _NotSimple for one that is not plain."""
    if node.kind == "call" and node.name == "-" and len(node.parts) == 1:
        value = _literal(node.parts[0])
        if type(value) not in (int, float) or node.parts[0].kind != "literal":
            raise _NotSimple
        return -value
    if node.kind != "literal":
        raise _NotSimple
    text = node.name
    if text in ("true", "false"):
        return text == "true"
    if _INTEGER.fullmatch(text):
        return int(text)
    if _DOUBLE.fullmatch(text):
        return float(text)
    if _TEXT.fullmatch(text) and text.isprintable():
        return text[1:-1]
    raise _NotSimple


def _text(node: Node) -> str:
    value = _literal(node)
    if type(value) is not str:
        raise _NotSimple
    return value
