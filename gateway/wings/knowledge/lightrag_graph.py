"""The graph of LightRAG's contract: names, what stands beside them, and edits.

An entity is what documents name. What an edit states is therefore a document, which is found, cited
and deleted like others: `graph/NAME.md` for an entity, `graph/NAME -- NAME.md` for a relation.
Merges and new names are edges between names, which can be undone.
"""

import time
from collections.abc import Mapping, Sequence, Set
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from gateway.operations.problems import ProblemDetails, bad_request
from gateway.wings.http_tool_calls import structured_body
from gateway.wings.knowledge.lightrag_requests import (
    TOP,
    LightRagDeleteEntity,
    LightRagDeleteRelation,
    LightRagEntity,
    LightRagEntityEdit,
    LightRagInvalid,
    LightRagMerge,
    LightRagRelation,
    LightRagRelationData,
    LightRagRelationEdit,
    Workspace,
    Workspaces,
    lax,
)
from gateway.wings.knowledge.requests_and_views import (
    EntityView,
    MentionView,
    NameList,
    NamePairView,
    PathsFound,
    PathView,
)

SEPARATOR = "<SEP>"  # between the sources of an entity, as there
NODES = 1000  # of a graph, where a request says nothing else, as there
NO_CITATION = {"source_id": "", "file_path": ""}
EVERY = "*"  # the label of all names
EDGE = {"description": "", "keywords": ""}


