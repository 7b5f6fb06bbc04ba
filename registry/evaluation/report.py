"""Reports of an evaluation: as JSON, as tables. Pure."""

from collections.abc import Iterator, Sequence
from typing import Any

from registry.evaluation.quality_metrics import (
    METRICS,
    Interval,
    SetMetrics,
    SetResult,
    mean_of,
    percentiles,
)

MAIN = "ndcg@10"  # the metric that modes are compared by
UNKNOWN_SHOWN = 5  # unknown tools listed
Row = tuple[str, ...]
Table = tuple[str, Row, list[Row]]  # title, columns, rows


def tables(results: Sequence[SetResult]) -> Iterator[Table]:
    qualities = [result.quality for result in results]
    if len(qualities) > 1:
        qualities.append(mean_of(qualities))
    columns = ("set", "mode", *METRICS)
    yield (
        "Found, per cent",
        columns,
        [row for quality in qualities for row in quality_rows(quality)],
    )
    if differences := [row for quality in qualities for row in difference_rows(quality)]:
        yield f"Difference in {MAIN}", ("set", "modes", "more", "95 %", ""), differences
    times = [row for result in results for row in latency_rows(result)]
    yield "Milliseconds", ("set", "spent on", "p50", "p95", "p99"), times
    if missed := [row for result in results for row in improvement_rows(result)]:
        heads = ("tool", "missed", "instead", "reasons", "proposed description")
        yield "Tools missed most often among the first five", heads, missed


def markdown(title: str, columns: Row, rows: Sequence[Row]) -> str:
    lines = [columns, ("---",) * len(columns), *rows]
    cells = (" | ".join(cell.replace("|", "\\|") for cell in line) for line in lines)
    return "\n".join([f"**{title}**\n", *(f"| {line} |" for line in cells), ""])


def remarks(results: Sequence[SetResult]) -> Iterator[str]:
    """Caveats for judging the numbers."""
    for result in results:
        name = result.quality.name
        model = result.model or "no model"
        yield f"{name}: {result.requests:,} requests to {result.tools:,} tools, {model}"
        if result.unknown:
            yield f"{name}: {_unknown(result)}"
        for mode, notes in result.notes.items():
            for note, count in notes.items():
                yield f"{name}: {mode}, {count} times: {note}"


def _unknown(result: SetResult) -> str:
    named = ", ".join(list(result.unknown)[:UNKNOWN_SHOWN])
    more = len(result.unknown) - UNKNOWN_SHOWN
    requests = len({id_ for ids in result.unknown.values() for id_ in ids})
    return (
        f"{len(result.unknown)} wanted tools are not there and count as missed, in {requests} "
        f"requests: {named}{f' and {more} more' if more > 0 else ''}"
    )


def comparisons(modes: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs of modes: the first, expected best, with each of the others."""
    return [(modes[0], base) for base in modes[1:]]


def quality_rows(metrics: SetMetrics) -> list[tuple[str, ...]]:
    """Rows of set, mode and its METRICS; of MAIN with its interval."""
    return [
        (metrics.name, mode, *(_quality(metrics.interval(mode, name), name) for name in METRICS))
        for mode in metrics.modes
    ]


def _quality(interval: Interval, metric: str) -> str:
    mean = f"{interval.mean:.1f}"
    if metric != MAIN or interval.requests == 1:
        return mean
    return f"{mean} [{interval.low:.1f}, {interval.high:.1f}]"


def difference_rows(metrics: SetMetrics) -> list[tuple[str, ...]]:
    """Rows of set, the two modes, the first one's lead in MAIN, its interval, whether that is
    significant."""
    rows: list[tuple[str, ...]] = []
    for mode, base in comparisons(metrics.modes):
        more = metrics.interval(mode, MAIN, minus=base)
        bounds = "-" if more.requests == 1 else f"[{more.low:+.1f}, {more.high:+.1f}]"
        rows.append((metrics.name, f"{mode} - {base}", f"{more.mean:+.1f}", bounds, _sign(more)))
    return rows


def _sign(more: Interval) -> str:
    if not more.enough:
        return "too few requests"
    return "certain" if more.certain else "may be chance"


def latency_rows(result: SetResult) -> list[tuple[str, ...]]:
    """Rows of set, stage, its p50, p95 and p99."""
    spent = {"encode": result.encode_ms}
    spent |= {f"{mode} SQL": ms for mode, ms in result.search_ms.items()}
    return [
        (result.quality.name, stage, *(f"{value:.1f}" for value in percentiles(ms).values()))
        for stage, ms in spent.items()
        if ms
    ]


def improvement_rows(result: SetResult) -> list[tuple[str, ...]]:
    """Rows of tool, requests that missed it of those that needed it, and how to describe it."""
    return [
        (
            *(tool.tool, f"{tool.missed} of {tool.requests}", ", ".join(tool.instead)),
            *("; ".join(tool.reasons), tool.proposal),
        )
        for tool in result.improvements
    ]


def as_json(results: Sequence[SetResult]) -> dict[str, Any]:
    qualities = [quality.quality for quality in results]
    return {
        "unit": "per cent; times in ms; intervals 95 %, bootstrap",
        "sets": [_set_json(result) for result in results],
        **({"mean": _quality_json(mean_of(qualities))} if len(results) > 1 else {}),
    }


def _set_json(result: SetResult) -> dict[str, Any]:
    return {
        "name": result.quality.name,
        "tools": result.tools,
        "requests": result.requests,
        "model": result.model,
        **_quality_json(result.quality),
        "latency_ms": {
            "encode": percentiles(result.encode_ms),
            "search": {mode: percentiles(ms) for mode, ms in result.search_ms.items()},
        },
        "paths": result.paths,
        "notes": result.notes,
        "unknown": result.unknown,
        "improvements": result.improvements,
    }


def _quality_json(metrics: SetMetrics) -> dict[str, Any]:
    return {
        "modes": {
            mode: {metric: _interval_json(metrics.interval(mode, metric)) for metric in METRICS}
            for mode in metrics.modes
        },
        "differences": {
            f"{mode} - {base}": {
                metric: _interval_json(metrics.interval(mode, metric, base)) for metric in METRICS
            }
            for mode, base in comparisons(metrics.modes)
        },
    }


def _interval_json(interval: Interval) -> dict[str, float]:
    mean = {"mean": round(interval.mean, 2)}
    if interval.requests == 1:
        return mean
    return {**mean, "low": round(interval.low, 2), "high": round(interval.high, 2)}
