"""Memories that say nearly the same, by their words. Pure.

Similarity never deletes: with the bundled model contradictions are nearer (median cosine .91) than
paraphrases (.86). So near memories are named when one is added, and shown once in an answer.
"""

import re
from collections.abc import Sequence

from gateway.wings.memory.rows import normalised

# A character of a script without spaces between words is a word.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff]|[^\W_]+")
READ = 2000  # characters that are compared


def words(content: str) -> frozenset[str]:
    return frozenset(_WORD.findall(normalised(content[:READ])))


def overlap(one: frozenset[str], other: frozenset[str]) -> float:
    """The share of their words that both have (Jaccard)."""
    return len(one & other) / len(one | other) if one and other else 0.0


def folded(contents: Sequence[str], least: float) -> list[list[int]]:
    """Groups of those that share at least so many words with the first of their group."""
    groups: list[tuple[frozenset[str], list[int]]] = []
    for place, content in enumerate(contents):
        own = words(content)
        for first, group in groups:
            if overlap(own, first) >= least:
                group.append(place)
                break
        else:
            groups.append((own, [place]))
    return [group for _, group in groups]
