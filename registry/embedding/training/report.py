"""Report of a model's scores on tool sets, as lines of a table."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from registry.embedding.training.evaluate import Scores
from registry.embedding.training.evaluate import evaluate as evaluated
from registry.embedding.training.inference import (
    QUERY_TOKENS,
    TOOL_TOKENS,
    embed,
    load_tokenizer,
    session,
)
from registry.embedding.training.sets import load, sample


def judge(
    model: Path,
    tokenizer: Path,
    sets: Path,
    names: Sequence[str],
    *,
    split: str,
    limit: int,
    tool_tokens: int = TOOL_TOKENS,
) -> Iterator[str]:
    """Report: one line per set and one for their mean."""
    running = session(model)
    of_tools = partial(embed, running, load_tokenizer(tokenizer, tool_tokens))
    of_queries = partial(embed, running, load_tokenizer(tokenizer, QUERY_TOKENS))
    yield f"{'set':14} queries  dense lexical  fused"
    found: list[Scores] = []
    for name in names:
        tools = load(sets / name)
        found.append(evaluated(tools, sample(tools, split, limit), of_tools, of_queries))
        yield _line(name, found[-1])
    count = len(found)
    yield _line(
        "mean",
        Scores(
            sum(one.dense for one in found) / count,
            sum(one.lexical for one in found) / count,
            sum(one.fused for one in found) / count,
            sum(one.queries for one in found),
        ),
    )


def _line(name: str, scores: Scores) -> str:
    points = f"{scores.dense:6.1f} {scores.lexical:7.1f} {scores.fused:6.1f}"
    return f"{name:14} {scores.queries:7} {points}"
