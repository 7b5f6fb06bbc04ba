"""Markdown pages of the repository, and what they consist of: headings, links and code. Pure."""

import importlib.util
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"^#{1,6} +(.*?) *$", re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_SPAN = re.compile(r"`([^`\n]+)`")


@dataclass(frozen=True)
class Page:
    path: Path

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @property
    def text(self) -> str:
        return self.path.read_text()

    @property
    def prose(self) -> str:
        """The text without fenced code."""
        return _FENCE.sub("", self.text)

    def anchors(self) -> set[str]:
        """What a fragment of a link may name, as GitHub derives it from the headings."""
        counts: Counter[str] = Counter()
        found = set()
        for heading in _HEADING.findall(self.prose):
            anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
            found.add(f"{anchor}-{counts[anchor]}" if counts[anchor] else anchor)
            counts[anchor] += 1
        return found

    def links(self) -> Iterator[str]:
        """Targets of links that are no URLs."""
        for target in _LINK.findall(self.prose):
            if not re.match(r"[a-z]+:", target):
                yield target

    def spans(self) -> list[str]:
        """Code inside sentences."""
        return _SPAN.findall(self.prose)

    def blocks(self, language: str) -> list[str]:
        """Fenced code in a language."""
        return [block for written, block in _FENCE.findall(self.text) if written == language]

    def lines_of_shell(self) -> Iterator[str]:
        for language, block in _FENCE.findall(self.text):
            if language == "sh":
                yield from block.splitlines()


def pages() -> list[Page]:
    return [Page(path) for path in PAGES]


def program(name: str) -> ModuleType:
    """A program of `.ci`, as a module."""
    spec = importlib.util.spec_from_file_location(f"ci_{name}", ROOT / ".ci" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
