"""How well the best tool found fits a request: a calibrated probability. Pure.

A search ranks, so it always finds something, for gibberish as well. Whether the best is of use
depends on its cosine, on its words, and on the number of tools that it is the best of: among more,
the best is near by chance. `python -m benchmarks.fit` fits the coefficients, and measures them on
catalogs that were left out (docs/performance.md).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from registry.search.fusion import Candidate, enough

POOR = (
    "nothing fits this request well (fit {:.2f} of 1): what it asks for may not be here; "
    "or say in other words what a tool should do"
)
WORDS_MOST = 2.0  # the share of words from which more of them add nothing


@dataclass(frozen=True, slots=True)
class Coefficients:
    """Of a logistic regression on the best cosine, the best BM25 (as a share of `enough`) and the
    natural logarithm of the number of tools."""

    cosine: float
    words: float
    tools: float
    bias: float


COEFFICIENTS: Mapping[str, Coefficients] = {  # by model; others have no fit
    "bundled/toolgate-minilm-4": Coefficients(15.43, 1.14, -0.857, -1.96),
    "bundled/toolgate-minilm-3": Coefficients(14.06, 1.01, -0.724, -2.18),  # of vectors to replace
}


def features(candidates: Sequence[Candidate], tools: int) -> tuple[float, float, float]:
    """Best cosine, best share of the words, logarithm of the number of tools."""
    cosine = max(
        (candidate.cosine for candidate in candidates if candidate.cosine is not None), default=0.0
    )
    bm25 = max((candidate.bm25 for candidate in candidates), default=0.0)
    words = min(bm25 / enough(tools), WORDS_MOST) if tools else 0.0
    return cosine, words, math.log(1 + tools)


def fit(candidates: Sequence[Candidate], tools: int, model: str) -> float | None:
    """Probability that one of `candidates`, the best of so many tools, is what was asked for, where
    that is as likely as not. None: the model was not calibrated."""
    of = COEFFICIENTS.get(model)
    if of is None:
        return None
    cosine, words, size = features(candidates, tools)
    logit = of.cosine * cosine + of.words * words + of.tools * size + of.bias
    return 1 / (1 + math.exp(-logit))
