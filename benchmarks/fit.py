"""`python -m benchmarks.fit DIR...`: the coefficients of `registry.search.calibration`, and
how well they tell requests that a catalog has a tool for from others.

Each DIR is a set of requests and tools, as for `toolgate search eval`. Its tools are a catalog; its
requests have a tool there. Those of the other sets mostly have none: some sets overlap, so that
their figure is a lower bound. Gibberish and small talk have none anywhere. Each catalog is measured
with coefficients of the others.
"""

import asyncio
import random
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.quality import OWN
from config.load import load
from registry.embedding.embedder import Vectors
from registry.evaluation.corpus import Corpus, of_catalog
from registry.evaluation.evaluate import sample_requests
from registry.evaluation.request_sets import QUERIES, TOOLS, read_catalog, read_requests
from registry.search import SearchQuery
from registry.search.calibration import features
from registry.search.fusion import Candidate
from schemas.errors import InvalidParams

SAMPLE, FOREIGN, GIBBERISH = 150, 40, 60  # requests: of the set, of each other set, made up
SEED = 5
KEPT = (0.995, 0.99, 0.98, 0.95, 0.90)
STEPS = 60  # of Newton's method
RIDGE = 1e-4
SMALL_TALK = (
    "hello there", "how are you today", "tell me a joke about cats", "thanks a lot", "ok",
    "what is the meaning of life", "lorem ipsum dolor sit amet", "I feel sad and alone tonight",
    "who won the argument yesterday between my neighbours", "make the sun rise in the west",
    "why do birds sing so early", "my shoe is untied", "sing me to sleep", "please stop",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Answer:
    """The features of one search. `kind`: own, foreign or gibberish."""

    catalog: str
    kind: str
    values: tuple[float, float, float]


def made_up() -> Iterator[str]:
    chance = random.Random(SEED)
    for number in range(GIBBERISH):
        match number % 4:
            case 0:
                lengths = (chance.randint(3, 9) for _ in range(chance.randint(1, 6)))
                letters = string.ascii_lowercase
                yield " ".join("".join(chance.choices(letters, k=length)) for length in lengths)
            case 1:
                yield "".join(chance.choices("asdfjkl;", k=chance.randint(4, 20)))
            case 2:
                yield SMALL_TALK[number // 4 % len(SMALL_TALK)]
            case _:
                yield " ".join(str(chance.randrange(10**9)) for _ in range(chance.randint(1, 5)))


async def collected(directories: Sequence[Path], say: Console) -> list[Answer]:
    queries = {
        path: [row.query for row in sample_requests(read_requests(path / QUERIES), SAMPLE, SEED)]
        for path in directories
    }
    answers: list[Answer] = []
    settings = load(None, {})
    for path in directories:
        say.print(f"{path.name}: loading and searching", style="dim")
        foreign = [
            query
            for directory in directories
            if directory != path
            for query in queries[directory][:FOREIGN]
        ]
        texts_by_kind = {"own": queries[path], "foreign": foreign, "gibberish": [*made_up()]}
        async with of_catalog(read_catalog(path / TOOLS), settings, lambda *_: None) as corpus:
            for kind, texts in texts_by_kind.items():
                samples = [await _features(corpus, text) for text in texts]
                answers += [Answer(path.name, kind, row) for row in samples if row is not None]
    return answers


async def _features(corpus: Corpus, text: str) -> tuple[float, float, float] | None:
    try:
        answer = await corpus.search.run(SearchQuery(text, 10, "hybrid", corpus.filters))
    except InvalidParams:
        return None  # nothing in it can be searched for
    candidates = [
        Candidate(hit.id, hit.name, 1.0, hit.lexical, hit.semantic) for hit in answer.hits
    ]
    return features(candidates, len(corpus.tools))


def fitted(values: Vectors, is_own: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> Vectors:
    """Logistic regression, with `is_own` as likely as not; the last coefficient is the bias."""
    rows = np.c_[values, np.ones(len(values))]
    weights = np.where(is_own, 1 / is_own.sum(), 1 / (~is_own).sum())
    found = np.zeros(rows.shape[1])
    for _ in range(STEPS):
        likely = 1 / (1 + np.exp(-rows @ found))
        slope = rows.T @ (weights * (likely - is_own)) + RIDGE * found
        bend = (rows * (weights * likely * (1 - likely))[:, None]).T @ rows
        found -= np.linalg.solve(bend + RIDGE * np.eye(len(found)), slope)
    return found


def left_out(answers: Sequence[Answer]) -> list[float]:
    """The fit of each answer, by coefficients of the other catalogs."""
    values = np.array([answer.values for answer in answers])
    is_own = np.array([answer.kind == "own" for answer in answers])
    catalogs = np.array([answer.catalog for answer in answers])
    fits = np.zeros(len(answers))
    for catalog in dict.fromkeys(catalogs):
        others = catalogs != catalog
        weights = fitted(values[others], is_own[others])
        fits[~others] = 1 / (1 + np.exp(-(values[~others] @ weights[:-1] + weights[-1])))
    return [float(fit) for fit in fits]


def table(answers: Sequence[Answer], fits: Sequence[float]) -> Table:
    results = Table("requests with a tool kept", "least fit", "foreign warned of", "gibberish")
    by_kind = {
        kind: np.array(
            [fit for answer, fit in zip(answers, fits, strict=True) if answer.kind == kind]
        )
        for kind in ("own", "foreign", "gibberish")
    }
    for share_kept in KEPT:
        least = float(np.quantile(by_kind["own"], 1 - share_kept))
        shares = (100 * float((by_kind[kind] < least).mean()) for kind in ("foreign", "gibberish"))
        results.add_row(
            f"{100 * share_kept:.1f} %", f"{least:.3f}", *(f"{share:.0f} %" for share in shares)
        )
    return results


@click.command()
@click.argument("directories", nargs=-1, type=click.Path(path_type=Path, exists=True))
@click.option("--json", "path", type=click.Path(path_type=Path), help="Write the features here.")
def main(directories: tuple[Path, ...], path: Path | None) -> None:
    """Fit the coefficients on the sets in DIRECTORIES and on our own, and measure them."""
    say = Console(stderr=True)
    answers = asyncio.run(collected([*directories, OWN], say))
    if path is not None:
        path.write_bytes(msgspec.json.encode(answers))
    out = Console()
    values = np.array([answer.values for answer in answers])
    is_own = np.array([answer.kind == "own" for answer in answers])
    cosine, words, tools, bias = fitted(values, is_own)
    out.print(f"Coefficients({cosine:.2f}, {words:.2f}, {tools:.3f}, {bias:.2f}), of all catalogs")
    out.print(table(answers, left_out(answers)))


if __name__ == "__main__":
    main()
