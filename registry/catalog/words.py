"""Tools and skills found by plain words in the catalog that is in memory, for when the database is
away. Pure.

No index and no stems: a word counts wherever it stands in what is said, rare ones more.
"""

import math
import re
from collections.abc import Mapping

WORDS = 32  # of a query that are looked up
SHORTEST = 3  # characters of one
IN_NAME = 2.0  # what a word in the name counts, against one elsewhere

_WORD = re.compile(rf"\w{{{SHORTEST},}}")


def by_words(said: Mapping[str, str], query: str, limit: int) -> list[tuple[str, float]]:
    """The names of the best for `query`, best first, with scores from 0 to 1. `said`: what each
    says of itself, by name."""
    words = list(dict.fromkeys(_WORD.findall(query.casefold())))[:WORDS]
    lower = [name.casefold() for name in said]
    texts = [text.casefold() for text in said.values()]
    scores = dict.fromkeys(said, 0.0)
    most = 0.0
    for word in words:
        named = [word in name for name in lower]
        having = [is_named or word in text for is_named, text in zip(named, texts, strict=True)]
        rarity = math.log(1 + len(said) / (1 + sum(having)))
        most += IN_NAME * rarity
        for name, has, is_named in zip(said, having, named, strict=True):
            if has:
                scores[name] += rarity * (IN_NAME if is_named else 1.0)
    best = sorted(said, key=lambda name: (-scores[name], name))
    return [(name, scores[name] / most) for name in best[:limit] if scores[name] > 0]
