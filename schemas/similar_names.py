""" "Did you mean ...?" suggestions for unknown names."""

from collections.abc import Iterable
from difflib import get_close_matches

SUGGESTIONS = 3  # suggestions; for more there are `list` and `search`
SIMILARITY = 0.7  # similarity cutoff, of 1; at the usual 0.6 getPet matches GetPrices


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """ "Did you mean ...?" with the members of `names` similar to `name`; empty without a match."""
    by_letters = {_letters(name): name for name in names}
    if _letters(name) in by_letters:
        return f"Did you mean {by_letters[_letters(name)]}?"
    similar = get_close_matches(_letters(name), by_letters, n=SUGGESTIONS, cutoff=SIMILARITY)
    return f"Did you mean {' or '.join(by_letters[name] for name in similar)}?" if similar else ""


def _letters(name: str) -> str:
    """Normalized form for comparison: list_pets equals listPets."""
    return name.replace("-", "").replace("_", "").casefold()
