"""Operations of a document, and their media types; those of Swagger 2.0 in terms of OpenAPI 3."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from registry.importers.openapi.document import OpenApiDocument, SkipOperation, servers
from registry.importers.openapi.x_toolgate import (
    KEY,
    NO_OVERLAY,
    UNMARKED,
    ExtensionSettings,
    Overlay,
    merge_marks,
    operation_marks,
    shared_marks,
)
from schemas.errors import ImportRejected
from schemas.globs import glob
from schemas.json_schema.references import reference_of
from schemas.source import CredentialName, Outcome
from schemas.untrusted_json import mapping, sequence, text

# kept of a parameter, beside its schema
_OF_PARAMETER = frozenset(
    {"name", "in", "required", "description", "allowEmptyValue", "collectionFormat", "schema"}
    | {"x-toolgate", "x-example", "x-examples", "deprecated"}
)
_KEPT = ("name", "in", "required", "description", "allowEmptyValue", "x-toolgate", "deprecated")
# style and explode; for `csv` in a path or a header, the default of 3.x
_FORMATS = {
    "multi": ("form", True),
    "csv": ("form", False),
    "ssv": ("spaceDelimited", False),
    "tsv": ("tabDelimited", False),
    "pipes": ("pipeDelimited", False),
}
_FORMS = ("multipart/form-data", "application/x-www-form-urlencoded")
_FILE = {"type": "string", "format": "binary"}
_JSON = ("application/json",)

_Upgrade = tuple[dict[str, Any], dict[str, Any]]  # original and upgraded


@dataclass(frozen=True, slots=True)
class _Parameters:
    """Parameters split by location."""

    plain: dict[tuple[str, str], dict[str, Any]]  # upgraded, by name and location
    forms: dict[str, dict[str, Any]]  # not upgraded
    body: dict[str, Any] | None


class Swagger:
    """Upgrades the operations of one document."""

    def __init__(self, document: OpenApiDocument) -> None:
        self._document = document
        self._consumes = _types(document.root.get("consumes"), _JSON)
        self._produces = _types(document.root.get("produces"), _JSON)
        # by identity, with the object itself, which keeps its identity from being reused
        self._upgraded: dict[int, _Upgrade] = {}
        self._responses: dict[tuple[int, tuple[str, ...]], _Upgrade] = {}

    def operation(
        self, item: dict[str, Any], node: dict[str, Any], notes: list[str]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The upgraded path item and operation. Raises `SkipOperation`."""
        shared = self._parameters(item.get("parameters"), notes)
        own = self._parameters(node.get("parameters"), notes)
        upgraded = {
            **node,
            "parameters": list({**shared.plain, **own.plain}.values()),
            "responses": self._all_responses(node),
        }
        if body := self._body(shared, own, _types(node.get("consumes"), self._consumes), notes):
            upgraded["requestBody"] = body
        if "schemes" in node and "servers" not in node:
            upgraded["servers"] = self._servers(node["schemes"])
        return {key: value for key, value in item.items() if key != "parameters"}, upgraded

    def _servers(self, schemes: object) -> list[dict[str, Any]]:
        """The operation's own servers, where the document's do not fit."""
        usual = sequence(self._document.root.get("servers"))
        return [] if usual[:1] == (own := list(servers(self._document.root, schemes)))[:1] else own

    def _parameters(self, stated: object, notes: list[str]) -> _Parameters:
        if stated is not None and not isinstance(stated, list):
            notes.append("`parameters` is not a list; ignored")
        parameters = _Parameters({}, {}, None)
        for raw in sequence(stated):
            parameter = self._document.resolve(raw)
            name, location = parameter.get("name"), parameter.get("in")
            if location == "body":
                parameters = _Parameters(parameters.plain, parameters.forms, parameter)
            elif location == "formData":
                parameters.forms[str(name)] = parameter
            else:
                parameters.plain[str(name), str(location)] = self._parameter(parameter)
            if mapping(parameter.get("items")).get("type") == "array":
                notes.append(f"parameter {name}: arrays inside an array are sent as JSON")
        return parameters

    def _parameter(self, parameter: dict[str, Any]) -> dict[str, Any]:
        if id(parameter) not in self._upgraded:
            upgraded = {key: parameter[key] for key in _KEPT if key in parameter}
            upgraded["schema"] = _schema(parameter)
            in_query = parameter.get("in") == "query"
            if _is_list(parameter) and (style := _style(parameter, in_query)):
                upgraded["style"], upgraded["explode"] = style
            self._upgraded[id(parameter)] = parameter, upgraded
        return self._upgraded[id(parameter)][1]

    def _body(
        self, shared: _Parameters, own: _Parameters, consumes: tuple[str, ...], notes: list[str]
    ) -> dict[str, Any] | None:
        """The request body: from one body parameter, or from all form parameters."""
        body = own.body or (None if own.forms else shared.body)
        forms = {**shared.forms, **own.forms}
        if body is not None:
            if forms:
                notes.append("it has a body and form parameters; the form parameters are left out")
            return _whole(body, consumes)
        return _form(forms, consumes) if forms else None

    def _all_responses(self, node: dict[str, Any]) -> dict[str, Any]:
        produces = _types(node.get("produces"), self._produces)
        responses = {}
        for code, raw in mapping(node.get("responses")).items():
            try:
                responses[code] = self._response(self._document.resolve(raw), produces)
            except SkipOperation:
                responses[code] = raw  # reported where it is read
        return responses

    def _response(self, response: dict[str, Any], produces: tuple[str, ...]) -> dict[str, Any]:
        key = id(response), produces
        if key not in self._responses:
            self._responses[key] = response, _response(response, produces)
        return self._responses[key][1]


