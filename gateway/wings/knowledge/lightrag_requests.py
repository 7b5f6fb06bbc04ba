"""Requests of LightRAG's contract: the collection that they are for, their bodies, and errors of
validation as FastAPI words them."""

import re
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request

from gateway.context import Context
from gateway.operations.problems import ProblemDetails, bad_request
from gateway.wings.http_tool_calls import ToolCalls, check_result
from schemas.tool import ToolResult

WORKSPACE = "LIGHTRAG-WORKSPACE"
TOP = 1000  # most that `top_k` may ask for
TOKENS = 1_000_000  # most that a limit of tokens may be
BODY = 2**20  # bytes of a request that stores no text
ECHOED_BYTES = 65_536  # bytes of a body of which a part is shown in errors
Top = Annotated[int, Meta(ge=1, le=TOP)]
Tokens = Annotated[int, Meta(ge=1, le=TOKENS)]
Keywords = Annotated[list[str], Meta(max_length=64)]
Status = Literal[
    "pending", "parsing", "analyzing", "preprocessed", "processing", "processed", "failed"
]
QueryMode = Literal["local", "global", "hybrid", "naive", "mix", "bypass"]
SortField = Literal["created_at", "updated_at", "id", "file_path"]
SortDirection = Literal["asc", "desc"]
Name = Annotated[
    str, Meta(min_length=1, max_length=256, pattern=r"\S", description="a name, not blank")
]
Description = Annotated[str, Meta(max_length=20_000)]


STATUSES: tuple[str, ...] = get_args(Status)


class LightRagMessage(Struct, frozen=True):
    content: str = ""
    role: str = ""


class LightRagQuery(Struct, frozen=True):
    query: Annotated[str, Meta(max_length=65_536)]
    mode: QueryMode = "mix"
    top_k: Top | None = None
    chunk_top_k: Top | None = None
    max_total_tokens: Tokens | None = None
    max_entity_tokens: Tokens | None = None  # this and the next: no effect
    max_relation_tokens: Tokens | None = None
    hl_keywords: Keywords = []
    ll_keywords: Keywords = []
    ids: list[str] | None = None  # older versions had it
    include_references: bool | None = True
    include_chunk_content: bool | None = False
    include_progress: bool | None = False
    only_need_context: bool | None = None
    only_need_prompt: bool | None = None
    response_type: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    user_prompt: Annotated[str, Meta(max_length=65_536)] | None = None
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
    status_filter: Status | None = None
    status_filters: list[Status] | None = None
    sort_field: SortField = "updated_at"
    sort_direction: SortDirection = "desc"


class LightRagDelete(Struct, frozen=True):
    doc_ids: Annotated[list[str], Meta(max_length=1000)]
    delete_file: bool = False  # no effect, as the next
    delete_llm_cache: bool = False


class LightRagEntityData(Struct, frozen=True):
    description: Description = ""
    entity_type: Annotated[str, Meta(max_length=64)] = ""
    entity_name: Name | None = None  # another name, of an edit


class LightRagEntity(Struct, frozen=True):
    entity_name: Name
    entity_data: LightRagEntityData


class LightRagEntityChange(LightRagEntityData, frozen=True, forbid_unknown_fields=True):
    source_id: str = ""  # no effect, as the next: the sources are the documents
    file_path: str = ""


class LightRagEntityEdit(Struct, frozen=True):
    entity_name: Name
    updated_data: LightRagEntityChange
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


class LightRagRelationChange(LightRagRelationData, frozen=True, forbid_unknown_fields=True):
    source_id: str = ""  # no effect, as the next
    file_path: str = ""


class LightRagRelationEdit(Struct, frozen=True):
    source_id: Name
    target_id: Name
    updated_data: LightRagRelationChange


class LightRagMerge(Struct, frozen=True):
    entities_to_change: Annotated[list[Name], Meta(min_length=1, max_length=100)]
    entity_to_change_into: Name


class LightRagDeleteEntity(Struct, frozen=True):
    entity_name: Name


