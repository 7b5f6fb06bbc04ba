"""Means of the scores of questions with known answers, and their table."""

import statistics
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence

from gateway.app.evaluation_questions import ScoredQuestion, Scores
from gateway.cli.common.output import print_json, print_rows
from gateway.cli.common.progress import track

ALL = "all"


async def score_questions(
    questions: Sequence[ScoredQuestion], score: Callable[[ScoredQuestion], Awaitable[Scores]]
) -> Mapping[str, Mapping[str, float]]:
    """Number of questions and mean scores by group, those of all at the end."""
    groups: defaultdict[str, list[Scores]] = defaultdict(list)
    with track(questions, "questions") as tracked:
        for question in tracked:
            groups[question.group or ALL].append(await score(question))
    if groups.keys() != {ALL}:
        groups[ALL] = [scores for group_scores in groups.values() for scores in group_scores]
    return {
        name: {"questions": len(group_scores), **means_of(group_scores)}
        for name, group_scores in groups.items()
    }


def means_of(all_scores: Sequence[Scores]) -> Scores:
    return {name: statistics.mean(scores[name] for scores in all_scores) for name in all_scores[0]}


def print_figures(groups: Mapping[str, Mapping[str, float]], *, as_json: bool) -> None:
    if as_json:
        print_json(groups)
        return
    rows = [
        (group, *(str(value) if isinstance(value, int) else f"{value:.1f}" for value in figures))
        for group, figures in ((group, figures.values()) for group, figures in groups.items())
    ]
    print_rows(("group", *next(iter(groups.values()))), rows)
