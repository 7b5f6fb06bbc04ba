"""Operations of a document, with their owner's marks, and the selection of some."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from registry.importers.openapi.document import REF_HOPS, OpenApiDocument, SkipOperation
from registry.importers.openapi.files import shown
from registry.importers.openapi.marks import (
    KEY,
    NO_OVERLAY,
    UNMARKED,
    Marks,
    Overlay,
    merged,
    operation_marks,
    shared_marks,
)
from registry.importers.openapi.swagger_operations import Swagger
from registry.importers.openapi.values import mapping, sequence, text
from schemas.errors import ImportRejected
from schemas.globs import glob
from schemas.source import Outcome

METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
_QUERY = "query"  # 3.2, section 4.9
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, section 5.6.2
# GitHub has about 1,100, Kubernetes 1,123; ten times as many are no company's service
OPERATIONS_LIMIT = 10_000


@dataclass(frozen=True, slots=True)
class DocumentOperation:
    """One method of one path."""

    method: str  # upper case, or as written in `additionalOperations`
    path: str  # as in the document
    item: dict[str, Any]  # the path item around it
    node: dict[str, Any]
    marks: Marks = UNMARKED  # those of document, path item and overlay included
    notes: tuple[str, ...] = ()  # losses so far

    @property
    def key(self) -> str:
        return _key(self.path, self.method)

    @property
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
        found: list[DocumentOperation] = []
        for path, item in self._paths().items():
            if path.startswith("x-"):
                continue
            try:
                found.extend(self._of_path(path, item))
            except SkipOperation as skip:
                self._skip(path, path, str(skip))
            if len(found) > OPERATIONS_LIMIT:
                raise ImportRejected(
                    f"The description has more than {OPERATIONS_LIMIT:,} operations, the limit."
                )
        return found, self._skipped

    def _paths(self) -> dict[str, Any]:
        stated = self._document.root.get("paths")
        if not isinstance(stated, dict):
            raise ImportRejected("The description has no `paths`, so there is nothing to import.")
        if not isinstance(stated.get("$ref"), str):
            return stated
        try:  # not in any version, but common in multi-file descriptions
            own = {path: item for path, item in stated.items() if path != "$ref"}
            return {**self._document.resolve(stated), **own}
        except SkipOperation as skip:
            raise ImportRejected(f"The description has no `paths`: {skip}.") from skip

    def _of_path(self, path: str, raw: object) -> Iterator[DocumentOperation]:
        if not isinstance(raw, dict):
            raise SkipOperation("the path item is not an object")
        item = self._path_item(raw)
        for method, node in _methods(item):
            try:
                yield self._operation(path, item, method, node)
            except SkipOperation as skip:
                self._skip(_key(path, method), f"{method} {path}", str(skip))

    def _path_item(self, raw: dict[str, Any]) -> dict[str, Any]:
        """The path item merged with its `$ref` target; its own members win, where 3.0 leaves it
        undefined."""
        item = raw
        for _ in range(REF_HOPS):
            if "$ref" not in item:
                return item
            own = {key: value for key, value in item.items() if key != "$ref"}
            item = {**mapping(self._document.find(str(item["$ref"]))), **own}
        raise SkipOperation(f"$ref {shown(str(raw['$ref']))!r} never ends")

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
        return DocumentOperation(method, path, item, node, marks, tuple(notes))

    def _marks(self, endpoint: str, item: dict[str, Any], node: dict[str, Any]) -> Marks:
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
                marks = merged(marks, layer) if marks is not UNMARKED else layer
        return marks

    def _skip(self, key: str, operation: str, reason: str) -> None:
        self._skipped.append(Outcome(key, operation, None, "skipped", reason))


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


def refusal(operation: DocumentOperation, name: str, options: OpenApiOptions) -> str | None:
    """Why the operation is not selected; None when it is."""
    for pattern in options.exclude:
        if matches(operation, name, pattern):
            return f"excluded by {pattern!r}"
    if options.include and not any(matches(operation, name, p) for p in options.include):
        return "not included"
    if operation.marks.enabled is False:
        return f"{KEY} says `enabled: false`"
    if options.only_marked and operation.marks.enabled is not True:
        return f"no {KEY} says `enabled: true`"
    return None


def matches(operation: DocumentOperation, name: str, pattern: str) -> bool:
    if pattern.startswith(_TAG):
        tags = sequence(operation.node.get("tags"))
        return glob(pattern.removeprefix(_TAG)).match_any(map(str, tags))
    texts = (name, operation.operation_id or name, operation.endpoint)
    return glob(pattern).match_any(texts)
