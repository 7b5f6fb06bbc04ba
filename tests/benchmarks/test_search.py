"""What the benchmarks of the search are made of; without measuring."""

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from benchmarks.catalog import asked, catalog
from benchmarks.large import World
from benchmarks.search import SearchMeasurements, p95, rows
from benchmarks.table import Target, missed
from registry.search import SearchResult


def test_made_tools_and_requests_are_the_same_each_time() -> None:
    tools, requests = catalog(None, 300), asked(None, 50)
    assert catalog(None, 300) == tools
    assert asked(None, 50) == requests
    assert len({tool.id for tool in tools}) == len({tool.name for tool in tools}) == 300
    assert len(set(requests)) == 50


def test_made_tools_are_different_and_of_the_words_of_the_sets(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    folder.mkdir()
    said = [f"{verb}s a {verb + thing} of the {thing}" for verb in "abcdef" for thing in "ghijk"]
    lines = [
        json.dumps({"name": f"get_{n}_list", "description": one}) for n, one in enumerate(said)
    ]
    (folder / "tools.jsonl").write_text("\n".join(lines))
    made = [tool for tool in catalog(tmp_path, 60) if tool.id.startswith("made:")]
    assert len(made) == 60 - len(said)
    words = {word for text in said for word in text.split()}
    assert {word for tool in made for word in tool.description.split()} <= words
    assert not {tool.description for tool in made} & set(said)
    assert len({(tool.name, tool.description) for tool in made}) == len(made)


def test_tools_of_sets_come_first_and_keep_apart(tmp_path: Path) -> None:
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        tool = {"id": "same", "name": "same", "description": f"Of {name}."}
        (folder / "tools.jsonl").write_text(json.dumps(tool))
        (folder / "queries.jsonl").write_text(json.dumps({"query": name, "gold": ["same"]}))
    tools = catalog(tmp_path, 5)
    assert sorted((tool.server, tool.description) for tool in tools[:2]) == [
        ("one", "Of one."),
        ("two", "Of two."),
    ]
    assert len({tool.id for tool in tools}) == 5
    assert sorted(asked(tmp_path, 3)[:2]) == ["one", "two"]


def test_made_up_vectors_are_the_same_each_time_and_lie_in_clusters() -> None:
    world = World(3000)
    vectors = np.vstack(list(world.blocks()))
    assert np.array_equal(vectors, np.vstack(list(World(3000).blocks())))
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    cosines = np.sort(world.queries(20) @ vectors.T, axis=1)
    assert cosines[:, -1].mean() > 0.7
    assert cosines.mean() < 0.3


def test_the_bound_of_a_call_is_made_of_the_median_of_one_encoding() -> None:
    found = SearchMeasurements(
        inside=[(10.0, SearchResult(path="hnsw"))] * 3,
        recall=100.0,
        loaded_s=1.0,
        calls_ms=[9.0] * 19 + [16.0],
        encodings_ms=[4.0, 5.0, 90.0],
    )
    row = next(row for row in rows(found, 600) if row.scenario == "search_tools, p95")
    assert row.targets == (Target("value", 15.5),)
    assert not missed(msgspec.structs.replace(row, value=15.4))
    assert missed(msgspec.structs.replace(row, value=15.6))


def test_the_95th_percentile() -> None:
    assert p95([float(n) for n in range(1, 101)]) == pytest.approx(95.95)
