"""Cross-encoder of the second stage: it reads a request and a tool together, and scores them.

The first layers of the encoder with a second kind of token and one output. Trained list by list:
the cross-entropy of a right tool among wrong ones that the first stage ranks near it (Nogueira and
Cho 2019; listwise: Cao et al. 2007). Word and position embeddings are frozen.
"""

import logging
import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from benchmarks.training import encoder
from benchmarks.training.encoder import WIDTH, Weights
from benchmarks.training.evaluate import ndcg
from benchmarks.training.export import quantize
from benchmarks.training.lists import BATCH, Ranking, chosen, lots, usable
from benchmarks.training.sets import seeded

log = logging.getLogger(__name__)

TOKENS, QUERY_TOKENS = 96, 40  # of a pair, and at most of its request
SHARES = (0.005, 0.01, 0.02, 0.03, 0.05)  # of the standard score in the sum of both stages


class ListwiseModel(Protocol):
    """A model that scores a request with the texts of tools."""

    weights: dict[str, Tensor]

    def scores(self, query: str, texts: Sequence[str]) -> NDArray[np.float32]: ...

    def pair_scores(self, pairs: Sequence[tuple[str, str]]) -> Tensor:
        """One score for each pair, as it is trained."""


class CrossEncoder:
    """Weights, and the tokens that they read."""

    def __init__(self, weights: Weights, tokenizer: Path, layers: int) -> None:
        """The first `layers` of an encoder's weights, with an untrained output."""
        self.layers = layers
        self._tokenizer = Tokenizer.from_file(str(tokenizer))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(TOKENS)
        self.weights = {
            name: tensor.clone()
            for name, tensor in weights.items()
            if not name.startswith("encoder.layer.") or int(name.split(".")[2]) < layers
        }
        self.weights["head.weight"] = torch.zeros(1, WIDTH)
        self.weights["head.bias"] = torch.zeros(1)

    def scores(self, query: str, texts: Sequence[str]) -> NDArray[np.float32]:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            scores = scored(
                self.weights, self.layers, self.batch([(query, text) for text in texts])
            )
        return np.asarray(scores.float().numpy())

    def pair_scores(self, pairs: Sequence[tuple[str, str]]) -> Tensor:
        return scored(self.weights, self.layers, self.batch(pairs), dropout=0.1)

    def batch(self, pairs: Sequence[tuple[str, str]]) -> tuple[Tensor, Tensor, Tensor]:
        """(ids, mask, kinds), each of shape (pairs, tokens of the longest)."""
        rows = [self._tokens(*pair) for pair in pairs]
        width = max(len(ids) for ids, _ in rows)
        inputs = torch.zeros((3, len(rows), width), dtype=torch.int64)
        for at, (ids, first) in enumerate(rows):
            inputs[0, at, : len(ids)] = torch.tensor(ids)
            inputs[1, at, : len(ids)] = 1
            inputs[2, at, first : len(ids)] = 1
        return inputs[0], inputs[1], inputs[2]

    def _tokens(self, query: str, text: str) -> tuple[list[int], int]:
        """The tokens of a pair, and the place of the first one of `text`."""
        asked = self._tokenizer.encode(query).ids
        asked = asked if len(asked) <= QUERY_TOKENS else [*asked[: QUERY_TOKENS - 1], asked[-1]]
        text_ids = self._tokenizer.encode(text).ids[1:]
        room = TOKENS - len(asked)
        return asked + (
            text_ids if len(text_ids) <= room else [*text_ids[: room - 1], text_ids[-1]]
        ), len(asked)


def scored(
    weights: Weights, layers: int, inputs: tuple[Tensor, Tensor, Tensor], dropout: float = 0.0
) -> Tensor:
    """One score for each pair, `inputs` as by `CrossEncoder.batch`; every operation exports to ONNX
    opset 17."""
    ids, mask, kinds = inputs
    hidden = encoder.embedded(weights, ids, dropout, kinds)
    masked = (1.0 - mask[:, None, None, :].to(hidden.dtype)) * -10000.0
    for layer in range(layers):
        at = f"encoder.layer.{layer}."
        hidden = encoder.transformed(weights, at, hidden, masked, dropout=dropout)
    weights_of_tokens = mask[:, :, None].to(hidden.dtype)
    pooled = (hidden * weights_of_tokens).sum(1) / weights_of_tokens.sum(1)
    return functional.linear(pooled, weights["head.weight"], weights["head.bias"])[:, 0]


