"""Pictures of small graphs, from left to right: what templates draw as SVG. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

NODES = 60  # of a picture
WIDTH, HEIGHT = 190, 36  # of a box
GAP_X, GAP_Y = 70, 14
MARGIN = 4
CHARACTERS = 23  # of a name that fits a box


class GraphEdge(NamedTuple):
    """An edge that is not drawn yet."""

    start: str
    end: str
    kind: str = ""  # a class of the style sheet
    label: str = ""


@dataclass(frozen=True, slots=True)
class GraphBox:
    name: str
    label: str
    url: str
    x: int
    y: int
    first: bool


@dataclass(frozen=True, slots=True)
class GraphLine:
    path: str
    kind: str
    label: str
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class GraphPicture:
    width: int
    height: int
    boxes: tuple[GraphBox, ...]
    lines: tuple[GraphLine, ...]
    left_out: int  # nodes

    @property
    def box(self) -> tuple[int, int]:
        return WIDTH, HEIGHT


def draw_graph(start: str, edges: Sequence[GraphEdge], url: Callable[[str], str]) -> GraphPicture:
    """The nodes that `edges` reach from `start`, each behind all that lead to it."""
    depths = _depths(start, edges)
    nodes_drawn = dict(list(depths.items())[:NODES])
    columns: dict[int, list[str]] = {}
    for name, depth in nodes_drawn.items():
        columns.setdefault(depth, []).append(name)
    highest = max(len(column) for column in columns.values())
    boxes: dict[str, GraphBox] = {}
    for depth, names in columns.items():
        top = (highest - len(names)) * (HEIGHT + GAP_Y) // 2 + MARGIN
        for at, name in enumerate(names):
            label = name if len(name) <= CHARACTERS else f"{name[: CHARACTERS - 1]}…"
            x, y = MARGIN + depth * (WIDTH + GAP_X), top + at * (HEIGHT + GAP_Y)
            boxes[name] = GraphBox(name, label, url(name), x, y, name == start)
    lines = [
        _line(edge, boxes[edge.start], boxes[edge.end])
        for edge in edges
        if edge.start in boxes and edge.end in boxes and edge.start != edge.end
    ]
    return GraphPicture(
        (max(columns) + 1) * (WIDTH + GAP_X) - GAP_X + 2 * MARGIN,
        highest * (HEIGHT + GAP_Y) - GAP_Y + 2 * MARGIN,
        tuple(boxes.values()),
        tuple(lines),
        len(depths) - len(nodes_drawn),
    )


def _depths(start: str, edges: Sequence[GraphEdge]) -> Mapping[str, int]:
    """The nodes by the length of the longest way to them; in cycles, that of the first one."""
    following: dict[str, list[str]] = {}
    for edge in edges:
        following.setdefault(edge.start, []).append(edge.end)
    depths = {start: 0}
    waiting = [start]
    for _ in range(len(edges) + 1):  # as many rounds as a way can have steps
        reached = []
        for name in waiting:
            for end in following.get(name, ()):
                if depths.get(end, -1) < depths[name] + 1 <= len(following):
                    depths[end] = depths[name] + 1
                    reached.append(end)
        waiting = list(dict.fromkeys(reached))
        if not waiting:
            break
    return depths


def _line(edge: GraphEdge, start: GraphBox, end: GraphBox) -> GraphLine:
    x1, y1 = start.x + WIDTH, start.y + HEIGHT // 2
    x2, y2 = end.x, end.y + HEIGHT // 2
    middle = (x1 + x2) // 2
    path = f"M{x1} {y1}C{middle} {y1} {middle} {y2} {x2 - 2} {y2}"
    return GraphLine(path, edge.kind, edge.label, middle, (y1 + y2) // 2 - 4)
