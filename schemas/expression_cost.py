"""Static upper bound of an expression's evaluation cost, in steps of about 0.1 us. It is computed
before evaluation because the library cannot be interrupted and blocks the whole process. Pure.

The bound is a function of the input's size: of JSON, the number of its values plus a sixty-fourth
of its bytes of text. Macros iterate over every member of a list or map, so nested macros
multiply; `map` and `filter` copy their accumulated result with each value; functions
copy their arguments; `matches` compiles its pattern each time.
"""

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any, NamedTuple

from schemas.expression_syntax import Node
from schemas.pattern_cost import MOST, Unbounded, matching_steps

NESTED = 4  # deepest nesting of macros
LOWEST = 50  # input size that every expression must be able to handle
LOWEST_OF_TOOL = 20  # the same for one over a tool alone
SIZES = tuple(int(LOWEST_OF_TOOL * 1.25**power) for power in range(36))  # to 50,000
BYTES = 64  # of text that count as one value


class TooCostly(Exception):
    """The expression has no useful bound; the message gives the reason."""


class Bound(NamedTuple):
    """Upper bounds: the size of a value, and the steps to compute it."""

    size: int
    steps: int


def steps_of(tree: Node, size: int) -> int:
    """Most steps that the expression takes for an input of this size. Raises TooCostly for
    macros nested deeper than NESTED, and for patterns that are not literals."""
    return _of(tree, {}, size, 0).steps


def most_size(tree: Node, steps: int) -> int:
    """The largest input size in SIZES within `steps`, which must be enough for the first."""
    above = bisect_right(SIZES, steps, key=lambda size: steps_of(tree, size))
    return SIZES[max(above - 1, 0)]


def size_of(value: Any, enough: int) -> int:
    """Size of a JSON value; counting stops above `enough`."""
    size, left = 0, [value]
    while left and size <= enough:
        one = left.pop()
        size += 1
        if isinstance(one, str):
            size += len(one) * 4 // BYTES if not one.isascii() else len(one) // BYTES
        elif isinstance(one, dict):
            size += sum(map(len, one)) // BYTES
            left.extend(one.values())
        elif isinstance(one, list):
            left.extend(one)
    return size


def _of(node: Node, known: Mapping[str, int], seen: int, depth: int) -> Bound:
    """`known`: sizes of the variables of enclosing macros; `seen`: size of each other variable."""
    if node.kind == "literal":
        return Bound(1 + len(node.name) // BYTES, 1)
    if node.kind == "name":
        return Bound(known.get(node.name, seen), 1)
    if node.kind == "macro":
        return _macro(node, known, seen, depth)
    parts = [_of(part, known, seen, depth) for part in node.parts]
    steps = 1 + sum(part.steps for part in parts)
    sizes = sum(part.size for part in parts)
    if node.kind in ("member", "has"):
        return Bound(sizes, steps)
    if node.kind in ("list", "map"):
        return Bound(_least(1 + sizes), _least(steps + 4 * sizes))
    return _call(node, parts, sizes, steps)


def _call(node: Node, parts: list[Bound], sizes: int, steps: int) -> Bound:
    match node.name:
        case "&&" | "||":
            return Bound(1, steps)
        case "?:":
            return Bound(max(parts[1].size, parts[2].size), _least(steps + sizes))
        case "+":  # a text or a list grows with each
            return Bound(_least(1 + sizes), _least(steps + 4 * sizes * len(parts)))
        case "[]" | "dyn" | "string" | "bytes":
            return Bound(_least(1 + sizes), _least(steps + 4 * sizes))
        case "matches":
            return Bound(1, _least(steps + sizes + _matching(node, parts[0].size)))
    return Bound(1, _least(steps + 4 * sizes))


def _macro(node: Node, known: Mapping[str, int], seen: int, depth: int) -> Bound:
    if depth >= NESTED:
        raise TooCostly(f"macros stand more than {NESTED} deep inside each other")
    range_, *bodies = node.parts
    over = _of(range_, known, seen, depth)
    times = len(range_.parts) if range_.kind == "list" else over.size
    each = [_each(body, node.local, known, seen, depth, over.size, times) for body in bodies]
    steps = over.steps + 4 * over.size + times + sum(one.steps for one in each)
    if node.name not in ("map", "filter"):
        return Bound(1, _least(steps))
    made = _least(1 + (over.size if node.name == "filter" else each[-1].size))
    return Bound(made, _least(steps + (times + 1) * made))


def _each(
    body: Node,
    local: str,
    known: Mapping[str, int],
    seen: int,
    depth: int,
    size: int,
    times: int,
) -> Bound:
    """Cost of `body` for each member of a value of this size. At most that of members of size 1
    plus one member of the whole size, as bounds grow at least in proportion to sizes."""
    one = _of(body, {**known, local: 1}, seen, depth + 1)
    all_ = _of(body, {**known, local: size}, seen, depth + 1)
    return Bound(_least(times * one.size + all_.size), _least(times * (4 + one.steps) + all_.steps))


def _matching(node: Node, size: int) -> int:
    pattern = node.parts[-1]
    if pattern.kind != "literal":
        raise TooCostly("the pattern of `matches` is a text in quotes")
    try:
        return matching_steps(pattern.name, size)
    except Unbounded as error:
        raise TooCostly(str(error)) from error


def _least(number: int) -> int:
    return min(number, MOST)
