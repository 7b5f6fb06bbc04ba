import json
import random
from collections import Counter

import numpy as np

from benchmarks.training.data import Pair, api_pairs, grouped, mixed, set_pairs
from benchmarks.training.sets import ToolSet, TrainingQuery, TrainingTool


def tool(name, description="Does it."):
    return TrainingTool(name, name, description, "", (), (), ())


def same_vectors(texts):
    return np.ones((len(texts), 2), np.float32) / 2**0.5


def test_no_pair_comes_from_the_test_split():
    tools = tuple(tool(str(number)) for number in range(60))
    queries = tuple(TrainingQuery(f"q{n}", f"ask {n}", (str(n % 60),)) for n in range(300))
    one = ToolSet("set", tools, queries)
    asked = {pair.query for pair in set_pairs(one, same_vectors, seed=1)}
    held_out = {query.text for query in queries if one.held_out(query)}
    assert asked
    assert not asked & held_out


def test_a_pair_knows_every_tool_that_answers_its_query():
    queries = tuple(TrainingQuery(str(n), "Do a now. Do b now.", ("a", "b")) for n in range(9))
    pairs = set_pairs(ToolSet("two", (tool("a"), tool("b")), queries), same_vectors, seed=1)
    assert {pair.query for pair in pairs} == {"Do a now. Do b now.", "Do a now.", "Do b now."}
    assert all(pair.also == {"two a", "two b"} for pair in pairs)


def test_requests_are_made_from_the_summaries_of_an_api(tmp_path):
    document = {
        "info": {"title": "Shop"},
        "paths": {
            "/orders": {
                "parameters": [],
                "get": {"operationId": "listOrders", "summary": "Lists all orders."},
                "post": {"operationId": "untold"},
            }
        },
    }
    path = tmp_path / "shop.json"
    path.write_text(json.dumps(document))
    (pair,) = api_pairs(path, seed=1)
    assert "list all orders" in pair.query
    assert (pair.tool.name, pair.tool.source) == ("listOrders", "Shop")


def test_a_group_holds_near_tools_and_each_once():
    angles = np.linspace(0, 3, 64)
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    pairs = [Pair("?", tool(str(n)), frozenset((str(n),)), "set") for n in range(64)] * 2
    groups = grouped(pairs, np.concatenate([vectors, vectors]), 8, random.Random(1))
    assert sorted(one for group in groups for one in group) == list(range(128))
    for group in groups:
        places = [one % 64 for one in group]
        assert len(set(places)) == len(places) == 8
        assert max(places) - min(places) == 7


def test_pools_are_mixed_by_their_shares_and_small_pools_repeat():
    def pairs(name, count):
        return [Pair(f"{name} {n}", tool(name), frozenset(), name) for n in range(count)]

    pools = {"many": pairs("many", 50), "few": pairs("few", 4), "none": [], "unused": pairs("u", 9)}
    shares = {"many": 0.5, "few": 0.5, "none": 0.1}
    found = mixed(pools, shares, 20, 7)
    assert found == mixed(pools, shares, 20, 7)
    asked = Counter(one.query for one in found)
    assert Counter(one.group for one in found) == {"many": 10, "few": 10}
    assert {asked[f"few {n}"] for n in range(4)} == {2, 3}
    assert max(count for query, count in asked.items() if query.startswith("many")) == 1
