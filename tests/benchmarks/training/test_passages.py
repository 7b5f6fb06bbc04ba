"""Pairs that are made from passages without labels."""

import json
from pathlib import Path

import pytest

from benchmarks.training.passages import passage_pairs
from benchmarks.training.sets import BadTrainingSet, tool_text

PASSAGES = [
    {
        "id": number,
        "title": f"Person {number}",
        "text": f"Person {number} was a painter of town {number}. He married in the year {number}.",
    }
    for number in range(20)
]


def write_rows(path: Path, rows: list[object]) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_each_passage_gives_a_question_and_a_phrase_against_the_rest(tmp_path: Path) -> None:
    pairs = passage_pairs(write_rows(tmp_path / "wiki.jsonl", list(PASSAGES)), seed=1)
    assert pairs == passage_pairs(tmp_path / "wiki.jsonl", seed=1)
    assert len(pairs) == 2 * len(PASSAGES)
    assert all(pair.anchored and pair.also == {pair.tool.id} for pair in pairs)
    questions, phrases = pairs[::2], pairs[1::2]
    assert all(pair.tool.name.lower() in tool_text(pair.tool) for pair in pairs)
    assert sum(pair.tool.name in pair.query for pair in questions) == len(PASSAGES)
    assert not any(pair.query in pair.tool.description for pair in phrases)


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadTrainingSet, match="expected lines of id, title and text"):
        passage_pairs(write_rows(tmp_path / "wiki.jsonl", [{"id": 1}]), seed=1)
