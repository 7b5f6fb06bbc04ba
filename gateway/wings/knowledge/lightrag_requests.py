"""Requests of LightRAG's contract: the collection that they are for, their bodies, and errors of
validation as FastAPI words them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request

from gateway.context import Context
from gateway.operations.operation import ProblemDetails
from gateway.wings.knowledge.calls import ToolCalls, checked
from schemas.tool import ToolResult

WORKSPACE = "LIGHTRAG-WORKSPACE"
TOP = 1000  # most that `top_k` may ask for
BODY = 2**20  # bytes of a request that stores no text
SHOWN = 65_536  # bytes of a body of which a part is shown in errors
Top = Annotated[int, Meta(ge=1, le=TOP)]
Tokens = Annotated[int, Meta(ge=1)]
Name = Annotated[
    str, Meta(min_length=1, max_length=256, pattern=r"\S", description="a name, not blank")
]
Description = Annotated[str, Meta(max_length=20_000)]


class LightRagMessage(Struct, frozen=True):
    content: str = ""
    role: str = "user"


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
    only_need_context: bool | None = None
    only_need_prompt: bool | None = None
    response_type: Annotated[str, Meta(max_length=1000)] | None = None
    user_prompt: Annotated[str, Meta(max_length=20_000)] | None = None
    conversation_history: list[LightRagMessage] | None = None
    stream: bool | None = True  # of /query/stream


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
    doc_ids: Annotated[list[str], Meta(max_length=1000)]


class LightRagEntityData(Struct, frozen=True):
    description: Description = ""
    entity_type: Annotated[str, Meta(max_length=64)] = ""
    entity_name: Name | None = None  # another name, of an edit


class LightRagEntity(Struct, frozen=True):
    entity_name: Name
    entity_data: LightRagEntityData


class LightRagEntityEdit(Struct, frozen=True):
    entity_name: Name
    updated_data: LightRagEntityData
    allow_rename: bool = False
    allow_merge: bool = False


class LightRagRelationData(Struct, frozen=True):
    description: Description = ""
    keywords: Annotated[str, Meta(max_length=256)] = ""
    weight: float = 1.0


class LightRagRelation(Struct, frozen=True):
    source_entity: Name
    target_entity: Name
    relation_data: LightRagRelationData


class LightRagRelationEdit(Struct, frozen=True):
    source_id: Name
    target_id: Name
    updated_data: LightRagRelationData


class LightRagMerge(Struct, frozen=True):
    entities_to_change: Annotated[list[Name], Meta(min_length=1, max_length=100)]
    entity_to_change_into: Name


class LightRagInvalid(ProblemDetails):
    """An error of validation. `place`: where it is, such as ("body", "query")."""

    def __init__(
        self,
        kind: str,
        place: tuple[str, ...],
        text: str,
        *,
        found: Any = None,
        context: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(422, "invalid", text)
        self.told = {"type": kind, "loc": list(place), "msg": text, "input": found}
        if context is not None:
            self.told["ctx"] = dict(context)


def invalid_value(place: tuple[str, ...], text: str, found: Any = None) -> LightRagInvalid:
    """What a validator of theirs refuses."""
    return LightRagInvalid(
        "value_error", place, f"Value error, {text}", found=found, context={"error": {}}
    )


def decoded(body: bytes, type_: type[Any]) -> Any:
    """Raises LightRagInvalid."""
    try:
        return msgspec.json.decode(body, type=type_)
    except msgspec.ValidationError as error:
        raise _told(str(error), _shown(body)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _no_json(error) from error


def _shown(body: bytes) -> Any:
    """What of a body errors may show: the whole of a small one. Raises LightRagInvalid."""
    if len(body) > SHOWN:
        return None
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _no_json(error) from error


def _no_json(error: Exception) -> LightRagInvalid:
    text, context = "JSON decode error", {"error": str(error)}
    return LightRagInvalid("json_invalid", ("body",), text, found={}, context=context)


# By the error of msgspec: the kind, its wording, and the name of what it was compared with.
_BOUNDS = (
    (r"`int` >= (\d+)", "greater_than_equal", "Input should be greater than or equal to {}", "ge"),
    (r"`int` <= (\d+)", "less_than_equal", "Input should be less than or equal to {}", "le"),
    (r"`str` of length <= (\d+)", "string_too_long", "String should have at most {} characters",
     "max_length"),
    (r"`str` of length >= (\d+)", "string_too_short", "String should have at least {} characters",
     "min_length"),
    (r"`array` of length >= (\d+)", "too_short",
     "List should have at least {} item after validation", "min_length"),
    (r"`array` of length <= (\d+)", "too_long",
     "List should have at most {} items after validation", "max_length"),
)  # fmt: skip
_PLACE = re.compile(r" - at `\$\.?([^`]*)`\Z")
_MISSING = re.compile(r"required field `(\w+)`")


def _told(error: str, body: Any) -> LightRagInvalid:
    at = _PLACE.search(error)
    path = tuple(filter(None, re.split(r"[.\[\]]+", at[1]))) if at else ()
    place, found = ("body", *path), _found(body, path)
    if missing := _MISSING.search(error):
        return LightRagInvalid("missing", (*place, missing[1]), "Field required", found=found)
    for pattern, kind, text, name in _BOUNDS:
        if bound := re.search(pattern, error):
            context: dict[str, Any] = {name: int(bound[1])}
            if name.endswith("length") and isinstance(found, list):
                context |= {"field_type": "List", "actual_length": len(found)}
            told = text.format(bound[1])
            return LightRagInvalid(kind, place, told, found=found, context=context)
    if error.startswith("Invalid enum value"):
        names = [f"'{one}'" for one in _MODES] if path == ("mode",) else []
        expected = " or ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
        text = f"Input should be {expected}" if expected else error
        context = {"expected": expected}
        return LightRagInvalid("literal_error", place, text, found=found, context=context)
    return LightRagInvalid("type_error", place, error, found=found)


_MODES = ("local", "global", "hybrid", "naive", "mix", "bypass")


def _found(body: Any, path: tuple[str, ...]) -> Any:
    for one in path:
        if isinstance(body, dict):
            body = body.get(one)
        elif isinstance(body, list) and one.isdigit() and int(one) < len(body):
            body = body[int(one)]
        else:
            return None
    return body


@dataclass(frozen=True, slots=True)
class Workspace:
    """A collection, and the caller."""

    collection: str
    context: Context
    calls: ToolCalls

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Raises ProblemDetails, and Fault."""
        return checked(await self.calls.made(self.context, name, arguments))


