"""Maps of repositories: the definitions that other code refers to most, by PageRank over the graph
of references between files, as many as fit into a number of tokens. Pure.

The rank of a file flows along its references to the files that define what it names, and from there
to the definitions (after the repository map of Aider). With a focus, it starts there.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gateway.wings.document_library import FileLink, Lines

DAMPING = 0.85
STEPS = 60  # of the power iteration; the error is below 1e-4 then
TOKEN = 4  # characters
SIGNATURE = 120  # characters


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


def draw_map(links: Sequence[FileLink], focus: Iterable[str], tokens: int) -> RepositoryMap:
    """The map of what fits, at least one symbol."""
    ordered = _rank_symbols(links, tuple(focus))
    room = tokens * TOKEN
    symbols: list[MapSymbol] = []
    paths: set[str] = set()
    for symbol in ordered:
        room -= len(_line(symbol)) + 1 + (0 if symbol.path in paths else len(symbol.path) + 1)
        if room < 0 and symbols:
            break
        symbols.append(symbol)
        paths.add(symbol.path)
    return RepositoryMap(_text(symbols), len(paths), len(symbols), len(ordered) - len(symbols))


def _rank_symbols(links: Sequence[FileLink], focus: Sequence[str]) -> list[MapSymbol]:
    """Symbols, the highest rank first; those of the focus before others."""
    ranks = page_ranks(links, focus)
    total: defaultdict[str, float] = defaultdict(float)
    for link in links:
        total[link.source] += link.weight
    scores: defaultdict[MapSymbol, float] = defaultdict(float)
    for link in links:
        symbol = MapSymbol(link.target, link.symbol, link.lines, link.quote[:SIGNATURE])
        scores[symbol] += ranks[link.source] * link.weight / total[link.source]
    for symbol in scores:
        scores[symbol] += sum(
            2 * _names(focused, symbol) + _is_at(focused, symbol.path) for focused in focus
        )
    return sorted(
        scores, key=lambda symbol: (-round(scores[symbol], 12), symbol.path, symbol.lines)
    )


def _names(name: str, symbol: MapSymbol | FileLink) -> bool:
    return name in (symbol.symbol, symbol.symbol.rpartition(".")[2])


def _is_at(place: str, path: str) -> bool:
    return path == place or path.startswith(place.rstrip("/") + "/")


def page_ranks(links: Sequence[FileLink], focus: Sequence[str]) -> dict[str, float]:
    """The rank of each file. References of a file to itself do not count."""
    import numpy  # with the first map: a tenth of a second and 12 MB

    names = sorted({name for link in links for name in (link.source, link.target)})
    place = {name: at for at, name in enumerate(names)}
    across = [link for link in links if link.source != link.target]
    sources = numpy.array([place[link.source] for link in across], numpy.int64)
    targets = numpy.array([place[link.target] for link in across], numpy.int64)
    weights = numpy.array([link.weight for link in across], numpy.float64)
    out = numpy.bincount(sources, weights, len(names)) if across else numpy.zeros(len(names))
    shares = weights / out[sources] if across else weights
    start = numpy.array(_start(links, names, place, focus))
    ranks = start
    for _ in range(STEPS):
        flow = numpy.bincount(targets, ranks[sources] * shares, len(names)) if across else 0.0
        stuck = ranks[out == 0].sum()  # of files that name nothing of others
        ranks = (1 - DAMPING) * start + DAMPING * (flow + stuck * start)
    return dict(zip(names, ranks.tolist(), strict=True))


def _start(
    links: Sequence[FileLink], names: Sequence[str], place: dict[str, int], focus: Sequence[str]
) -> list[float]:
    """Where the rank starts: in the files of the focus, or everywhere."""
    chosen = set[int]()
    for focused in focus:
        chosen |= {place[link.target] for link in links if _names(focused, link)}
        chosen |= {place[name] for name in names if _is_at(focused, name)}
    share = 1 / (len(chosen) or len(names) or 1)
    return [share if at in chosen or not chosen else 0.0 for at in range(len(names))]


def _text(symbols: Sequence[MapSymbol]) -> str:
    """Symbols by file, in the order of the best of each, and of their lines."""
    files: dict[str, list[MapSymbol]] = {}
    for symbol in symbols:
        files.setdefault(symbol.path, []).append(symbol)
    lines: list[str] = []
    for path, symbols_of_file in files.items():
        lines.append(path)
        lines += map(_line, sorted(symbols_of_file, key=lambda symbol: symbol.lines))
    return "\n".join(lines)


def _line(symbol: MapSymbol) -> str:
    inner = "  " * symbol.symbol.count(".")
    return f"  {symbol.lines[0]}-{symbol.lines[1]}  {inner}{symbol.signature or symbol.symbol}"
