"""Implementation of the commands: files in, files and lines out."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from tokenizers import Tokenizer
from torch import Tensor, set_num_threads

from benchmarks.training import cross as crossed
from benchmarks.training import data
from benchmarks.training.code import code_pairs
from benchmarks.training.encoder import Weights, load_weights
from benchmarks.training.evaluate import Scores, fused_scores
from benchmarks.training.evaluate import evaluate as evaluated
from benchmarks.training.export import export_int8, load_int8
from benchmarks.training.inference import QUERY_TOKENS, TOOL_TOKENS, embed, load_tokenizer, session
from benchmarks.training.late import LateInteraction
from benchmarks.training.lists import Ranking, of_operations, rankings
from benchmarks.training.operations import operation_pairs
from benchmarks.training.passages import passage_pairs
from benchmarks.training.services import service_pairs
from benchmarks.training.sets import ToolSet, TrainingQuery, load, rounds, sample, tool_text
from benchmarks.training.train import Recipe, average
from benchmarks.training.train import train as trained

log = logging.getLogger(__name__)

WRONG = 7  # tools beside the right one in a list that a cross-encoder is trained on


@dataclass(frozen=True, kw_only=True)
class TrainingData:
    """Sources of training pairs."""

    sets: Path  # the folder of the tool sets
    names: Sequence[str]
    apis: Sequence[Path] = ()  # OpenAPI descriptions: requests made of summaries
    operations: Sequence[Path] = ()  # the same: terse texts, hard negatives
    services: Sequence[Path] = ()  # wheels of clients
    code: Sequence[Path] = ()  # folders of source code
    passages: Sequence[Path] = ()
    limit: int | None = None  # pairs of a set, and of a file of passages, at most
    shares: Mapping[str, float] = field(default_factory=dict)  # of pools, sets; empty: all there is

    def pools(self, embed: data.Embed, seed: int) -> dict[str, list[data.Pair]]:
        """Pairs by what they are made of. `embed`: vectors of the base model.

        A set that has a share of its own is a pool of its own.
        """
        pools: dict[str, list[data.Pair]] = {"sets": []}
        for name in self.names:
            tools = load(self.sets / name)
            of_set = (data.set_pairs(tools, embed, seed), data.description_pairs(tools, seed))
            if name not in self.shares:
                pools["sets"] += [pair for pairs in of_set for pair in pairs[: self.limit]]
            else:  # a pool of its own: its requests, where it has any
                pools[name] = of_set[0] or of_set[1]
        return pools | {
            "apis": [pair for path in self.apis for pair in data.api_pairs(path, seed)],
            "operations": [
                pair for path in self.operations for pair in operation_pairs(path, seed)
            ],
            "services": [pair for path in self.services for pair in service_pairs(path, seed)],
            "code": [pair for path in self.code for pair in code_pairs(path, seed)],
            "passages": [
                pair for path in self.passages for pair in passage_pairs(path, seed)[: self.limit]
            ],
        }


def tune(
    base: Path,
    sources: TrainingData,
    *,
    start: Sequence[Path] = (),
    share: float = 1.0,
    recipe: Recipe,
) -> dict[str, Tensor]:
    """Tuned weights. `start`: checkpoints, of whose mean and the base weights it begins, with
    `share` of them."""
    weights = load_weights(base / "model.safetensors")
    if start:
        weights = average(weights, [_checkpoint(path) for path in start], share)
    with TemporaryDirectory() as work:
        export_int8(weights, Path(work) / "base.onnx")
        tokenizer = load_tokenizer(base / "tokenizer.json", TOOL_TOKENS)
        vectors_of = partial(embed, session(Path(work) / "base.onnx", recipe.threads), tokenizer)
        pools = sources.pools(vectors_of, recipe.seed)
        pairs = [pair for pool in pools.values() for pair in pool]
        if sources.shares:
            count = (recipe.steps or len(pairs) // recipe.batch_size) * recipe.batch_size
            # a few more: pairs that are left over of a batch are not trained on
            pairs = data.mixed(pools, sources.shares, count + recipe.batch_size, recipe.seed)
        log.info("pairs: %s", ", ".join(f"{len(pool)} of {name}" for name, pool in pools.items()))
        vectors = vectors_of([tool_text(pair.tool) for pair in pairs])
    return trained(weights, base / "tokenizer.json", pairs, vectors, recipe=recipe)


def without_each(
    base: Path,
    sources: TrainingData,
    *,
    unseen: Sequence[str],
    asked: int,
    recipe: Recipe,
) -> Iterator[str]:
    """Leave-one-set-out evaluation: each set by weights tuned on the other sets, `unseen` ones by
    weights tuned on all sets of `sources`. A line of NDCG@10, untuned and tuned, of each set."""
    yield f"{'left out':14} {'untuned':>15} {'tuned':>15}"
    yield f"{'':14} {'dense   fused':>15} {'dense   fused':>15}"
    tokenizer = base / "tokenizer.json"
    before = load_weights(base / "model.safetensors")
    for left_out, others in rounds(sources.names, unseen):
        tuned = tune(base, replace(sources, names=others), recipe=recipe)
        for name in left_out:
            folder = sources.sets / name
            scores = [scored(weights, tokenizer, folder, asked) for weights in (before, tuned)]
            cells = (f"{score.dense:7.1f} {score.fused:7.1f}" for score in scores)
            yield f"{name:14} {' '.join(cells)}"


def scored(weights: Weights, tokenizer: Path, folder: Path, asked: int) -> Scores:
    """Scores of `weights`, in int8, on at most `asked` requests of the set in `folder`."""
    with TemporaryDirectory() as work:
        export_int8(weights, Path(work) / "model.onnx")
        running = session(Path(work) / "model.onnx", 1)
        of_tools = partial(embed, running, load_tokenizer(tokenizer, TOOL_TOKENS))
        of_queries = partial(embed, running, load_tokenizer(tokenizer, QUERY_TOKENS))
        tools = load(folder)
        return evaluated(tools, sample(tools, "all", asked), of_tools, of_queries)


def cross(
    base: Path,
    model: Path,
    sets: Path,
    names: Sequence[str],
    *,
    operations: Sequence[Path],
    start: Path | None,
    unseen: Sequence[str],
    layers: int,
    late: bool,
    marks: Sequence[int],
    limit: int,
    asked: int,
    rate: float,
    threads: int,
    seed: int,
    out: Path | None,
) -> Sequence[str]:
    """Train a cross-encoder on what `model` finds, and write it to `out`; or `late` interaction.
    Lines of its evaluation."""
    set_num_threads(threads)
    tokenizer = base / "tokenizer.json"
    running = session(model, threads)
    of_tools = partial(embed, running, load_tokenizer(tokenizer, TOOL_TOKENS))
    of_queries = partial(embed, running, load_tokenizer(tokenizer, QUERY_TOKENS))

    def found(tools: ToolSet, queries: Sequence[TrainingQuery]) -> list[Ranking]:
        return rankings(tools, queries, fused_scores(tools, queries, of_tools, of_queries))

    lists, judged = [], {}
    for name in (*names, *unseen):
        tools = load(sets / name)
        tested = sample(tools, "test" if name in names else "all", asked)
        judged[name] = found(tools, tested)
        if name in names:
            lists += found(tools, sample(tools, "train", limit))
    for path in operations:
        lists += of_operations(path, seed, WRONG)
    weights = load_weights(start or base / "model.safetensors")
    cross_encoder = crossed.CrossEncoder(weights, tokenizer, layers)
    second = LateInteraction(weights, tokenizer) if late else cross_encoder
    shares = " ".join(f"{share:6g}" for share in crossed.SHARES)
    lines = [f"{'requests':>8} {'set':14} {'first':>6} {shares} second"]

    def mark(pair_count: int) -> None:
        for name, asked in judged.items():
            scores = " ".join(f"{score:6.1f}" for score in crossed.judged(second, asked))
            lines.append(f"{pair_count:8} {name:14} {scores}")
            log.info(lines[-1])

    crossed.train(second, lists, rate=rate, wrong=WRONG, seed=seed, marks=marks, mark=mark)
    if out is not None:
        crossed.export(cross_encoder, out)
    return lines


def export(base: Path, tuned: Sequence[Path], share: float, out: Path) -> None:
    weights = load_weights(base / "model.safetensors")
    if tuned:
        weights = average(weights, [_checkpoint(path) for path in tuned], share)
    tokenizer = Tokenizer.from_file(str(base / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    out.parent.mkdir(parents=True, exist_ok=True)
    export_int8(weights, out)
    tokenizer.save(str(out.parent / "tokenizer.json"), pretty=False)


def _checkpoint(path: Path) -> dict[str, Tensor]:
    return load_int8(path) if path.suffix == ".onnx" else load_weights(path)
