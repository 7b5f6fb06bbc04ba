"""LightRAG's REST contract on collections: clients of its server change their base URL and key.

Requests are calls of the wing's operations, so that policy, limits and audit hold. Fields that are
not known are ignored, and errors are `{"detail": ...}`, as there. Deviations are listed in
docs/knowledge.md.
"""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
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
    KnowledgeFound,
)
from schemas.errors import Fault

PATH = "/lightrag"
ROOT = PATH + "/{collection}"
TOP = 1000  # most that `top_k` may ask for
Top = Annotated[int, Meta(ge=1, le=TOP)]
Tokens = Annotated[int, Meta(ge=1)]


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
        answer: dict[str, Any] = {"response": text}
        if given.include_references:
            answer["references"] = _references(found, content=bool(given.include_chunk_content))
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
        given, found, _ = await self._found(request)
        chunks = [
            {
                "reference_id": str(one.reference),
                "content": one.text,
                "file_path": one.path,
                "chunk_id": one.chunk,
            }
            for one in found.evidence
        ]
        data = {
            "entities": [],
            "relationships": [],
            "chunks": chunks,
            "references": _references(found, content=False),
        }
        message = "Query executed successfully"
        metadata = {"query_mode": given.mode}
        return JSONResponse(
            {"status": "success", "message": message, "data": data, "metadata": metadata}
        )

    async def _found(self, request: Request) -> tuple[LightRagQuery, KnowledgeFound, str]:
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
            return JSONResponse({"status_counts": {"all": 0}})
        counts = msgspec.json.decode(structured(result)).get("statuses", {})
        return JSONResponse({"status_counts": {**counts, "all": sum(counts.values())}})

    def _collection(self, request: Request) -> str:
        return str(request.path_params["collection"])

    async def _body(self, request: Request, type_: type[Any]) -> Any:
        """Raises ProblemDetails."""
        await self._calls.context(request)  # callers that are not known are told nothing else
        body = await request.body()
        try:
            return msgspec.json.decode(body, type=type_)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _invalid("body", f"{error}") from error


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


class _Invalid(ProblemDetails):
    """A 422 as FastAPI tells it."""


def _invalid(field: str, text: str) -> ProblemDetails:
    return _Invalid(422, field, text)


async def _failed(_request: Request, error: Exception) -> Response:
    if isinstance(error, _Invalid):
        detail = [{"type": "value_error", "loc": ["body", error.kind], "msg": error.detail}]
        return JSONResponse({"detail": detail}, 422)
    if isinstance(error, ProblemDetails):
        return JSONResponse({"detail": error.detail}, error.status, error.headers)
    if not isinstance(error, Fault):
        raise error
    status = error.status if error.status >= 400 else 422
    return JSONResponse({"detail": error.message}, status)
