"""Which operations a person wants: patterns against name, operationId, endpoint or tag."""

from dataclasses import dataclass
from fnmatch import fnmatchcase

from registry.importers.openapi.operations import Operation
from registry.importers.openapi.values import sequence

_TAG = "tag:"


@dataclass(frozen=True, slots=True)
class Options:
    """Globs (`fnmatch`, `*` crosses `/`) against the tool's name, the operationId or
    `GET /path/{x}`; `tag:repos` against tags. `include` empty: all. `exclude` wins."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


def refusal(operation: Operation, name: str, options: Options) -> str | None:
    """Why the operation is not wanted; None when it is."""
    for pattern in options.exclude:
        if matches(operation, name, pattern):
            return f"excluded by {pattern!r}"
    if options.include and not any(matches(operation, name, p) for p in options.include):
        return "not included"
    return None


def matches(operation: Operation, name: str, pattern: str) -> bool:
    if pattern.startswith(_TAG):
        tags = sequence(operation.node.get("tags"))
        return any(fnmatchcase(str(tag), pattern.removeprefix(_TAG)) for tag in tags)
    texts = (name, operation.operation_id or name, operation.endpoint)
    return any(fnmatchcase(text, pattern) for text in texts)
