"""Links inside the repository lead somewhere, and the README stays short."""

import re

import pytest

from tests.documentation.pages import ROOT, Page, pages

README_LINES = 220
PLACE = re.compile(r"(?:gateway|registry|schemas|config|tests|examples|docs|deploy)/[\w./-]+$")
PLANNED = {"gateway/wings/models/": "docs/architecture.md marks it as planned"}


def broken_links(page: Page) -> list[str]:
    """Links of a page that lead to no file, to no heading, or out of the repository."""
    return [target for target in page.links() if not leads_somewhere(page, target)]


def leads_somewhere(page: Page, target: str) -> bool:
    place, _, fragment = target.partition("#")
    path = (page.path.parent / place).resolve() if place else page.path
    if not path.is_relative_to(ROOT) or not path.exists():
        return False
    return not fragment or (path.suffix == ".md" and fragment in Page(path).anchors())


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_relative_links_lead_to_files_and_headings(page: Page) -> None:
    assert broken_links(page) == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_files_and_folders_that_are_named_exist(page: Page) -> None:
    named = {span for span in page.spans() if PLACE.match(span) and "NAME" not in span}
    assert [one for one in sorted(named - PLANNED.keys()) if not (ROOT / one).exists()] == []


def test_every_chapter_is_linked_from_the_readme() -> None:
    readme = Page(ROOT / "README.md")
    linked = {target.partition("#")[0] for target in readme.links()}
    chapters = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md")}
    assert chapters | {"CONTRIBUTING.md"} <= linked


def test_the_readme_has_at_most_220_lines() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= README_LINES


def test_a_broken_link_is_found() -> None:
    page = Page(ROOT / "docs" / "importing.md")
    links = ("../README.md#speed", "#graphql", "gone.md", "../README.md#gone", "../../etc/hosts")
    found = [target for target in links if not leads_somewhere(page, target)]
    assert found == ["gone.md", "../README.md#gone", "../../etc/hosts"]
