"""Reports of an evaluation: as JSON, as tables. Pure."""

from collections.abc import Iterator, Sequence
from typing import Any

from registry.evaluation.results import METRICS, Interval, Measured, SetResult, mean_of, percentiles

MAIN = "ndcg@10"  # the metric that modes are compared by
UNKNOWN_SHOWN = 5  # unknown tools listed
Row = tuple[str, ...]
Table = tuple[str, Row, list[Row]]  # title, columns, rows


def tables(results: Sequence[SetResult]) -> Iterator[Table]:
    qualities = [one.quality for one in results]
    if len(qualities) > 1:
        qualities.append(mean_of(qualities))
    columns = ("set", "mode", *METRICS)
    yield "Found, per cent", columns, [row for one in qualities for row in quality_rows(one)]
    if differences := [row for one in qualities for row in difference_rows(one)]:
        yield f"Difference in {MAIN}", ("set", "modes", "more", "95 %", ""), differences
    times = [row for one in results for row in latency_rows(one)]
    yield "Milliseconds", ("set", "spent on", "p50", "p95", "p99"), times


def markdown(title: str, columns: Row, rows: Sequence[Row]) -> str:
    lines = [columns, ("---",) * len(columns), *rows]
    cells = (" | ".join(cell.replace("|", "\\|") for cell in line) for line in lines)
    return "\n".join([f"**{title}**\n", *(f"| {line} |" for line in cells), ""])


def remarks(results: Sequence[SetResult]) -> Iterator[str]:
    """Caveats for judging the numbers."""
    for one in results:
        name = one.quality.name
        model = one.model or "no model"
        yield f"{name}: {one.requests:,} requests to {one.tools:,} tools, {model}"
        if one.unknown:
            yield f"{name}: {_unknown(one)}"
        for mode, notes in one.notes.items():
            for note, count in notes.items():
                yield f"{name}: {mode}, {count} times: {note}"


def _unknown(one: SetResult) -> str:
    named = ", ".join(list(one.unknown)[:UNKNOWN_SHOWN])
    more = len(one.unknown) - UNKNOWN_SHOWN
    requests = len({id_ for ids in one.unknown.values() for id_ in ids})
    return (
        f"{len(one.unknown)} wanted tools are not there and count as missed, in {requests} "
        f"requests: {named}{f' and {more} more' if more > 0 else ''}"
    )


def comparisons(modes: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs of modes: the first, expected best, with each of the others."""
    return [(modes[0], other) for other in modes[1:]]


def quality_rows(one: Measured) -> list[tuple[str, ...]]:
    """Rows of set, mode and its METRICS; of MAIN with its interval."""
    return [
        (one.name, mode, *(_quality(one.interval(mode, metric), metric) for metric in METRICS))
        for mode in one.modes
    ]


def _quality(interval: Interval, metric: str) -> str:
    mean = f"{interval.mean:.1f}"
    if metric != MAIN or interval.requests == 1:
        return mean
    return f"{mean} [{interval.low:.1f}, {interval.high:.1f}]"


def difference_rows(one: Measured) -> list[tuple[str, ...]]:
    """Rows of set, the two modes, the first one's lead in MAIN, its interval, whether that is
    significant."""
    rows: list[tuple[str, ...]] = []
    for mode, other in comparisons(one.modes):
        more = one.interval(mode, MAIN, minus=other)
        bounds = "-" if more.requests == 1 else f"[{more.low:+.1f}, {more.high:+.1f}]"
        rows.append((one.name, f"{mode} - {other}", f"{more.mean:+.1f}", bounds, _sign(more)))
    return rows


def _sign(more: Interval) -> str:
    if not more.enough:
        return "too few requests"
    return "certain" if more.certain else "may be chance"


def latency_rows(one: SetResult) -> list[tuple[str, ...]]:
    """Rows of set, stage, its p50, p95 and p99."""
    spent = {"encode": one.encode_ms} | {f"{mode} SQL": ms for mode, ms in one.search_ms.items()}
    return [
        (one.quality.name, what, *(f"{value:.1f}" for value in percentiles(ms).values()))
        for what, ms in spent.items()
        if ms
    ]


def as_json(results: Sequence[SetResult]) -> dict[str, Any]:
    qualities = [one.quality for one in results]
    return {
        "unit": "per cent; times in ms; intervals 95 %, bootstrap",
        "sets": [_set_json(one) for one in results],
        **({"mean": _quality_json(mean_of(qualities))} if len(results) > 1 else {}),
    }


def _set_json(one: SetResult) -> dict[str, Any]:
    return {
        "name": one.quality.name,
        "tools": one.tools,
        "requests": one.requests,
        "model": one.model,
        **_quality_json(one.quality),
        "latency_ms": {
            "encode": percentiles(one.encode_ms),
            "search": {mode: percentiles(ms) for mode, ms in one.search_ms.items()},
        },
        "paths": one.paths,
        "notes": one.notes,
        "unknown": one.unknown,
    }


def _quality_json(one: Measured) -> dict[str, Any]:
    return {
        "modes": {
            mode: {metric: _interval_json(one.interval(mode, metric)) for metric in METRICS}
            for mode in one.modes
        },
        "differences": {
            f"{mode} - {other}": {
                metric: _interval_json(one.interval(mode, metric, other)) for metric in METRICS
            }
            for mode, other in comparisons(one.modes)
        },
    }


def _interval_json(interval: Interval) -> dict[str, float]:
    mean = {"mean": round(interval.mean, 2)}
    if interval.requests == 1:
        return mean
    return {**mean, "low": round(interval.low, 2), "high": round(interval.high, 2)}
