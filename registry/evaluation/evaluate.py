"""One set of requests, searched in several modes and scored."""

import random
from collections.abc import Sequence

import numpy as np

from registry.evaluation.baseline import Baseline, text
from registry.evaluation.corpus import Corpus, NotEmbedded, Progress
from registry.evaluation.curves import calibration_pairs
from registry.evaluation.improvements import improvements
from registry.evaluation.mode_searches import ModeResults, search_all
from registry.evaluation.quality_metrics import BASELINE, SEED, SetResult, measure, recall_curve
from registry.evaluation.request_sets import EvaluationRequest
from registry.search import Mode
from registry.search.search_run import NO_VECTORS

EMBEDDED_AT_ONCE = 512  # texts of the baseline per batch


def sample_requests(
    requests: Sequence[EvaluationRequest], limit: int | None, seed: int = SEED
) -> list[EvaluationRequest]:
    """A reproducible sample of at most `limit` of them, in their order."""
    if limit is None or limit >= len(requests):
        return list(requests)
    places = random.Random(seed).sample(range(len(requests)), limit)  # noqa: S311 - no secret
    return [requests[place] for place in sorted(places)]


async def evaluate(
    name: str,
    corpus: Corpus,
    requests: Sequence[EvaluationRequest],
    modes: Sequence[Mode],
    *,
    progress: Progress,
    baseline: bool = False,
    number: int = 0,
) -> SetResult:
    """Evaluate a set; `number`: its index among those evaluated together.

    Without vectors dense is left out, with a note. Raises NotEmbedded where that leaves no mode.
    """
    ran: dict[str, ModeResults] = {}
    left_out = [mode for mode in modes if mode == "dense" and corpus.embedder is None]
    measurable = [mode for mode in modes if mode not in left_out]
    if not measurable:
        raise NotEmbedded(f"{name}: {NO_VECTORS}")
    await _warm_up(corpus, requests[0])
    for mode in measurable:
        ran[mode] = await _run_mode(corpus, requests, mode, progress)
    answers = {mode: run.tool_ids for mode, run in ran.items()}
    if baseline:
        answers[BASELINE] = await _baseline(corpus, requests, progress)
    relevant = [corpus.index.resolve(request) for request in requests]
    return SetResult(
        quality=measure(name, answers, relevant, number),
        tools=len(corpus.tools),
        requests=len(requests),
        unknown=corpus.index.unknown(requests),
        encode_ms=[ms for run in ran.values() for ms in run.encode_ms],
        search_ms={mode: run.search_ms for mode, run in ran.items()},
        paths={mode: dict(run.paths) for mode, run in ran.items()},
        notes={
            **{mode: dict(run.notes) for mode, run in ran.items() if run.notes},
            **{mode: {NO_VECTORS: len(requests)} for mode in left_out},
        },
        model=corpus.embedder.model if corpus.embedder else None,
        improvements=improvements(ran[measurable[0]].tool_ids, relevant, corpus.tools),
        recalls={mode: recall_curve(answer, relevant) for mode, answer in answers.items()},
        fits=[
            pair
            for run in ran.values()
            for pair in calibration_pairs(run.fits, run.tool_ids, relevant)
        ],
    )


async def _warm_up(corpus: Corpus, request: EvaluationRequest) -> None:
    """Warm-up: the first query loads the model, the first search fills the database's caches."""
    if corpus.embedder:
        await corpus.embedder.warm_up()
    await search_all(
        corpus.search,
        corpus.filters,
        [request],
        "lexical",
        names=corpus.names,
        embedder=None,
        done=lambda: None,
    )


async def _run_mode(
    corpus: Corpus, requests: Sequence[EvaluationRequest], mode: Mode, progress: Progress
) -> ModeResults:
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        progress(mode, done, len(requests))

    progress(mode, 0, len(requests))
    embedder = None if mode == "lexical" else corpus.embedder
    return await search_all(
        corpus.search,
        corpus.filters,
        requests,
        mode,
        names=corpus.names,
        embedder=embedder,
        done=step,
    )


async def _baseline(
    corpus: Corpus, requests: Sequence[EvaluationRequest], progress: Progress
) -> list[list[str]]:
    """The baseline, computed in Python over its own texts."""
    texts = [text(tool.name, tool.description) for tool in corpus.tools]
    vectors = None
    if corpus.embedder:
        parts = []
        for start in range(0, len(texts), EMBEDDED_AT_ONCE):
            progress(BASELINE, start, len(texts))
            batch = texts[start : start + EMBEDDED_AT_ONCE]
            parts.append(await corpus.embedder.embed_anew(batch))
        vectors = np.concatenate(parts)
    plain, rankings = Baseline(texts, vectors), []
    for request in requests:
        vector = (
            (await corpus.embedder.embed([request.query], query=True))[0]
            if corpus.embedder
            else None
        )
        rankings.append([corpus.tools[place].id for place in plain.search(request.query, vector)])
    return rankings
