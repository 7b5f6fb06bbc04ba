"""Questions that need several passages: MuSiQue, HotpotQA and 2WikiMultihopQA.

None is part of the repository. They are read from a folder (`--recall`) with NAME/corpus.jsonl (id,
title, text) and NAME/queries.jsonl (id, query, gold: ids of passages). Each passage is stored as a
document with its title as heading; no chat model takes part. The halves of the questions are told
apart by their place, so that constants can be chosen on one and judged on the other.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.library import sent
from benchmarks.memories import await_vectors
from benchmarks.processes import pin
from benchmarks.rig import Rig
from benchmarks.table import Row, Target, missing
from benchmarks.toolgate import installation, serving

GOALS = {"musique": (57.0, 43.0), "hotpotqa": (91.0, 93.0), "2wiki": (89.0, 81.0)}
MODES = ("naive", "local", "global", "hybrid", "mix")
FIRST, DEPTH = 5, 10  # documents in which the recall is taken, and all must be
TIMEOUT_S = 120.0
SETTINGS = {"knowledge": {"enabled": True}}


@dataclass(frozen=True, slots=True)
class Question:
    text: str
    gold: frozenset[str]  # paths of documents


def measure_multihop(rig: Rig, directory: Path | None) -> list[Row]:
    names = [name for name in GOALS if directory and (directory / name / "corpus.jsonl").exists()]
    if directory is None or not names:
        return [missing("questions of several passages", "%", "no directory of them (--recall)")]
    cores = rig.cores.tested | rig.cores.load
    pin(0, cores)
    everywhere = replace(rig, cores=replace(rig.cores, tested=cores))
    try:
        return [row for name in names for row in _rows(everywhere, name, directory / name)]
    finally:
        pin(0, rig.cores.load)


def _rows(rig: Rig, name: str, folder: Path) -> Iterator[Row]:
    passages = [json.loads(line) for line in (folder / "corpus.jsonl").read_text().splitlines()]
    questions = list(_questions(folder / "queries.jsonl"))
    with installation(rig, f"multihop-{name}", {}, SETTINGS) as site, serving(rig, site) as child:
        rig.say(f"multihop: storing {len(passages):,} passages of {name}")
        with closing(HTTPConnection("127.0.0.1", child.port, timeout=TIMEOUT_S)) as connection:
            for passage in passages:
                text = f"# {passage['title']}\n\n{passage['text']}\n"
                body = {"collection": name, "path": _path(passage["id"]), "text": text}
                _posted(connection, "/documents", body)
        await_vectors(site)
        with closing(HTTPConnection("127.0.0.1", child.port, timeout=TIMEOUT_S)) as connection:
            for mode in MODES:
                results = [_found(connection, name, question.text, mode) for question in questions]
                yield from _mode_rows(name, mode, questions, results)


def _questions(file: Path) -> Iterator[Question]:
    for line in file.read_text().splitlines():
        row = json.loads(line)
        yield Question(row["query"], frozenset(map(_path, row["gold"])))


def _path(passage: int | str) -> str:
    return f"{passage}.md"


def _found(connection: HTTPConnection, collection: str, question: str, mode: str) -> list[str]:
    """The paths of the first documents."""
    body = {"query": question, "collections": [collection], "mode": mode, "limit": 5 * DEPTH,
            "tokens": 1_000_000}  # fmt: skip
    evidence = _posted(connection, "/query", body)["evidence"]
    return list(dict.fromkeys(passage["path"] for passage in evidence))[:DEPTH]


def _mode_rows(
    name: str, mode: str, questions: Sequence[Question], results: Sequence[Sequence[str]]
) -> Iterator[Row]:
    recall = [
        100 * len(question.gold & set(paths[:FIRST])) / len(question.gold)
        for question, paths in zip(questions, results, strict=True)
    ]
    complete = [
        100.0 * (question.gold <= set(paths))
        for question, paths in zip(questions, results, strict=True)
    ]
    measures = ((f"R@{FIRST}", recall), (f"all passages in the first {DEPTH}", complete))
    for (label, values), goal in zip(measures, GOALS[name], strict=True):
        halves = [_mean(values[at::2]) for at in (0, 1)]
        note = f"{len(values)} questions; halves {halves[0]:.1f} and {halves[1]:.1f}"
        targets = () if mode == "naive" else (Target("least", goal),)
        yield Row(f"{name}: {label}, {mode}", _mean(values), "%", targets=targets, note=note)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _posted(connection: HTTPConnection, path: str, body: Mapping[str, object]) -> Any:
    return sent(connection, "POST", f"/knowledge/v1{path}", msgspec.json.encode(body))
