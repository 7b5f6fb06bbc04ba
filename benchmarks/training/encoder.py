"""The encoder as a pure function of its weights: MiniLM, BERT with 6 layers, 12 heads, 384 dims.

Weights are a plain mapping with the names that the published checkpoint uses, so that loading,
averaging and saving need nothing but safetensors. Positions and layout follow BERT
(Devlin et al. 2019); the vector is the mean of the token states (Reimers & Gurevych 2019).
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

Weights = Mapping[str, Tensor]

LAYERS = 6
HEADS = 12
WIDTH = 384
EPSILON = 1e-12


def load_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a checkpoint in float32, without the pooler, which mean pooling leaves out."""
    return {
        name: tensor.float()
        for name, tensor in load_file(path).items()
        if tensor.is_floating_point() and not name.startswith("pooler.")
    }


def save_weights(weights: Weights, path: Path) -> None:
    beside = path.with_suffix(".part")
    save_file({name: tensor.detach().contiguous() for name, tensor in weights.items()}, beside)
    beside.replace(path)


def batch(tokenizer: Tokenizer, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
    """(ids, mask), both int64 of shape (texts, tokens of the longest)."""
    encoded = tokenizer.encode_batch(list(texts))
    return (
        torch.tensor([encoding.ids for encoding in encoded]),
        torch.tensor([encoding.attention_mask for encoding in encoded]),
    )


def encode(weights: Weights, ids: Tensor, mask: Tensor, dropout: float = 0.0) -> Tensor:
    """L2-normalised vectors, shape (texts, 384); every operation exports to ONNX opset 17."""
    hidden = embedded(weights, ids, dropout)
    hidden_from = (1.0 - mask[:, None, None, :].to(hidden.dtype)) * -10000.0
    for layer in range(LAYERS):
        hidden = transformed(
            weights, f"encoder.layer.{layer}.", hidden, hidden_from, dropout=dropout
        )
    token_mask = mask[:, :, None].to(hidden.dtype)
    pooled = (hidden * token_mask).sum(1) / token_mask.sum(1).clamp(min=1.0)
    return pooled / (pooled * pooled).sum(1, keepdim=True).sqrt().clamp(min=1e-9)


def embedded(weights: Weights, ids: Tensor, dropout: float, kinds: Tensor | None = None) -> Tensor:
    """The states before the first layer. `kinds`: of each token, 0 or 1; None: all 0."""
    words = functional.embedding(ids, weights["embeddings.word_embeddings.weight"])
    positions = weights["embeddings.position_embeddings.weight"][: ids.shape[1]]
    of_kind = weights["embeddings.token_type_embeddings.weight"]
    added = of_kind[0] if kinds is None else functional.embedding(kinds, of_kind)
    return _drop(_norm(weights, "embeddings.LayerNorm", words + positions + added), dropout)


def transformed(
    weights: Weights, at: str, hidden: Tensor, masked: Tensor, *, dropout: float
) -> Tensor:
    """The states after the layer whose weights' names begin with `at`."""
    attended = _linear(
        weights, at + "attention.output.dense", _attention(weights, at, hidden, masked)
    )
    hidden = _norm(weights, at + "attention.output.LayerNorm", hidden + _drop(attended, dropout))
    inner = functional.gelu(_linear(weights, at + "intermediate.dense", hidden))
    outer = _linear(weights, at + "output.dense", inner)
    return _norm(weights, at + "output.LayerNorm", hidden + _drop(outer, dropout))


def _attention(weights: Weights, at: str, hidden: Tensor, masked: Tensor) -> Tensor:
    texts, tokens = hidden.shape[0], hidden.shape[1]

    def heads(part: str) -> Tensor:
        projected = _linear(weights, f"{at}attention.self.{part}", hidden)
        return projected.view(texts, tokens, HEADS, WIDTH // HEADS).transpose(1, 2)

    scores = heads("query") @ heads("key").transpose(2, 3) / math.sqrt(WIDTH // HEADS)
    mixed = torch.softmax(scores + masked, dim=-1) @ heads("value")
    return mixed.transpose(1, 2).reshape(texts, tokens, WIDTH)


def _linear(weights: Weights, name: str, x: Tensor) -> Tensor:
    return functional.linear(x, weights[name + ".weight"], weights[name + ".bias"])


def _norm(weights: Weights, name: str, x: Tensor) -> Tensor:
    return functional.layer_norm(
        x, (WIDTH,), weights[name + ".weight"], weights[name + ".bias"], EPSILON
    )


def _drop(x: Tensor, share: float) -> Tensor:
    return functional.dropout(x, share) if share else x
