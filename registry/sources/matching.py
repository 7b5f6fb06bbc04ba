"""Which operation of a new description is which of those that were imported before. Pure.

By its id where both descriptions have one that is unique, so that an operation may move to another
path; by its key where not, so that it may have another id. What is in the description that is
served comes before what was gone from it already.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from schemas.tool import ToolDraft


@dataclass(frozen=True, slots=True)
class KnownOperation:
    """An operation that was imported before, and its tool."""

    endpoint_id: str
    tool_id: str
    name: str
    digest: str  # of what was imported
    present: bool  # in the document, when it was last imported
    active: bool  # False while present: taken out of service by hand
    operation: str | None = None  # its id in the description


def matched(drafts: Sequence[ToolDraft], known: Mapping[str, KnownOperation]) -> dict[str, str]:
    """By key of a draft the key of the known operation that it is."""
    wanted = {draft.key: draft.operation for draft in drafts}
    found: dict[str, str] = {}
    for present in (True, False):
        pool = {key: one.operation for key, one in known.items() if one.present == present}
        _match(wanted, pool, found)
    return found


def _match(
    wanted: Mapping[str, str | None], pool: Mapping[str, str | None], found: dict[str, str]
) -> None:
    """Find among `pool` what is not found yet."""
    ids = _unique(pool.items())
    for operation, key in _unique(wanted.items()).items():
        if operation in ids and key not in found:
            found[key] = ids[operation]
    gone = set(found.values())
    for key in wanted:
        if key not in found and key in pool and key not in gone:
            found[key] = key


def _unique(operations: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """Keys by the ids that only one operation has."""
    pairs = [(operation, key) for key, operation in operations if operation]
    counts = Counter(operation for operation, _ in pairs)
    return {operation: key for operation, key in pairs if counts[operation] == 1}


def moves(matches: Mapping[str, str], known: Mapping[str, KnownOperation]) -> dict[str, str]:
    """By endpoint id the key that it gets, for those that get another one. An operation that is
    gone gives way to one that moved to its path."""
    moved = {known[old].endpoint_id: key for key, old in matches.items() if key != old}
    staying = set(matches.values())
    for key in set(moved.values()):
        if key in known and key not in staying:
            moved[known[key].endpoint_id] = f"{known[key].endpoint_id}:{key}"
    return moved
