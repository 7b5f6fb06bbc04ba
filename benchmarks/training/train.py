"""Contrastive fine-tuning on a CPU: in-batch negatives, half of them hard (near neighbours).

Symmetric multiple-negatives ranking loss (Henderson et al. 2017). Word and position embeddings
are frozen: words that no set contains keep their meaning, and a step is cheaper.
"""

import logging
import math
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from benchmarks.training.data import Pair, grouped, varied_text
from benchmarks.training.encoder import Weights, batch, encode
from benchmarks.training.inference import QUERY_TOKENS, TOOL_TOKENS, load_tokenizer
from benchmarks.training.sets import seeded, tool_text

log = logging.getLogger(__name__)

PART = 24  # texts that are encoded together
GROUP = 8  # neighbouring pairs that are batched together
DUPLICATE = 0.88  # cosine of two tools above which they are not each other's negatives


@dataclass(frozen=True)
class Recipe:
    epochs: int = 1
    steps: int | None = None  # fewer than those of the epochs
    batch_size: int = 128
    learning_rate: float = 5e-5
    warm_up: float = 0.1  # share of the steps
    scale: float = 20.0  # of the cosines, the inverse of the temperature
    dropout: float = 0.0  # 0.1 takes twice the time (1.8 s for 64 pairs) for no better scores
    anchor: float = 0.0  # weight of the distance of passages to the base model's vectors
    weight_decay: float = 0.01
    seed: int = 7
    threads: int = 2


def train(
    base: Weights,
    tokenizer_file: Path,
    pairs: Sequence[Pair],
    vectors: NDArray[np.float32],
    *,
    recipe: Recipe,
) -> dict[str, Tensor]:
    """The tuned weights. `vectors`: the base model's, of the tool of each pair."""
    torch.manual_seed(recipe.seed)
    torch.set_num_threads(recipe.threads)
    weights = {name: tensor.clone() for name, tensor in base.items()}
    tuned = [weights[name].requires_grad_() for name in weights if name.startswith("encoder.")]
    optimizer = torch.optim.AdamW(
        tuned, lr=recipe.learning_rate, weight_decay=recipe.weight_decay, fused=True
    )
    of_queries = load_tokenizer(tokenizer_file, QUERY_TOKENS)
    of_tools = load_tokenizer(tokenizer_file, TOOL_TOKENS)
    batches = list(_batches(pairs, vectors, recipe))[: recipe.steps]
    started, losses = time.monotonic(), 0.0
    for step, (numbers, texts) in enumerate(batches, 1):
        for group in optimizer.param_groups:
            group["lr"] = recipe.learning_rate * _rate(step / len(batches), recipe.warm_up)
        optimizer.zero_grad(set_to_none=True)
        members, halved = [pairs[number] for number in numbers], _halved(weights)
        asked = _encode(halved, of_queries, [pair.query for pair in members], recipe.dropout)
        tools = _encode(halved, of_tools, texts, recipe.dropout)
        loss = _loss(asked, tools, _not_negative(members, vectors[numbers]), recipe.scale)
        if anchored := [at for at, pair in enumerate(members) if recipe.anchor and pair.anchored]:
            questions = _drift(
                base, of_queries, [members[at].query for at in anchored], asked[anchored]
            )
            passages = _drift(base, of_tools, [texts[at] for at in anchored], tools[anchored])
            loss = loss + recipe.anchor * (questions + passages)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(tuned, 1.0)
        optimizer.step()
        losses += float(loss.detach())
        if step % 20 == 0 or step == len(batches):
            spent = time.monotonic() - started
            log.info("step %d of %d, loss %.3f, %.0f s", step, len(batches), losses / 20, spent)
            losses = 0.0
    return {name: tensor.detach() for name, tensor in weights.items()}


def average(base: Weights, tuned: Sequence[Weights], share: float) -> dict[str, Tensor]:
    """`share` of the mean of the tuned weights, the rest of the base.

    The mean of several runs is a model soup, that with the base is WiSE-FT (Wortsman et al. 2022).
    """
    return {
        name: torch.lerp(tensor, torch.stack([weights[name] for weights in tuned]).mean(0), share)
        for name, tensor in base.items()
    }


def _batches(
    pairs: Sequence[Pair], vectors: NDArray[np.float32], recipe: Recipe
) -> Iterator[tuple[list[int], list[str]]]:
    chance = seeded(recipe.seed)
    for _ in range(recipe.epochs):
        order = [number for group in grouped(pairs, vectors, GROUP, chance) for number in group]
        for start in range(0, len(order) - recipe.batch_size + 1, recipe.batch_size):
            numbers = order[start : start + recipe.batch_size]
            yield numbers, [_text(pairs[number], chance) for number in numbers]


def _text(pair: Pair, chance: random.Random) -> str:
    is_distinct = pair.anchored or pair.distinct  # those of operations are variants already
    return tool_text(pair.tool) if is_distinct else varied_text(pair.tool, chance)


def _loss(queries: Tensor, tools: Tensor, not_negative: Tensor, scale: float) -> Tensor:
    scores = (queries @ tools.T * scale).masked_fill(not_negative, -1e4)
    right = torch.arange(len(scores))
    return (functional.cross_entropy(scores, right) + functional.cross_entropy(scores.T, right)) / 2


def _drift(base: Weights, tokenizer: Tokenizer, texts: Sequence[str], vectors: Tensor) -> Tensor:
    """Mean distance (1 - cosine) of `vectors` to the base model's vectors of `texts`."""
    with torch.no_grad():
        before = _encode(base, tokenizer, texts, 0.0)
    return 1 - (before * vectors).sum(1).mean()


def _halved(weights: Weights) -> Weights:
    """The matrices that are multiplied in bfloat16, converted once for all parts of a step."""
    return {
        name: tensor.to(torch.bfloat16)
        if name.startswith("encoder.") and tensor.dim() == 2
        else tensor
        for name, tensor in weights.items()
    }


def _encode(weights: Weights, tokenizer: Tokenizer, texts: Sequence[str], dropout: float) -> Tensor:
    """Encode in parts of similar length: padding would be half of the work."""
    order = sorted(range(len(texts)), key=lambda place: len(texts[place]))
    vectors = []
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for start in range(0, len(order), PART):
            part = [texts[place] for place in order[start : start + PART]]
            vectors.append(encode(weights, *batch(tokenizer, part), dropout))
    places = torch.tensor(order).argsort()
    return torch.cat(vectors).float()[places]


def _not_negative(pairs: Sequence[Pair], vectors: NDArray[np.float32]) -> Tensor:
    """True where a tool answers the other pair too: the same, a near duplicate, or named by it.

    Of distinct tools none is a duplicate: deletion is not creation, as near as their texts are.
    """
    same = np.array([[rival.tool.id in pair.also for rival in pairs] for pair in pairs])
    distinct = np.array([pair.distinct for pair in pairs])
    alike = (vectors @ vectors.T > DUPLICATE) & ~(distinct[:, None] & distinct)
    answers_other = same | same.T | alike
    np.fill_diagonal(answers_other, val=False)
    return torch.from_numpy(answers_other)


def _rate(done: float, warm_up: float) -> float:
    if done < warm_up:
        return done / warm_up
    return 0.5 * (1 + math.cos(math.pi * (done - warm_up) / (1 - warm_up)))