def _types(stated: object, usual: tuple[str, ...]) -> tuple[str, ...]:
    """Media types. An empty list would override the document's, which is never meant."""
    named = [name for name in sequence(stated) if text(name)]
    return tuple(dict.fromkeys(named)) or usual


def _schema(parameter: Mapping[str, Any]) -> dict[str, Any]:
    """Schema from the keywords that 2.0 has directly in a parameter."""
    stated = parameter.get("schema")  # as in 3.x, in many documents
    if isinstance(stated, dict) and "type" not in parameter:
        return stated
    schema = {key: value for key, value in parameter.items() if key not in _OF_PARAMETER}
    if parameter.get("type") == "file":
        schema.update(_FILE)
    if mapping(parameter.get("items")).get("type") == "file":
        schema["items"] = {**mapping(parameter.get("items")), **_FILE}
    if "x-example" in parameter:
        schema.setdefault("example", parameter["x-example"])
    return schema


def _is_list(parameter: Mapping[str, Any]) -> bool:
    return parameter.get("type") == "array" or "collectionFormat" in parameter


def _is_file(form: Mapping[str, Any]) -> bool:
    """Whether a form parameter is a file or a list of files; `format: binary` is 3.x's word."""
    value = mapping(form.get("items")) if form.get("type") == "array" else form
    return value.get("type") == "file" or value.get("format") == "binary"


def _style(parameter: Mapping[str, Any], form: bool) -> tuple[str, bool] | None:
    stated = text(parameter.get("collectionFormat")) or "csv"
    if stated == "csv" and not form:
        return None
    return _FORMATS.get(stated, (stated, False))


def _whole(body: Mapping[str, Any], consumes: Iterable[str]) -> dict[str, Any]:
    media: dict[str, Any] = {"schema": body.get("schema", {})}
    if "x-example" in body:
        media["example"] = body["x-example"]
    return {**_about(body), "content": dict.fromkeys(consumes, media)}


def _about(body: Mapping[str, Any]) -> dict[str, Any]:
    return {key: body[key] for key in ("description", "required", "x-toolgate") if key in body}


