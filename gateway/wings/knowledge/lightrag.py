"""LightRAG's REST contract on collections: clients of its server change their base URL and key.

Requests are calls of the wing's operations, so that policy, limits and audit hold. Fields that are
not known are ignored, and errors are `{"detail": ...}`, as there. Deviations are listed in
docs/knowledge.md.
"""

import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from config.knowledge import KnowledgeSettings
from gateway.operations.operation import ProblemDetails
from gateway.wings.knowledge.calls import ToolCalls, structured, text_of
from gateway.wings.knowledge.requests import (
    DocumentAdded,
    DocumentList,
    DocumentView,
    EntityView,
    KnowledgeFound,
    NameView,
)
from schemas.errors import Fault

PATH = "/lightrag"
ROOT = PATH + "/{collection}"
TOP = 1000  # most that `top_k` may ask for
ENTITIES = 60  # of one answer
DOCUMENTS = 20_000  # that pages of a collection are made of
STATUSES = ("pending", "parsing", "analyzing", "preprocessed", "processing", "processed", "failed")
PIPELINE = {
    "autoscanned": False,
    "busy": False,
    "job_name": "",
    "job_start": None,
    "docs": 0,
    "batchs": 0,
    "cur_batch": 0,
    "request_pending": False,
    "latest_message": "",
    "history_messages": [],
}  # texts are stored when their request is answered
SEPARATOR = "<SEP>"  # between the sources of an entity, as there
Top = Annotated[int, Meta(ge=1, le=TOP)]
Tokens = Annotated[int, Meta(ge=1)]


_FIELD = re.compile(r"required field `(\w+)`|at `\$\.(\w+)")  # in an error of msgspec


class LightRagQuery(Struct, frozen=True):
    query: Annotated[str, Meta(max_length=65_536)]
    mode: Literal["local", "global", "hybrid", "naive", "mix", "bypass"] = "mix"
    top_k: Top | None = None
    chunk_top_k: Top | None = None
    max_total_tokens: Tokens | None = None
    ids: list[str] | None = None  # older versions had it
    include_references: bool | None = True
    include_chunk_content: bool | None = False
    include_progress: bool | None = False
    only_need_prompt: bool | None = None


class LightRagText(Struct, frozen=True):
    text: str
    file_source: str | None = None


class LightRagTexts(Struct, frozen=True):
    texts: Annotated[list[str], Meta(min_length=1, max_length=1000)]
    file_sources: list[str] | None = None


class LightRagPage(Struct, frozen=True):
    page: Annotated[int, Meta(ge=1, le=1_000_000)] = 1
    page_size: Annotated[int, Meta(ge=10, le=200)] = 50
    status_filter: str | None = None
    status_filters: list[str] | None = None
    sort_field: Literal["created_at", "updated_at", "id", "file_path"] = "updated_at"
    sort_direction: Literal["asc", "desc"] = "desc"


class LightRagDelete(Struct, frozen=True):
    doc_ids: Annotated[list[str], Meta(min_length=1, max_length=1000)]


_SORTED: Mapping[str, Callable[[DocumentView], Any]] = {
    "created_at": lambda one: (one.created, one.document),
    "updated_at": lambda one: (one.changed, one.document),
    "id": lambda one: one.document,
    "file_path": lambda one: one.path,
}


