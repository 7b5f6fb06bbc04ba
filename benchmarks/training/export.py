"""A checkpoint as the int8 ONNX graph that the product loads, and its check against float32."""

import tempfile
from pathlib import Path

import torch
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