class LightRagGraph:
    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces

    async def labels(self, request: Request) -> Response:
        limit = _number(request, "limit", TOP, TOP)
        names = await self._names(request, "", limit)
        return JSONResponse(sorted(names))

    async def popular(self, request: Request) -> Response:
        return JSONResponse(await self._names(request, "", _number(request, "limit", 300, TOP)))

    async def search(self, request: Request) -> Response:
        prefix = _query_parameter(request, "q")[:256]
        return JSONResponse(await self._names(request, prefix, _number(request, "limit", 50, 100)))

    async def _names(self, request: Request, prefix: str, limit: int) -> list[str]:
        workspace = await self._workspaces.of(request)
        arguments = {"collection": workspace.collection, "prefix": prefix, "limit": limit}
        return list(
            msgspec.json.decode(
                structured_body(await workspace.call("knowledge_names", arguments))
            )["items"]
        )

    async def exists(self, request: Request) -> Response:
        name = _query_parameter(request, "name")
        return JSONResponse({"exists": await self._find_entity(request, name) is not None})

    async def graph(self, request: Request) -> Response:
        """A name and what stands beside it."""
        label = _query_parameter(request, "label")
        most = min(_number(request, "max_nodes", NODES), TOP)
        _number(request, "max_depth", 3)
        if label == EVERY:
            return await self._whole(request, most)
        entity = await self._find_entity(request, label)
        if entity is None:
            return JSONResponse({"nodes": [], "edges": [], "is_truncated": False})
        near = entity.near[: most - 1]
        nodes = [
            _node(entity.name, entity.mentions),
            *(_node(neighbour.name) for neighbour in near),
        ]
        stated = {
            frozenset((relation.source, relation.target)): relation for relation in entity.relations
        }
        edges = []
        for neighbour in near:
            relation = stated.get(frozenset((entity.name, neighbour.name)))
            properties = EDGE if relation is None else {
                "description": relation.description, "keywords": relation.type
            }  # fmt: skip
            edges.append(
                {
                    "id": f"{entity.name}-{neighbour.name}",
                    "type": "DIRECTED",
                    "source": entity.name,
                    "target": neighbour.name,
                    "properties": {
                        **properties,
                        **NO_CITATION,
                        "weight": float(neighbour.passages),
                        "npmi": neighbour.npmi,
                    },
                }
            )
        cut = len(near) < len(entity.near)
        return JSONResponse({"nodes": nodes, "edges": edges, "is_truncated": cut})

    async def _whole(self, request: Request, most: int) -> Response:
        """The names that most passages mention, and which of them stand in the same ones."""
        workspace = await self._workspaces.of(request)
        arguments = {"collection": workspace.collection, "limit": min(most + 1, TOP), "pairs": True}
        result = await workspace.call("knowledge_names", arguments)
        page = msgspec.json.decode(structured_body(result), type=NameList)
        names = page.items[:most]
        edges = [_pair(pair) for pair in page.pairs if {pair.source, pair.target} <= set(names)]
        cut = len(page.items) > most or len(page.items) == TOP
        return JSONResponse(
            {"nodes": [_node(name) for name in names], "edges": edges, "is_truncated": cut}
        )

    async def create_entity(self, request: Request) -> Response:
        workspace, body = await self._workspaces.read(request, LightRagEntity)
        name, data = _line(body.entity_name), body.entity_data
        if await _entity(workspace, name) is not None:
            raise bad_request(f"Entity '{name}' already exists")
        entity = await self._state_entity(workspace, name, data.description, data.entity_type)
        return _success_response(f"Entity '{name}' created successfully", entity)

    async def edit_entity(self, request: Request) -> Response:
        workspace, body = await self._workspaces.read(request, LightRagEntityEdit)
        name, data = _line(body.entity_name), body.updated_data
        entity = await _entity(workspace, name)
        if entity is None:
            raise bad_request(f"Entity '{name}' does not exist")
        new = _line(data.entity_name or name)
        renamed = new != name
        if renamed and not body.allow_rename:
            raise bad_request("Entity renaming is not allowed. Set allow_rename to True to enable.")
        merged = renamed and await _entity(workspace, new) is not None
        if merged and not body.allow_merge:
            raise bad_request(f"Entity name '{new}' already exists, cannot rename.")
        stated_entity = await self._state_entity(workspace, new, data.description, data.entity_type)
        if renamed:
            await _merge(workspace, [name], new)
        summary = {
            "merged": merged,
            "merge_status": "success" if merged else "not_attempted",
            "merge_error": None,
            "operation_status": "success",
            "target_entity": new if merged else None,
            "final_entity": new,
            "renamed": renamed,
        }
        return _success_response(
            "Entity updated successfully", stated_entity, operation_summary=summary
        )

    async def create_relation(self, request: Request) -> Response:
        workspace, body = await self._workspaces.read(request, LightRagRelation)
        ends = _line(body.source_entity), _line(body.target_entity)
        for kind, name in zip(("Source", "Target"), ends, strict=True):
            if await _entity(workspace, name) is None:
                raise bad_request(f"{kind} entity '{name}' does not exist")
        relation = await self._state_relation(workspace, ends, body.relation_data)
        return _success_response(
            f"Relation created successfully between '{ends[0]}' and '{ends[1]}'", relation
        )

    async def edit_relation(self, request: Request) -> Response:
        workspace, body = await self._workspaces.read(request, LightRagRelationEdit)
        ends = _line(body.source_id), _line(body.target_id)
        if not await _direct(workspace, ends):
            raise bad_request(f"Relation from '{ends[0]}' to '{ends[1]}' does not exist")
        relation = await self._state_relation(workspace, ends, body.updated_data)
        return _success_response("Relation updated successfully", relation)

    async def merge(self, request: Request) -> Response:
        workspace, body = await self._workspaces.read(request, LightRagMerge)
        into = _line(body.entity_to_change_into)
        await _merge(workspace, body.entities_to_change, into)
        entity = await _entity(workspace, into)
        members = _describe_entity(into, () if entity is None else entity.mentions)
        data = {"entity_name": into, "source_id": members["source_id"], "graph_data": members}
        count = len(body.entities_to_change)
        return _success_response(f"Successfully merged {count} entities into '{into}'", data)

    async def delete_entity(self, request: Request) -> Response:
        """Delete a name with the documents that edits stated it in; other documents stay."""
        workspace, body = await self._workspaces.read(request, LightRagDeleteEntity)
        name = _line(body.entity_name)
        entity = await _entity(workspace, name)
        if entity is None:
            raise ProblemDetails(404, "not-found", f"Entity '{name}' not found.")
        ends = {f"graph/{name}.md", f"graph/{name} -- ", f" -- {name}.md"}
        await _delete_stated(workspace, entity.mentions, ends)
        await _delete_names(workspace, [name])
        text = f"Entity Delete: remove '{name}' and its {len(entity.near)} relations"
        return _deletion_response(text)

    async def delete_relation(self, request: Request) -> Response:
        workspace, body = await self._workspaces.read(request, LightRagDeleteRelation)
        ends = _line(body.source_entity), _line(body.target_entity)
        paths = await _direct(workspace, ends)
        if not paths:
            text = f"Relation from '{ends[0]}' to '{ends[1]}' does not exist"
            raise ProblemDetails(404, "not-found", text)
        stated = {f"graph/{ends[0]} -- {ends[1]}.md", f"graph/{ends[1]} -- {ends[0]}.md"}
        mentions = [mention for path in paths for hop in path.hops for mention in hop.evidence]
        await _delete_stated(workspace, mentions, stated)
        await _delete_names(workspace, ends, relations=True)
        text = f"Successfully deleted relation from '{ends[0]}' to '{ends[1]}'"
        return _deletion_response(text)

    async def _find_entity(self, request: Request, name: str) -> EntityView | None:
        if not name.strip():
            return None
        return await _entity(await self._workspaces.of(request), name)

    async def _state_entity(
        self, workspace: Workspace, name: str, description: str, type_: str
    ) -> dict[str, Any]:
        path = f"graph/{name}.md"
        await _state(workspace, path, f"# {name}\n\n{description.strip() or name}\n", type_)
        members = {"entity_id": name, "entity_type": type_, "description": description}
        return {
            "entity_name": name,
            "source_id": path,
            "graph_data": {**members, **_origin_members(path)},
        }

    async def _state_relation(
        self, workspace: Workspace, ends: tuple[str, str], data: LightRagRelationData
    ) -> dict[str, Any]:
        path, keywords = f"graph/{ends[0]} -- {ends[1]}.md", _line(data.keywords) or "related to"
        text = f"# {ends[0]}\n\n{ends[0]}, {keywords}: {ends[1]}.\n\n{data.description.strip()}\n"
        await _state(workspace, path, text, "relation")
        members = {
            "description": data.description, "keywords": data.keywords, "weight": data.weight
        }  # fmt: skip
        names = {"src_entity": ends[0], "tgt_entity": ends[1], "source_id": path}
        return {**names, "graph_data": {**members, **_origin_members(path)}}


