"""LightRAG's REST contract on collections: clients of its server change their base URL and key.

Requests are calls of the wing's operations, so that policy, limits and audit hold. Fields that are
not known are ignored, and errors are `{"detail": ...}`, as there. Deviations are listed in
docs/knowledge.md.
"""

import posixpath
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from config.knowledge import KnowledgeSettings
from gateway.context import Principal, Upload
from gateway.operations.problems import ProblemDetails, bad_request
from gateway.wings.documents.reading.media_types import EXTENSIONS
from gateway.wings.http_tool_calls import ToolCalls, structured_body
from gateway.wings.knowledge.documents import new_track_id
from gateway.wings.knowledge.lightrag_graph import SEPARATOR, LightRagGraph
from gateway.wings.knowledge.lightrag_requests import (
    GUEST_TOKEN,
    STATUSES,
    LightRagDelete,
    LightRagInvalid,
    LightRagPage,
    LightRagQuery,
    LightRagText,
    LightRagTexts,
    Workspace,
    Workspaces,
    invalid_value,
)
from gateway.wings.knowledge.requests_and_views import (
    DocumentAdded,
    DocumentList,
    DocumentView,
    FilesIngested,
    KnowledgeFound,
    NameView,
)
from gateway.wings.models.messages import ModelFailed, Payer
from gateway.wings.models.usage import BudgetExhausted
from registry.database.postgres import is_uuid
from schemas.errors import Fault

if TYPE_CHECKING:
    from gateway.wings.knowledge.chat_model_uses import KnowledgeModel
    from gateway.wings.knowledge.cited_answers import AnswerRequest

VERSION = "1.5.7"  # of the contract
PATH = "/lightrag"
ROOT = PATH + "/{collection}"
NAMES, CHUNKS = 40, 20  # `top_k` and `chunk_top_k` of LightRAG
DOCUMENTS = 20_000  # that pages of a collection are made of
DOCUMENTS_LISTED = 1000  # documents of one call
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
STORED_TEXT = "Text stored."
SHORT = (
    "RAG query is too short. Enter at least 3 English characters or an equivalent combination "
    "where each Chinese, Japanese or Korean character counts as 2."
)
NDJSON = "application/x-ndjson"
FILE_TYPES = tuple(sorted(f".{extension}" for extension in EXTENSIONS))
DELETE_LIMIT = 100  # documents of one call
SUMMARY = 250  # characters of a text that lists show
LOGIN = {
    "access_token": GUEST_TOKEN,
    "token_type": "bearer",
    "message": "There is no login here: the key of the gateway is the API key.",
    "core_version": VERSION,
    "api_version": VERSION,
    "webui_title": None,
    "webui_description": None,
    "ai_content_notice_enabled": False,
}
BYPASS_QUERY = {"mode": "naive", "limit": 1, "tokens": 1}  # a query whose passages are not used
_SORT_KEYS: Mapping[str, Callable[[DocumentView], Any]] = {
    "created_at": lambda view: (view.created, view.document),
    "updated_at": lambda view: (view.changed, view.document),
    "id": lambda view: view.document,
    "file_path": lambda view: view.path,
}


