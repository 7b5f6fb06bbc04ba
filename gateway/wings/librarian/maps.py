"""Maps of repositories: the definitions that other code refers to most, by PageRank over the graph
of references between files, as many as fit into a number of tokens. Pure.

The rank of a file flows along its references to the files that define what it names, and from there
to the definitions (after the repository map of Aider). With a focus, it starts there.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy
from numpy.typing import NDArray

from gateway.wings.library import FileLink, Lines

DAMPING = 0.85
STEPS = 60  # of the power iteration; the error is below 1e-4 then
TOKEN = 4  # characters
SIGNATURE = 120  # characters
Numbers: TypeAlias = NDArray[numpy.float64]


@dataclass(frozen=True, slots=True)
class MapSymbol:
    path: str
    symbol: str
    lines: Lines
    signature: str


@dataclass(frozen=True, slots=True)
class RepositoryMap:
    text: str
    files: int
    symbols: int
    omitted: int


def drawn(links: Sequence[FileLink], focus: Iterable[str], tokens: int) -> RepositoryMap:
    """The map of what fits, at least one symbol."""
    ordered = _ordered(links, tuple(focus))
    left = tokens * TOKEN
    kept: list[MapSymbol] = []
    paths: set[str] = set()
    for one in ordered:
        left -= len(_line(one)) + 1 + (0 if one.path in paths else len(one.path) + 1)
        if left < 0 and kept:
            break
        kept.append(one)
        paths.add(one.path)
    return RepositoryMap(_text(kept), len(paths), len(kept), len(ordered) - len(kept))


def _ordered(links: Sequence[FileLink], focus: Sequence[str]) -> list[MapSymbol]:
    """Symbols, the highest rank first; those of the focus before others."""
    ranks = page_ranks(links, focus)
    total: defaultdict[str, float] = defaultdict(float)
    for one in links:
        total[one.source] += one.weight
    found: defaultdict[MapSymbol, float] = defaultdict(float)
    for one in links:
        symbol = MapSymbol(one.target, one.symbol, one.lines, one.quote[:SIGNATURE])
        found[symbol] += ranks[one.source] * one.weight / total[one.source]
    for symbol in found:
        found[symbol] += sum(2 * _names(one, symbol) + _is_at(one, symbol.path) for one in focus)
    return sorted(found, key=lambda one: (-round(found[one], 12), one.path, one.lines))


def _names(wanted: str, one: MapSymbol | FileLink) -> bool:
    return wanted in (one.symbol, one.symbol.rpartition(".")[2])


def _is_at(wanted: str, path: str) -> bool:
    return path == wanted or path.startswith(wanted.rstrip("/") + "/")


def page_ranks(links: Sequence[FileLink], focus: Sequence[str]) -> dict[str, float]:
    """The rank of each file. References of a file to itself do not count."""
    names = sorted({name for one in links for name in (one.source, one.target)})
    place = {name: at for at, name in enumerate(names)}
    across = [one for one in links if one.source != one.target]
    sources = numpy.array([place[one.source] for one in across], numpy.int64)
    targets = numpy.array([place[one.target] for one in across], numpy.int64)
    weights = numpy.array([one.weight for one in across], numpy.float64)
    out = numpy.bincount(sources, weights, len(names)) if across else numpy.zeros(len(names))
    shares = weights / out[sources] if across else weights
    start = _start(links, names, place, focus)
    ranks = start
    for _ in range(STEPS):
        flow = numpy.bincount(targets, ranks[sources] * shares, len(names)) if across else 0.0
        stuck = ranks[out == 0].sum()  # of files that name nothing of others
        ranks = (1 - DAMPING) * start + DAMPING * (flow + stuck * start)
    return dict(zip(names, ranks.tolist(), strict=True))


def _start(
    links: Sequence[FileLink], names: Sequence[str], place: dict[str, int], focus: Sequence[str]
) -> Numbers:
    """Where the rank starts: in the files of the focus, or everywhere."""
    start = numpy.zeros(len(names))
    for wanted in focus:
        found = {one.target for one in links if _names(wanted, one)}
        found |= {name for name in names if _is_at(wanted, name)}
        start[[place[name] for name in found]] = 1.0
    if not start.any():
        start += 1.0
    whole: Numbers = start / max(start.sum(), 1.0)
    return whole


def _text(symbols: Sequence[MapSymbol]) -> str:
    """Symbols by file, in the order of the best of each, and of their lines."""
    files: dict[str, list[MapSymbol]] = {}
    for one in symbols:
        files.setdefault(one.path, []).append(one)
    lines: list[str] = []
    for path, found in files.items():
        lines.append(path)
        lines += [_line(one) for one in sorted(found, key=lambda one: one.lines)]
    return "\n".join(lines)


def _line(one: MapSymbol) -> str:
    inner = "  " * one.symbol.count(".")
    return f"  {one.lines[0]}-{one.lines[1]}  {inner}{one.signature or one.symbol}"
