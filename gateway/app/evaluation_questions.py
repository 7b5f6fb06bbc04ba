"""Questions with known answers, to measure how well a running gateway finds them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from registry.evaluation.quality_metrics import ndcg
from registry.evaluation.request_sets import records

Scores = Mapping[str, float]  # of one question, by the name of the figure, per cent


@dataclass(frozen=True, slots=True)
class ScoredQuestion:
    query: str
    answers: frozenset[str]
    group: str
    arguments: Mapping[str, Any]  # of the operation that searches


def read_questions(file: Path, member: str, answers: str) -> list[ScoredQuestion]:
    """The questions of JSON Lines; `member` has the known answers, which `answers` names. Raises
    UnreadableSet with file and line."""
    questions = []
    for record in records(file):
        arguments, answer_ids = record.value.get("arguments", {}), frozenset(record.texts(member))
        if not answer_ids or not isinstance(arguments, dict):
            raise record.bad(f"expected `{member}`, {answers}, and an object of `arguments`")
        query = record.text("query", needed=True)
        questions.append(ScoredQuestion(query, answer_ids, record.text("group"), arguments))
    return questions


def rank_scores(hits: Sequence[str], answers: frozenset[str], depths: Sequence[int]) -> Scores:
    """N@10 and R@k, the share of the answers among the first k. `hits`: best first, each once."""
    shares = {f"R@{k}": 100 * len(answers.intersection(hits[:k])) / len(answers) for k in depths}
    return {"N@10": 100 * ndcg(hits, answers), **shares}
