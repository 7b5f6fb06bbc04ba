"""`python -m benchmarks.training`: train, average, export, evaluate.

Each command imports its own libraries, so that `--help` works without PyTorch.
"""

import json
import logging
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchmarks.training.sets import BadTrainingSet

if TYPE_CHECKING:
    from benchmarks.training.runs import TrainingData
    from benchmarks.training.train import Recipe

Command = Callable[..., None]

FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)
FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
NEW = click.Path(path_type=Path)
TRAINED_ON = ("metatool", "bfcl", "sealtools", "apibench")
POOLS = ("sets", "apis", "operations", "services", "code", "passages")
SOURCES = ("sets", "names", *POOLS[1:], "limit")
RECIPE = ("epochs", "steps", "batch_size", "learning_rate", "anchor", "seed", "threads")
SOURCE_OPTIONS = (
    click.option("--sets", type=FOLDER, required=True, help="The folder of the tool sets."),
    click.option("--set", "names", multiple=True, default=TRAINED_ON, show_default=True),
    click.option("--api", "apis", type=FILE, multiple=True, help="An OpenAPI description (JSON)."),
    click.option(
        "--operations", type=FILE, multiple=True,
        help="An OpenAPI description whose operations make requests: terse texts, hard negatives.",
    ),
    click.option(
        "--services", type=FILE, multiple=True,
        help="A wheel with descriptions of services: google-api-python-client, botocore.",
    ),
    click.option(
        "--code", type=FOLDER, multiple=True, help="Source code of Go, Rust or Python: what its "
        "documentation says asks for its definitions.",
    ),
    click.option(
        "--passages", type=FILE, multiple=True, help="Passages (JSON lines: id, title, text)."
    ),
    click.option("--limit", type=click.IntRange(1), help="Pairs of a set at most [default: all]."),
    click.option(
        "--part", "shares", type=(str, click.FloatRange(0, 1)), multiple=True,
        help=f"The share in the pairs of one of {', '.join(POOLS)}, or of one --set, which is then "
        "none of `sets` [default: all pairs that there are].",
    ),
    click.option("--anchor", type=float, default=0.0, show_default=True,
                 help="Keeps passages near."),
    click.option("--epochs", type=click.IntRange(1), default=2, show_default=True),
    click.option("--steps", type=click.IntRange(1), help="Stop after so many."),
    click.option("--batch", "batch_size", type=click.IntRange(8), default=128, show_default=True,
                 help="Pairs."),
    click.option("--rate", "learning_rate", type=float, default=8e-5, show_default=True,
                 help="Learning rate."),
    click.option("--threads", type=click.IntRange(1), default=2, show_default=True),
    click.option("--seed", type=int, default=7, show_default=True),
)  # fmt: skip


@click.group()
def main() -> None:
    """Make the bundled embedding model again, or judge one."""
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    logging.getLogger("benchmarks").setLevel(logging.INFO)


def of_sources(command: Command) -> Command:
    """The options that say what is trained on, and how; the command gets them as two values."""

    @wraps(command)
    def called(**options: Any) -> None:
        from benchmarks.training.runs import TrainingData
        from benchmarks.training.train import Recipe

        shares = dict(options.pop("shares"))
        if unknown := sorted(set(shares).difference(POOLS, options["names"])):
            raise click.UsageError(
                f"--part {unknown[0]}: expected a pool ({', '.join(POOLS)}) or a --set"
            )
        sources = TrainingData(shares=shares, **{name: options.pop(name) for name in SOURCES})
        recipe = Recipe(**{name: options.pop(name) for name in RECIPE})
        command(sources=sources, recipe=recipe, **options)

    for option in reversed(SOURCE_OPTIONS):
        called = option(called)
    return called


@main.command()
@of_sources
@click.option("--base", type=FOLDER, required=True, help="model.safetensors and tokenizer.json.")
@click.option(
    "--start",
    type=FILE,
    multiple=True,
    help="A checkpoint, or the ONNX file of one, to begin with.",
)
@click.option("--share", type=click.FloatRange(0, 1.5), default=1.0, show_default=True,
              help="Of --start in the weights to begin with; the rest is of the base.")  # fmt: skip
