"""The texts that a model embeds for a tool, a skill and a query. Pure.

Natural text: labelled lines, as they are hashed to detect changed texts, make small models worse.
The bundled model was trained with these texts, so a change here is a change of model.

Words are not translated. The bundled model knows English; texts in other languages are found by
their words.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

DESCRIPTION = 240  # characters; with the surrounding fields, 64 tokens hold no more
PARAMETERS = 12  # names
SENTENCES = 8
_NAME = 200  # characters of one name
_TOPICS = 120  # characters of source and tags together; the rest needs the remainder
_PARAMETERS = 400  # characters
_WORDS = 3  # minimum of a sentence: less means little by itself

# One link takes 30 of 64 tokens. All lengths are bounded, as texts are untrusted.
_LINK = re.compile(r"!?\[([^\[\]]{0,200})\]\([^()\s]{0,400}\)")
_MARKUP = re.compile(
    r"</?(?:p|br|hr|b|i|u|a|em|strong|code|pre|ul|ol|li|div|span|h[1-6]|table|thead|tbody|tr|t[dh])"
    r"\b[^<>]{0,300}>|\*{1,3}|`{1,3}|^\#{1,6}[ \t]",
    re.IGNORECASE | re.MULTILINE,
)
_BULLET = re.compile(r"^[ \t]{0,40}(?:[-*+\u2022\u2013]|\d{1,3}[.)])[ \t]+", re.MULTILINE)
_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+|(?<=[\u3002\uff01\uff1f\uff1b])\s*|[\n\r]+\s*")
_CAMEL_CASE = re.compile(
    r"\b(?:[a-z]{2,40}(?:[A-Z][a-z0-9]{0,40}){1,20}|(?:[A-Z][a-z0-9]{1,40}){3,20})\b"
)
_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|approx|incl|no|nr|fig|mr|mrs|ms|dr|st|inc|ltd))\.\Z",
    re.IGNORECASE,
)
_LONGEST_ABBREVIATION = 8
_FIRST_UNSPACED = "\u3040"  # from here on are scripts without spaces between words


@dataclass(frozen=True, slots=True)
class ToolFields:
    """The searchable fields of a tool. Empty: absent."""

    name: str
    title: str = ""
    description: str = ""
    source: str = ""  # name of its source
    endpoint: str = ""  # "<METHOD> <path>"
    domain: str = ""
    namespace: str = ""
    tags: Sequence[str] = ()
    keywords: Sequence[str] = ()
    parameters: Sequence[str] = ()  # names of the top-level properties, in order


def tool_text(fields: ToolFields) -> str:
    """ "<source> <domain, namespace, tags, keywords>: <name>. <description> <parameters>", without
    what is empty. The endpoint stands in for a description."""
    source = identifier_words(fields.source)
    topics = _join_words((fields.domain, fields.namespace, *fields.tags, *fields.keywords))
    topics_text = _cut(f"{source} {topics}".strip(), _TOPICS)
    name = identifier_words(fields.title) or identifier_words(fields.name)
    if source:  # names that would collide begin with it, which would repeat it
        name = name.removeprefix(f"{source} ")
    prose = _plain_text(fields.description) or identifier_words(fields.endpoint)
    parameters = _cut(_join_words(fields.parameters[:PARAMETERS]), _PARAMETERS)
    return " ".join(
        filter(None, (topics_text and f"{topics_text}:", name and f"{name}.", prose, parameters))
    )


def skill_text(name: str, description: str, instructions: str = "") -> str:
    """ "<name>. <description> <beginning of the instructions>"."""
    prose = _plain_text(f"{description}\n{instructions}")
    return " ".join(filter(None, (f"{identifier_words(name)}.", prose)))


def identifier_words(identifier: str) -> str:
    """The words of an identifier: 'repos_list-forUser' gives 'repos list for user', like the SQL
    function of this name."""
    return _collapse_spaces("".join(_spaced_words(readable(identifier, _NAME))).lower())


def query_text(query: str) -> str:
    """`query` with identifiers like createIssue split into words, as those of tools are.

    A name of two words that begins with a capital stays whole: GitHub, PayPal.
    """
    return _CAMEL_CASE.sub(lambda match: identifier_words(match[0]), query)


def sentences(query: str, limit: int = SENTENCES) -> list[str]:
    """Sentences and lines of `query`, none if there is only one; at most `limit`.

    Each has at least 3 words, otherwise it is merged with its neighbour. Where there are too many,
    neighbours are merged; no word is left out. "v1.2", "e.g." and addresses stay whole.
    """
    parts: list[str] = []
    for part in _parts(_BULLET.sub("", readable(query))):
        if parts and (_size(part) < _WORDS or _size(parts[-1]) < _WORDS):
            parts[-1] = f"{parts[-1]} {part}"
        else:
            parts.append(part)
    together = -(-len(parts) // limit)
    if len(parts) < 2 or together == len(parts):
        return []
    return [" ".join(parts[at : at + together]) for at in range(0, len(parts), together)]


def readable(text: str, limit: int | None = None) -> str:
    """The first `limit` characters of `text`, without those that PostgreSQL cannot store: lone
    surrogates as "?", NUL as a space."""
    return text[:limit].encode("utf-8", "replace").decode().replace("\0", " ")


def _parts(text: str) -> Iterator[str]:
    begin = 0
    for match in _SENTENCE_END.finditer(text):
        head = text[max(begin, match.start() - _LONGEST_ABBREVIATION) : match.start()]
        if _ABBREVIATION.search(head):
            continue
        yield from _stripped_text(text[begin : match.start()])
        begin = match.end()
    yield from _stripped_text(text[begin:])


def _stripped_text(text: str) -> Iterable[str]:
    return filter(None, (text.strip(),))


def _size(text: str) -> int:
    """Number of words; in scripts without spaces, two characters count as one."""
    return len(text.split()) + sum(character >= _FIRST_UNSPACED for character in text) // 2


def _spaced_words(identifier: str) -> Iterator[str]:
    before = ""
    for at, character in enumerate(identifier):
        if character.isupper() and (
            before.islower()
            or before.isdigit()
            or (before.isupper() and identifier[at + 1 : at + 2].islower())
        ):
            yield " "
        yield character if character.isalnum() else " "
        before = character


def _join_words(names: Iterable[str]) -> str:
    return ", ".join(filter(None, map(identifier_words, names)))


def _plain_text(text: str) -> str:
    """The beginning of a text in Markdown or HTML, as plain text."""
    excerpt = readable(text.lstrip(), 8 * DESCRIPTION)
    return _cut(_MARKUP.sub(" ", _LINK.sub(r"\1", excerpt)), DESCRIPTION)


def _collapse_spaces(text: str) -> str:
    return " ".join(text.split())


def _cut(text: str, limit: int) -> str:
    """`text` with white space collapsed; at most `limit` characters, cut at the end of a word if
    possible."""
    text = _collapse_spaces(text.lstrip()[: 4 * limit])
    if len(text) <= limit:
        return text
    return text[: text.rfind(" ", 0, limit + 1) if " " in text[: limit + 1] else limit].rstrip(" ,")
