"""Implementation of the commands: files in, files and lines out."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from tokenizers import Tokenizer
from torch import Tensor

from registry.embedding.training import data
from registry.embedding.training.encoder import load_weights
from registry.embedding.training.export import export_int8
from registry.embedding.training.inference import TOOL_TOKENS, embed, load_tokenizer, session
from registry.embedding.training.operations import operation_pairs
from registry.embedding.training.passages import passage_pairs
from registry.embedding.training.sets import load, tool_text
from registry.embedding.training.train import Recipe, average
from registry.embedding.training.train import train as trained


def tune(
    base: Path,
    sets: Path,
    names: Sequence[str],
    apis: Sequence[Path],
    *,
    operations: Sequence[Path] = (),
    passages: Sequence[Path] = (),
    limit: int | None = None,
    start: Sequence[Path] = (),
    share: float = 1.0,
    recipe: Recipe,
) -> dict[str, Tensor]:
    """Tuned weights. `limit`: pairs of a set at most. `start`: checkpoints, of whose mean and the
    base weights it begins, with `share` of them."""
    weights = load_weights(base / "model.safetensors")
    if start:
        weights = average(weights, [load_weights(path) for path in start], share)
    with TemporaryDirectory() as work:
        export_int8(weights, Path(work) / "base.onnx")
        tokenizer = load_tokenizer(base / "tokenizer.json", TOOL_TOKENS)
        vectors_of = partial(embed, session(Path(work) / "base.onnx"), tokenizer)
        pairs = []
        for name in names:
            tools = load(sets / name)
            pairs += data.set_pairs(tools, vectors_of, recipe.seed)[:limit]
            pairs += data.description_pairs(tools, recipe.seed)[:limit]
        for path in apis:
            pairs += data.api_pairs(path, recipe.seed)
        for path in operations:
            pairs += operation_pairs(path, recipe.seed)
        for path in passages:
            pairs += passage_pairs(path, recipe.seed)[:limit]
        vectors = vectors_of([tool_text(pair.tool) for pair in pairs])
    return trained(weights, base / "tokenizer.json", pairs, vectors, recipe=recipe)


def export(base: Path, tuned: Sequence[Path], share: float, out: Path) -> None:
    weights = load_weights(base / "model.safetensors")
    if tuned:
        weights = average(weights, [load_weights(path) for path in tuned], share)
    tokenizer = Tokenizer.from_file(str(base / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    out.parent.mkdir(parents=True, exist_ok=True)
    export_int8(weights, out)
    tokenizer.save(str(out.parent / "tokenizer.json"), pretty=False)
