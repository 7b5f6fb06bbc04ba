"""The nine tools of the reference memory server (M33, M38): what it answered to the same calls."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import convert
from msgspec.json import encode

from gateway.wings.memory.dialects.mcp_graph import (
    Contents,
    Entity,
    GraphChange,
    GraphTools,
    KnowledgeGraph,
    NewEntities,
    NewObservations,
    NewRelations,
    NodeQuery,
    Relation,
    UnknownEntity,
    text_of,
)

pytestmark = pytest.mark.anyio

RECORDED = [
    json.loads(line)
    for line in Path(__file__).with_name("reference_server.jsonl").read_text().splitlines()
]
ANN = Entity("Ann", "person", ("likes tea",))
BO = Entity("Bo", "person", ())
KNOWS = Relation("Ann", "Bo", "knows")


class OneGraph:
    """A graph in memory. Implements `GraphStore`."""

    def __init__(self) -> None:
        self.graph = KnowledgeGraph()

    async def read(self) -> KnowledgeGraph:
        return self.graph

    async def change(self, decide: Callable[[KnowledgeGraph], GraphChange]) -> GraphChange:
        change = decide(self.graph)
        gone, lost = set(change.gone_entities), set(change.gone_observations)
        entities = [one for one in self.graph.entities if one.name not in gone]
        self.graph = KnowledgeGraph(
            tuple(_with(one, change, lost) for one in (*entities, *change.entities)),
            tuple(
                one
                for one in (*self.graph.relations, *change.relations)
                if one not in set(change.gone_relations)
            ),
        )
        return change

    async def rank_names(self, query: str) -> Sequence[str]:
        return ["Bo", "Nobody"] if query == "tea" else []


def _with(entity: Entity, change: GraphChange, lost: set[tuple[str, str]]) -> Entity:
    added = [text for name, text in change.observations if name == entity.name]
    left = [text for text in entity.observations if (entity.name, text) not in lost]
    return Entity(entity.name, entity.entity_type, (*left, *added))


@pytest.fixture
def tools() -> GraphTools:
    return GraphTools(OneGraph())


async def call_graph(tools: GraphTools, name: str, arguments: Any) -> dict[str, Any]:
    """The result of a tool."""
    method = getattr(tools, name)
    types = [one for key, one in method.__annotations__.items() if key != "return"]
    try:
        answer = await method(*(convert(arguments, one) for one in types))
    except UnknownEntity as error:
        return {"text": str(error), "is_error": True}
    return {"text": text_of(answer), "structured": json.loads(encode(answer))}


async def test_the_server_answered_the_same(tools: GraphTools) -> None:
    for call in RECORDED[1:]:
        answer = await call_graph(tools, call["name"], call["arguments"])
        assert {**call, **answer} == call


async def test_duplicates_within_a_call_are_stored_once(tools: GraphTools) -> None:
    robot = Entity("Ann", "robot", ("beeps", "beeps"))
    made = await tools.create_entities(NewEntities((robot, ANN, BO)))
    assert made == NewEntities((Entity("Ann", "robot", ("beeps",)), BO))
    assert await tools.create_relations(NewRelations((KNOWS, KNOWS))) == NewRelations((KNOWS,))
    added = await tools.add_observations(
        NewObservations((Contents("Bo", ("x", "x")), Contents("Bo", ("x", "y"))))
    )
    assert [one.added_observations for one in added.results] == [("x",), ("y",)]


async def test_ranked_entities_follow_literal_matches(tools: GraphTools) -> None:
    await tools.create_entities(NewEntities((BO, ANN)))
    await tools.create_relations(NewRelations((KNOWS,)))
    assert await tools.search_nodes(NodeQuery("tea")) == KnowledgeGraph((ANN, BO), (KNOWS,))


async def test_nothing_of_a_failed_call_is_stored(tools: GraphTools) -> None:
    await tools.create_entities(NewEntities((ANN,)))
    observed = NewObservations((Contents("Ann", ("new",)), Contents("Bo", ("x",))))
    with pytest.raises(UnknownEntity, match="Entity with name Bo not found"):
        await tools.add_observations(observed)
    assert (await tools.read_graph()).entities == (ANN,)
