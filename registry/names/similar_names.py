"""Names that come close to one that is not there."""

from collections.abc import Iterable
from difflib import get_close_matches

NEAR = 3  # suggestions; a longer list is for `list` and `search`
LIKENESS = 0.7  # of 1; at the usual 0.6 getPet is like GetPrices


def meant(name: str, known: Iterable[str]) -> str:
    """A question after those of `known` that come close; empty where none does."""
    by_letters = {_letters(one): one for one in known}
    if _letters(name) in by_letters:
        return f"Did you mean {by_letters[_letters(name)]}?"
    near = get_close_matches(_letters(name), by_letters, n=NEAR, cutoff=LIKENESS)
    return f"Did you mean {' or '.join(by_letters[one] for one in near)}?" if near else ""


def _letters(name: str) -> str:
    """For comparison: list_pets is meant for listPets."""
    return name.replace("-", "").replace("_", "").casefold()
