"""Requests of operations as jobs: how they are stored, read again, and shown."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from msgspec import Raw, Struct

from gateway.context import Context, Identity, Principal, RunMark
from gateway.operations.job_declarations import AsJob, Job, JobView
from gateway.operations.operation import Operation, OperationInput
from gateway.operations.problems import ProblemDetails
from gateway.operations.request_parsing import Headers, convert_body
from gateway.operations.stored_callers import refusal_of
from registry.jobs.store import Claim, JobDraft, JobRow
from schemas.mcp.revisions import V2025_11_25

REVOCABLE = ("jti", "iat")  # claims that a revocation names a token by
CONDITIONS = ("if-match", "if-none-match")  # checked again when the job starts


class _Request(Struct, frozen=True):
    names: Mapping[str, str]
    query: Any
    body: Any
    conditions: Mapping[str, str]
    verified: bool = False  # the caller, for the calls that the job makes
    accepted: "Acceptance | None" = None
    run: RunMark | None = None  # that the request comes from
    refused: bool = False  # see StoredCaller
    scheduled: bool = False  # see JobAct
    agent_hops: int = 0  # see Context


class Acceptance(Struct, frozen=True):
    """How rules judged the call of a tool that became a job."""

    rules: str  # version of the rules
    toolset: str | None = None


@dataclass(frozen=True, slots=True)
class JobRequest:
    """The request of a job."""

    operation_input: OperationInput
    conditions: Headers  # preconditions
    accepted: Acceptance | None  # None: it was no call of a tool, or no rule applied to it
    scheduled: bool = False


_principals = msgspec.json.Decoder(Principal)
_requests = msgspec.json.Decoder(_Request)


def draft_of(
    operation: Operation,
    operation_input: OperationInput,
    headers: Headers,
    acceptance: Acceptance | None = None,
    *,
    claims: Iterable[str] = REVOCABLE,
    scheduled: bool = False,
) -> JobDraft:
    """The job that carries out the request. `claims`: those of the caller that are stored."""
    as_job = operation.job or AsJob()
    conditions = {name: headers[name] for name in CONDITIONS if name in headers}
    context = operation_input.context
    stored = _Request(
        operation_input.names,
        operation_input.query,
        operation_input.body,
        conditions,
        context is not None and context.identity.verified,
        acceptance,
        None if context is None else context.run,
        context is not None and context.identity.refusal is not None,
        scheduled,
        0 if context is None else context.agent_hops,
    )
    request = msgspec.json.encode(stored)
    all_claims = operation_input.principal.claims
    revocable_claims = {name: all_claims[name] for name in claims if name in all_claims}
    principal = msgspec.json.encode(
        replace(operation_input.principal, claims=revocable_claims), order="sorted"
    )
    digest_input = b"\0".join((operation.id.encode(), principal, request))
    return JobDraft(
        operation_input.tenant,
        operation.id,
        operation_input.principal.id,
        principal,
        request,
        as_job.lock.format(**operation_input.names, body=operation_input.body),
        hashlib.sha256(digest_input).digest() if as_job.once else None,
    )


def asked_of(operation: Operation, claim: Claim, job: Job) -> JobRequest:
    """The request of a job; `job` takes its progress. Raises ProblemDetails if this release does
    not take it."""
    stored = _requests.decode(claim.request)
    principal = _principals.decode(claim.principal)
    query = convert_body(stored.query, operation.query)
    body = None if stored.body is None else convert_body(stored.body, operation.body)
    identity = Identity(principal, refusal_of(stored.refused), stored.verified)
    context = Context(
        identity,
        V2025_11_25,
        claim.job_id,
        run=stored.run,
        absent=True,
        agent_hops=stored.agent_hops,
    )
    operation_input = OperationInput(
        principal, stored.names, query=query, body=body, context=context, job=job
    )
    return JobRequest(operation_input, stored.conditions, stored.accepted, stored.scheduled)


def asked_by(caller: Principal, request: OperationInput) -> OperationInput:
    """The request, also in the calls that it makes, with what its caller still may."""
    context = request.context
    if context is not None:
        context = msgspec.structs.replace(
            context, identity=replace(context.identity, principal=caller)
        )
    return replace(request, principal=caller, context=context)


def view_of(row: JobRow) -> JobView:
    return JobView(
        row.job_id,
        row.operation,
        row.state,  # type: ignore[arg-type]  # as the table checks
        row.principal_id,
        row.created,
        started=row.started,
        ended=row.ended,
        attempt=row.attempt,
        done=row.done,
        total=row.total,
        note=row.note,
        cancelling=row.cancelling,
        result=_raw(row.result),
        problem=_raw(row.problem),
        location=row.location,
    )


def unknown_operation(name: str) -> ProblemDetails:
    """503: another gateway, of another release or with other wings, may know it."""
    return ProblemDetails(503, "unavailable", f"There is no operation {name} here.")


def _raw(value: str | None) -> Raw | None:
    return None if value is None else Raw(value.encode())