class LightRag:
    def __init__(
        self,
        calls: ToolCalls,
        settings: KnowledgeSettings,
        model: "KnowledgeModel | None" = None,
    ) -> None:
        """`model`: where a chat model is configured."""
        self._workspaces = Workspaces(calls)
        self._settings = settings
        self._model = model

    @property
    def app(self) -> Starlette:
        documents, graph = ROOT + "/documents", LightRagGraph(self._workspaces)
        routes = [
            (ROOT + "/health", self.health, "GET"),
            (ROOT + "/auth-status", self.auth_status, "GET"),
            (ROOT + "/auth/verify", self.verify, "GET"),
            (ROOT + "/login", self.login, "POST"),
            (ROOT + "/ui/customization", self.customization, "GET"),
            (ROOT + "/query", self.query, "POST"),
            (ROOT + "/query/stream", self.stream, "POST"),
            (ROOT + "/query/data", self.data, "POST"),
            (documents, self.clear, "DELETE"),
            (documents + "/text", self.text, "POST"),
            (documents + "/texts", self.texts, "POST"),
            (documents + "/upload", self.upload, "POST"),
            (documents + "/track_status/{track_id}", self.track_status, "GET"),
            (documents + "/status_counts", self.status_counts, "GET"),
            (documents + "/pipeline_status", self.pipeline_status, "GET"),
            (documents + "/supported_file_types", self.file_types, "GET"),
            (documents + "/paginated", self.paginate, "POST"),
            (documents + "/reprocess_failed", self.reprocess, "POST"),
            (documents + "/scan", self.scan, "POST"),
            (documents + "/clear_cache", self.clear_cache, "POST"),
            (documents + "/cancel_pipeline", self.cancel, "POST"),
            (documents + "/delete_document", self.delete, "DELETE"),
            (ROOT + "/graphs", graph.graph, "GET"),
            (ROOT + "/graph/label/list", graph.labels, "GET"),
            (ROOT + "/graph/label/popular", graph.popular, "GET"),
            (ROOT + "/graph/label/search", graph.search, "GET"),
            (ROOT + "/graph/entity/exists", graph.exists, "GET"),
            (ROOT + "/graph/entity/create", graph.create_entity, "POST"),
            (ROOT + "/graph/entity/edit", graph.edit_entity, "POST"),
            (ROOT + "/graph/relation/create", graph.create_relation, "POST"),
            (ROOT + "/graph/relation/edit", graph.edit_relation, "POST"),
            (ROOT + "/graph/entities/merge", graph.merge, "POST"),
            (ROOT + "/graph/entity/delete", graph.delete_entity, "DELETE"),
            (ROOT + "/graph/relation/delete", graph.delete_relation, "DELETE"),
        ]
        failures = dict.fromkeys((ProblemDetails, Fault, HTTPException), _error_response)
        return Starlette(
            routes=[Route(path, serve, methods=[method]) for path, serve, method in routes],
            exception_handlers={**failures},
        )

    async def health(self, _request: Request) -> Response:
        return JSONResponse({"status": "healthy", "auth_mode": "enabled", "pipeline_busy": False})

    async def auth_status(self, _request: Request) -> Response:
        """Callers have keys of this gateway, and no login: as LightRAG's own server with a key."""
        return JSONResponse({"auth_configured": False, "auth_mode": "disabled", **LOGIN})

    async def login(self, _request: Request) -> Response:
        return JSONResponse({"auth_mode": "disabled", **LOGIN})

    async def verify(self, request: Request) -> Response:
        """Whether the caller's key is known."""
        await self._workspaces.caller(request)
        return JSONResponse({"status": "ok"})

    async def customization(self, _request: Request) -> Response:
        """Nothing is customized, which is no secret."""
        brand = {"title": "LightRAG", "description": "Toolgate"}
        members = {"customized": False, "brand": brand}
        return JSONResponse(members, headers={"Cache-Control": "no-store"})

    async def text(self, request: Request) -> Response:
        most = self._settings.upload_bytes
        workspace, body = await self._workspaces.read(request, LightRagText, most, stores=True)
        _check_text(body.text, ("body", "text"), body.text)
        added = await self._add(workspace, body.text, body.file_source)
        text = "Skipped: it says nothing." if added.skipped else STORED_TEXT
        return _success_response(text, added.track_id)

    async def texts(self, request: Request) -> Response:
        most = self._settings.upload_bytes
        workspace, body = await self._workspaces.read(request, LightRagTexts, most, stores=True)
        names: Sequence[str | None] = body.file_sources or [None] * len(body.texts)
        if len(names) != len(body.texts):
            raise bad_request("A valid file_source is required for each text")
        for text in body.texts:
            _check_text(text, ("body", "texts"), body.texts)
        track_id = new_track_id()
        added = [
            await self._add(workspace, text, name, track_id)
            for text, name in zip(body.texts, names, strict=True)
        ]
        changed = [document for document in added if document.changed and not document.skipped]
        text = f"{len(changed)} texts stored."
        if others := len(added) - len(changed):
            text = f"{text} {others} were there already, or say nothing."
        return _success_response(text, track_id if changed else added[-1].track_id)

    async def _add(
        self, workspace: Workspace, text: str, name: str | None, track_id: str | None = None
    ) -> DocumentAdded:
        arguments = {"collection": workspace.collection, "text": text, "kind": "conversation"}
        if track_id is not None:
            arguments["track_id"] = track_id
        if name is not None and name.strip():
            arguments["path"] = name.strip()
        result = await workspace.call("knowledge_add", arguments)
        return msgspec.json.decode(structured_body(result), type=DocumentAdded)

    async def upload(self, request: Request) -> Response:
        """A file of a form. Its name is a label."""
        workspace = await self._workspaces.of(request, stores=True)
        async with request.form(max_files=1, max_fields=10) as form:
            file = form.get("file")
            if not isinstance(file, UploadFile):
                raise LightRagInvalid("missing", ("body", "file"), "Field required")
            name, data = (file.filename or "").strip(), await file.read()
        extension = posixpath.splitext(name)[1].lower()
        if extension not in FILE_TYPES:
            text = f"Unsupported file type. Supported types: {FILE_TYPES}"
            raise bad_request(text)
        workspace.context.upload = Upload(data)
        arguments = {"collection": workspace.collection, "path": name}
        result = await workspace.call("knowledge_add_file", arguments)
        track_id = msgspec.json.decode(structured_body(result), type=FilesIngested).track_id
        return _success_response(f"File '{name}' uploaded and stored.", track_id)

    async def clear(self, request: Request) -> Response:
        """Delete all documents, where the settings allow that."""
        workspace = await self._workspaces.of(request)
        if not self._settings.lightrag.allow_clear:
            text = "Deleting all documents is switched off (knowledge.lightrag.allow_clear)."
            raise ProblemDetails(403, "forbidden", text)
        count, listing = 0, {"collection": workspace.collection, "limit": DELETE_LIMIT}
        while True:
            listed = await workspace.call("knowledge_documents", listing)
            page = msgspec.json.decode(structured_body(listed), type=DocumentList)
            if ids := [document.document for document in page.items]:
                arguments = {"collection": workspace.collection, "documents": ids}
                gone = await workspace.call("knowledge_delete", arguments)
                count += msgspec.json.decode(structured_body(gone))["documents"]
            if not page.next:
                break
            listing["after"] = page.next
        message = f"All documents cleared successfully. Deleted {count} files."
        return JSONResponse({"status": "success", "message": message})

    async def file_types(self, request: Request) -> Response:
        await self._workspaces.of(request)
        engines = {"toolgate": list(FILE_TYPES)}
        return JSONResponse({"supported_extensions": list(FILE_TYPES), "engines": engines})

    async def scan(self, request: Request) -> Response:
        """There is no directory to scan; failed documents are read again, as by a scan there."""
        await self.reprocess(request)
        message = "No directory is scanned: files are uploaded. Failed documents are read again."
        return JSONResponse({"status": "scanning_started", "message": message, "track_id": ""})

    async def reprocess(self, request: Request) -> Response:
        """Have the chat model read failed documents again; files that cannot be read are read again
        when they are given again."""
        workspace = await self._workspaces.of(request)
        if self._model is not None:
            await workspace.call("knowledge_retry", {"collection": workspace.collection})
        message = "Failed documents are read again."
        return JSONResponse({"status": "reprocessing_started", "message": message, "track_id": ""})

    async def clear_cache(self, request: Request) -> Response:
        """Nothing is kept that could be stale: answers are kept by the text that they are of."""
        await self._workspaces.of(request)
        return JSONResponse({"status": "success", "message": "Successfully cleared all cache"})

    async def cancel(self, request: Request) -> Response:
        await self._workspaces.of(request)
        message = "Pipeline is not running. No cancellation needed."
        return JSONResponse({"status": "not_busy", "message": message})

    async def query(self, request: Request) -> Response:
        started = time.perf_counter()
        question = await self._ask(request)
        answer = await self._answer(question)
        content = bool(question.query.include_chunk_content)
        references = _references(question.results, content=content)
        if not content:
            references = [{**reference, "content": None} for reference in references]
        return JSONResponse(
            {
                "response": answer or question.text,
                "references": references if question.query.include_references else None,
                "response_time": round(time.perf_counter() - started, 6),
                "llm_generated": bool(answer),
            }
        )

    async def _answer(self, question: "_Asked") -> str:
        """Answer of the chat model; "": none, or it is not asked."""
        if self._model is None or not question.wants_answer:
            return ""
        request = self._request(self._model, question)
        if question.query.mode == "bypass":
            return self._model.screen_answer(question.principal, await self._model.say(request))
        answer = await self._model.answerer.answer(request)
        return (
            ""
            if isinstance(answer, str)
            else self._model.screen_answer(question.principal, answer.text)
        )

    @staticmethod
    def _request(model: "KnowledgeModel", question: "_Asked") -> "AnswerRequest":
        return model.request(
            Payer(*question.principal.key),
            question.query.query,
            question.results,
            history=question.history,
            wish=question.wish,
        )

    async def stream(self, request: Request) -> Response:
        """Lines of JSON: references first, then the response."""
        started = time.perf_counter()
        question = await self._ask(request)
        body = question.query
        references = _references(question.results, content=bool(body.include_chunk_content))
        at_once = not body.stream or body.mode == "bypass" or not question.wants_answer
        if (model := self._model) is None or at_once:
            answer = await self._answer(question)
            members = {"references": references} if body.include_references else {}
            response = {"response": answer or question.text, "llm_generated": bool(answer)}
            lines: list[dict[str, Any]] = [{**response, **members}]
            if body.stream and members:
                lines = [members, response]
            return Response(b"".join(map(_line, lines)), media_type=NDJSON)
        parts = model.answerer.parts(self._request(model, question))

        async def stream_lines() -> AsyncIterator[bytes]:
            if body.include_progress:
                yield _line({"progress": "retrieving_chunks"})
            if body.include_references:
                yield _line({"references": references})
            has_text = False
            try:
                async with aclosing(parts):
                    async for part in parts:
                        if text := model.screen_answer(question.principal, part.text):
                            yield _line({"response": f" {text}" if has_text else text})
                            has_text = True
            except (ModelFailed, BudgetExhausted) as error:
                if has_text:
                    yield _line({"error": str(error)})
            if not has_text:
                yield _line({"response": question.text, "llm_generated": False})
            if body.include_progress:
                yield _line({"response_time": round(time.perf_counter() - started, 6)})

        return StreamingResponse(stream_lines(), media_type=NDJSON)

    async def data(self, request: Request) -> Response:
        question = await self._ask(request, names=True)
        result = question.results
        chunks = [
            {
                "reference_id": str(passage.reference),
                "content": passage.text,
                "file_path": passage.path,
                "chunk_id": passage.chunk,
            }
            for passage in result.evidence
        ]
        paths = {passage.chunk: passage.path for passage in result.evidence}
        data = {
            "entities": [_entity(name, paths) for name in result.names],
            "relationships": list(
                islice(_relationships(result, paths), question.query.top_k or NAMES)
            ),
            "chunks": chunks,
            "references": _references(result, content=False),
        }
        keywords: dict[str, list[str]] = {"high_level": [], "low_level": []}
        metadata = {"query_mode": question.query.mode, "keywords": keywords}
        message = "Query processed successfully"
        return JSONResponse(
            {"status": "success", "message": message, "data": data, "metadata": metadata}
        )

    async def _ask(self, request: Request, *, names: bool = False) -> "_Asked":
        """Parsed request and its results, with `names` or without."""
        workspace, body = await self._workspaces.read(request, LightRagQuery)
        query = body.query.strip()
        if not query:
            raise invalid_value(("body", "query"), "query cannot be empty", body.query)
        if not all(message.role.strip() for message in body.conversation_history or ()):
            turns = [
                {name: text for name, text in msgspec.structs.asdict(message).items() if text}
                for message in body.conversation_history or ()
            ]
            place = ("body", "conversation_history")
            raise invalid_value(place, "Each message must have a 'role' key.", turns)
        if body.mode != "bypass" and _length(query) < 3:
            raise invalid_value(("body",), SHORT, {"query": body.query})
        if body.mode == "bypass":
            if self._model is None:
                text = "No chat model is configured (knowledge.model)."
                raise ProblemDetails(503, "unavailable", text)
            await workspace.call("knowledge_query", {"query": query, **BYPASS_QUERY})
            return _Asked(workspace, body, KnowledgeFound((), ()), "")
        arguments: dict[str, Any] = {
            "query": query,
            "collections": [workspace.collection],
            "mode": body.mode,
            "names": (body.top_k or NAMES) if names else 0,
            "limit": min(body.chunk_top_k or CHUNKS, 100),
        }
        if body.max_total_tokens is not None:
            arguments["tokens"] = min(body.max_total_tokens, self._settings.context_tokens)
        if body.ids is not None:
            arguments["filter"] = {"documents": body.ids}
        result = await workspace.call("knowledge_query", arguments)
        result_found = msgspec.json.decode(structured_body(result), type=KnowledgeFound)
        text = result.text if result_found.evidence else self._settings.no_context_reply
        return _Asked(workspace, body, result_found, text)

    async def track_status(self, request: Request) -> Response:
        track_id = request.path_params["track_id"].strip()
        workspace = await self._workspaces.of(request)
        if not track_id:
            raise bad_request("Track ID cannot be empty")
        arguments = {
            "collection": workspace.collection,
            "track_id": track_id,
            "limit": DOCUMENTS_LISTED,
            "begin": SUMMARY + 1,
        }
        result = await workspace.call("knowledge_documents", arguments)
        documents = msgspec.json.decode(structured_body(result), type=DocumentList)
        summary: dict[str, int] = {}
        for document in documents.items:
            summary[document.status] = summary.get(document.status, 0) + 1
        return JSONResponse(
            {
                "track_id": track_id,
                "documents": [_document(document) for document in documents.items],
                "total_count": len(documents.items),
                "status_summary": summary,
            }
        )

    async def status_counts(self, request: Request) -> Response:
        counts = await self._statuses(await self._workspaces.of(request))
        return JSONResponse({"status_counts": _counts(counts)})

    async def _statuses(self, workspace: Workspace) -> Mapping[str, int]:
        """How many documents have which status."""
        arguments = {"collection": workspace.collection}
        try:
            result = await workspace.call("knowledge_get_collection", arguments)
        except ProblemDetails as problem:
            if problem.status != 404:
                raise
            return {}
        counts: Mapping[str, int] = msgspec.json.decode(structured_body(result)).get("statuses", {})
        return counts

    async def pipeline_status(self, request: Request) -> Response:
        await self._workspaces.of(request)
        return JSONResponse(PIPELINE)

    async def paginate(self, request: Request) -> Response:
        workspace, body = await self._workspaces.read(request, LightRagPage)
        one_status = [body.status_filter] if body.status_filter else []
        statuses = set(body.status_filters or one_status)
        documents_found = await self._documents(workspace)
        documents_found = [
            document for document in documents_found if not statuses or document.status in statuses
        ]
        counts = await self._statuses(workspace)
        counts = {name: count for name, count in counts.items() if not statuses or name in statuses}
        total = sum(counts.values())
        documents_found.sort(key=_SORT_KEYS[body.sort_field], reverse=body.sort_direction == "desc")
        pages = max(-(-total // body.page_size), 1)
        begin = (body.page - 1) * body.page_size
        page = documents_found[begin : begin + body.page_size]
        pagination = {
            "page": body.page,
            "page_size": body.page_size,
            "total_count": total,
            "total_pages": pages,
            "has_next": body.page < pages,
            "has_prev": body.page > 1,
        }
        documents = [_document(document) for document in page]
        return JSONResponse(
            {"documents": documents, "pagination": pagination, "status_counts": _counts(counts)}
        )

    async def _documents(self, workspace: Workspace) -> list[DocumentView]:
        """The first documents of the collection, at most DOCUMENTS."""
        documents: list[DocumentView] = []
        arguments: dict[str, Any] = {"collection": workspace.collection, "limit": DOCUMENTS_LISTED}
        arguments["begin"] = SUMMARY + 1
        while len(documents) < DOCUMENTS:
            result = await workspace.call("knowledge_documents", arguments)
            page = msgspec.json.decode(structured_body(result), type=DocumentList)
            documents += page.items
            if not page.next:
                break
            arguments["after"] = page.next
        return documents

    async def delete(self, request: Request) -> Response:
        workspace, body = await self._workspaces.read(request, LightRagDelete)
        if not body.doc_ids:
            raise invalid_value(("body", "doc_ids"), "Document IDs list cannot be empty", [])
        named = [id_.strip() for id_ in body.doc_ids]
        if not all(named):
            raise invalid_value(("body", "doc_ids"), "Document ID cannot be empty", body.doc_ids)
        if len(set(named)) < len(named):
            raise invalid_value(("body", "doc_ids"), "Document IDs must be unique", body.doc_ids)
        ids = [id_ for id_ in named if is_uuid(id_)]  # others are no documents of ours
        count = 0
        if ids:
            arguments = {"collection": workspace.collection, "documents": ids}
            gone = await workspace.call("knowledge_delete", arguments)
            count = msgspec.json.decode(structured_body(gone))["documents"]
        message = f"{count} documents deleted."
        if unknown := len(named) - count:
            message = f"{message} {unknown} of the ids name none."
        names = ", ".join(named)
        return JSONResponse({"status": "deletion_started", "message": message, "doc_id": names})


@dataclass(frozen=True, slots=True)
class _Asked:
    """A query, and the passages that were found, also as a text."""

    workspace: Workspace
    query: LightRagQuery
    results: KnowledgeFound
    text: str

    @property
    def wants_answer(self) -> bool:
        return not (self.query.only_need_context or self.query.only_need_prompt)

    @property
    def history(self) -> tuple[tuple[str, str], ...]:
        return tuple(
            (message.role, message.content) for message in self.query.conversation_history or ()
        )

    @property
    def wish(self) -> str:
        """How the caller wants the answer."""
        return "\n".join(filter(None, (self.query.response_type, self.query.user_prompt)))

    @property
    def principal(self) -> Principal:
        return self.workspace.context.principal


def _check_text(text: str, place: tuple[str, ...], value: Any) -> None:
    """Raises LightRagInvalid."""
    if not text.strip():
        raise invalid_value(place, "text cannot be empty or whitespace-only", value)


def _success_response(text: str, track_id: str) -> Response:
    return JSONResponse({"status": "success", "message": text, "track_id": track_id})


def _length(query: str) -> int:
    return sum(
        2 if "\u2e80" <= character <= "\u9fff" or "\uac00" <= character <= "\ud7a3" else 1
        for character in query
    )


def _references(passages: KnowledgeFound, *, content: bool) -> list[dict[str, Any]]:
    named = [
        {"reference_id": str(reference.reference), "file_path": reference.path}
        for reference in passages.references
    ]
    if not content:
        return named
    texts: dict[int, list[str]] = {}
    for passage in passages.evidence:
        texts.setdefault(passage.reference, []).append(passage.text)
    return [{**reference, "content": texts[int(reference["reference_id"])]} for reference in named]


def _entity(view: NameView, paths: Mapping[str, str]) -> dict[str, Any]:
    return {
        "entity_name": view.name,
        "entity_type": view.type,
        "description": view.description,
        "source_id": SEPARATOR.join(view.chunks),
        "file_path": SEPARATOR.join(dict.fromkeys(paths[id_] for id_ in view.chunks)),
    }


def _relationships(passages: KnowledgeFound, paths: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Relations read by a chat model, then subjects and mentions of passages."""
    for stated in passages.relations:
        chunks = [id_ for id_ in stated.chunks if id_ in paths]
        members = {"description": stated.description, "keywords": stated.type}
        yield _relationship((stated.source, stated.target), members, chunks, paths)
    mentioning = defaultdict[str, list[int]](list)  # places of names, by passages not about them
    for place, name in enumerate(passages.names):
        for id_ in set(name.chunks).difference(name.about):
            mentioning[id_].append(place)
    for subject in passages.names:
        shared = defaultdict[int, list[str]](list)
        for id_ in subject.about:
            for place in mentioning.get(id_, ()):
                shared[place].append(id_)
        for place, chunks in sorted(shared.items()):
            members = {"description": "", "keywords": "mentions"}
            yield _relationship((subject.name, passages.names[place].name), members, chunks, paths)


def _relationship(
    names: tuple[str, str],
    members: Mapping[str, str],
    chunks: Sequence[str],
    paths: Mapping[str, str],
) -> dict[str, Any]:
    return {
        "src_id": names[0],
        "tgt_id": names[1],
        **members,
        "weight": float(len(chunks)),
        "source_id": SEPARATOR.join(chunks),
        "file_path": SEPARATOR.join(dict.fromkeys(paths[id_] for id_ in chunks)),
    }


def _counts(counts: Mapping[str, int]) -> dict[str, int]:
    return {**dict.fromkeys(STATUSES, 0), **counts, "all": sum(counts.values())}


def _document(view: DocumentView) -> dict[str, Any]:
    return {
        "id": view.document,
        "content_summary": _summary(view.begin or ""),
        "content_length": view.bytes,
        "status": view.status,
        "created_at": view.created.isoformat(),
        "updated_at": view.changed.isoformat(),
        "track_id": view.track_id,
        "chunks_count": view.chunks,
        "error_msg": view.error,
        "metadata": view.metadata,
        "file_path": view.path,
    }


def _summary(text: str) -> str:
    return f"{text[:SUMMARY]}..." if len(text) > SUMMARY else text.strip()


def _line(value: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(value) + b"\n"


async def _error_response(_request: Request, error: Exception) -> Response:
    """Errors as FastAPI tells them."""
    if isinstance(error, LightRagInvalid):
        return JSONResponse({"detail": [error.entry]}, 422)
    if isinstance(error, ProblemDetails):
        if error.status == 422:
            return await _error_response(_request, invalid_value(("body",), error.detail))
        return JSONResponse({"detail": error.detail}, error.status, error.headers)
    if isinstance(error, HTTPException):
        return JSONResponse({"detail": error.detail}, error.status_code)
    if not isinstance(error, Fault):
        raise error
    status = error.failed_status(422)
    return JSONResponse({"detail": error.message}, status)
