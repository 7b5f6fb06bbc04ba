"""Retrieval quality: public sets of requests where a directory is given, else our own one.

The product's own search in a separate database, NDCG@10 with its 95 % confidence interval, compared
with plain BM25 and vectors by rank fusion. A sample of each set; `toolgate search eval DIR...`
takes all of it.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.request import Unavailable
from benchmarks.rig import Rig
from benchmarks.table import Row, Target
from config.load import load
from registry.evaluation.corpus import of_catalog
from registry.evaluation.evaluate import evaluate, sample_requests
from registry.evaluation.mode_searches import MODES
from registry.evaluation.quality_metrics import SetMetrics, SetResult, mean_of, percentiles
from registry.evaluation.request_sets import QUERIES, TOOLS, read_catalog, read_requests

OWN = Path(__file__).parents[1] / "tests" / "quality"
LIMIT, QUICK_LIMIT = 500, 60  # requests of a set
TUNED = {"metatool", "bfcl", "apibench", "sealtools"}  # that choices were made on
METRIC = "ndcg@10"

Targets = Mapping[str, float]  # by mode
MEAN: Targets = {"hybrid": 67.0, "dense": 60.0}
SETS: Mapping[str, Targets] = {"livemcpbench": {"hybrid": 43.0}, OWN.name: {"hybrid": 88.0}}


def measure_quality(rig: Rig, directory: Path | None, quick: bool) -> list[Row]:
    results = [
        asyncio.run(_measured(rig, path, number, QUICK_LIMIT if quick else LIMIT))
        for number, path in enumerate(chosen(directory))
    ]
    whose = "" if directory else "OUR OWN: no directory of tool sets was given"
    return list(rows(results, whose))


def chosen(directory: Path | None) -> list[Path]:
    if directory is None:
        return [OWN]
    paths = sorted(path.parent for path in directory.glob(f"*/{QUERIES}"))
    if not paths:
        raise Unavailable(f"{directory} holds no tool set: NAME/{QUERIES} and NAME/{TOOLS}")
    return paths


async def _measured(rig: Rig, path: Path, number: int, limit: int) -> SetResult:
    tools = read_catalog(path / TOOLS)
    requests = sample_requests(read_requests(path / QUERIES), limit)

    def say(step: str, done: int, total: int) -> None:
        if done in {0, total}:
            rig.say(f"{path.name}: {step} {done:,} of {total:,}")

    async with of_catalog(tools, load(None, {}), say) as corpus:
        return await evaluate(
            path.name, corpus, requests, MODES, progress=say, baseline=True, number=number
        )


def rows(results: Sequence[SetResult], whose: str) -> Iterator[Row]:
    for result in results:
        facts = f"{result.requests:,} requests to {result.tools:,} tools; {whose}".rstrip("; ")
        for mode in result.quality.modes:
            note = f"{_interval(result.quality, mode)}; {_spent(result, mode)}{facts}"
            yield _row(result.quality, mode, SETS.get(result.quality.name, {}), note)
    tuned = [result.quality for result in results if result.quality.name in TUNED]
    if len(tuned) == len(TUNED):
        mean = mean_of(tuned)
        for mode in mean.modes:
            yield _row(mean, mode, MEAN, f"{_interval(mean, mode)}: {', '.join(sorted(TUNED))}")


def _row(quality: SetMetrics, mode: str, targets: Targets, note: str) -> Row:
    least = (Target("least", targets[mode]),) if mode in targets else ()
    mean = quality.interval(mode, METRIC).mean
    return Row(f"{quality.name}: NDCG@10, {mode}", mean, "%", targets=least, note=note)


def _interval(quality: SetMetrics, mode: str) -> str:
    interval = quality.interval(mode, METRIC)
    complete = quality.interval(mode, "completeness@10").mean
    return f"[{interval.low:.1f}, {interval.high:.1f}], completeness {complete:.1f}"


def _spent(result: SetResult, mode: str) -> str:
    """p95 in ms; of the baseline, which is searched in Python, nothing."""
    if mode not in result.search_ms:
        return ""
    times = percentiles(result.search_ms[mode])
    encode = percentiles(result.encode_ms) if mode != "lexical" else {}
    encoding = f"encoding {encode['p95']:.1f} + " if encode else ""
    return f"p95 {encoding}SQL {times['p95']:.1f} ms; "
