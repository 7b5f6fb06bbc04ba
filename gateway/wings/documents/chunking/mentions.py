"""Mentions in a text by rules: names, acronyms, identifiers, links, addresses. Pure.

Rules propose generously: a mention is worth something only where something is about what it names.
"""

import posixpath
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from gateway.wings.documents.chunking.chunks import Mention

NAME = 256  # characters of a name; longer ones are not recorded
MENTIONS = 400  # of one chunk
_WORDS = 8  # of a name
_TITLE = 10  # words of a quoted one

_LINK = re.compile(
    r"!?\[(?P<text>[^\[\]\n]{0,200})\]\((?P<link>[^()\s]{1,400})(?:\s+\"[^\"\n]*\")?\)"
)
_PATTERNS = re.compile(
    r"(?P<url>\bhttps?://[^\s<>\"'`\])}]{3,400})"
    r"|(?P<email>\b[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{2,63}){1,4}\b)"
    r"|(?P<id>\b(?:[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|CVE-\d{4}-\d{4,7}"
    r"|[A-Z][A-Z0-9]{1,9}-\d{1,7}|RFC ?\d{3,5}|ISO ?\d{3,5})\b)"
    r"|(?P<version>\bv?\d{1,4}\.\d{1,4}\.\d{1,6}(?:[-+.]?[A-Za-z0-9]{1,20})?\b)"
    r"|(?P<identifier>\b[A-Za-z_]\w{0,80}(?:(?:\.|::|->)[A-Za-z_]\w{0,80}){1,6}\b"
    r"|\b_{0,2}[A-Za-z]\w{0,80}_\w{1,80}\b|\b[a-z]{1,40}(?:[A-Z][a-z0-9]{1,40}){1,8}\b"
    r"|\b(?:[A-Z][a-z0-9]{1,40}){2,8}\b)"
    r"|`(?P<code>[^`\s]{2,80})`"
)
# Titles of works: "You Don't Love Me (No, No, No)"
_QUOTED_TEXT = re.compile(
    r"[\"\u201c](?=[^\W_a-z])(?P<title>[^\"\u201c\u201d\n]{2,100}?)[,.;:]?[\"\u201d](?!\w)"
)
_ACRONYM = re.compile(r"\(([A-Z][A-Za-z0-9&-]{1,9})s?\)")
_INITIALS = re.compile(r"\b[^\W_]|(?<=[a-z])[A-Z]")
_WORD = re.compile(r"[^\W\d_][\w'\u2019&-]*|\d+(?:[.,]\d+)*")
_JOINING = frozenset(("", "\n", "\r\n"))  # between words of a name, beside blanks and a full stop
_PARTICLES = frozenset(
    _WORD.findall("of the de la le du des da di von van der den del and for in on at y e")
)
_LOOSE = frozenset(_WORD.findall("and for in on at"))  # the parts may be names as well
_ABBREVIATIONS = frozenset(_WORD.findall("st mr mrs ms dr jr sr prof gen col sgt lt no vol mt ft"))
# capitalised at the beginning of a sentence only
_COMMON = frozenset(
    _WORD.findall(
        "a about after all also although an and another any are as at be because been before"
        " being both but by can could did do does during each either even every few first for from"
        " had has have he her here hers him his how however i if in into is it its just last later"
        " like made many may might more most much must my neither no nor not note now of on once"
        " one only or other our out over own per same see she should since so some such than that"
        " the their them then there these they this those though through to two under until up"
        " upon us was we were what when where which while who whose why will with within without"
        " would yes yet you your"
    )
)


class Alias(NamedTuple):
    """Two names of one thing, as a text introduces them: "Personalised PageRank (PPR)"."""

    name: str
    short: str


def normal(name: str) -> str:
    """The form in which names are compared: case, width, articles, possessives and space do not
    count."""
    folded = unicodedata.normalize("NFKC", name).casefold().replace("\u2019", "'")
    words = folded.removesuffix("'s").replace("_", " ").split()
    return " ".join(words[1:] if words[:1] == ["the"] and len(words) > 1 else words).strip(" .,:;")


def mentions(text: str, start: int, end: int) -> Iterator[Mention]:
    """Mentions between two offsets, in order; offsets are characters."""
    mentions = [*_links(text, start, end), *_patterns(text, start, end)]
    mentions.sort(key=lambda mention: (mention.start, -mention.end))
    clear = list(_apart(mentions, start))
    names = list(_outside(_names(text, start, end), clear))
    spans = {(mention.start, mention.end) for mention in (*clear, *names)}
    titles = (
        mention
        for mention in _quoted_titles(text, start, end)
        if (mention.start, mention.end) not in spans
    )
    ranked = sorted((*clear, *names, *titles), key=lambda mention: (mention.start, -mention.end))
    yield from [mention for mention in ranked if len(mention.name) <= NAME][:MENTIONS]


