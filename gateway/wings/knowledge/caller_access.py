"""Relation of a caller to the collections: owner or grantee. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, LiteralString

from psycopg import sql

from gateway.context import Context
from gateway.operations.operation import OperationInput
from gateway.operations.problems import ProblemDetails, invalid
from gateway.wings.interface import subject_of

READ, WRITE = "knowledge:read", "knowledge:write"
ALL = "*"
Access = Literal["read", "write", "admin"]
ACCESS_INCLUDING: Mapping[Access, Sequence[Access]] = {
    "read": ("read", "write", "admin"),
    "write": ("write", "admin"),
    "admin": ("admin",),
}


def has_access(accesses: LiteralString) -> sql.Composed:
    """Condition on knowledge_collection_t AS collection: the caller has one of `accesses`, an array
    in SQL."""
    return sql.SQL(
        """(collection.owner = %(owner)s OR EXISTS (
            SELECT FROM knowledge_grant_t AS granted WHERE granted.host_id = %(host)s
                AND granted.collection_id = collection.collection_id
                AND granted.grantee = ANY (%(grantees)s) AND granted.access = ANY ({accesses})))"""
    ).format(accesses=sql.SQL(accesses))


READABLE = sql.SQL("collection.host_id = %(host)s AND ") + has_access("%(accesses)s")


@dataclass(frozen=True, slots=True)
class KnowledgeReader:
    """A caller, and the names by which it may have been granted access."""

    tenant: str
    subject: str | None  # None: anonymous
    grantees: tuple[str, ...]

    @property
    def owner(self) -> str:
        """Owner id of the reader's own collections; "": it owns nothing."""
        return "" if self.subject is None else f"user:{self.subject}"

    def require_owner(self) -> str:
        """Raises ProblemDetails."""
        if self.subject is None:
            raise ProblemDetails(403, "forbidden", "Anonymous callers own no collections.")
        return self.owner

    def values(self, access: Access = "read") -> dict[str, Any]:
        """Parameters of READABLE."""
        return {
            "host": self.tenant,
            "owner": self.owner,
            "grantees": list(self.grantees),
            "accesses": list(ACCESS_INCLUDING[access]),
        }


def knowledge_reader(request: OperationInput, claim: str) -> KnowledgeReader:
    """The caller of an operation, also of one that runs as a job. Raises ProblemDetails."""
    if request.context is None:
        raise invalid("Expected a caller.")
    return reader_of(request.context, claim)


def reader_of(context: Context, claim: str) -> KnowledgeReader:
    """The caller of a context. `claim`: of tokens, names the agent."""
    identity, principal = context.identity, context.principal
    subject = subject_of(identity)
    agent = principal.claims.get(claim) if identity.verified else context.options.agent
    scopes = identity.scopes if identity.verified else frozenset[str]()
    grantees = [ALL, *(f"scope:{scope}" for scope in sorted(scopes))]
    if subject is not None:
        grantees.append(f"user:{subject}")
    if isinstance(agent, str) and agent.strip() and subject is not None:
        grantees.append(f"agent:{agent}")
    return KnowledgeReader(principal.tenant, subject, tuple(grantees))
