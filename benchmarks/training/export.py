"""A checkpoint as the int8 ONNX graph that the product loads, and its check against float32."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.quantization.shape_inference import quant_pre_process
from torch import Tensor, nn

from benchmarks.training.encoder import Weights, encode

OPSET = 17


class Graph(nn.Module):
    """`encode` with its weights inside, because the exporter takes a module."""

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        self.kept = nn.ParameterDict(
            {name.replace(".", "/"): nn.Parameter(tensor) for name, tensor in weights.items()}
        )

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        named = {name.replace("/", "."): tensor for name, tensor in self.kept.items()}
        return encode(named, input_ids, attention_mask)


def export_float(weights: Weights, path: Path) -> None:
    example = torch.ones((2, 8), dtype=torch.int64)
    torch.onnx.export(
        Graph(weights).eval(),
        (example, example),
        str(path),
        dynamo=False,
        opset_version=OPSET,
        input_names=["input_ids", "attention_mask"],
        output_names=["embedding"],
        dynamic_axes={
            "input_ids": {0: "texts", 1: "tokens"},
            "attention_mask": {0: "texts", 1: "tokens"},
            "embedding": {0: "texts"},
        },
    )


def export_int8(weights: Weights, path: Path, *, reduce_range: bool = False) -> None:
    """Write the int8 graph; `path` is replaced only when the new file is complete."""
    with tempfile.TemporaryDirectory(dir=path.parent) as work:
        plain = Path(work) / "plain"
        export_float(weights, plain)
        quantize(plain, path, reduce_range=reduce_range)


def quantize(plain: Path, path: Path, *, reduce_range: bool = False) -> None:
    """Write `path`, the graph `plain` in int8; files beside `plain` are overwritten."""
    prepared, small = plain.with_name("prepared"), plain.with_name("small")
    quant_pre_process(str(plain), str(prepared), skip_symbolic_shape=True)
    quantize_dynamic(
        str(prepared),
        str(small),
        per_channel=True,
        reduce_range=reduce_range,
        weight_type=QuantType.QInt8,
    )
    small.replace(path)


def load_int8(path: Path) -> dict[str, Tensor]:
    """The weights of a graph that `export_int8` wrote, in float32, by the names of the checkpoint.

    A matrix has lost its name; the bias that is added to its product tells it.
    """
    graph = onnx.load(path).graph
    tensors = {value.name: numpy_helper.to_array(value) for value in graph.initializer}
    readers = {name: node for node in graph.node for name in node.input}
    weights = {
        name.removeprefix("kept.").replace("/", "."): value
        for name, value in tensors.items()
        if name.startswith("kept.") and value.dtype == np.float32 and value.ndim
    }
    words = "kept.embeddings/word_embeddings/weight"
    weights["embeddings.word_embeddings.weight"] = _restored(tensors, words)
    kinds = [
        node.input[1] for node in graph.node if node.op_type == "Add" and node.input[1] in tensors
    ]
    weights["embeddings.token_type_embeddings.weight"] = np.stack(
        [tensors[kinds[0]].reshape(-1)] * 2
    )
    for node in graph.node:
        if node.op_type == "MatMulInteger" and node.input[1] in tensors:
            product = readers[readers[node.output[0]].output[0]]  # Cast, then Mul by the scale
            added = readers[product.output[0]].input
            bias = next(name for name in added if name.startswith("kept."))
            name = bias.removeprefix("kept.").replace("/", ".").removesuffix("bias") + "weight"
            weights[name] = _restored(tensors, node.input[1].removesuffix("_quantized")).T
    return {name: torch.tensor(value.copy()) for name, value in weights.items()}


def _restored(tensors: Mapping[str, NDArray[Any]], name: str) -> NDArray[np.float32]:
    scale, zero = tensors[f"{name}_scale"], tensors[f"{name}_zero_point"]
    steps: NDArray[np.float32] = tensors[f"{name}_quantized"].astype(np.float32)
    return (steps - zero.astype(np.float32)) * scale.astype(np.float32)
