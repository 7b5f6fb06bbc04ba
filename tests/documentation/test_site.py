"""The site of the documentation: its order has every page, and no link leaves it."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from tests.documentation.pages import ROOT, program

DOCS = ROOT / "docs"


def page_paths(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        for value in entry.values():
            yield from page_paths(value) if isinstance(value, list) else [value]


def test_the_order_has_every_page_once() -> None:
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    pages = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
    assert sorted(page_paths(site["nav"])) == pages


@pytest.fixture(scope="module")
def site() -> ModuleType:
    return program("site")


def test_links_that_leave_the_documentation_become_text(site: ModuleType) -> None:
    text = (
        "[a](../examples/a) [b](cli.md#x) [c](https://c.example/) [d](../README.md#speed) [e](#e)"
        " ![f](images/f.png)"
    )
    kept = "a [b](cli.md#x) [c](https://c.example/) d [e](#e) ![f](images/f.png)"
    assert site.within(text, DOCS) == kept


@pytest.mark.parametrize("name", ["site", "site-mkdocs"])
def test_the_site_is_built_without_warnings(
    name: str, site: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, *_ = site.BUILDERS[name]
    places = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    if shutil.which(program, path=places) is None:
        pytest.skip(f"{program} is not installed: make docs")
    monkeypatch.setattr(site, "BUILD", tmp_path)
    monkeypatch.setattr(site, "COPY", tmp_path / "docs")
    site.copied()
    assert site.built(name) == 0
    assert (tmp_path / name / "index.html").exists()