class LightRag:
    def __init__(self, calls: ToolCalls, settings: KnowledgeSettings) -> None:
        self._calls = calls
        self._settings = settings

    @property
    def app(self) -> Starlette:
        documents = ROOT + "/documents"
        routes = [
            (ROOT + "/health", self.health, "GET"),
            (ROOT + "/query", self.query, "POST"),
            (ROOT + "/query/stream", self.stream, "POST"),
            (ROOT + "/query/data", self.data, "POST"),
            (documents + "/text", self.text, "POST"),
            (documents + "/texts", self.texts, "POST"),
            (documents + "/track_status/{track_id}", self.track_status, "GET"),
            (documents + "/status_counts", self.status_counts, "GET"),
            (documents + "/pipeline_status", self.pipeline_status, "GET"),
            (documents + "/paginated", self.paginated, "POST"),
            (documents + "/delete_document", self.delete, "DELETE"),
            (ROOT + "/graph/label/list", self.labels, "GET"),
            (ROOT + "/graph/label/popular", self.labels, "GET"),
            (ROOT + "/graph/label/search", self.labels, "GET"),
            (ROOT + "/graph/entity/exists", self.exists, "GET"),
            (ROOT + "/graphs", self.graph, "GET"),
        ]
        return Starlette(
            routes=[Route(path, serve, methods=[method]) for path, serve, method in routes],
            exception_handlers={ProblemDetails: _failed, Fault: _failed},
        )

    async def health(self, _request: Request) -> Response:
        return JSONResponse({"status": "healthy", "auth_mode": "enabled", "pipeline_busy": False})

    async def text(self, request: Request) -> Response:
        given = await self._body(request, LightRagText)
        added = await self._add(request, given.text, given.file_source)
        text = "Skipped: it says nothing." if added.skipped else "Text stored."
        return JSONResponse({"status": "success", "message": text, "track_id": added.track_id})

    async def texts(self, request: Request) -> Response:
        given = await self._body(request, LightRagTexts)
        names: Sequence[str | None] = given.file_sources or [None] * len(given.texts)
        if len(names) != len(given.texts):
            raise _invalid("file_sources", "Expected as many file_sources as texts.")
        added = [
            await self._add(request, text, name)
            for text, name in zip(given.texts, names, strict=True)
        ]
        text = f"{len(added)} texts stored."
        track_id = added[-1].track_id
        return JSONResponse({"status": "success", "message": text, "track_id": track_id})

    async def _add(self, request: Request, text: str, name: str | None) -> DocumentAdded:
        if not text.strip():
            raise _invalid("text", "Expected text; it is empty.")
        arguments = {"collection": self._collection(request), "text": text, "kind": "conversation"}
        if name is not None and name.strip():
            arguments["path"] = name.strip()
        result = await self._calls.call(request, "knowledge_add", arguments)
        return msgspec.json.decode(structured(result), type=DocumentAdded)

    async def query(self, request: Request) -> Response:
        started = time.perf_counter()
        given, found, text = await self._found(request)
        content = bool(given.include_chunk_content)
        references = _references(found, content=content) if given.include_references else None
        if references is not None and not content:
            references = [{**one, "content": None} for one in references]
        answer: dict[str, Any] = {"response": text, "references": references}
        answer["response_time"] = round(time.perf_counter() - started, 6)
        return JSONResponse({**answer, "llm_generated": False})

    async def stream(self, request: Request) -> Response:
        """Lines of JSON: references first, then the response."""
        given, found, text = await self._found(request)

        async def lines() -> AsyncIterator[bytes]:
            if given.include_references:
                content = bool(given.include_chunk_content)
                yield _line({"references": _references(found, content=content)})
            yield _line({"response": text, "llm_generated": False})

        return StreamingResponse(lines(), media_type="application/x-ndjson")

    async def data(self, request: Request) -> Response:
        given, found, _ = await self._found(request, names=ENTITIES)
        chunks = [
            {
                "reference_id": str(one.reference),
                "content": one.text,
                "file_path": one.path,
                "chunk_id": one.chunk,
            }
            for one in found.evidence
        ]
        paths = {one.chunk: one.path for one in found.evidence}
        data = {
            "entities": [_entity(one, paths) for one in found.names],
            "relationships": list(_relationships(found, paths)),
            "chunks": chunks,
            "references": _references(found, content=False),
        }
        message = "Query executed successfully"
        keywords: dict[str, list[str]] = {"high_level": [], "low_level": []}
        metadata = {"query_mode": given.mode, "keywords": keywords}
        return JSONResponse(
            {"status": "success", "message": message, "data": data, "metadata": metadata}
        )

    async def _found(
        self, request: Request, *, names: int = 0
    ) -> tuple[LightRagQuery, KnowledgeFound, str]:
        """What a request asks for, what is found, and that as a text."""
        given = await self._body(request, LightRagQuery)
        query = given.query.strip()
        if not query:
            raise _invalid("query", "Expected a query; it is empty.")
        if given.mode != "bypass" and _length(query) < 3:
            raise _invalid("query", "Expected at least 3 characters; CJK characters count twice.")
        if given.mode == "bypass":
            raise ProblemDetails(503, "unavailable", "No chat model answers without retrieval.")
        arguments: dict[str, Any] = {
            "query": query,
            "collections": [self._collection(request)],
            "mode": given.mode,
            "names": names,
            "limit": min(given.chunk_top_k or given.top_k or 20, 100),
        }
        if given.max_total_tokens is not None:
            arguments["tokens"] = min(given.max_total_tokens, self._settings.context_tokens)
        if given.ids is not None:
            arguments["filter"] = {"documents": given.ids}
        result = await self._calls.call(request, "knowledge_query", arguments)
        found = msgspec.json.decode(structured(result), type=KnowledgeFound)
        text = text_of(result) if found.evidence else self._settings.no_context_reply
        return given, found, text

    async def track_status(self, request: Request) -> Response:
        track_id = request.path_params["track_id"]
        arguments = {"collection": self._collection(request), "track_id": track_id}
        result = await self._calls.call(request, "knowledge_documents", arguments)
        found = msgspec.json.decode(structured(result), type=DocumentList)
        summary: dict[str, int] = {}
        for one in found.items:
            summary[one.status] = summary.get(one.status, 0) + 1
        return JSONResponse(
            {
                "track_id": track_id,
                "documents": [_document(one) for one in found.items],
                "total_count": len(found.items),
                "status_summary": summary,
            }
        )

    async def status_counts(self, request: Request) -> Response:
        name = {"collection": self._collection(request)}
        try:
            result = await self._calls.call(request, "knowledge_get_collection", name)
        except ProblemDetails as problem:
            if problem.status != 404:
                raise
            return JSONResponse({"status_counts": _counts({})})
        counts = msgspec.json.decode(structured(result)).get("statuses", {})
        return JSONResponse({"status_counts": _counts(counts)})

    async def pipeline_status(self, request: Request) -> Response:
        await self._calls.context(request)
        return JSONResponse(PIPELINE)

    async def paginated(self, request: Request) -> Response:
        given = await self._body(request, LightRagPage)
        one_status = [given.status_filter] if given.status_filter else []
        wanted = set(given.status_filters or one_status)
        found = await self._documents(request)
        found = [one for one in found if not wanted or one.status in wanted]
        counts: dict[str, int] = {}
        for one in found:
            counts[one.status] = counts.get(one.status, 0) + 1
        found.sort(key=_SORTED[given.sort_field], reverse=given.sort_direction == "desc")
        pages = max(-(-len(found) // given.page_size), 1)
        begin = (given.page - 1) * given.page_size
        shown = found[begin : begin + given.page_size]
        pagination = {
            "page": given.page,
            "page_size": given.page_size,
            "total_count": len(found),
            "total_pages": pages,
            "has_next": given.page < pages,
            "has_prev": given.page > 1,
        }
        documents = [_document(one) for one in shown]
        return JSONResponse(
            {"documents": documents, "pagination": pagination, "status_counts": _counts(counts)}
        )

    async def _documents(self, request: Request) -> list[DocumentView]:
        """The first documents of the collection, at most DOCUMENTS."""
        found: list[DocumentView] = []
        given: dict[str, Any] = {"collection": self._collection(request), "limit": 1000}
        while len(found) < DOCUMENTS:
            result = await self._calls.call(request, "knowledge_documents", given)
            page = msgspec.json.decode(structured(result), type=DocumentList)
            found += page.items
            if not page.next:
                break
            given["after"] = page.next
        return found

    async def delete(self, request: Request) -> Response:
        given = await self._body(request, LightRagDelete)
        arguments = {"collection": self._collection(request), "documents": given.doc_ids}
        await self._calls.call(request, "knowledge_delete", arguments)
        message = f"{len(given.doc_ids)} documents deleted."
        ids = ", ".join(given.doc_ids)
        return JSONResponse({"status": "deletion_started", "message": message, "doc_id": ids})

    async def labels(self, request: Request) -> Response:
        asked = request.query_params
        limit = asked.get("limit", "1000")
        is_number = limit.isascii() and limit.isdigit() and len(limit) <= 9
        if not is_number or not 1 <= int(limit) <= TOP:
            raise _invalid("limit", f"Expected a number from 1 to {TOP}.")
        arguments = {
            "collection": self._collection(request),
            "prefix": asked.get("q", "")[:256],
            "limit": int(limit),
        }
        result = await self._calls.call(request, "knowledge_names", arguments)
        return JSONResponse(msgspec.json.decode(structured(result))["items"])

    async def exists(self, request: Request) -> Response:
        found = await self._entity(request, request.query_params.get("name", ""))
        return JSONResponse({"exists": found is not None})

    async def graph(self, request: Request) -> Response:
        """A name and what stands beside it."""
        label = request.query_params.get("label", "")
        found = await self._entity(request, label)
        if found is None:
            return JSONResponse({"nodes": [], "edges": [], "is_truncated": False})
        names = [found.name, *(one.name for one in found.near)]
        nodes = [{"id": one, "labels": [one], "properties": {"entity_id": one}} for one in names]
        edges = [
            {
                "id": f"{found.name}-{one.name}",
                "type": "DIRECTED",
                "source": found.name,
                "target": one.name,
                "properties": {"weight": one.passages, "npmi": one.npmi},
            }
            for one in found.near
        ]
        return JSONResponse({"nodes": nodes, "edges": edges, "is_truncated": False})

    async def _entity(self, request: Request, name: str) -> EntityView | None:
        """Raises ProblemDetails."""
        if not name.strip():
            raise _invalid("name", "Expected a name; it is empty.")
        arguments = {"name": name[:256], "collections": [self._collection(request)], "limit": 100}
        try:
            result = await self._calls.call(request, "knowledge_entity", arguments)
        except ProblemDetails as problem:
            if problem.status != 404:
                raise
            return None
        return msgspec.json.decode(structured(result), type=EntityView)

    def _collection(self, request: Request) -> str:
        return str(request.path_params["collection"])

    async def _body(self, request: Request, type_: type[Any]) -> Any:
        """Raises ProblemDetails."""
        await self._calls.context(request)  # callers that are not known are told nothing else
        body = await request.body()
        try:
            return msgspec.json.decode(body, type=type_)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            named = _FIELD.search(str(error))
            raise _invalid(named[1] or named[2] if named else "body", f"{error}") from error


def _length(query: str) -> int:
    return sum(
        2 if "\u2e80" <= one <= "\u9fff" or "\uac00" <= one <= "\ud7a3" else 1 for one in query
    )


def _references(found: KnowledgeFound, *, content: bool) -> list[dict[str, Any]]:
    named = [
        {"reference_id": str(one.reference), "file_path": one.path} for one in found.references
    ]
    if not content:
        return named
    texts: dict[int, list[str]] = {}
    for one in found.evidence:
        texts.setdefault(one.reference, []).append(one.text)
    return [{**one, "content": texts[int(one["reference_id"])]} for one in named]


def _entity(one: NameView, paths: Mapping[str, str]) -> dict[str, Any]:
    return {
        "entity_name": one.name,
        "entity_type": one.type,
        "description": "",
        "source_id": SEPARATOR.join(one.chunks),
        "file_path": SEPARATOR.join(dict.fromkeys(paths[id_] for id_ in one.chunks)),
    }


def _relationships(found: KnowledgeFound, paths: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """What a passage is about, and what it mentions."""
    for subject in found.names:
        for one in found.names:
            shared = [id_ for id_ in subject.about if id_ in one.chunks and id_ not in one.about]
            if shared:
                yield {
                    "src_id": subject.name,
                    "tgt_id": one.name,
                    "description": "",
                    "keywords": "mentions",
                    "weight": float(len(shared)),
                    "source_id": SEPARATOR.join(shared),
                    "file_path": SEPARATOR.join(dict.fromkeys(paths[id_] for id_ in shared)),
                }


def _counts(counts: Mapping[str, int]) -> dict[str, int]:
    return {**dict.fromkeys(STATUSES, 0), **counts, "all": sum(counts.values())}


def _document(one: DocumentView) -> dict[str, Any]:
    return {
        "id": one.document,
        "content_summary": "",
        "content_length": one.bytes,
        "status": one.status,
        "created_at": one.created.isoformat(),
        "updated_at": one.changed.isoformat(),
        "track_id": one.track_id,
        "chunks_count": one.chunks,
        "error_msg": one.error,
        "metadata": one.metadata,
        "file_path": one.path,
    }


def _line(value: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(value) + b"\n"


INVALID = "invalid:"  # before the name of a member, as the kind of a problem


def _invalid(field: str, text: str) -> ProblemDetails:
    return ProblemDetails(422, f"{INVALID}{field}", text)


async def _failed(_request: Request, error: Exception) -> Response:
    """Errors as FastAPI tells them."""
    if isinstance(error, ProblemDetails) and error.status == 422:
        field = error.kind.removeprefix(INVALID) if error.kind.startswith(INVALID) else ""
        place = {"loc": ["body", field] if field else ["body"], "input": None}
        detail = [{"type": "value_error", **place, "msg": error.detail}]
        return JSONResponse({"detail": detail}, 422)
    if isinstance(error, ProblemDetails):
        return JSONResponse({"detail": error.detail}, error.status, error.headers)
    if not isinstance(error, Fault):
        raise error
    status = error.status if error.status >= 400 else 422
    return JSONResponse({"detail": error.message}, status)