@click.option("--out", type=NEW, required=True, help="The checkpoint to write.")
def train(
    *,
    base: Path,
    sources: "TrainingData",
    start: tuple[Path, ...],
    share: float,
    recipe: "Recipe",
    out: Path,
) -> None:
    """Tune a base model on the training split of tool sets, and on what else is named."""
    from benchmarks.training import encoder, runs

    encoder.save_weights(runs.tune(base, sources, start=start, share=share, recipe=recipe), out)


@main.command()
@click.option("--base", type=FOLDER, required=True, help="The folder of the base model.")
@click.option(
    "--tuned",
    type=FILE,
    multiple=True,
    help="A checkpoint of `train` or an ONNX file; none: the base.",
)
@click.option("--share", type=click.FloatRange(0, 1.5), default=1.0, show_default=True)
@click.option("--out", type=NEW, required=True, help="The ONNX file to write.")
def export(base: Path, tuned: tuple[Path, ...], share: float, out: Path) -> None:
    """Average tuned weights and base, and write the int8 graph beside its tokenizer."""
    from benchmarks.training import runs

    runs.export(base, tuned, share, out)


@main.command(name="operations")
@click.argument("descriptions", nargs=-1, required=True, type=FILE)
def operations_(descriptions: tuple[Path, ...]) -> None:
    """Print the operations of OpenAPI DESCRIPTIONS as terse tools, a line of JSON each.

    They have a name, the first sentence and the names of parameters: a catalog for `toolgate search
    eval --catalog`.
    """
    from benchmarks.training.operations import terse_tools

    for path in descriptions:
        for tool in terse_tools(path):
            click.echo(json.dumps(tool, ensure_ascii=False))


@main.command(name="requests")
@click.option("--sets", type=FOLDER, required=True, help="The folder of toucan and dockermcp.")
@click.option("--out", type=NEW, required=True, help="The folder of the set to write.")
def requests_(sets: Path, out: Path) -> None:
    """Write the natural requests of this folder as a set, with the tools that answer them."""
    from benchmarks.training.sets import write_requests

    tools, queries = write_requests(sets, out)
    click.echo(f"{out}: {tools} tools, {queries} requests")


@main.command()
@click.option("--model", type=FILE, required=True, help="An ONNX file.")
@click.option("--tokenizer", type=FILE, required=True, help="Its tokenizer.json.")
@click.option("--sets", type=FOLDER, required=True, help="The folder of the tool sets.")
@click.option("--set", "names", multiple=True, default=TRAINED_ON, show_default=True)
@click.option("--split", type=click.Choice(("all", "train", "test")), default="test")
@click.option("--limit", type=click.IntRange(1), default=1000, show_default=True)
@click.option("--tool-tokens", type=click.IntRange(8, 512), default=64, show_default=True)
@click.option("--texts", type=FILE, help="Another ONNX file, by which the tools have vectors.")
@click.option("--passages", type=FOLDER, multiple=True, help="corpus.jsonl and queries.jsonl.")
@click.option("--code", type=FOLDER, multiple=True, help="Documented code of Go, Rust or Python.")
def evaluate(
    *,
    model: Path,
    tokenizer: Path,
    sets: Path,
    names: tuple[str, ...],
    split: str,
    limit: int,
    tool_tokens: int,
    texts: Path | None,
    passages: tuple[Path, ...],
    code: tuple[Path, ...],
) -> None:
    """Print NDCG@10 of dense, lexical and fused search for each set, and their mean.

    Of passages: recall of the supporting ones in the first five. Of code: share of definitions in
    the first ten for what their documentation says.
    """
    from benchmarks.training import report

    tables = [
        report.judge(
            model,
            tokenizer,
            sets,
            names,
            split=split,
            limit=limit,
            tool_tokens=tool_tokens,
            texts=texts,
        )
    ]
    if passages:
        tables.append(report.judge_passages(model, tokenizer, passages))
    if code:
        tables.append(report.judge_code(model, tokenizer, code, limit=limit))
    for lines in tables:
        for line in lines:
            click.echo(line)