def _form(forms: Mapping[str, Mapping[str, Any]], consumes: tuple[str, ...]) -> dict[str, Any]:
    has_file = any(map(_is_file, forms.values()))
    usable = _FORMS[:1] if has_file else _FORMS
    stated = [name for name in consumes if name.partition(";")[0].strip().lower() in usable]
    if not stated:
        stated = [usable[-1]]
    required = [name for name, form in forms.items() if form.get("required") is True]
    schema = {
        "type": "object",
        "properties": {name: _property(form) for name, form in forms.items()},
        **({"required": required} if required else {}),
    }
    styles = {  # files are parts of their own, one each
        name: _style(form, form=True)
        for name, form in forms.items()
        if _is_list(form) and not _is_file(form)
    }
    encoding = {
        name: {"style": style[0], "explode": style[1]} for name, style in styles.items() if style
    }
    media = {"schema": schema, **({"encoding": encoding} if encoding else {})}
    return {"required": bool(required), "content": dict.fromkeys(stated, media)}


def _property(form: Mapping[str, Any]) -> dict[str, Any]:
    about = {key: form[key] for key in ("description", "x-toolgate") if key in form}
    return {**_schema(form), **about}


def _response(response: Mapping[str, Any], produces: Iterable[str]) -> dict[str, Any]:
    kept = {key: value for key, value in response.items() if key not in ("schema", "headers")}
    if headers := mapping(response.get("headers")):
        kept["headers"] = {name: _header(mapping(header)) for name, header in headers.items()}
    if "content" not in kept and "schema" in response:
        schema = response["schema"]
        if mapping(schema).get("type") == "file":
            schema = {**mapping(schema), **_FILE}
        kept["content"] = {media_type: {"schema": schema} for media_type in produces}
    return kept


