""" "Did you mean ...?" suggestions for unknown names."""

from collections.abc import Iterable
from difflib import get_close_matches

NEAR = 3  # suggestions; for more there are `list` and `search`
LIKENESS = 0.7  # similarity cutoff, of 1; at the usual 0.6 getPet matches GetPrices


def meant(name: str, known: Iterable[str]) -> str:
    """ "Did you mean ...?" with the members of `known` similar to `name`; empty without a match."""
    by_letters = {_letters(one): one for one in known}
    if _letters(name) in by_letters:
        return f"Did you mean {by_letters[_letters(name)]}?"
    near = get_close_matches(_letters(name), by_letters, n=NEAR, cutoff=LIKENESS)
    return f"Did you mean {' or '.join(by_letters[one] for one in near)}?" if near else ""


def _letters(name: str) -> str:
    """Normalized form for comparison: list_pets equals listPets."""
    return name.replace("-", "").replace("_", "").casefold()
