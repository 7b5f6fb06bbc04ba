"""Options of an import of OpenAPI: the operations that it takes, and its limits."""

from dataclasses import dataclass

from registry.importers.drafts import SCHEMAS_LIMIT_BYTES
from registry.importers.openapi.operations import DocumentOperation
from registry.importers.openapi.x_toolgate import KEY, NO_OVERLAY, Overlay
from schemas.globs import glob
from schemas.source import CredentialName
from schemas.untrusted_json import sequence

_TAG = "tag:"


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
