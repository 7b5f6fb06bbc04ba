"""Citations of answers: what a model says about documents, verified against their stored text.

A citation holds if its path and its lines exist, and a quote of at least 12 characters stands in
these lines, or at most two beside them. Then it names the lines of the quote. Whatever else a model
writes is text, in which nothing looks like a citation, a link or an image.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta, Struct

from gateway.context import Context
from gateway.operations.problems import ProblemDetails
from gateway.wings.document_library import Library, Lines
from gateway.wings.documents.quotes import find_quote, lines_of
from schemas.invisible_characters import without_hidden

SLACK = 2  # lines beside those that are named
WIDEST = 1000  # lines of a citation
LONGEST = 100_000  # characters of them
MOST = 500  # claims of an answer, findings, and readings that verify them
UNVERIFIED_NOTE = " (unverified)"

# [path:10-20], [path:10], [path:10-20 "quote"]; a path may have brackets in pairs. Each character
# can be read in one way only, or the time would be exponential.
_CITATION = re.compile(
    r'\[((?:[^\[\]\n"\\]|\\(?!\[)|\\?\[[^\[\]\n"]{0,200}\]){1,1024}):(\d{1,7})(?:-(\d{1,7}))?'
    r'(?:[ ,]+"([^"\n]{1,2000})")?\]'
)
_AFTER = re.compile("([.!?])((?:\\s*\ue000\\d{1,5}\ue001)+)")
_QUOTATION = re.compile(r'"([^"\n]{12,2000})"|`([^`\n]{12,2000})`')
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_GAP = re.compile(r" ([.,;:!?])")
_MARK = re.compile("\ue000(\\d{1,5})\ue001")
_LINK = re.compile(r"[a-z][a-z0-9+.-]{1,20}://[^\s<>\"')\]]*|www\.[^\s<>\"')\]]+|\bdata:[^\s]{1,2000}", re.I)  # fmt: skip  # noqa: E501
_MARKUP = re.compile(r"[\[\]<>]")
_ESCAPABLE = re.compile(r"[\\\[\]<>]")
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_WORD = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_STOP = frozenset({
    "a", "an", "and", "are", "as", "at", "be", "by", "can", "could", "did", "do", "does",
    "each", "for", "from", "had", "has", "have", "how", "i", "if", "in", "into", "is", "it",
    "its", "may", "of", "on", "or", "shall", "should", "so", "some", "such", "than", "that",
    "the", "their", "them", "then", "there", "these", "they", "this", "to", "under", "used",
    "uses", "was", "were", "what", "when", "where", "which", "while", "who", "whom", "whose",
    "why", "will", "with", "would", "you", "your"
})  # fmt: skip


class QuotedFinding(Struct, frozen=True):
    """Statement of a model about a document."""

    claim: str = ""
    path: str = ""
    lines: Annotated[tuple[int, ...], Meta(max_length=2)] = ()
    quote: str = ""
    collection: str = ""


@dataclass(frozen=True, slots=True)
class Citation:
    """Lines of a stored text that were found to say what was quoted."""

    collection: str
    path: str
    version: int
    lines: Lines
    quote: str


@dataclass(frozen=True, slots=True)
class DraftClaim:
    """A sentence of an answer, and what is to support it."""

    text: str
    findings: Sequence[QuotedFinding] = ()


@dataclass(frozen=True, slots=True)
class VerifiedClaim:
    text: str
    citations: Sequence[Citation] = ()

    @property
    def markdown(self) -> str:
        marks = "".join(f" {mark(citation.path, citation.lines)}" for citation in self.citations)
        return escape_markdown(self.text) + (marks or UNVERIFIED_NOTE)


class Verifier:
    """Verifies citations for one caller, as the documents are now."""

    def __init__(self, library: Library, context: Context, collections: Sequence[str]) -> None:
        self._library = library
        self._context = context
        self._collections = collections
        self._left = MOST  # readings

    async def citation(self, finding: QuotedFinding) -> Citation | None:
        """None: it does not hold. Raises ProblemDetails while the documents are not available."""
        first, last = (*finding.lines, *finding.lines[-1:], 0, 0)[:2]
        if not finding.path or not 1 <= first <= last < first + WIDEST:
            return None
        for collection in self._collections:
            if finding.collection in ("", collection):
                citation = await self._in(collection, finding, (first, last))
                if citation is not None:
                    return citation
        return None

    async def claims(self, claims: Sequence[DraftClaim]) -> list[VerifiedClaim]:
        verified: list[VerifiedClaim] = []
        for claim in claims[:MOST]:
            citations_found = [await self.citation(citation) for citation in claim.findings]
            citations = dict.fromkeys(
                citation for citation in citations_found if citation is not None
            )
            verified.append(VerifiedClaim(claim.text, tuple(citations)))
        return verified

    async def _in(self, collection: str, finding: QuotedFinding, lines: Lines) -> Citation | None:
        if not self._left:
            return None
        self._left -= 1
        around = (max(lines[0] - SLACK, 1), lines[1] + SLACK)
        try:
            passage = await self._library.read(self._context, collection, finding.path, around)
        except ProblemDetails as problem:
            if problem.status >= 500:
                raise
            return None  # no such document, or no such lines, for this caller
        if passage.lines[1] < lines[1] or len(passage.text) > LONGEST:
            return None
        span = find_quote(finding.quote, passage.text)
        if span is None:
            return None
        place = lines_of(passage.text, span, passage.lines[0])
        quote = " ".join(passage.text[slice(*span)].split())
        return Citation(collection, finding.path, passage.version, place, quote)


def mark(path: str, lines: Lines) -> str:
    """A citation as answers have it."""
    first, last = lines
    name = _MARKUP.sub(lambda match: f"\\{match[0]}", "".join(plain(path).splitlines()))
    return f"[{name}:{first}-{last}]" if last > first else f"[{name}:{first}]"


def plain(text: str) -> str:
    """Text without what is not seen: escape sequences of terminals, and hidden characters."""
    return without_hidden(_ANSI.sub("", text))


def escape_markdown(text: str) -> str:
    """Text of a model or a document as Markdown that shows it, without links and images."""
    without_links = _LINK.sub("(link removed)", plain(text))
    return _ESCAPABLE.sub(lambda match: f"\\{match[0]}", without_links)


def claims_of(answer: str, findings: Sequence[QuotedFinding] = ()) -> list[DraftClaim]:
    """The sentences of an answer with their citations, and findings that none of them names."""
    cited: list[tuple[str, Lines, str]] = []

    def take_citation(match: re.Match[str]) -> str:
        path, first, last, quote = match.groups()
        cited.append(
            (path.replace("\\", "").strip(), (int(first), int(last or first)), quote or "")
        )
        return f"\ue000{len(cited) - 1}\ue001"

    marked = _CITATION.sub(take_citation, re.sub("[\ue000\ue001]", "", answer))
    marked = _AFTER.sub(r"\2\1", marked)
    claims = [
        _claim(finding, cited, findings) for finding in _SENTENCE.split(marked) if finding.strip()
    ]
    named = {finding for claim in claims for finding in claim.findings}
    further_claims = [
        DraftClaim(finding.claim or finding.quote, (finding,))
        for finding in findings
        if finding not in named
    ]
    return _join_claims(claims) + further_claims


def _claim(
    sentence: str, citations: Sequence[tuple[str, Lines, str]], findings: Sequence[QuotedFinding]
) -> DraftClaim:
    places = [citations[int(number)] for number in _MARK.findall(sentence)]
    text = _GAP.sub(r"\1", " ".join(_MARK.sub(" ", sentence).split()))
    quotes = [finding or alternative for finding, alternative in _QUOTATION.findall(text)]
    evidence = [finding for place in places for finding in _supporting(place, quotes, findings)]
    return DraftClaim(text, tuple(evidence))


def _supporting(
    place: tuple[str, Lines, str], quotes: Sequence[str], findings: Sequence[QuotedFinding]
) -> Iterator[QuotedFinding]:
    """Evidence for a citation: its own quote, findings at its place, quotes beside it."""
    path, lines, quote = place
    if quote:
        yield QuotedFinding("", path, lines, quote)
        return
    for finding in findings:
        first, last = (*finding.lines, *finding.lines[-1:], 0, 0)[:2]
        if finding.path == path and first <= lines[1] and lines[0] <= last:
            yield finding
    for beside in quotes:
        yield QuotedFinding("", path, lines, beside)


def _join_claims(claims: Sequence[DraftClaim]) -> list[DraftClaim]:
    """Claims without text are citations on a line of their own, of the sentence before."""
    joined: list[DraftClaim] = []
    for claim_text in claims:
        if joined and not _WORD.search(claim_text.text):
            before = joined.pop()
            claim_text = DraftClaim(before.text, (*before.findings, *claim_text.findings))
        joined.append(claim_text)
    return joined


def terms_of(text: str) -> list[str]:
    """The words of a text, those of identifiers singly, without stop words and endings."""
    words_found = _WORD.findall(_CAMEL.sub(" ", text[:200_000]))
    words = (word.lower() for word in words_found)
    return [_stem(word) for word in words if word not in _STOP and len(word) > 1]


def _stem(word: str) -> str:
    for ending in ("ing", "ies", "ed", "es", "s", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


def coverage(question: str, texts: Sequence[str]) -> float:
    """Share of the terms of a question that stand in texts."""
    question_terms = set(terms_of(question))
    if not question_terms:
        return 1.0
    terms = {term for text in texts for term in terms_of(text)}
    return len(question_terms & terms) / len(question_terms)


def confidence(question: str, claims: Sequence[VerifiedClaim]) -> float:
    """Share of sentences with a verified citation, times the share of the terms of the question
    that these cover. 0: nothing was found."""
    supported = [claim_text for claim_text in claims if claim_text.citations]
    if not supported:
        return 0.0
    texts = [claim_text.text for claim_text in supported]
    texts += [
        cited.quote + " " + cited.path for claim_text in supported for cited in claim_text.citations
    ]
    return round(len(supported) / len(claims) * coverage(question, texts), 4)
