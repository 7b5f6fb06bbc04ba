"""The dashboard and the alert rules name what a gateway has."""

import re
from collections.abc import Iterator, Mapping
from types import ModuleType

import pytest
from msgspec.structs import replace

from gateway.app import Gateway
from tests.documentation.pages import ROOT, program
from tests.fixtures_gateway import wordless

SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}
OF_PROMETHEUS = {"job", "instance", "le", "worker"}
NAME = re.compile(r"\btoolgate_[a-z_]+")
LABELS = re.compile(r"by \(([a-z_, ]+)\)|\{([^}]*)\}")


@pytest.fixture(scope="module")
def boards() -> ModuleType:
    return program("boards")


@pytest.fixture(scope="module")
def metrics() -> Mapping[str, set[str]]:
    """The labels of each metric of a gateway that has all of them, by its name in queries."""
    settings = wordless()
    settings = replace(
        settings,
        audit=replace(settings.audit, mode="always"),
        tracing=replace(settings.tracing, enabled=True),
        metrics=replace(settings.metrics, tools=200),
        agent=replace(settings.agent, enabled=True),
    )
    found = {}
    for family in Gateway(settings).metrics.registry.collect():
        labels = set(getattr(family, "_labelnames", ()))
        labels |= {name for sample in family.samples for name in sample.labels}
        for suffix in SUFFIXES[family.type]:
            found[family.name + suffix] = labels
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


def test_every_metric_of_requests_and_services_is_on_the_board(
    boards: ModuleType, metrics: Mapping[str, set[str]]
) -> None:
    """But those of the lists, which describe the catalog."""
    shown = {name for query in queries(boards) for name in NAME.findall(query)}
    hidden = {
        re.sub("_(bucket|sum|count)$", "_bucket", name)
        for name in metrics
        if not name.startswith("toolgate_list_")
    } - shown
    assert hidden <= {"toolgate_mcp_sessions", "toolgate_audit_spool_bytes"}


def test_the_files_are_as_the_tables_have_them(boards: ModuleType) -> None:
    for file, text in boards.texts().items():
        assert file.read_text() == text, f"run `make boards`: {file.relative_to(ROOT)}"