@main.command()
@click.option("--base", type=FOLDER, required=True, help="model.safetensors and tokenizer.json.")
@click.option("--start", type=FILE, help="A checkpoint to begin with [default: the base].")
@click.option("--model", type=FILE, required=True, help="The ONNX file of the first stage.")
@click.option("--sets", type=FOLDER, required=True, help="The folder of the tool sets.")
@click.option("--set", "names", multiple=True, default=TRAINED_ON, show_default=True)
@click.option("--unseen", multiple=True, default=("livemcpbench",), show_default=True,
              help="A set of --sets that is only evaluated.")  # fmt: skip
@click.option("--operations", type=FILE, multiple=True, help="An OpenAPI description (JSON).")
@click.option("--layers", type=click.IntRange(1, 6), default=3, show_default=True)
@click.option("--late", is_flag=True, help="Late interaction: vectors of tokens are compared, "
              "in place of a cross-encoder. It is judged only.")  # fmt: skip
@click.option("--marks", type=click.IntRange(8), multiple=True, default=(1000, 2000, 4000, 8000),
              show_default=True,
              help="Requests after which it is evaluated, the last its end.")  # fmt: skip
@click.option("--limit", type=click.IntRange(1), default=1200, show_default=True,
              help="Requests of a set that are trained on at most.")  # fmt: skip
@click.option("--asked", type=click.IntRange(1), default=120, show_default=True,
              help="Requests of a set that are evaluated at most.")  # fmt: skip
@click.option("--rate", type=float, default=1e-4, show_default=True, help="Learning rate.")
@click.option("--threads", type=click.IntRange(1), default=2, show_default=True)
@click.option("--seed", type=int, default=3, show_default=True)
@click.option("--out", type=NEW, help="The ONNX file to write.")
def cross(
    *,
    base: Path,
    start: Path | None,
    model: Path,
    sets: Path,
    names: tuple[str, ...],
    unseen: tuple[str, ...],
    operations: tuple[Path, ...],
    layers: int,
    late: bool,
    marks: tuple[int, ...],
    limit: int,
    asked: int,
    rate: float,
    threads: int,
    seed: int,
    out: Path | None,
) -> None:
    """Train a cross-encoder for the second stage (search.rerank), and print its NDCG@10.

    Of each set: the first stage, shares of the second in the sum of both, and the second alone.
    """
    if late == (out is not None):
        raise click.UsageError("expected either --out, for a cross-encoder, or --late")
    from benchmarks.training import runs

    lines = runs.cross(
        base, model, sets, names,
        operations=operations, start=start, unseen=unseen, layers=layers, late=late,
        marks=sorted(marks), limit=limit, asked=asked, rate=rate, threads=threads, seed=seed,
        out=out,
    )  # fmt: skip
    for line in lines:
        click.echo(line)


@main.command(name="leave-out")
@of_sources
@click.option("--base", type=FOLDER, required=True, help="model.safetensors and tokenizer.json.")
@click.option("--unseen", multiple=True, default=("livemcpbench",), show_default=True,
              help="A set of --sets that is never trained on.")  # fmt: skip
@click.option("--asked", type=click.IntRange(1), default=300, show_default=True,
              help="Requests of a set that are evaluated at most.")  # fmt: skip
def leave_out(
    *, base: Path, sources: "TrainingData", unseen: tuple[str, ...], asked: int, recipe: "Recipe"
) -> None:
    """Train without each set in turn, and print its NDCG@10, untuned and tuned."""
    from benchmarks.training import runs

    for line in runs.without_each(base, sources, unseen=unseen, asked=asked, recipe=recipe):
        click.echo(line)


def run() -> None:
    """Run `main`, and print an expected error as one line."""
    try:
        main()
    except ModuleNotFoundError as error:
        raise SystemExit(f"{error.name} is missing: pip install --group training") from error
    except BadTrainingSet as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    run()
