"""The nine tools of MCP's reference memory server, over the graph of one owner.

Names, arguments, texts and structured content are those of the server. Deviations: what one call
names twice is stored once; entities and relations that only `search_nodes` ranks follow those that
contain its query; and calls are transactions.
"""

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

import msgspec
from msgspec import Meta, Struct

from schemas.errors import ToolgateError

NAME_BYTES = 1024  # of an entity, a type or a relation: they are keys of indexes


class UnknownEntity(ToolgateError):
    """An observation is of an entity that is not there. Its text is that of the server."""


Name = Annotated[str, Meta(min_length=1, max_length=NAME_BYTES // 4)]


class Entity(Struct, frozen=True, rename="camel"):
    name: Annotated[Name, Meta(description="The name of the entity")]
    entity_type: Annotated[Name, Meta(description="The type of the entity")]
    observations: Annotated[
        tuple[str, ...], Meta(description="What has been observed of the entity")
    ]


class Relation(Struct, frozen=True, rename={"from_": "from", "relation_type": "relationType"}):
    from_: Annotated[Name, Meta(description="The name of the entity where the relation starts")]
    to: Annotated[Name, Meta(description="The name of the entity where the relation ends")]
    relation_type: Annotated[Name, Meta(description="The type of the relation")]


class KnowledgeGraph(Struct, frozen=True):
    """Entities and relations in the order in which they were created."""

    entities: tuple[Entity, ...] = ()
    relations: tuple[Relation, ...] = ()


class NewEntities(Struct, frozen=True):
    entities: tuple[Entity, ...]


class NewRelations(Struct, frozen=True):
    relations: tuple[Relation, ...]


class Contents(Struct, frozen=True, rename="camel"):
    entity_name: Annotated[str, Meta(description="The name of the entity to add to")]
    contents: Annotated[tuple[str, ...], Meta(description="The observations to add")]


class NewObservations(Struct, frozen=True):
    observations: tuple[Contents, ...]


class AddedContents(Struct, frozen=True, rename="camel"):
    entity_name: str
    added_observations: tuple[str, ...]


class Added(Struct, frozen=True):
    results: tuple[AddedContents, ...]


class EntityNames(Struct, frozen=True, rename="camel"):
    entity_names: Annotated[tuple[str, ...], Meta(description="Names of entities to delete")]


class OldObservations(Struct, frozen=True, rename="camel"):
    entity_name: Annotated[str, Meta(description="The name of the entity that has them")]
    observations: Annotated[tuple[str, ...], Meta(description="The observations to delete")]


class Deletions(Struct, frozen=True):
    deletions: tuple[OldObservations, ...]


class Deleted(Struct, frozen=True):
    success: bool
    message: str


class NodeQuery(Struct, frozen=True):
    query: Annotated[
        str, Meta(description="What to look for in names, types and observations of entities")
    ]


class NodeNames(Struct, frozen=True):
    names: Annotated[tuple[str, ...], Meta(description="Names of the entities to show")]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphChange:
    """Additions to a graph and removals from it; observations with the names of their
    entities."""

    entities: Sequence[Entity] = ()
    relations: Sequence[Relation] = ()
    observations: Sequence[tuple[str, str]] = ()
    gone_entities: Sequence[str] = ()  # with their observations
    gone_relations: Sequence[Relation] = ()
    gone_observations: Sequence[tuple[str, str]] = ()


class GraphStore(Protocol):
    """The graph of one owner."""

    async def read(self) -> KnowledgeGraph: ...

    async def change(self, decide: Callable[[KnowledgeGraph], GraphChange]) -> GraphChange:
        """Read the graph and change it as decided, in one transaction, one after the other; the
        change without observations that were there in another spelling."""

    async def rank_names(self, query: str) -> Sequence[str]:
        """Names of entities whose observations match by words and meaning, best first."""


class GraphTools:
    """The tools over one graph. Each method is a tool."""

    def __init__(self, store: GraphStore) -> None:
        self._store = store

    async def create_entities(self, request: NewEntities) -> NewEntities:
        def decide(graph: KnowledgeGraph) -> GraphChange:
            names = {entity.name for entity in graph.entities}
            new = {
                entity.name: entity
                for entity in reversed(request.entities)
                if entity.name not in names
            }
            entities = [
                msgspec.structs.replace(
                    entity, observations=tuple(dict.fromkeys(entity.observations))
                )
                for entity in request.entities
                if new.get(entity.name) is entity
            ]
            return GraphChange(entities=entities)

        change = await self._store.change(decide)
        return NewEntities(tuple(change.entities))

    async def create_relations(self, request: NewRelations) -> NewRelations:
        def decide(graph: KnowledgeGraph) -> GraphChange:
            relations = set(graph.relations)
            new = [
                relation
                for relation in dict.fromkeys(request.relations)
                if relation not in relations
            ]
            return GraphChange(relations=new)

        change = await self._store.change(decide)
        return NewRelations(tuple(change.relations))

    async def add_observations(self, request: NewObservations) -> Added:
        """Raises UnknownEntity: then nothing is added."""
        asked_for: list[AddedContents] = []

        def decide(graph: KnowledgeGraph) -> GraphChange:
            observations = {
                entity.name: dict.fromkeys(entity.observations) for entity in graph.entities
            }
            asked_for.clear()
            for addition in request.observations:
                if addition.entity_name not in observations:
                    raise UnknownEntity(f"Entity with name {addition.entity_name} not found")
                present = observations[addition.entity_name]
                new = tuple(
                    text for text in dict.fromkeys(addition.contents) if text not in present
                )
                present.update(dict.fromkeys(new))
                asked_for.append(AddedContents(addition.entity_name, new))
            return GraphChange(
                observations=[
                    (addition.entity_name, text)
                    for addition in asked_for
                    for text in addition.added_observations
                ]
            )

        added = set((await self._store.change(decide)).observations)
        return Added(
            tuple(
                AddedContents(
                    addition.entity_name,
                    tuple(
                        text
                        for text in addition.added_observations
                        if (addition.entity_name, text) in added
                    ),
                )
                for addition in asked_for
            )
        )

    async def delete_entities(self, request: EntityNames) -> Deleted:
        gone = frozenset(request.entity_names)

        def decide(graph: KnowledgeGraph) -> GraphChange:
            names = [entity.name for entity in graph.entities if entity.name in gone]
            return GraphChange(gone_entities=names, gone_relations=_touching(graph, gone))

        await self._store.change(decide)
        return Deleted(True, "Entities deleted successfully")

    async def delete_observations(self, request: Deletions) -> Deleted:
        pairs = [
            (deletion.entity_name, text)
            for deletion in request.deletions
            for text in deletion.observations
        ]

        def decide(graph: KnowledgeGraph) -> GraphChange:
            present = {(pair.name, text) for pair in graph.entities for text in pair.observations}
            return GraphChange(gone_observations=[pair for pair in pairs if pair in present])

        await self._store.change(decide)
        return Deleted(True, "Observations deleted successfully")

    async def delete_relations(self, request: NewRelations) -> Deleted:
        def decide(graph: KnowledgeGraph) -> GraphChange:
            relations = set(request.relations)
            return GraphChange(
                gone_relations=[relation for relation in graph.relations if relation in relations]
            )

        await self._store.change(decide)
        return Deleted(True, "Relations deleted successfully")

    async def read_graph(self) -> KnowledgeGraph:
        return await self._store.read()

    async def search_nodes(self, request: NodeQuery) -> KnowledgeGraph:
        graph = await self._store.read()
        names = dict.fromkeys(
            entity.name for entity in graph.entities if _has(entity, request.query.lower())
        )
        names.update(dict.fromkeys(await self._store.rank_names(request.query)))
        return _part(graph, names)

    async def open_nodes(self, request: NodeNames) -> KnowledgeGraph:
        graph = await self._store.read()
        names = frozenset(request.names)
        return _part(graph, [entity.name for entity in graph.entities if entity.name in names])


def size_of(graph: KnowledgeGraph) -> int:
    """Bytes of the texts in a graph."""
    texts = [
        text for relation in graph.entities for text in (relation.name, *relation.observations)
    ]
    texts += [
        text
        for relation in graph.relations
        for text in (relation.from_, relation.to, relation.relation_type)
    ]
    return sum(len(text.encode()) for text in texts)


def indent_result(value: Any) -> str:
    """The text of a result: as JSON.stringify(value, null, 2) has it."""
    return json.dumps(msgspec.to_builtins(value), indent=2, ensure_ascii=False)


def text_of(answer: Struct) -> str:
    """The text beside the structured content `answer`: lists without the member that holds them,
    messages by themselves."""
    if isinstance(answer, Deleted):
        return answer.message
    if isinstance(answer, KnowledgeGraph):
        return indent_result(answer)
    [member] = answer.__struct_fields__
    return indent_result(getattr(answer, member))


def _part(graph: KnowledgeGraph, names: Collection[str]) -> KnowledgeGraph:
    """These entities in this order, and the relations with one of them at either end."""
    by_name = {entity.name: entity for entity in graph.entities}
    entities = tuple(by_name[name] for name in names if name in by_name)
    return KnowledgeGraph(entities, tuple(_touching(graph, by_name.keys() & set(names))))


def _touching(graph: KnowledgeGraph, names: Collection[str]) -> list[Relation]:
    return [
        relation for relation in graph.relations if relation.from_ in names or relation.to in names
    ]


def _has(entity: Entity, query: str) -> bool:
    texts: Iterable[str] = (entity.name, entity.entity_type, *entity.observations)
    return any(query in text.lower() for text in texts)
