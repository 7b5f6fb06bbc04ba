"""Markdown with one sentence a line: what does not have it, or rewritten with `--write`.

Only paragraphs are rewritten, in lists too; code, tables, headings and HTML stay as they are.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[1]
GENERATED = ROOT / "docs" / "reference"
PARSER = MarkdownIt("commonmark").enable("table")

# Code, links, images and URLs, in which a full stop ends no sentence.
ATOM = re.compile(r"(`+)(?:(?!\1).)+?\1(?!`)|!?\[[^\]]*\]\([^)]*\)|https?://\S+")
END = re.compile(r"""(?<=[.!?])(?P<close>[)"'*_]*) (?=[A-Z`\[("'*…_\d]|\x00)""")
ABBREVIATION = re.compile(r"(?:\b(?:e\.g|i\.e|vs|cf|No|approx)\.)$")
LEAD = re.compile(r"\*\*[^*]+\*\*$")  # stays with the sentence that it introduces
MARKER = re.compile(r"(?:[-+*#>|=]|\d+[.)]) ")  # a line that begins so is no sentence to Markdown


def pages() -> list[Path]:
    """Every page that people write."""
    examples = (ROOT / "examples").glob("*/README.md")
    written = (path for path in (ROOT / "docs").rglob("*.md") if path.parent != GENERATED)
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(written), *sorted(examples)]


def split_sentences(text: str) -> list[str]:
    """Sentences of a paragraph that is written on one line."""
    atoms: list[str] = []

    def hide(found: re.Match[str]) -> str:
        atoms.append(found[0])
        return "\x00"

    hidden, sentences, start = ATOM.sub(hide, text), list[str](), 0
    for end in END.finditer(hidden):
        sentence, rest = hidden[start : end.end()].rstrip(), hidden[end.end() :]
        if not (ABBREVIATION.search(sentence) or LEAD.match(sentence) or MARKER.match(rest)):
            sentences.append(sentence)
            start = end.end()
    left = iter(atoms)
    return [
        re.sub("\x00", lambda _: next(left), sentence) for sentence in (*sentences, hidden[start:])
    ]


def paragraphs(text: str) -> Iterator[tuple[int, int, str]]:
    """First line, line after the last, and text of each paragraph."""
    tokens = PARSER.parse(text)
    for opening, inline in pairwise(tokens):
        if opening.type == "paragraph_open" and opening.map is not None:
            yield opening.map[0], opening.map[1], inline.content


def rewrite(text: str) -> str:
    """The page with one sentence a line. A paragraph with hard line breaks is left as it is."""
    lines = text.split("\n")
    for first, after, content in reversed(list(paragraphs(text))):
        if any(line.endswith(("  ", "\\")) for line in lines[first : after - 1]):
            continue
        prefix = lines[first][: lines[first].index(content.split("\n")[0])]
        indent = re.sub(r"[^>\s]", " ", prefix)
        sentences = split_sentences(" ".join(line.strip() for line in content.split("\n")))
        lines[first:after] = [
            prefix + sentences[0],
            *(indent + sentence for sentence in sentences[1:]),
        ]
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    wrong = [page for page in pages() if rewrite(page.read_text()) != page.read_text()]
    for page in wrong:
        if "--write" in arguments:
            page.write_text(rewrite(page.read_text()))
        else:
            print(f"{page.relative_to(ROOT)}: not one sentence a line; .ci/prose.py --write")  # noqa: T201
    return int(bool(wrong) and "--write" not in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
