"""Questions with known answers, to measure how well a running gateway finds them."""

import statistics
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.cli.common.output import print_json, print_rows
from gateway.cli.common.progress import track
from registry.evaluation.results import ndcg
from registry.evaluation.sets import records

ALL = "all"

Scores = Mapping[str, float]  # of one question, by the name of the figure, per cent


@dataclass(frozen=True, slots=True)
class Question:
    query: str
    answers: frozenset[str]
    group: str
    arguments: Mapping[str, Any]  # of the operation that searches


def read_questions(file: Path, member: str, answers: str) -> list[Question]:
    """The questions of JSON Lines; `member` has the known answers, which `answers` names. Raises
    UnreadableSet with file and line."""
    questions = []
    for record in records(file):
        arguments, known = record.value.get("arguments", {}), frozenset(record.texts(member))
        if not known or not isinstance(arguments, dict):
            raise record.bad(f"expected `{member}`, {answers}, and an object of `arguments`")
        query = record.text("query", needed=True)
        questions.append(Question(query, known, record.text("group"), arguments))
    return questions


def rank_scores(hits: Sequence[str], answers: frozenset[str], depths: Sequence[int]) -> Scores:
    """N@10 and R@k, the share of the answers among the first k. `hits`: best first, each once."""
    shares = {f"R@{k}": 100 * len(answers.intersection(hits[:k])) / len(answers) for k in depths}
    return {"N@10": 100 * ndcg(hits, answers), **shares}


async def score_questions(
    questions: Sequence[Question], score: Callable[[Question], Awaitable[Scores]]
) -> Mapping[str, Mapping[str, float]]:
    """Number of questions and mean scores by group, those of all at the end."""
    groups: defaultdict[str, list[Scores]] = defaultdict(list)
    with track(questions, "questions") as tracked:
        for question in tracked:
            groups[question.group or ALL].append(await score(question))
    if groups.keys() != {ALL}:
        groups[ALL] = [scores for several in groups.values() for scores in several]
    return {
        name: {"questions": len(several), **means_of(several)} for name, several in groups.items()
    }


def means_of(several: Sequence[Scores]) -> Scores:
    return {name: statistics.mean(scores[name] for scores in several) for name in several[0]}


def print_figures(groups: Mapping[str, Mapping[str, float]], *, as_json: bool) -> None:
    if as_json:
        print_json(groups)
        return
    rows = [
        (group, *(str(value) if isinstance(value, int) else f"{value:.1f}" for value in figures))
        for group, figures in ((group, figures.values()) for group, figures in groups.items())
    ]
    print_rows(("group", *next(iter(groups.values()))), rows)