async def _state(workspace: Workspace, path: str, text: str, type_: str) -> None:
    arguments: dict[str, Any] = {"path": path, "text": text, "replace": True}
    metadata = {"entity_type": type_} if type_ else {}
    await workspace.call(
        "knowledge_add", {"collection": workspace.collection, "metadata": metadata, **arguments}
    )


async def _direct(workspace: Workspace, ends: tuple[str, str]) -> Sequence[PathView]:
    """Passages that mention both names."""
    body = {"from": ends[0], "to": ends[1], "collections": [workspace.collection], "limit": 20}
    result = await workspace.call("knowledge_path", body)
    paths = msgspec.json.decode(structured_body(result), type=PathsFound)
    return [path for path in paths.paths if len(path.hops) == 1]


async def _delete_stated(
    workspace: Workspace, mentions: Sequence[MentionView], paths: Set[str]
) -> None:
    """Delete documents of edits whose paths are, begin or end with one of `paths`."""
    documents = {
        mention.document
        for mention in mentions
        if mention.path.startswith("graph/")
        and any(mention.path.startswith(part) or mention.path.endswith(part) for part in paths)
    }
    if documents:
        arguments = {"collection": workspace.collection, "documents": sorted(documents)}
        await workspace.call("knowledge_delete", arguments)


async def _delete_names(
    workspace: Workspace, names: Sequence[str], *, relations: bool = False
) -> None:
    arguments = {"collection": workspace.collection, "names": list(names), "relations": relations}
    await workspace.call("knowledge_delete_names", arguments)


async def _merge(workspace: Workspace, names: Sequence[str], into: str) -> None:
    arguments = {"collection": workspace.collection, "names": list(names), "into": into}
    await workspace.call("knowledge_merge", arguments)


async def _entity(workspace: Workspace, name: str) -> EntityView | None:
    arguments = {"name": name, "collections": [workspace.collection], "limit": 100}
    try:
        result = await workspace.call("knowledge_entity", arguments)
    except ProblemDetails as problem:
        if problem.status != 404:
            raise
        return None
    return msgspec.json.decode(structured_body(result), type=EntityView)


def _deletion_response(message: str) -> Response:
    members = {"status": "success", "doc_id": "", "message": message, "status_code": 200}
    return JSONResponse({**members, "file_path": None})


def _pair(pair: NamePairView) -> dict[str, Any]:
    members = {"description": pair.description, "keywords": pair.type}
    return {
        "id": f"{pair.source}-{pair.target}",
        "type": "DIRECTED",
        "source": pair.source,
        "target": pair.target,
        "properties": {**members, **NO_CITATION, "weight": float(pair.passages)},
    }


def _line(text: str) -> str:
    return " ".join(text.split())


def _origin_members(path: str) -> dict[str, Any]:
    return {"source_id": path, "file_path": path, "created_at": int(time.time())}


def _node(name: str, mentions: Sequence[MentionView] = ()) -> dict[str, Any]:
    return {"id": name, "labels": [name], "properties": _describe_entity(name, mentions)}


def _describe_entity(name: str, mentions: Sequence[MentionView]) -> dict[str, Any]:
    by_model = [mention for mention in mentions if mention.method == "llm"]
    type_ = by_model[0].type if by_model else mentions[0].type if mentions else ""
    paths = SEPARATOR.join(dict.fromkeys(mention.path for mention in mentions))
    members = {"entity_id": name, "entity_type": type_, "description": ""}
    return {**members, "source_id": paths, "file_path": paths}


def _success_response(message: str, data: Mapping[str, Any], **more: Any) -> Response:
    return JSONResponse({"status": "success", "message": message, "data": data, **more})


def _query_parameter(request: Request, name: str) -> str:
    """A parameter of the query. Raises LightRagInvalid."""
    value = request.query_params.get(name)
    if value is None:
        raise LightRagInvalid("missing", ("query", name), "Field required")
    return value[:256]


def _number(request: Request, name: str, default: int, most: int | None = None) -> int:
    """Raises LightRagInvalid."""
    text = request.query_params.get(name, str(default))
    number, place = lax(text, int), ("query", name)
    if not isinstance(number, int):
        message = "Input should be a valid integer, unable to parse string as an integer"
        raise LightRagInvalid("int_parsing", place, message, value=text[:100])
    if number < 1:
        message = "Input should be greater than or equal to 1"
        context = {"ge": 1}
        raise LightRagInvalid("greater_than_equal", place, message, value=text, context=context)
    if most is not None and number > most:
        message = f"Input should be less than or equal to {most}"
        context = {"le": most}
        raise LightRagInvalid("less_than_equal", place, message, value=text, context=context)
    return number
