"""How long an expression may take, in steps of about a ten-millionth of a second, before it is
evaluated: nothing can stop the library that has begun, and all of a process waits for it. Pure.

The bound is one of the size of what the expression gets to see: of JSON, its values and a
sixty-fourth of its bytes of text. Macros go through a list or a map once for each member, so inside
each other they multiply; `map` and `filter` copy what they have so far with each value; functions
copy what they are given; `matches` compiles its pattern each time.
"""

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any, NamedTuple

from schemas.expression_syntax import Node
from schemas.pattern_cost import MOST, Unbounded, matching_steps

NESTED = 4  # macros inside each other
LOWEST = 50  # size of what any expression must be able to look at
LOWEST_OF_TOOL = 20  # and one over a tool alone
SIZES = tuple(int(LOWEST_OF_TOOL * 1.25**power) for power in range(36))  # to 50,000
BYTES = 64  # of text that count as one value


class TooCostly(Exception):
    """Why an expression has no bound that is any use."""


class Bound(NamedTuple):
    """At most: the size of a value, and the steps that it takes to make it."""

    size: int
    steps: int


def steps_of(tree: Node, size: int) -> int:
    """Most steps that the expression takes where what it sees is of this size. Raises TooCostly for
    macros that are nested deeper than NESTED, and for patterns that are no literals."""
    return _of(tree, {}, size, 0).steps


def most_size(tree: Node, steps: int) -> int:
    """The largest of SIZES that it may see to take no more than `steps`, which do for the first."""
    above = bisect_right(SIZES, steps, key=lambda size: steps_of(tree, size))
    return SIZES[max(above - 1, 0)]


def size_of(value: Any, enough: int) -> int:
    """Of JSON; what is more than `enough` is not counted."""
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
    """`known`: sizes of what the macros around it go through; `seen`: of each variable."""
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
    """`body` for each member of what is of this size: nowhere more than for members of size 1 and
    once for a member of all of it, as bounds grow at least in proportion to sizes."""
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
