"""Import pipeline of OpenAPI: find the operations, name them, select, map each one, report."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from registry.importers.drafts import ImportedDescription, join_notes
from registry.importers.openapi.document import OpenApiDocument, SkipOperation, server_urls
from registry.importers.openapi.import_options import OpenApiOptions, matches, refusal
from registry.importers.openapi.multi_file_documents import FILES, MissingFile
from registry.importers.openapi.operations import DocumentOperation, operations
from registry.importers.openapi.schema_budgets import SizeBudget
from registry.importers.openapi.secret_arguments import secret_notes
from registry.importers.openapi.security import read_logins
from registry.importers.openapi.tool_drafts import OpenApiDrafts
from registry.names.tool_names import PORTABLE_LIMIT, assign, limit_for, tool_name
from schemas.source import Outcome, OutcomeStatus
from schemas.tool import ToolDraft
from schemas.untrusted_json import mapping

_EVERYTHING = OpenApiOptions()
_FILES_NAMED = 10
_DUPLICATES_NAMED = 10


def read(
    document: dict[str, Any],
    options: OpenApiOptions = _EVERYTHING,
    duplicates: Sequence[str] = (),
) -> ImportedDescription:
    """Import a document. `duplicates`: notes on its duplicate keys. Raises `ImportRejected` only
    where no operation could be read at all."""
    parsed = OpenApiDocument(document)
    parsed_operations, outcomes = operations(parsed, options.overlay)
    # assigned before the selection, which must not rename the others
    ids = Counter(op.operation_id for op in parsed_operations)
    verbs = Counter((op.operation_id, op.method) for op in parsed_operations)
    names = assign(
        {
            op.key: (_name(op, ids, verbs), op.marks.name or op.operation_id)
            for op in parsed_operations
        }
    )
    drafts = []
    mapper = _Mapper(parsed, ids, options)
    for operation in parsed_operations:
        draft, outcome = mapper.map(operation, names[operation.key], options)
        outcomes.append(outcome)
        drafts.extend([draft] if draft else [])
    info = mapping(document.get("info"))
    return ImportedDescription(
        title=_clean_text(info.get("title")),
        version=_clean_text(info.get("version")),
        servers=tuple(server_urls(parsed.root.get("servers"))),
        drafts=tuple(drafts),
        outcomes=tuple(outcomes),
        notes=(
            *duplicates[:_DUPLICATES_NAMED],
            *_notes(parsed, parsed_operations, names, options),
            *secret_notes(drafts),
        ),
        logins=read_logins(parsed),
    )


class _Mapper:
    """Maps operations one by one; a failure affects only its own."""

    def __init__(
        self, document: OpenApiDocument, ids: Mapping[str | None, int], options: OpenApiOptions
    ) -> None:
        """`ids`: how many operations have each operationId."""
        room = SizeBudget(options.schemas_limit_bytes)
        self._tools = OpenApiDrafts(
            document, room, options.media_types, credentials=options.credentials
        )
        self._ids = ids

    def map(
        self, operation: DocumentOperation, name: str, options: OpenApiOptions
    ) -> tuple[ToolDraft | None, Outcome]:
        if reason := refusal(operation, name, options):
            return None, Outcome(operation.key, operation.label, None, "excluded", reason=reason)
        try:
            draft, notes = self._tools.draft(operation, name)
            notes = [*operation.notes, *notes]
        except SkipOperation as skip:
            return None, Outcome(operation.key, operation.label, None, "skipped", reason=str(skip))
        if operation.operation_id and self._ids[operation.operation_id] > 1:
            notes.append(f"operationId {operation.operation_id} is used more than once")
        status: OutcomeStatus = "degraded" if notes else "imported"
        return draft, Outcome(
            operation.key, operation.label, name, status, reason=join_notes(notes)
        )


def _name(
    operation: DocumentOperation,
    ids: Mapping[str | None, int],
    verbs: Mapping[tuple[str | None, str], int],
) -> str:
    """The name wanted for the tool. Operations that share an operationId are told apart by their
    methods, or, where these are the same, named after their paths."""
    method, operation_id = operation.method, operation.operation_id
    candidate = operation.marks.name or operation_id
    if operation_id and not operation.marks.name and ids[operation_id] > 1:
        candidate = f"{operation_id}_{method.lower()}" if verbs[operation_id, method] == 1 else None
    limit = limit_for(operation.marks.name) if operation.marks.name else PORTABLE_LIMIT
    return tool_name(candidate, method, operation.path, limit)


def _clean_text(value: object) -> str | None:
    """The value as text; `version: 1.0` is a number in YAML."""
    return str(value).strip() or None if isinstance(value, str | int | float) else None


def _notes(
    document: OpenApiDocument,
    operations: list[DocumentOperation],
    names: dict[str, str],
    options: OpenApiOptions,
) -> Iterator[str]:
    others = mapping(document.root.get(FILES)).items()
    unread = sorted((name, file.reason) for name, file in others if isinstance(file, MissingFile))
    for name, reason in unread[:_FILES_NAMED]:
        yield f"the file {name!r} cannot be read: {reason}"
    if (more := len(unread) - _FILES_NAMED) > 0:
        yield f"{more:,} more files cannot be read"
    for url in server_urls(document.root.get("servers")):
        if "{" in url:
            yield f"its server {url[:200]!r} has a variable without a value; it is not used"
    for pattern in (*options.include, *options.exclude):
        if not any(matches(op, names[op.key], pattern) for op in operations):
            yield f"the pattern {pattern!r} matches no operation"
    keys = {key for op in operations for key in (op.endpoint, op.operation_id)}
    for key in options.overlay.operations:
        if key not in keys:
            yield f"the overlay's {key!r} matches no operation"
