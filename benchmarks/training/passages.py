"""Passages of text for training: requests made from them without labels.

A model that is tuned on tools alone forgets how to find passages. Pairs of a request and its
passage are mixed in, and the model is held near the base model on these texts (see `train`).
"""

import json
import random
from collections.abc import Iterator
from pathlib import Path

from benchmarks.training.data import Pair
from benchmarks.training.sets import BadTrainingSet, TrainingTool, seeded
from registry.embedding.texts import sentences

SPAN = (4, 12)  # words of a phrase taken from a sentence
QUESTIONS = (
    "{0}",
    "Who is {0}?",
    "What is {0}?",
    "When was {0} born?",
    "Where was {0} born?",
    "Where is {0} located?",
    "In which country is {0}?",
    "Who directed {0}?",
    "Who is the mother of {0}?",
    "Who is the spouse of {0}?",
    "Which is older, {0} or {1}?",
    "Are {0} and {1} from the same country?",
    "What is known about {0}: {2}?",
    "{0}, {2}",
)


def passage_pairs(path: Path, seed: int) -> list[Pair]:
    """Two pairs per passage: a question with its title, and a phrase of it against the rest."""
    chance = seeded(f"{seed} {path.stem}")
    passages = list(_passages(path))
    titles = [passage.name for passage in passages]
    pairs = []
    for passage in passages:
        pairs.append(_pair(path, _question(passage, titles, chance), passage))
        parts = sentences(passage.description)
        if parts:
            at = chance.randrange(len(parts))
            other_text = " ".join(parts[:at] + parts[at + 1 :])
            passage_tool = TrainingTool(passage.id, passage.name, other_text, "", (), (), ())
            pairs.append(_pair(path, _phrase(parts[at], chance), passage_tool))
    return pairs


def _pair(path: Path, request: str, passage: TrainingTool) -> Pair:
    return Pair(request, passage, frozenset((passage.id,)), f"passages {path.stem}", anchored=True)


def _question(passage: TrainingTool, titles: list[str], chance: random.Random) -> str:
    parts = sentences(passage.description) or [passage.description]
    phrase = _phrase(chance.choice(parts), chance)
    return chance.choice(QUESTIONS).format(passage.name, chance.choice(titles), phrase)


def _phrase(sentence: str, chance: random.Random) -> str:
    words = sentence.split()
    length = chance.randint(*SPAN)
    if chance.random() < 0.3 or len(words) <= length:
        return sentence
    start = chance.randrange(len(words) - length)
    return " ".join(words[start : start + length])


def _passages(path: Path) -> Iterator[TrainingTool]:
    """The lines of `path`: id, title, text. Raises BadTrainingSet."""
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            key = f"{path.stem} {row['id']}"
            yield TrainingTool(key, row["title"], row["text"], "", (), (), ())
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadTrainingSet(f"{path}: expected lines of id, title and text: {error}") from error
