"""The generated pages of the reference are what the code has."""

from pathlib import Path
from types import ModuleType

import pytest
from msgspec.structs import replace

from gateway.app.gateway import Gateway
from tests.documentation.pages import ROOT, program
from tests.fixtures_gateway import wordless

pytestmark = pytest.mark.timeout(600)
PAGES = sorted((ROOT / "docs" / "reference").glob("*.md"))


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    return program("reference")


@pytest.fixture(scope="module")
def texts(reference: ModuleType) -> dict[Path, str]:
    return reference.texts()  # type: ignore[no-any-return]


def test_every_page_of_the_reference_is_generated(texts: dict[Path, str]) -> None:
    assert sorted(texts) == PAGES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_current(page: Path, texts: dict[Path, str]) -> None:
    assert page.read_text() == texts[page], f"run `make reference`: {page.name} is outdated"


def test_the_page_of_metrics_has_all_of_a_gateway(reference: ModuleType) -> None:
    """It is read from the source text, in which a metric could be written some other way."""
    settings = wordless()
    settings = replace(
        settings,
        audit=replace(settings.audit, mode="always"),
        tracing=replace(settings.tracing, enabled=True),
        metrics=replace(settings.metrics, tools=200),
    )
    text = reference.metrics()
    for family in Gateway(settings).metrics.registry.collect():
        name = family.name + ("_total" if family.type == "counter" else "")
        assert f"| `{name}` | {family.type} |" in text
