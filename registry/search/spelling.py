"""Known words that stand in for those of a query that no document has. Pure.

"wether forcast" finds "weather" and "forecast", "calen" finds "calendar", "getpetbyid" finds "get",
"pet" and "id", and "Rechnungsadresse" finds "rechnung" and "adress". A word that a document has is
never replaced, so that exact queries lose nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from registry.embedding.texts import identifier_words
from registry.search.word_selection import Word, last_word

WORDS_CORRECTED = 3  # unknown words of a query that are looked at, the longest first
ENOUGH = 8  # words of a query above which the known ones suffice
SHORTEST, LONGEST = 3, 40  # letters of a word that is replaced
COMPOUND = 7  # letters from which a word may be several
PIECE, LONG_PIECE = 3, 16  # letters of a word inside another
LARGE_PIECE = 5  # letters from which one known piece stands for a word that is half unknown
COMPLETIONS = 8  # most frequent words that begin with a half typed one
ALIKE = 3  # most frequent words that stand in for another one
TWO_MISTAKES = 8  # letters from which a word may have two
# A vector of misspelled words says little: meaning loses this share of its weight where all words
# are replaced, and none where few are, as in requests in plain English for which the catalog has
# other words (NDCG@10 of 120 for 968 operations 59.4; 58.1 without SOME; 59.0 if none is replaced).
REPLACED_SHARE, SOME = 0.6, 0.4
# Letters between the words of a German compound, and words that the index leaves out.
_ENDINGS = ("s", "es", "n", "en", "er", "e")
_LEFT_OUT = ("a", "an", "and", "by", "for", "id", "in", "of", "on", "or", "the", "to", "with")
LINKS = frozenset([*_ENDINGS, *_LEFT_OUT])
IRREGULAR: Mapping[str, str] = {
    "children": "child", "people": "person", "men": "man", "women": "woman", "feet": "foot",
    "teeth": "tooth", "mice": "mouse", "geese": "goose", "oxen": "ox", "indices": "index",
    "vertices": "vertex", "matrices": "matrix", "appendices": "appendix", "criteria": "criterion",
    "phenomena": "phenomenon", "data": "datum", "media": "medium", "analyses": "analysis",
    "diagnoses": "diagnosis", "hypotheses": "hypothesis", "theses": "thesis", "crises": "crisis",
    "leaves": "leaf", "lives": "life", "wives": "wife", "knives": "knife", "shelves": "shelf",
    "wolves": "wolf", "halves": "half", "loaves": "loaf", "selves": "self", "calves": "calf",
    "thieves": "thief", "scarves": "scarf",
}  # fmt: skip
_PLURALS = {singular: plural for plural, singular in IRREGULAR.items()}


@dataclass(frozen=True, slots=True)
class UnknownWord:
    """A word of a query whose stem no document has. `half`: it may be half typed."""

    text: str
    term: str
    half: bool = False

    @property
    def pieces(self) -> list[str]:
        """Its parts that may be words, and other numbers of it."""
        text = self.text
        if len(text) < COMPOUND:
            return _other_numbers(text)
        return _other_numbers(text) + [
            text[start:end]
            for start in range(len(text) - PIECE + 1)
            for end in range(start + PIECE, min(start + LONG_PIECE, len(text)) + 1)
        ]


def unknown_words(text: str, terms: Iterable[str]) -> list[UnknownWord]:
    """The words of `text` with these stems, the longest first; at most WORDS_CORRECTED."""
    begun = last_word(text)
    words = sorted(set(identifier_words(text).split()), key=len)
    unknown: list[UnknownWord] = []
    for term in terms:
        # a stem is the beginning of its word, but for the last letter of some: "happi"
        starts = [term, term[:-1]] if len(term) > SHORTEST else [term]
        word = next((word for start in starts for word in words if word.startswith(start)), "")
        if SHORTEST <= len(word) <= LONGEST and word.isalpha():
            unknown.append(UnknownWord(word, term, begun.endswith(word)))
    unknown.sort(key=lambda word: (-len(word.text), word.text))
    return unknown[:WORDS_CORRECTED]


def replacements(
    word: UnknownWord, near: Sequence[Word], pieces: Mapping[str, Word]
) -> Sequence[Word]:
    """The known words that stand in for an unknown one; none: nothing is like it.

    `near`: words with its first letter; `pieces`: known ones of its pieces.
    """
    if numbers := [pieces[text] for text in _other_numbers(word.text) if text in pieces]:
        return numbers
    begun = [known_word for known_word in near if known_word.term.startswith(word.text)]
    if word.half and begun:
        return _most_frequent(begun, COMPLETIONS)
    if compound := _compound(word.text, near, pieces):
        return compound
    for mistakes in range(1, 3 if len(word.text) >= TWO_MISTAKES else 2):
        if alike := [
            known_word for known_word in near if _is_alike(word, known_word.term, mistakes)
        ]:
            return _most_frequent(alike)
    return _most_frequent(begun)


def meaning_left(replaced: float) -> float:
    """The share of its weight that meaning keeps where such a share of the words is replaced."""
    return 1 - REPLACED_SHARE * max(0.0, (replaced - SOME) / (1 - SOME))


def _other_numbers(text: str) -> list[str]:
    return [word for word in (IRREGULAR.get(text), _PLURALS.get(text)) if word]


def _most_frequent(words: Iterable[Word], limit: int = ALIKE) -> list[Word]:
    return sorted(words, key=lambda word: (-word.docs, word.term))[:limit]


def _compound(text: str, near: Sequence[Word], pieces: Mapping[str, Word]) -> Sequence[Word]:
    """The words that a word is made of; of one that is half unknown, the last or the first."""
    if len(text) < COMPOUND:
        return ()
    if pair := _split(text, pieces):
        return [pieces[piece] for piece in pair]
    for length in range(min(len(text) - 1, LONG_PIECE), LARGE_PIECE - 1, -1):
        if (tail := text[-length:]) in pieces:
            head = text[:-length]
            heads = [
                known_word
                for known_word in near
                if len(head) > PIECE and known_word.term.startswith(head)
            ]
            return [pieces[tail], *_most_frequent(heads)]
        if (head := text[:length]) in pieces:
            return [pieces[head]]
    return ()


def _split(text: str, pieces: Mapping[str, Word]) -> list[str]:
    """The known pieces that, with links between them, are all of `text`: few and long ones."""
    best: list[tuple[int, list[str]] | None] = [(0, []), *[None] * len(text)]
    for start in range(len(text)):
        if (before := best[start]) is None:
            continue
        score, parts = before
        for end in range(start + 1, len(text) + 1):
            piece = text[start:end]
            is_known = piece in pieces and piece != text
            if not is_known and (piece not in LINKS or not parts):
                continue
            gained = score + (len(piece) ** 2 if is_known else 0)
            if (there := best[end]) is None or gained > there[0]:
                best[end] = (gained, [*parts, piece] if is_known else parts)
    return best[-1][1] if best[-1] is not None else []


def _is_alike(word: UnknownWord, term: str, mistakes: int) -> bool:
    letters = set(term)  # most words are told apart by them
    return any(
        len(letters.symmetric_difference(spelling)) <= 2 * mistakes
        and is_within(spelling, term, mistakes)
        for spelling in {word.term, word.text}
    )


def is_within(left: str, right: str, mistakes: int) -> bool:
    """Whether so many letters that are wrong, missing, too many or swapped with the next make the
    difference of two words (Damerau and Levenshtein)."""
    if abs(len(left) - len(right)) > mistakes:
        return False
    start = 0
    for first, second in zip(left, right, strict=False):
        if first != second:
            break
        start += 1
    left, right = left[start:], right[start:]
    if not left or not right:
        return len(left) + len(right) <= mistakes
    if mistakes == 0:
        return False
    return (
        is_within(left[1:], right[1:], mistakes - 1)
        or is_within(left[1:], right, mistakes - 1)
        or is_within(left, right[1:], mistakes - 1)
        or (left[:2] == right[1::-1] and is_within(left[2:], right[2:], mistakes - 1))
    )
