"""The operations of a document, before anybody looks into them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from registry.importers.openapi.document import REF_HOPS, Document, Skip
from registry.importers.openapi.values import mapping, text
from schemas.errors import ImportRejected
from schemas.source import Outcome

METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
_UNREAD = ("query", "additionalOperations")  # 3.2, section 4.9
# GitHub has about 1,100, Kubernetes 1,123; a document ten times as large is no service of a company
OPERATIONS_LIMIT = 10_000


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path."""

    method: str  # upper case
    path: str  # as in the document
    item: dict[str, Any]  # the path item around it
    node: dict[str, Any]

    @property
    def key(self) -> str:
        return f"{self.path}@{self.method.lower()}"

    @property
    def operation_id(self) -> str | None:
        return text(self.node.get("operationId")) or None

    @property
    def endpoint(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def label(self) -> str:
        return self.operation_id or self.endpoint


def operations(document: Document) -> tuple[list[Operation], list[Outcome]]:
    """All operations, and a `skipped` for each place where one should be and none can be read.

    Raises `ImportRejected` for a document without `paths` or with too many operations.
    """
    paths = document.root.get("paths")
    if not isinstance(paths, dict):
        raise ImportRejected("The description has no `paths`, so there is nothing to import.")
    found: list[Operation] = []
    skipped: list[Outcome] = []
    for path, item in paths.items():
        if path.startswith("x-"):
            continue
        try:
            found.extend(_of_path(document, path, item, skipped))
        except Skip as skip:
            skipped.append(_skipped(path, path, str(skip)))
        if len(found) > OPERATIONS_LIMIT:
            raise ImportRejected(
                f"The description has more than {OPERATIONS_LIMIT:,} operations, the limit."
            )
    return found, skipped


def _of_path(
    document: Document, path: str, raw: object, skipped: list[Outcome]
) -> Iterator[Operation]:
    if not isinstance(raw, dict):
        raise Skip("the path item is not an object")
    item = _path_item(document, raw)
    for method in METHODS:
        if method in item:
            operation = Operation(method.upper(), path, item, mapping(item[method]))
            if isinstance(item[method], dict):
                yield operation
            else:
                reason = "the operation is not an object"
                skipped.append(_skipped(operation.key, operation.endpoint, reason))
    for method in _UNREAD:
        if method in item:
            reason = f"`{method}` (OpenAPI 3.2) is not read yet"
            skipped.append(_skipped(f"{path}@{method.lower()}", f"{method} {path}", reason))


def _path_item(document: Document, raw: dict[str, Any]) -> dict[str, Any]:
    """With what its `$ref` points at; its own members win, where 3.0 leaves it undefined."""
    item = raw
    for _ in range(REF_HOPS):
        if "$ref" not in item:
            return item
        own = {key: value for key, value in item.items() if key != "$ref"}
        item = {**mapping(document.find(str(item["$ref"]))), **own}
    raise Skip(f"$ref {raw['$ref']!r} never ends")


def _skipped(key: str, operation: str, reason: str) -> Outcome:
    return Outcome(key, operation, None, "skipped", reason)