def train(
    model: ListwiseModel,
    lists: Sequence[Ranking],
    *,
    rate: float,
    wrong: int,
    seed: int,
    marks: Sequence[int],
    mark: Callable[[int], None],
) -> None:
    """Train on `lists`, over and over, up to the last of `marks`; `mark` is called at each, with
    the number of requests seen."""
    torch.manual_seed(seed)
    chance = seeded(seed)
    tuned = [
        tensor.requires_grad_()
        for name, tensor in model.weights.items()
        if not name.startswith(("embeddings.word", "embeddings.position"))
    ]
    optimizer = torch.optim.AdamW(tuned, lr=rate, weight_decay=0.01)
    steps = marks[-1] // BATCH
    for step, lot in enumerate(lots(usable(lists, wrong), chance, steps), 1):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, step / 50) * max(0.05, 1 - step / steps)
        loss = _loss(model, lot, wrong, chance)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(tuned, 1.0)
        optimizer.step()
        if step % 50 == 0:
            log.info("%d requests, loss %.3f", step * BATCH, loss.item())
        if any((step - 1) * BATCH < mark <= step * BATCH for mark in marks):
            mark(step * BATCH)


def _loss(
    model: ListwiseModel, lot: Sequence[Ranking], wrong: int, chance: random.Random
) -> Tensor:
    """Mean cross-entropy of a right tool among `wrong` others; it stands first of its list."""
    pairs = [pair for ranking in lot for pair in chosen(ranking, wrong, chance)]
    with torch.autocast("cpu", torch.bfloat16):
        scores = model.pair_scores(pairs)
    scores = scores.float().view(len(lot), wrong + 1)
    return functional.cross_entropy(scores, torch.zeros(len(lot), dtype=torch.int64))


def judged(model: ListwiseModel, rankings: Sequence[Ranking]) -> list[float]:
    """Mean NDCG@10 of the first stage, of each of SHARES, and of the second stage alone."""
    columns = []
    for ranking in rankings:
        second = model.scores(ranking.query, ranking.texts)
        standard = (second - second.mean()) / max(float(second.std()), 1e-6)
        mixed = [ranking.scores + share * standard for share in SHARES]
        gold = set(ranking.gold) | {-at for at in range(1, ranking.wanted - len(ranking.gold) + 1)}
        columns.append([ndcg(scores, gold) for scores in (ranking.scores, *mixed, second)])
    return [100 * float(value) for value in np.mean(columns, axis=0)]


class _Graph(torch.nn.Module):
    def __init__(self, model: CrossEncoder) -> None:
        super().__init__()
        self.layers = model.layers
        self.kept = torch.nn.ParameterDict(
            {name.replace(".", "/"): tensor.detach() for name, tensor in model.weights.items()}
        )

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        named = {name.replace("/", "."): tensor for name, tensor in self.kept.items()}
        return scored(named, self.layers, (input_ids, attention_mask, token_type_ids))[:, None]


def export(model: CrossEncoder, path: Path) -> None:
    """Write the int8 graph that `search.rerank_model` names: three inputs, one score a pair."""
    example = torch.ones((2, 8), dtype=torch.int64)
    names = ["input_ids", "attention_mask", "token_type_ids"]
    with tempfile.TemporaryDirectory(dir=path.parent) as work:
        torch.onnx.export(
            _Graph(model).eval(),
            (example, example, example),
            str(Path(work) / "plain"),
            dynamo=False,
            opset_version=17,
            input_names=names,
            output_names=["logits"],
            dynamic_axes={
                **{name: {0: "pairs", 1: "tokens"} for name in names},
                "logits": {0: "pairs"},
            },
        )
        quantize(Path(work) / "plain", path)
