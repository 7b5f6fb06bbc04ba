"""Skills that need, or stand above, each other: circles, and the order to load them in. Pure."""

from collections.abc import Iterable, Mapping, Sequence

Edges = Mapping[str, Sequence[str]]
"""To each skill those that it points to: that it requires, or its parent."""


def circle(edges: Edges, start: str) -> list[str] | None:
    """A way from `start` back to itself, both ends named; None: there is none."""
    came_from: dict[str, str] = {}
    waiting = [start]
    while waiting:
        at = waiting.pop()
        for following in edges.get(at, ()):
            if following == start:
                return [start, *_way(came_from, start, at), start]
            if following not in came_from:
                came_from[following] = at
                waiting.append(following)
    return None


def _way(came_from: Mapping[str, str], start: str, end: str) -> list[str]:
    way = []
    while end != start:
        way.append(end)
        end = came_from[end]
    return way[::-1]


def in_order(edges: Edges, start: str) -> list[str]:
    """`start` and all that it leads to, each behind those that it points to; of a circle, which
    nobody should have let in, each once."""
    ordered: dict[str, None] = {}
    seen = {start}
    stack = [(start, iter(edges.get(start, ())))]
    while stack:
        at, rest = stack[-1]
        following = next((one for one in rest if one not in seen), None)
        if following is None:
            ordered[at] = None
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, iter(edges.get(following, ()))))
    return list(ordered)


def longest(edges: Edges, names: Iterable[str]) -> list[str]:
    """The longest way that begins at one of `names`, in a graph without circles."""
    best: dict[str, list[str]] = {}
    for name in names:
        for one in in_order(edges, name):
            tails = (best.get(following, []) for following in edges.get(one, ()))
            best[one] = [one, *max(tails, key=len, default=[])]
    return max((best[name] for name in names if name in best), key=len, default=[])
