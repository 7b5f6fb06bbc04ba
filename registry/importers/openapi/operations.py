"""Operations of a document, and their media types; those of Swagger 2.0 in terms of OpenAPI 3."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from registry.importers.openapi.document import OpenApiDocument, SkipOperation
from registry.importers.openapi.swagger import Swagger
from registry.importers.openapi.x_toolgate import (
    NO_MARKS,
    NO_OVERLAY,
    ExtensionSettings,
    Overlay,
    merge_marks,
    operation_marks,
    shared_marks,
)
from schemas.errors import ImportRejected
from schemas.json_schema.references import reference_of
from schemas.source import Outcome
from schemas.untrusted_json import mapping, text

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
    marks: ExtensionSettings = NO_MARKS  # those of document, path item and overlay included
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
        marks = NO_MARKS
        for layer in layers:
            if layer is not NO_MARKS and layer != NO_MARKS:
                marks = merge_marks(marks, layer) if marks is not NO_MARKS else layer
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
