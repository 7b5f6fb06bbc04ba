"""Runs an operation's handler and maps its errors to problems."""

from typing import Any

import psycopg
from psycopg_pool import PoolTimeout

from gateway.operations.operation import (
    Operation,
    OperationInput,
    OperationOutput,
    changed,
    invalid,
    not_found,
    sentence,
    unavailable,
)
from registry.skills.rows import NoSuchEntry
from registry.tools.edits import NoSuchTool, ToolChanged
from schemas.errors import Fault, ToolgateError


async def answering(operation: Operation, asked: OperationInput) -> Any:
    """The result of the operation; its errors become ProblemDetails."""
    try:
        return await operation.handle(asked)
    except (psycopg.OperationalError, PoolTimeout) as error:
        raise unavailable("The database does not answer; try again later.") from error
    except NoSuchTool as error:
        raise not_found("tool", error.name) from error
    except ToolChanged as error:
        raise changed() from error
    except NoSuchEntry as error:
        if error.name in asked.names.values():
            raise not_found(error.kind, error.name) from error
        raise invalid(sentence(error)) from error
    except Fault as fault:
        if fault.status == 503:
            raise unavailable(fault.message) from fault
        raise invalid(fault.message) from fault
    except ToolgateError as error:
        raise invalid(str(error)) from error


def value_of(given: Any) -> Any:
    """The body of an answer."""
    return given.value if isinstance(given, OperationOutput) else given
