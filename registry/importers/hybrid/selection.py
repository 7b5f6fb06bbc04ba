"""Which actions a person wants, as drafts with their outcomes."""

from dataclasses import replace

from registry.importers.hybrid.read import ServiceDescription
from registry.importers.hybrid.tools import Kind, drafts
from registry.importers.imported import Imported
from schemas.globs import glob
from schemas.hybrid import Side
from schemas.source import Outcome
from schemas.tool import ToolDraft


def select(
    described: ServiceDescription,
    kind: Kind,
    side: Side | None,
    include: tuple[str, ...] = (),
    exclude: tuple[str, ...] = (),
) -> Imported:
    """The tools of the actions that are wanted: globs (`*` crosses `/`) over ids and names.

    `include` empty: all. `exclude` wins. Raises ImportRejected, as `drafts` does.
    """
    # named before any are left out: a selection must not rename the others
    made = {draft.key: draft for draft in drafts(described.actions, kind, side)}
    outcomes = []
    for outcome in described.outcomes:
        draft = None if outcome.status == "skipped" else made[outcome.key]
        outcomes.append(_judged(outcome, draft, include, exclude) if draft else outcome)
    wanted = {outcome.key for outcome in outcomes if outcome.name is not None}
    return Imported(
        title=described.title,
        version=None,
        servers=(),
        drafts=tuple(draft for key, draft in made.items() if key in wanted),
        outcomes=tuple(outcomes),
        notes=(*described.notes, *_idle(described.outcomes, made, (*include, *exclude))),
    )


def _judged(
    outcome: Outcome, draft: ToolDraft, include: tuple[str, ...], exclude: tuple[str, ...]
) -> Outcome:
    for pattern in exclude:
        if _matches(outcome, draft, pattern):
            return replace(outcome, status="excluded", reason=f"excluded by {pattern!r}")
    if include and not any(_matches(outcome, draft, pattern) for pattern in include):
        return replace(outcome, status="excluded", reason="not included")
    return replace(outcome, name=draft.name)


def _matches(outcome: Outcome, draft: ToolDraft, pattern: str) -> bool:
    return glob(pattern).match_any((outcome.operation, draft.name))


def _idle(
    outcomes: tuple[Outcome, ...], made: dict[str, ToolDraft], patterns: tuple[str, ...]
) -> list[str]:
    there = [(one, made[one.key]) for one in outcomes if one.status != "skipped"]
    return [
        f"the pattern {pattern!r} matches no action"
        for pattern in patterns
        if not any(_matches(outcome, draft, pattern) for outcome, draft in there)
    ]