class Workspaces:
    def __init__(self, calls: ToolCalls) -> None:
        self._calls = calls

    async def of(self, request: Request) -> Workspace:
        """The collection of the path, or of the header if the caller may read that. Raises
        ProblemDetails."""
        context = await self._context(request)
        named = request.headers.get(WORKSPACE, "").strip()
        found = Workspace(named or request.path_params["collection"], context, self._calls)
        if named:
            await found.call("knowledge_get_collection", {"collection": named})
        return found

    async def _context(self, request: Request) -> Context:
        """Raises ProblemDetails: a key that is missing or wrong is a 403 there, a token a 401."""
        try:
            return await self._calls.context(request)
        except ProblemDetails as problem:
            if problem.status != 401 or "authorization" in request.headers:
                raise
            text = "Invalid API Key" if "x-api-key" in request.headers else "API Key required"
            raise ProblemDetails(403, "forbidden", text) from problem

    async def read(
        self, request: Request, type_: type[Any], limit_bytes: int = BODY
    ) -> tuple[Workspace, Any]:
        """The collection, and the body. Callers that are not known are told nothing else. Raises
        ProblemDetails."""
        workspace = await self.of(request)
        body = await request.body()
        if len(body) > limit_bytes:
            text = f"The body has {len(body)} bytes, expected at most {limit_bytes}."
            raise ProblemDetails(413, "too-large", text)
        return workspace, decoded(body, type_)