def _apart(mentions: Iterable[Mention], at: int) -> Iterator[Mention]:
    """Mentions that begin after the end of the previous one."""
    for mention in mentions:
        if mention.start >= at:
            yield mention
            at = mention.end


def _outside(names: Iterable[Mention], mentions_taken: Sequence[Mention]) -> Iterator[Mention]:
    """Names that overlap nothing that is taken."""
    ends = [mention.end for mention in mentions_taken]
    for name in names:
        after = bisect_right(ends, name.start)
        if after == len(mentions_taken) or mentions_taken[after].start >= name.end:
            yield name


def _links(text: str, start: int, end: int) -> Iterator[Mention]:
    for match in _LINK.finditer(text, start, end):
        target = match["link"]
        if not target.startswith(("#", "data:")):
            type_ = "url" if "://" in target or target.startswith("mailto:") else "path"
            yield Mention(target, type_, "link", *match.span("link"))


def _patterns(text: str, start: int, end: int) -> Iterator[Mention]:
    for match in _PATTERNS.finditer(text, start, end):
        kind = match.lastgroup or ""
        name = match[kind].rstrip(".,;:!?")
        at = match.start(kind)
        type_ = "identifier" if kind == "code" else kind
        yield Mention(name.removesuffix("()"), type_, "mention", at, at + len(name))


def _quoted_titles(text: str, start: int, end: int) -> Iterator[Mention]:
    """Quotes that begin with a capital, as titles do: the words of a title are often no name each,
    or several."""
    for match in _QUOTED_TEXT.finditer(text, start, end):
        if len(match["title"].split()) <= _TITLE:
            yield Mention(match["title"], "name", "mention", *match.span("title"))


def _names(text: str, start: int, end: int) -> Iterator[Mention]:
    """Spans of capitalised words, with particles between: "University of the Arts London"; of
    "Centers for Disease Control" its parts as well."""
    words: list[re.Match[str]] = []
    for word in _WORD.finditer(text, start, end):
        if words and not _continues(text, words, word):
            yield from _parts(text, words)
            words = []
        if words or word[0][0].isupper():
            words.append(word)
    yield from _parts(text, words)


def _parts(text: str, words: list[re.Match[str]]) -> Iterator[Mention]:
    full_names = list(_name(text, words))
    yield from full_names
    loose = [at for at, word in enumerate(words) if word[0] in _LOOSE]
    for before, after in pairwise([-1, *loose, len(words)]) if loose else ():
        yield from (
            part for part in _name(text, words[before + 1 : after]) if part not in full_names
        )


def _continues(text: str, words: list[re.Match[str]], word: re.Match[str]) -> bool:
    between = text[words[-1].end() : word.start()]
    if between.removeprefix(".").strip(" \t") not in _JOINING or len(words) >= 2 * _WORDS:
        return False
    if "." in between and not (len(words[-1][0]) == 1 or words[-1][0].lower() in _ABBREVIATIONS):
        return False
    return bool(word[0][0].isupper() or word[0][0].isdigit() or word[0] in _PARTICLES)


def _name(text: str, words: list[re.Match[str]]) -> Iterator[Mention]:
    while words and (words[0][0].lower() in _COMMON or not words[0][0][0].isupper()):
        words = words[1:]
    while words and words[-1][0].lower() in _PARTICLES:
        words = words[:-1]
    if not words or len(words) > _WORDS:
        return
    start, end = words[0].start(), words[-1].end()
    name = re.sub(r"['\u2019]s?\Z", "", " ".join(text[start:end].split()))
    if len(name) > 1:
        kind = "acronym" if name.isupper() and len(name) <= 6 else "name"
        yield Mention(name, kind, "mention", start, end)


def aliases(text: str) -> Iterator[Alias]:
    """Short names that follow the long one in brackets, if their letters are its initials in
    order."""
    for match in _ACRONYM.finditer(text):
        short = match[1]
        words = text[max(0, match.start() - 120) : match.start()].split()[-2 * len(short) :]
        letters = [letter.lower() for letter in short if letter.isalnum()]
        if (long := _spell_out(words, letters)) and len(long) > len(short):
            yield Alias(long, short)


def _spell_out(words: list[str], letters: list[str]) -> str:
    """The shortest end of `words` that begins with the first letter and has all as initials, in
    order; particles may be left out."""
    for begin in range(len(words) - 1, -1, -1):
        initials = [
            initial.lower() for word in words[begin:] for initial in _INITIALS.findall(word)
        ]
        if initials[:1] == letters[:1] and _within(letters, initials):
            return " ".join(words[begin:]).strip("\"'*_")
    return ""


def _within(letters: Iterable[str], initials: Iterable[str]) -> bool:
    remaining = iter(initials)
    return all(letter in remaining for letter in letters)


def link_target(path: str, target: str) -> str:
    """The path of the document that a link in the document `path` leads to, without its anchor."""
    plain = target.partition("#")[0].partition("?")[0]
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), plain)) if plain else path