class LightRagDeleteRelation(Struct, frozen=True):
    source_entity: Name
    target_entity: Name


class LightRagInvalid(ProblemDetails):
    """An error of validation. `place`: where it is, such as ("body", "query")."""

    def __init__(
        self,
        kind: str,
        place: tuple[str, ...],
        text: str,
        *,
        value: Any = None,
        context: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(422, "invalid", text)
        self.entry = {"type": kind, "loc": list(place), "msg": text, "input": value}
        if context is not None:
            self.entry["ctx"] = dict(context)


def invalid_value(place: tuple[str, ...], text: str, value: Any = None) -> LightRagInvalid:
    """Error of a value that LightRAG's validators refuse."""
    return LightRagInvalid(
        "value_error", place, f"Value error, {text}", value=value, context={"error": {}}
    )


def decode_request(body: bytes, type_: type[Struct]) -> Any:
    """Raises LightRagInvalid."""
    try:
        value = msgspec.json.decode(body)
        if isinstance(value, dict):
            kinds = _scalar_kinds(type_)
            value = {name: lax(member, kinds.get(name)) for name, member in value.items()}
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        raise _invalid_request(str(error), _shown_body(body)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _no_json(error) from error


_TRUE = frozenset(("true", "t", "yes", "y", "on", "1"))
_FALSE = frozenset(("false", "f", "no", "n", "off", "0"))
_WHOLE = re.compile(r"[+-]?\d{1,18}(\.0{1,18})?", re.ASCII)


def lax(value: Any, kind: type[int] | None) -> Any:
    """The value, read as pydantic reads a number or a truth value of another JSON type."""
    if kind is bool and isinstance(value, str | int | float):
        word = str(int(value) if isinstance(value, float) and value in (0, 1) else value).lower()
        return True if word in _TRUE else False if word in _FALSE else value
    if kind is int and isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        return int(value.strip().partition(".")[0])
    if kind is int and isinstance(value, bool | float) and value == value // 1:
        return int(value)
    return value


@cache
def _scalar_kinds(type_: type[Struct]) -> Mapping[str, type[int]]:
    """Members of a body that are whole numbers or truth values."""
    hints = {member.name: str(member.type) for member in msgspec.structs.fields(type_)}
    return {
        name: kind
        for name, text in hints.items()
        for kind in (int, bool)
        if re.search(rf"\b{kind.__name__}\b", text)
    }


def _shown_body(body: bytes) -> Any:
    """Part of a body that errors may show: the whole of a small one. Raises LightRagInvalid."""
    if len(body) > ECHOED_BYTES:
        return None
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _no_json(error) from error


def _no_json(error: Exception) -> LightRagInvalid:
    text, context = "JSON decode error", {"error": str(error)}
    return LightRagInvalid("json_invalid", ("body",), text, value={}, context=context)


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


def _invalid_request(error: str, body: Any) -> ProblemDetails:
    at = _PLACE.search(error)
    path = tuple(filter(None, re.split(r"[.\[\]]+", at[1]))) if at else ()
    if path and path[0] in _ATTRIBUTES:  # of an entity or a relation, which are a 400 there
        text = f"{'.'.join(path)}: {_PLACE.sub('', error)}"
        return bad_request(text)
    place, value = ("body", *path), _member_at(body, path)
    if missing := _MISSING.search(error):
        return LightRagInvalid("missing", (*place, missing[1]), "Field required", value=value)
    for pattern, kind, text, name in _BOUNDS:
        if bound := re.search(pattern, error):
            context: dict[str, Any] = {name: int(bound[1])}
            if name.endswith("length") and isinstance(value, list):
                context |= {"field_type": "List", "actual_length": len(value)}
            message = text.format(bound[1])
            return LightRagInvalid(kind, place, message, value=value, context=context)
    if error.startswith("Invalid enum value"):
        names = [f"'{field}'" for field in _NAMES.get(path[0], ())] if path else []
        expected = " or ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
        text = f"Input should be {expected}" if expected else error
        context = {"expected": expected}
        return LightRagInvalid("literal_error", place, text, value=value, context=context)
    if "matching regex" in error and path and path[0] in _ENTITIES:
        return invalid_value(place, "Entity name cannot be empty", value)
    expected_type = _EXPECTED_TYPE.search(error)
    kind, text = _TYPES.get(expected_type[1] if expected_type else "", ("type_error", error))
    return LightRagInvalid(kind, place, text, value=value)


_ENTITIES = frozenset(
    ("entity_name", "source_id", "target_id", "source_entity", "target_entity",
     "entities_to_change", "entity_to_change_into")
)  # fmt: skip
_ATTRIBUTES = frozenset(("entity_data", "relation_data", "updated_data"))
_EXPECTED_TYPE = re.compile(r"Expected `(\w+)")
_TYPES: Mapping[str, tuple[str, str]] = {
    "int": ("int_type", "Input should be a valid integer"),
    "bool": ("bool_type", "Input should be a valid boolean"),
    "str": ("string_type", "Input should be a valid string"),
    "array": ("list_type", "Input should be a valid list"),
    "object": ("dict_type", "Input should be a valid dictionary"),
}
_NAMES: Mapping[str, Sequence[str]] = {
    "mode": get_args(QueryMode),
    "status_filter": STATUSES,
    "status_filters": STATUSES,
    "sort_field": get_args(SortField),
    "sort_direction": get_args(SortDirection),
}


def _member_at(body: Any, path: tuple[str, ...]) -> Any:
    for step in path:
        if isinstance(body, dict):
            body = body.get(step)
        elif isinstance(body, list) and step.isdigit() and int(step) < len(body):
            body = body[int(step)]
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
        return check_result(await self.calls.call_tool(self.context, name, arguments))


GUEST = (  # of no rights: what their web interface shows of a caller without a login
    b'{"alg":"none","typ":"JWT"}',
    b'{"sub":"guest","role":"guest","exp":4102444800,"metadata":{"auth_mode":"disabled"}}',
    b"guest",
)
GUEST_TOKEN = ".".join(urlsafe_b64encode(part).decode().rstrip("=") for part in GUEST)


class Workspaces:
    def __init__(self, calls: ToolCalls) -> None:
        self._calls = calls

    async def of(self, request: Request, *, stores: bool = False) -> Workspace:
        """The collection of the path, or of the header: one that the caller may read, unless the
        request stores what makes it. Raises ProblemDetails."""
        context = await self.caller(request)
        named = request.headers.get(WORKSPACE, "").strip()
        workspace = Workspace(named or request.path_params["collection"], context, self._calls)
        if named and not stores:
            await workspace.call("knowledge_get_collection", {"collection": named})
        return workspace

    async def caller(self, request: Request) -> Context:
        """Raises ProblemDetails: a key that is missing or wrong is a 403 there, a token a 401. The
        token of a guest is none."""
        if request.headers.get("authorization") == f"Bearer {GUEST_TOKEN}":
            headers = [pair for pair in request.scope["headers"] if pair[0] != b"authorization"]
            request = Request({**request.scope, "headers": headers}, request.receive)
        try:
            return await self._calls.context(request)
        except ProblemDetails as problem:
            if problem.status != 401 or "authorization" in request.headers:
                raise
            text = "Invalid API Key" if "x-api-key" in request.headers else "API Key required"
            raise ProblemDetails(403, "forbidden", text) from problem

    async def read(
        self,
        request: Request,
        type_: type[Struct],
        limit_bytes: int = BODY,
        *,
        stores: bool = False,
    ) -> tuple[Workspace, Any]:
        """The collection, and the body. Callers that are not known are told nothing else. Raises
        ProblemDetails."""
        workspace = await self.of(request, stores=stores)
        body = await request.body()
        if len(body) > limit_bytes:
            text = f"The body has {len(body)} bytes, expected at most {limit_bytes}."
            raise ProblemDetails(413, "too-large", text)
        return workspace, decode_request(body, type_)
