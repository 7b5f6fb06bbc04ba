"""The commands `leave-out` and `cross` from files to lines, on weights of chance."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import registry.embedding

MISSING = "PyTorch is not installed: pip install --group training"
torch = pytest.importorskip("torch", reason=MISSING)
safetensors = pytest.importorskip("safetensors.torch", reason=MISSING)
for _library in ("onnx", "snowballstemmer"):
    pytest.importorskip(_library, reason=MISSING)

from click.testing import CliRunner  # noqa: E402 - after the skips

from benchmarks.training.__main__ import main  # noqa: E402
from benchmarks.training.cross import CrossEncoder, export, train  # noqa: E402
from benchmarks.training.encoder import load_weights  # noqa: E402
from benchmarks.training.late import LateInteraction  # noqa: E402
from benchmarks.training.lists import Ranking  # noqa: E402
from benchmarks.training.report import judge_code, judge_passages  # noqa: E402
from registry.search.rerank import _CrossEncoder  # noqa: E402

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of the exporter to opset 17
]

WIDTH, INNER, LAYERS, WORDS = 384, 64, 6, 30522
MODEL = Path(registry.embedding.__file__).with_name("model")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of the shape of the base model, but with narrow inner layers."""
    made = partial(torch.normal, 0.0, 0.05, generator=torch.Generator().manual_seed(1))
    weights = {
        "embeddings.word_embeddings.weight": made((WORDS, WIDTH)),
        "embeddings.position_embeddings.weight": made((512, WIDTH)),
        "embeddings.token_type_embeddings.weight": made((2, WIDTH)),
    }
    shapes = {
        "attention.self.query": (WIDTH, WIDTH),
        "attention.self.key": (WIDTH, WIDTH),
        "attention.self.value": (WIDTH, WIDTH),
        "attention.output.dense": (WIDTH, WIDTH),
        "intermediate.dense": (INNER, WIDTH),
        "output.dense": (WIDTH, INNER),
    }
    norms = ["embeddings.LayerNorm"]
    for layer in range(LAYERS):
        at = f"encoder.layer.{layer}."
        norms += [f"{at}attention.output.LayerNorm", f"{at}output.LayerNorm"]
        for name, shape in shapes.items():
            weights[f"{at}{name}.weight"] = made(shape)
            weights[f"{at}{name}.bias"] = torch.zeros(shape[0])
    for name in norms:
        weights[f"{name}.weight"] = torch.ones(WIDTH)
        weights[f"{name}.bias"] = torch.zeros(WIDTH)
    folder = tmp_path_factory.mktemp("base")
    safetensors.save_file(weights, folder / "model.safetensors")
    (folder / "tokenizer.json").write_bytes((MODEL / "tokenizer.json").read_bytes())
    return folder


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sets")
    for name, thing in (("first", "bird"), ("second", "train"), ("third", "song")):
        (folder / name).mkdir()
        tools = [
            {
                "id": str(n),
                "name": f"{thing}_{n}",
                "description": f"Finds the {thing} {n} of a day.",
                "parameters": {"properties": {"day": {}}},
            }
            for n in range(12)
        ]
        queries = [
            {"id": str(n), "query": f"which {thing} is number {n % 12}?", "gold": [str(n % 12)]}
            for n in range(48)
        ]
        for file, rows in (("tools", tools), ("queries", queries)):
            lines = "".join(json.dumps(row) + "\n" for row in rows)
            (folder / name / f"{file}.jsonl").write_text(lines)
    return folder


