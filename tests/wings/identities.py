"""Callers of wings, and what they ask, without a gateway that authenticates them; and databases
with the rows of two tenants."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gateway.context import Context, Identity, Principal
from gateway.operations.job_declarations import NO_JOB, Job
from gateway.operations.operation import Operation, OperationInput, OperationOutput
from gateway.operations.request_parsing import convert_body
from registry.database.postgres import Database
from schemas.errors import Forbidden
from schemas.mcp.revisions import JSON_RPC
from tests.fixtures_database import HOST

REFUSAL = Forbidden("no token")
OTHER = "00000000-0000-4000-8000-00000000beef"  # a second tenant


def identity_of(
    subject: str | None,
    scopes: Iterable[str],
    *,
    tenant: str = HOST,
    agent: str | None = None,
) -> Identity:
    """A verified caller; `subject` None: an anonymous one."""
    claims = {"agent": agent} if agent else {}
    principal = Principal(subject or "anonymous", tenant, frozenset(scopes), claims=claims)
    if subject is None:
        return Identity(principal, refusal=REFUSAL)
    return Identity(principal, verified=True)


def input_of(
    operation: Operation,
    identity: Identity,
    arguments: Mapping[str, Any],
    *,
    job: Job = NO_JOB,
    request_id: str = "1",
) -> OperationInput:
    """What an operation gets for the arguments of a tool. Raises ProblemDetails."""
    names = {one: arguments[one] for one in operation.names}
    rest = {name: value for name, value in arguments.items() if name not in names}
    body = query = None
    if operation.body is not None:
        body = convert_body(rest, operation.body)
    else:
        query = convert_body(rest, operation.query)
    context = Context(identity, JSON_RPC, request_id)
    return OperationInput(
        identity.principal, names, query=query, body=body, context=context, job=job
    )


@dataclass(frozen=True)
class WingCaller:
    """Calls operations of a wing as one principal, as tools do."""

    wing: str
    operations: Mapping[str, Operation]
    identity: Identity

    async def __call__(
        self, name: str, /, *, job: Job = NO_JOB, request_id: str = "1", **arguments: Any
    ) -> Any:
        """The body of the answer. Raises ProblemDetails."""
        output = await self.output(name, job=job, request_id=request_id, **arguments)
        return output.value if isinstance(output, OperationOutput) else output

    async def output(
        self, name: str, /, *, job: Job = NO_JOB, request_id: str = "1", **arguments: Any
    ) -> Any:
        operation = self.operations[f"{self.wing}_{name}"]
        asked = input_of(operation, self.identity, arguments, job=job, request_id=request_id)
        return await operation.handle(asked)


@dataclass(frozen=True)
class WingDatabase:
    """The database of a wing, for statements of tests."""

    database: Database

    async def run(self, statement: str, **values: Any) -> None:
        async with self.database.pool.connection() as connection:
            await connection.execute(statement.encode(), values)

    async def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        async with self.database.pool.connection() as connection:
            return await (await connection.execute(statement.encode(), values)).fetchall()


async def add_tenants(database: Database) -> None:
    async with database.pool.connection() as connection:
        await connection.execute(
            "INSERT INTO host_t (host_id, name) VALUES (%s, 'a'), (%s, 'b') ON CONFLICT DO NOTHING",
            [HOST, OTHER],
        )
