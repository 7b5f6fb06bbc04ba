"""The dashboard and the alert rules name what a gateway has."""

import re
from collections.abc import Iterator, Mapping
from types import ModuleType

import pytest
from msgspec.structs import replace

from gateway.app.gateway import Gateway
from tests.documentation.pages import ROOT, program
from tests.fixtures_gateway import wordless

LISTS = "describes the catalog, which only imports change"
OFF_THE_BOARD = {
    f"toolgate_list_{one}": LISTS for one in ("left_out", "level", "shortened", "tokens")
}
HISTOGRAM = ("_bucket", "_sum", "_count")
SUFFIXES = {"counter": ("_total",), "histogram": HISTOGRAM, "gauge": ("",)}
OF_PROMETHEUS = {"job", "instance", "le", "worker"}
NAME = re.compile(r"\btoolgate_[a-z_]+")
LABELS = re.compile(r"by \(([a-z_, ]+)\)|\{([^}]*)\}")


@pytest.fixture(scope="module")
def boards() -> ModuleType:
    return program("boards")


@pytest.fixture(scope="module")
def metrics() -> Mapping[str, set[str]]:
    """The labels of each metric that the code makes, wings included, by its name in queries."""
    found = {}
    for name, (kind, labels, _) in program("reference").families().items():
        for suffix in HISTOGRAM if kind == "histogram" else ("",):
            found[name + suffix] = set(re.findall("`([a-z_]+)`", labels))
    return found


def queries(boards: ModuleType) -> Iterator[str]:
    for panels in boards.ROWS.values():
        for panel in panels:
            yield from map(boards.expression, panel.queries.values())
    yield from (rule.query for rule in boards.RULES)


def labels(query: str) -> set[str]:
    found = set()
    for grouped, selected in LABELS.findall(query):
        found |= {name.strip() for name in grouped.split(",") if name.strip()}
        found |= set(re.findall(r"([a-z_]+)(?:=|!=|=~|!~)\"", selected))
    return found


def test_every_query_names_metrics_and_labels_that_exist(
    boards: ModuleType, metrics: Mapping[str, set[str]]
) -> None:
    for query in queries(boards):
        names = NAME.findall(query)
        assert names, query
        for name in names:
            assert name in metrics, query
            assert labels(query) <= metrics[name] | OF_PROMETHEUS, query


def test_metrics_of_a_gateway_match_the_code(metrics: Mapping[str, set[str]]) -> None:
    """With their labels; the source text alone might tell others."""
    settings = wordless()
    settings = replace(
        settings,
        audit=replace(settings.audit, mode="always"),
        tracing=replace(settings.tracing, enabled=True),
        metrics=replace(settings.metrics, tools=200),
        agent=replace(settings.agent, enabled=True),
    )
    for family in Gateway(settings).metrics.registry.collect():
        labels = set(getattr(family, "_labelnames", ()))
        labels |= {name for sample in family.samples for name in sample.labels}
        for suffix in SUFFIXES[family.type]:
            assert labels <= metrics[family.name + suffix] | OF_PROMETHEUS, family.name


def test_every_metric_is_on_the_board_or_has_a_reason_not_to_be(
    boards: ModuleType, metrics: Mapping[str, set[str]]
) -> None:
    shown = {
        re.sub("_(sum|count)$", "_bucket", name)
        for query in queries(boards)
        for name in NAME.findall(query)
    }
    every = {re.sub("_(sum|count)$", "_bucket", name) for name in metrics}
    assert every - shown == OFF_THE_BOARD.keys()


def test_the_files_match_the_tables(boards: ModuleType) -> None:
    for file, text in boards.texts().items():
        assert file.read_text() == text, f"run `make boards`: {file.relative_to(ROOT)}"
