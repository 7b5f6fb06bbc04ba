"""Operations of the librarian: each is a tool, a method of /rpc, a REST route and a command."""

from collections.abc import Callable, Sequence

from gateway.operations.operation import Operation
from gateway.wings.interface import WingParts
from gateway.wings.librarian.library_access import LibraryAccess
from gateway.wings.librarian.lookup_operations import lookup_operations
from gateway.wings.librarian.question_operations import question_operations
from gateway.wings.librarian.tracked_source_operations import source_operations

OperationGroup = Callable[[WingParts, LibraryAccess], Sequence[Operation]]
GROUPS: tuple[OperationGroup, ...] = (lookup_operations, source_operations, question_operations)
"""What makes operations of the parts of an open wing. Each concept has one."""


def operations_of(parts: WingParts) -> list[Operation]:
    access = LibraryAccess(parts.library)
    return [operation for group in GROUPS for operation in group(parts, access)]
