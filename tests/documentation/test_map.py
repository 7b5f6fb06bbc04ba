"""The map of the architecture: every folder is on it, and each name on it exists."""

import re
from collections.abc import Iterator

import pytest

from tests.documentation.pages import ROOT

PACKAGES = ("config", "gateway", "registry", "schemas")
CHAPTER = (ROOT / "docs" / "architecture.md").read_text()
MAP = CHAPTER[CHAPTER.index("\n## The map\n") : CHAPTER.index("\n## Direction of imports\n")]
ROWS = {row[1]: row[0] for row in re.finditer(r"^\| (.+?) \| .+ \|$", MAP, re.MULTILINE)}
SPAN = re.compile(r"`([^`\n]+)`")


def folders() -> Iterator[str]:
    for package in PACKAGES:
        modules = {module.parent for module in (ROOT / package).rglob("*.py")}
        yield from (f"{folder.relative_to(ROOT).as_posix()}/" for folder in modules)


def test_map_has_a_line_for_every_folder() -> None:
    """A newcomer finds the folder of a line by its name and this table."""
    lines = re.findall(r"^\| `([\w/]+/)` \|", MAP, re.MULTILINE)
    assert sorted(lines) == sorted(folders())


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_each_name_on_the_map_exists(row: str) -> None:
    spans = SPAN.findall(row)
    paths = [span for span in spans if "/" in span and span.startswith((*PACKAGES, "benchmarks"))]
    assert [path for path in paths if not (ROOT / path).exists()] == []
    texts = [(ROOT / path).read_text() for path in paths if path.endswith(".py")]
    if row.startswith(("| `", "| folder")):
        return  # a folder's line names its own modules and commands
    names = [span for span in spans if span.isidentifier()]
    assert [
        name for name in names if not any(re.search(rf"\b{name}\b", text) for text in texts)
    ] == []


def test_modules_in_the_line_of_a_folder_exist() -> None:
    missing = [
        folder + module
        for folder, line in re.findall(r"^\| `([\w/]+/)` \| (.*) \|$", MAP, re.MULTILINE)
        for module in re.findall(r"`(\w+\.(?:py|yaml))`", line)
        if not (ROOT / folder / module).exists()
    ]
    assert missing == []
