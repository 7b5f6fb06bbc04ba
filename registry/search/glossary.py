"""A query in another language in English words, from a glossary. Pure.

The bundled model knows English, and most tools are described in it: "Rechnung stornieren" finds
`cancel_invoice` by "invoice" and "cancel". A glossary knows no grammar, and one English word
for each; that is enough to find by, and costs neither a model nor a call of a service.

    >>> english_words("Bitte die letzte Rechnung in Stripe stornieren", "German")
    ['last', 'invoice', 'Stripe', 'cancel']
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.resources import files

from registry.search.languages import COMMON, READ, TRANSLATIONS

UNSPACED_LANGUAGES = frozenset({"Chinese", "Japanese"})  # no spaces stand between words
# Letters that two forms of a word share at least, and in which they differ at most.
STEM, ENDING = 4, 3
STEMS = {"Korean": 2, "texts in Arabic letters": 2, "texts in Cyrillic": 3}
LITTLE = 3  # letters of a word without a capital that is no name: "die", "la"
LINKS = ("", "s", "n", "en", "es")  # between the two parts of a German compound
_PREFIX = re.compile("(?:[وفبلك]?ال|[وفبلك])(?=\\w{3})")  # written with the word in Arabic
# A word or an identifier in Latin letters; a word of another script, which may touch it.
_WORD = re.compile("[0-9A-Za-z\u00c0-\u024f][0-9A-Za-z\u00c0-\u024f./:_-]*|[^\\W_0-9A-Za-z]+")


class Glossary:
    """The glossary of one language."""

    def __init__(self, language: str, english: Mapping[str, str]) -> None:
        """`english`: the English for each word of the language, in lower case."""
        self._language = language
        self._english = english
        self.common = COMMON.get(language, frozenset())
        self._stem = STEMS.get(language, STEM)
        self._longest = max(map(len, english), default=0)
        self._stems: defaultdict[str, list[str]] = defaultdict(list)
        for word in english:
            self._stems[word[: self._stem]].append(word)

    def english(self, word: str) -> list[str]:
        """English words for `word`, in lower case: of it, of another form of it, or of its parts;
        empty for a word that the glossary does not have."""
        return [self._english[entry] for entry in self._entries(word)]

    def _entries(self, word: str) -> Iterator[str]:
        if self._language in UNSPACED_LANGUAGES:
            yield from self._segments(word)
        elif (entry := self._form(word)) is not None:
            yield entry
        elif self._language == "German":
            yield from self._parts(word)

    def _segments(self, text: str) -> Iterator[str]:
        """The longest entries from left to right."""
        start = 0
        while start < len(text):
            for end in range(min(len(text), start + self._longest), start, -1):
                if text[start:end] in self._english:
                    yield text[start:end]
                    start = end - 1
                    break
            start += 1

    def _form(self, word: str) -> str | None:
        """`word`, or the entry that shares the longest beginning with it."""
        if word in self._english:
            return word
        if word in self.common:
            return None
        if self._language == "texts in Arabic letters":
            word = _PREFIX.sub("", word, count=1) if _PREFIX.match(word) else word
            if word in self._english:
                return word
        best, most = None, 0
        for entry in self._stems.get(word[: self._stem], ()) if len(word) >= self._stem else ():
            common = _common_length(word, entry)
            if common > most and max(len(word), len(entry)) - common <= min(ENDING, common):
                best, most = entry, common
        return best

    def _parts(self, word: str) -> list[str]:
        """The two entries of a compound: Rechnung and Adresse of "Rechnungsadresse"."""
        for end in range(len(word) - STEM, STEM - 1, -1):
            if (last := self._form(word[end:])) is None:
                continue
            for link in LINKS:
                if (
                    word[:end].endswith(link)
                    and (first := word[: end - len(link)]) in self._english
                ):
                    return [first, last]
        return []


def english_words(text: str, language: str | None) -> list[str]:
    """The words of `text` in English, in their order, with names and identifiers as they are;
    words that the glossary does not have are left out. Empty: no word was translated.

    `language` is one that `languages.foreign_language` gives.
    """
    glossary = _glossaries().get(language or "")
    if glossary is None:
        return []
    words: dict[str, None] = {}
    translated = False
    for match in _WORD.finditer(unicodedata.normalize("NFKC", text[:READ])):
        word = match[0].rstrip("./:_-")
        if english := glossary.english(word.lower()):
            words |= dict.fromkeys(english)
            translated = True
        elif word.isascii() and word.lower() not in glossary.common and not _is_little(word):
            words[word] = None
    return list(words) if translated else []


def _is_little(word: str) -> bool:
    return len(word) <= LITTLE and word.islower()


def _common_length(word: str, entry: str) -> int:
    """The number of letters at the beginning that both have in common."""
    shorter = min(len(word), len(entry))
    return next((at for at in range(shorter) if word[at] != entry[at]), shorter)


@lru_cache(1)
def _glossaries() -> Mapping[str, Glossary]:
    """The glossaries by language; read with the first query in another language."""
    english: dict[str, dict[str, str]] = {language: {} for language in TRANSLATIONS}
    for line in files(__package__).joinpath("glossary.txt").read_text("utf-8").splitlines():
        meaning, *columns = line.split("|")
        for language, column in zip(TRANSLATIONS, columns, strict=True):
            for word in column.split():
                english[language].setdefault(word, meaning)  # the commoner stands first
    return {language: Glossary(language, words) for language, words in english.items()}