def run_and_split(*arguments: str | Path) -> list[list[str]]:
    result = CliRunner().invoke(main, [str(one) for one in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return [line.split() for line in result.stdout.splitlines()]


def finders() -> list[Ranking]:
    """Requests whose right text, the first, names what is asked for."""
    things = ["bird", "train", "song", "river", "cloud", "stone", "flower", "lamp"]
    return [
        Ranking(
            f"find the {asked}",
            (f"{asked} finder", *(f"{one} finder" for one in things if one != asked)),
            np.zeros(len(things), np.float32),
            frozenset((0,)),
            1,
        )
        for asked in things
    ]


def test_each_set_is_left_out_once(base: Path, sets: Path) -> None:
    lines = run_and_split(
        *("leave-out", "--base", base, "--sets", sets, "--set", "first", "--set", "second"),
        *("--unseen", "third", "--steps", "1", "--batch", "8", "--asked", "6", "--threads", "1"),
    )
    assert [line[0] for line in lines[2:]] == ["first", "second", "third"]
    scores = np.array([line[1:] for line in lines[2:]], float)
    assert scores.shape == (3, 4)
    assert ((scores >= 0) & (scores <= 100)).all()


def test_a_cross_encoder_is_trained_judged_and_written(
    base: Path, sets: Path, tmp_path: Path
) -> None:
    out = tmp_path / "model.onnx"
    lines = run_and_split(
        *("cross", "--base", base, "--model", MODEL / "model.onnx", "--sets", sets),
        *("--set", "first", "--unseen", "third", "--layers", "1", "--marks", "8", "--marks", "16"),
        *("--asked", "6", "--threads", "1", "--out", out),
    )
    assert [line[:2] for line in lines[1:]] == [
        [seen, name] for seen in ("8", "16") for name in ("first", "third")
    ]
    (tmp_path / "tokenizer.json").write_bytes((base / "tokenizer.json").read_bytes())
    assert _CrossEncoder(tmp_path).scores("which bird?", ["bird 1", "train 2"]).shape == (2,)


def test_late_interaction_is_trained_and_judged_but_not_written(base: Path, sets: Path) -> None:
    lines = run_and_split(
        *("cross", "--base", base, "--model", MODEL / "model.onnx", "--sets", sets, "--late"),
        *("--set", "first", "--unseen", "third", "--marks", "8", "--asked", "6", "--threads", "1"),
    )
    assert [line[:2] for line in lines[1:]] == [["8", "first"], ["8", "third"]]


def test_late_interaction_learns_the_word_of_the_query(base: Path) -> None:
    lists = finders()
    model = LateInteraction(load_weights(base / "model.safetensors"), base / "tokenizer.json")
    train(model, lists, rate=1e-4, wrong=7, seed=1, marks=[80], mark=lambda _: None)
    assert all(model.scores(one.query, one.texts).argmax() == 0 for one in lists)


def test_a_cross_encoder_is_written_and_late_interaction_is_not(base: Path, sets: Path) -> None:
    given = ["cross", "--base", base, "--model", MODEL / "model.onnx", "--sets", sets]
    for more in ([], ["--late", "--out", "model.onnx"]):
        result = CliRunner().invoke(main, [str(one) for one in (*given, *more)])
        assert result.exit_code == 2
        assert "expected either --out, for a cross-encoder, or --late" in result.output


def test_search_runs_the_trained_model(base: Path, tmp_path: Path) -> None:
    """A right text names what is asked for; trained and written, the model puts it first."""
    lists = finders()
    model = CrossEncoder(load_weights(base / "model.safetensors"), base / "tokenizer.json", 1)
    train(model, lists, rate=1e-3, wrong=7, seed=1, marks=[800], mark=lambda _: None)
    export(model, tmp_path / "model.onnx")
    (tmp_path / "tokenizer.json").write_bytes((base / "tokenizer.json").read_bytes())
    running = _CrossEncoder(tmp_path)
    for one in lists:
        trained, ran = model.scores(one.query, one.texts), running.scores(one.query, one.texts)
        assert trained.argmax() == 0
        assert ran.argmax() == 0
        assert np.corrcoef(trained, ran)[0, 1] > 0.95, "int8 changes little"


def test_a_model_is_judged_on_passages_and_on_code(tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text(
        "".join(
            json.dumps({"id": at, "title": title, "text": text}) + "\n"
            for at, (title, text) in enumerate(
                [
                    ("Volga", "The Volga is the longest river in Europe."),
                    ("Mont Blanc", "Mont Blanc is the highest mountain of the Alps."),
                    *((f"Song {number}", "A song of a band.") for number in range(9)),
                ]
            )
        )
    )
    (tmp_path / "queries.jsonl").write_text(
        json.dumps({"id": 0, "query": "Which river of Europe is the longest?", "gold": [0]}) + "\n"
    )
    (tmp_path / "shop.py").write_text(
        "def cancel(order):\n"
        '    """Give the money of an order back to the buyer."""\n'
        "    order.pay(-order.price)\n"
    )
    given = (MODEL / "model.onnx", MODEL / "tokenizer.json", [tmp_path])
    _, passages = judge_passages(*given)
    assert passages.split() == [tmp_path.name, "1", "100.0", "100.0", "100.0"]
    _, code = judge_code(*given, limit=10)
    assert code.split() == [tmp_path.name, "1", "100.0"]
