"""What `leave-out` and `cross` train on and evaluate; without PyTorch."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.training import __main__ as commands
from benchmarks.training.data import set_pairs
from benchmarks.training.lists import READ, chosen, lots, of_operations, rankings, usable
from benchmarks.training.sets import ToolSet, TrainingQuery, TrainingTool, rounds, sample, seeded

WRONG = 7


def tool(name: str, description: str = "Does it.") -> TrainingTool:
    return TrainingTool(name, name, description, "shop", ("tag",), ("parameter",), ())


def tool_set(name: str, tools: int = 40, queries: int = 200) -> ToolSet:
    return ToolSet(
        name,
        tuple(tool(str(number)) for number in range(tools)),
        tuple(TrainingQuery(f"q{n}", f"{name} {n}", (str(n % tools),)) for n in range(queries)),
    )


@pytest.mark.parametrize(
    ("names", "unseen"), [(["a", "b", "c"], ["d"]), (["a", "b", "c"], ["c"]), (["a"], ["a", "b"])]
)
def test_each_set_is_evaluated_once_by_weights_not_trained_on_the_set(
    names: list[str], unseen: list[str]
) -> None:
    found = list(rounds(names, unseen))
    assert sorted(one for left_out, _ in found for one in left_out) == sorted({*names, *unseen})
    for left_out, trained_on in found:
        assert not set(trained_on) & {*left_out, *unseen}
        assert set(trained_on) == set(names) - {*left_out, *unseen}


def test_the_splits_share_no_request_and_are_the_same_each_time() -> None:
    tools = tool_set("one")
    train, test, both = (sample(tools, split, 1000) for split in ("train", "test", "all"))
    assert train
    assert test
    assert not {one.id for one in train} & {one.id for one in test}
    assert len(train) + len(test) == len(both) == len(tools.queries)
    assert sample(tools, "test", 5) == sample(tools, "test", 5)
    held_out = {one.id for one in tools.tools if tools.held_out_tool(one.id)}
    assert held_out
    assert not held_out & {gold for one in train for gold in one.gold}
    asked = {pair.query for pair in set_pairs(tools, vectors, seed=1)}
    assert asked <= {one.text for one in train}, "leave-out and cross have one split"


def vectors(texts: list[str]) -> "np.ndarray[tuple[int, int], np.dtype[np.float32]]":
    return np.ones((len(texts), 2), np.float32) / np.float32(2**0.5)


def test_rankings_keep_the_best_of_the_first_stage_and_its_misses() -> None:
    tools = tool_set("one")
    query = TrainingQuery("q", "find createIssue", ("0", "39"))
    scores = np.array([[float(number) for number in range(40)]], np.float32)
    (found,) = rankings(tools, [query], scores)
    assert found.query == "find create issue"
    assert list(found.scores) == [float(number) for number in range(39, 39 - READ, -1)]
    assert found.gold == {0}, "39 is first; 0 was not found"
    assert found.wanted == 2
    assert found.texts[0] == "shop: 39. Does it.", "as the second stage reads it: without tags"


def test_lists_without_right_tools_or_with_few_wrong_tools_are_unusable() -> None:
    tools = tool_set("one")
    queries = [TrainingQuery("q", "ask", ("39",)), TrainingQuery("r", "ask", ("0",))]
    scores = np.arange(80, dtype=np.float32).reshape(2, 40) % 40
    found, missed = rankings(tools, queries, scores)
    assert usable([found, missed], WRONG) == [found]
    assert usable([found, missed], READ) == []


def test_a_right_tool_stands_first_and_is_not_among_the_wrong() -> None:
    tools = tool_set("one")
    scores = np.arange(40, dtype=np.float32)[None]
    (one,) = rankings(tools, [TrainingQuery("q", "ask", ("39", "37"))], scores)
    right = {("ask", one.texts[at]) for at in one.gold}
    for seed in range(20):
        first, *others = chosen(one, WRONG, seeded(seed))
        assert first in right
        assert len(set(others)) == WRONG
        assert not right & set(others)


def test_every_list_is_used_before_any_repeats() -> None:
    tools = tool_set("one")
    queries = [TrainingQuery(str(n), f"ask {n}", ("39",)) for n in range(24)]
    found = rankings(tools, queries, np.tile(np.arange(40, dtype=np.float32), (24, 1)))
    made = list(lots(found, seeded(1), 6))
    rounds_ = [[one.query for lot in made[at : at + 3] for one in lot] for at in (0, 3)]
    assert [sorted(one) for one in rounds_] == [sorted(one.text for one in queries)] * 2
    assert rounds_[0] != rounds_[1]


def test_wrong_operations_are_of_the_same_resource_first(tmp_path: Path) -> None:
    def describe_operation(name: str) -> dict[str, str]:
        return {"operationId": name, "summary": f"{name.split('-')[0]} one of them"}

    paths = {
        f"/{kind}/{{id}}": {
            method: describe_operation(f"{method}-{kind}") for method in ("get", "put", "delete")
        }
        for kind in ("orders", "pets", "users")
    }
    path = tmp_path / "shop.json"
    path.write_text(json.dumps({"openapi": "3.0.0", "info": {"title": "Shop"}, "paths": paths}))
    found = of_operations(path, 1, 2)
    assert found
    for one in found:
        assert (one.gold, one.wanted, len(one.texts)) == ({0}, 1, 3)
        kinds = {kind for kind in ("orders", "pets", "users") if kind in one.texts[0]}
        assert kinds
        assert all(kinds & set(text.replace(".", "").split()) for text in one.texts)


@pytest.mark.parametrize("command", ["leave-out", "cross"])
def test_commands_without_pytorch_say_how_to_install_pytorch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    for name in [one for one in sys.modules if one.startswith("benchmarks.training.")]:
        if name.rsplit(".", 1)[1] in {"runs", "train", "cross", "encoder", "export"}:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)  # importing it fails, as if it were absent
    folder, file = str(tmp_path), tmp_path / "model.onnx"
    file.touch()
    given = ["--base", folder, "--sets", folder]
    if command == "cross":
        given += ["--model", str(file), "--out", str(tmp_path / "new.onnx")]
    monkeypatch.setattr(sys, "argv", ["training", command, *given])
    with pytest.raises(SystemExit, match="torch is missing: pip install --group training"):
        commands.run()
