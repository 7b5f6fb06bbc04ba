"""Callers of wings, and what they ask, without a gateway that authenticates them."""

from collections.abc import Iterable, Mapping
from typing import Any

from gateway.context import Context, Identity, Principal
from gateway.operations.jobs import NO_JOB, Job
from gateway.operations.operation import Operation, OperationInput
from gateway.operations.requests import convert_body
from schemas.errors import Forbidden
from schemas.mcp.revisions import JSON_RPC
from tests.fixtures_database import HOST

REFUSAL = Forbidden("no token")


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