def _header(header: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": header.get("description", ""), "schema": _schema(header)}


METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
_QUERY = "query"  # 3.2, section 4.9
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, section 5.6.2
# GitHub has about 1,100, Kubernetes 1,123; ten times as many are no company's service
OPERATIONS_LIMIT = 10_000


@dataclass(frozen=True)
class DocumentOperation:
    """One method of one path."""

    method: str  # upper case, or as written in `additionalOperations`
    path: str  # as in the document
    item: dict[str, Any]  # the path item around it
    node: dict[str, Any]
    marks: ExtensionSettings = UNMARKED  # those of document, path item and overlay included
    notes: tuple[str, ...] = ()  # losses so far

    @cached_property
    def key(self) -> str:
        return _key(self.path, self.method)

    @cached_property
    def operation_id(self) -> str | None:
        return text(self.node.get("operationId")) or None

    @property
    def endpoint(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def label(self) -> str:
        return self.operation_id or self.endpoint


def operations(
    document: OpenApiDocument, overlay: Overlay = NO_OVERLAY
) -> tuple[list[DocumentOperation], list[Outcome]]:
    """All operations, and a `skipped` for each that cannot be read.

    Raises `ImportRejected` for a document without `paths` or with too many operations.
    """
    return _Reading(document, overlay).all()


class _Reading:
    def __init__(self, document: OpenApiDocument, overlay: Overlay) -> None:
        self._document = document
        self._overlay = overlay
        self._swagger = Swagger(document) if document.version == (2, 0) else None
        self._skipped: list[Outcome] = []

    def all(self) -> tuple[list[DocumentOperation], list[Outcome]]:
        operations: list[DocumentOperation] = []
        for path, item in self._paths().items():
            if path.startswith("x-"):
                continue
            try:
                operations.extend(self._of_path(path, item))
            except SkipOperation as skip:
                self._skip(path, path, str(skip))
            if len(operations) > OPERATIONS_LIMIT:
                raise ImportRejected(
                    f"The description has more than {OPERATIONS_LIMIT:,} operations, the limit."
                )
        return operations, self._skipped

    def _paths(self) -> dict[str, Any]:
        stated = self._document.root.get("paths")
        if not isinstance(stated, dict):
            raise ImportRejected("The description has no `paths`, so there is nothing to import.")
        if reference_of(stated) is None:
            return stated
        try:  # not in any version, but common in multi-file descriptions
            return self._document.with_target(stated)
        except SkipOperation as skip:
            raise ImportRejected(f"The description has no `paths`: {skip}.") from skip

    def _of_path(self, path: str, raw: object) -> Iterator[DocumentOperation]:
        if not isinstance(raw, dict):
            raise SkipOperation("the path item is not an object")
        item = self._document.with_target(raw)
        for method, node in _methods(item):
            try:
                yield self._operation(path, item, method, node)
            except SkipOperation as skip:
                self._skip(_key(path, method), f"{method} {path}", str(skip))

    def _operation(
        self, path: str, item: dict[str, Any], method: str, raw: object
    ) -> DocumentOperation:
        if not isinstance(raw, dict):
            raise SkipOperation("the operation is not an object")
        if not _TOKEN.fullmatch(method):
            raise SkipOperation(f"the method {method[:40]!r} cannot be sent")
        node = self._document.resolve(raw)  # files for single operations: common, in no version
        notes: list[str] = []
        marks = self._marks(f"{method} {path}", item, node)
        if self._swagger:
            item, node = self._swagger.operation(item, node, notes)
        return DocumentOperation(method, path, item, node, marks=marks, notes=tuple(notes))

    def _marks(
        self, endpoint: str, item: dict[str, Any], node: dict[str, Any]
    ) -> ExtensionSettings:
        """Merged marks, from the farthest to the nearest."""
        layers = [
            shared_marks(self._document.root, "the document"),
            self._overlay.defaults,
            shared_marks(item, "the path"),
            operation_marks(node),
        ]
        entries = self._overlay.operations
        layers += [entries[key] for key in (_id(node), endpoint) if key in entries]
        marks = UNMARKED
        for layer in layers:
            if layer is not UNMARKED and layer != UNMARKED:
                marks = merge_marks(marks, layer) if marks is not UNMARKED else layer
        return marks

    def _skip(self, key: str, operation: str, reason: str) -> None:
        self._skipped.append(Outcome(key, operation, None, "skipped", reason=reason))


def _id(node: dict[str, Any]) -> str:
    return text(node.get("operationId"))


def _methods(item: dict[str, Any]) -> Iterator[tuple[str, object]]:
    """Method and node; `query` and `additionalOperations` since 3.2, accepted in all versions."""
    for name in (*METHODS, _QUERY):
        if name in item:
            yield name.upper(), item[name]
    for method, node in mapping(item.get("additionalOperations")).items():
        if method.lower() not in item or method.lower() not in (*METHODS, _QUERY):
            yield method, node


def _key(path: str, method: str) -> str:
    # methods are case-sensitive; the standard ones are upper case
    return f"{path}@{method.lower() if method.isupper() else method}"


_TAG = "tag:"
SCHEMAS_LIMIT_BYTES = 2**26  # default of imports.schemas_limit_bytes


@dataclass(frozen=True, slots=True)
class OpenApiOptions:
    """Globs (`fnmatch`, `*` crosses `/`) against the tool's name, the operationId or
    `GET /path/{x}`; `tag:repos` against tags. `include` empty: all. `exclude` wins."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    only_marked: bool = False  # leave out operations without the mark `enabled`
    media_types: tuple[str, ...] = ()  # of request bodies, preferred where they are described
    overlay: Overlay = NO_OVERLAY
    schemas_limit_bytes: int = SCHEMAS_LIMIT_BYTES
    credentials: tuple[CredentialName, ...] = ()  # of the source, which fill secrets


def refusal(operation: DocumentOperation, name: str, options: OpenApiOptions) -> str | None:
    """Why the operation is not selected; None when it is."""
    for pattern in options.exclude:
        if matches(operation, name, pattern):
            return f"excluded by {pattern!r}"
    if options.include and not any(matches(operation, name, p) for p in options.include):
        return "not included"
    if operation.marks.enabled is False:
        return f"{KEY} has `enabled: false`"
    if options.only_marked and operation.marks.enabled is not True:
        return f"no {KEY} has `enabled: true`"
    return None


def matches(operation: DocumentOperation, name: str, pattern: str) -> bool:
    if pattern.startswith(_TAG):
        tags = sequence(operation.node.get("tags"))
        return glob(pattern.removeprefix(_TAG)).match_any(map(str, tags))
    texts = (name, operation.operation_id or name, operation.endpoint)
    return glob(pattern).match_any(texts)
