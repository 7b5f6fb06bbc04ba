"""Late interaction as a second stage: each token of a request is compared with all of a tool's.

The encoder of the first stage with a projection of its token states to DIMENSION numbers; the score
is the mean over the tokens of the request of the cosine to the nearest of the tool (Khattab and
Zaharia 2020). A tool's token vectors could be stored, so that such a stage would cost a search next
to nothing. It is trained and judged as a cross-encoder is (`cross`).
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from benchmarks.training.encoder import LAYERS, WIDTH, Weights, batch, embedded, transformed
from benchmarks.training.inference import QUERY_TOKENS, TOOL_TOKENS, load_tokenizer

DIMENSION = 64
SCALE = 20.0  # of the cosines, as in the first stage
PROJECTION = "late.weight"


class LateInteraction:
    """Weights, and the tokens that they read."""

    def __init__(self, weights: Weights, tokenizer: Path) -> None:
        """The weights of an encoder, with a projection of chance."""
        self._of_queries = load_tokenizer(tokenizer, QUERY_TOKENS)
        self._of_tools = load_tokenizer(tokenizer, TOOL_TOKENS)
        self.weights = {name: tensor.clone() for name, tensor in weights.items()}
        self.weights[PROJECTION] = torch.nn.init.orthogonal_(torch.empty(DIMENSION, WIDTH))

    def scores(self, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            scores = self.pair_scores([(query, text) for text in texts])
        return np.asarray(scores.float().numpy())

    def pair_scores(self, pairs: Sequence[tuple[str, str]]) -> Tensor:
        """One score for each pair of a request and a tool's text; a request is encoded once."""
        queries = list(dict.fromkeys(query for query, _ in pairs))
        ids, mask = batch(self._of_queries, queries)
        asked, counted = self._vectors(ids, mask), mask.float()
        rows = torch.tensor([queries.index(query) for query, _ in pairs])
        ids, mask = batch(self._of_tools, [text for _, text in pairs])
        cosines = asked[rows] @ self._vectors(ids, mask).transpose(1, 2)
        nearest = cosines.masked_fill(mask[:, None, :] == 0, -1.0).amax(2)
        return SCALE * (nearest * counted[rows]).sum(1) / counted[rows].sum(1)

    def _vectors(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Of each token, shape (texts, tokens, DIMENSION)."""
        hidden = embedded(self.weights, ids, 0.0)
        masked = (1.0 - mask[:, None, None, :].to(hidden.dtype)) * -10000.0
        for layer in range(LAYERS):
            at = f"encoder.layer.{layer}."
            hidden = transformed(self.weights, at, hidden, masked, dropout=0.0)
        return functional.normalize(
            functional.linear(hidden, self.weights[PROJECTION]).float(), dim=-1
        )
