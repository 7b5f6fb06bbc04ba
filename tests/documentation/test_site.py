"""The site of the documentation: its order has every page, and no link leaves it."""

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.documentation.pages import ROOT

DOCS = ROOT / "docs"


def named(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        for value in entry.values():
            yield from named(value) if isinstance(value, list) else [value]


def test_the_order_has_every_page_once() -> None:
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    pages = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
    assert sorted(named(site["nav"])) == pages


def test_links_that_leave_the_documentation_become_text() -> None:
    spec = importlib.util.spec_from_file_location("site_of_docs", ROOT / ".ci" / "site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = (
        "[a](../examples/a) [b](cli.md#x) [c](https://c.example/) [d](../README.md#speed) [e](#e)"
    )
    kept = "a [b](cli.md#x) [c](https://c.example/) d [e](#e)"
    assert module.within(text, DOCS) == kept


@pytest.mark.skipif(shutil.which("zensical") is None, reason="zensical is not installed")
def test_the_site_is_built_without_warnings() -> None:
    done = subprocess.run([sys.executable, ROOT / ".ci" / "site.py"], capture_output=True)
    assert done.returncode == 0, done.stdout.decode()
