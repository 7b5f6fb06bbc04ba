"""Report of a model's scores on tool sets, passages and code, as lines of a table."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.training.code import asked, definition, documented
from benchmarks.training.evaluate import Lexical, Scores
from benchmarks.training.evaluate import evaluate as evaluated
from benchmarks.training.inference import QUERY_TOKENS, TOOL_TOKENS, embed, load_tokenizer, session
from benchmarks.training.sets import (
    SAMPLE_SEED,
    TrainingQuery,
    TrainingTool,
    load,
    rows,
    sample,
    seeded,
    tool_text,
)

FOUND, DEPTH = 5, 10  # passages and definitions that are looked at


def judge(
    model: Path,
    tokenizer: Path,
    sets: Path,
    names: Sequence[str],
    *,
    split: str,
    limit: int,
    tool_tokens: int = TOOL_TOKENS,
    texts: Path | None = None,
) -> Iterator[str]:
    """Report: one line per set and one for their mean. `texts`: another model, of the tools."""
    of_tools = partial(embed, session(texts or model), load_tokenizer(tokenizer, tool_tokens))
    of_queries = partial(embed, session(model), load_tokenizer(tokenizer, QUERY_TOKENS))
    yield f"{'set':14} queries  dense lexical  fused"
    all_scores: list[Scores] = []
    for name in names:
        tools = load(sets / name)
        all_scores.append(evaluated(tools, sample(tools, split, limit), of_tools, of_queries))
        yield _line(name, all_scores[-1])
    count = len(all_scores)
    yield _line(
        "mean",
        Scores(
            sum(scores.dense for scores in all_scores) / count,
            sum(scores.lexical for scores in all_scores) / count,
            sum(scores.fused for scores in all_scores) / count,
            sum(scores.queries for scores in all_scores),
        ),
    )


def _line(name: str, scores: Scores) -> str:
    points = f"{scores.dense:6.1f} {scores.lexical:7.1f} {scores.fused:6.1f}"
    return f"{name:14} {scores.queries:7} {points}"


def judge_passages(
    model: Path, tokenizer: Path, folders: Sequence[Path], *, tokens: int = TOOL_TOKENS
) -> Iterator[str]:
    """Report: recall of the supporting passages in the first five, a line for each folder.

    A folder has corpus.jsonl (id, title, text) and queries.jsonl (id, query, gold: their ids).
    Fused is half of the cosine and half of BM25, as in the wing of knowledge.
    """
    running = session(model)
    of_passages = partial(embed, running, load_tokenizer(tokenizer, tokens))
    of_queries = partial(embed, running, load_tokenizer(tokenizer, QUERY_TOKENS))
    yield f"{'passages':14} queries  dense lexical  fused"
    for folder in folders:
        passages = [_passage(row) for row in rows(folder / "corpus.jsonl")]
        queries = [
            TrainingQuery(str(row["id"]), row["query"], tuple(map(str, row["gold"])))
            for row in rows(folder / "queries.jsonl")
        ]
        at = {passage.id: number for number, passage in enumerate(passages)}
        lexical = Lexical(passages)
        cosines = (
            of_queries([query.text for query in queries])
            @ of_passages([f"{passage.name}. {passage.description}" for passage in passages]).T
        )
        recalls = []
        for query, cosine in zip(queries, cosines, strict=True):
            words = lexical.scores(query.text)
            fused_scores = cosine / 2 + words / max(2 * float(words.max()), 1e-9)
            gold = {at[id_] for id_ in query.gold}
            recalls.append([_recall(scores, gold) for scores in (cosine, words, fused_scores)])
        dense, worded, fused = (float(value) for value in 100 * np.mean(recalls, axis=0))
        yield _line(folder.name, Scores(dense, worded, fused, len(recalls)))


def judge_code(
    model: Path, tokenizer: Path, folders: Sequence[Path], *, limit: int, tokens: int = TOOL_TOKENS
) -> Iterator[str]:
    """Report: share of definitions among the first ten for what their documentation says, without
    their names, by meaning alone; a line for each folder of source code."""
    running = session(model)
    of_code = partial(embed, running, load_tokenizer(tokenizer, tokens))
    of_queries = partial(embed, running, load_tokenizer(tokenizer, QUERY_TOKENS))
    yield f"{'code':14} queries  dense"
    for folder in folders:
        definitions = list(documented(folder))
        chosen = seeded(SAMPLE_SEED).sample(range(len(definitions)), min(limit, len(definitions)))
        vectors = of_code([tool_text(definition(entry, folder.name)) for entry in definitions])
        cosines = of_queries([asked(definitions[at]) for at in chosen]) @ vectors.T
        ranks = [int((row > row[at]).sum()) for row, at in zip(cosines, chosen, strict=True)]
        share = 100 * sum(rank < DEPTH for rank in ranks) / max(len(ranks), 1)
        yield f"{folder.name:14} {len(chosen):7} {share:6.1f}"


def _passage(row: Mapping[str, Any]) -> TrainingTool:
    return TrainingTool(str(row["id"]), row["title"], row["text"], "", (), (), ())


def _recall(scores: NDArray[np.floating], gold: set[int]) -> float:
    """Of `gold`, the share in the first FOUND."""
    best = np.argsort(-scores, kind="stable")[:FOUND]
    return len(gold.intersection(best.tolist())) / max(len(gold), 1)
