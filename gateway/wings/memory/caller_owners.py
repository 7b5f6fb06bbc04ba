"""Owners of a caller in the memory: they follow from the principal and the session, never from
arguments, which only narrow them. Pure.
"""

import hashlib
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gateway.context import Context
from gateway.operations.problems import ProblemDetails, invalid, lacks_scope
from gateway.wings.interface import is_open, subject_of
from gateway.wings.memory.memory_rows import ORGANISATION, SCOPES, Place, Scope

log = logging.getLogger("toolgate.memory")

READ, WRITE = "memory:read", "memory:write"
WRITE_ORG, ERASE, ON_BEHALF = "memory:org:write", "memory:erase", "memory:on_behalf"
SESSION_NAME = re.compile(r"[A-Za-z0-9._~-]{1,128}")
RESERVED_NAMES = frozenset({"default", "session", "none", "null"})
UNGUESSABLE = 22  # characters of base64 with 128 random bits


@dataclass(frozen=True, slots=True)
class Reader:
    """A caller, and the owners within each scope that it may read."""

    tenant: str
    subject: str | None  # None: anonymous
    agent: str | None = None
    sessions: Sequence[str] = ()  # owners in the scope session
    scopes: frozenset[str] | None = None  # of the token; None: all, without authentication
    behalf: str | None = None  # who acts for the subject, where that is another

    def owner(self, scope: Scope) -> str:
        """The owner in a scope that the caller writes to. Raises ProblemDetails."""
        owners = [owner for _, owner in self.places([scope])]
        if not owners:
            raise _missing(scope, anonymous=self.subject is None)
        return owners[0]

    def places(self, scopes: Sequence[Scope] = SCOPES) -> list[Place]:
        """The owners whose memories may be read, within these scopes."""
        subject = [] if self.subject is None else [self.subject]
        agent = [] if self.agent is None else [self.agent]
        owners: dict[Scope, Sequence[str]] = {
            "session": self.sessions, "user": subject, "agent": agent, "org": [ORGANISATION],
        }  # fmt: skip
        return [(scope, owner) for scope in SCOPES if scope in scopes for owner in owners[scope]]

    def may(self, scope: str) -> bool:
        return self.scopes is None or scope in self.scopes

    def require(self, scope: str, action: str) -> None:
        """Raises ProblemDetails."""
        if not self.may(scope):
            raise lacks_scope(scope, action=action)


def reader_of(
    context: Context,
    claim: str,
    *,
    session: str | None = None,
    user: str | None = None,
) -> Reader:
    """The caller of a context as a reader. `claim`: of tokens, names the agent. `session`: a name
    that the caller gave to a session of its own; `user`: another user on whose behalf it acts.
    Raises ProblemDetails."""
    identity, principal = context.identity, context.principal
    subject = subject_of(identity)
    scopes = identity.scopes if identity.verified else frozenset[str]()
    reader = Reader(
        principal.tenant,
        subject,
        _agent(context, claim),
        sessions=_sessions(context, subject, session),
        scopes=None if is_open(identity) else scopes,
    )
    if user is None or user == subject:
        return reader
    reader.require(ON_BEHALF, "Acting for another user")
    if not user.strip():
        raise invalid("user_id: expected the id of a user")
    log.info("memory_access_on_behalf", extra={"principal": principal.id, "user": user})
    return replace(reader, subject=user, sessions=(), behalf=subject)


def session_owner(tenant: str, *of: str) -> str:
    """The owner of memories of a session: what names it, hashed, because an id lets in."""
    return hashlib.sha256("\0".join((tenant, *of)).encode()).hexdigest()[:40]


def _sessions(context: Context, subject: str | None, name: str | None) -> tuple[str, ...]:
    """The session that the caller names, or that of its transport."""
    tenant = context.principal.tenant
    if name is None:
        present = context.session
        return () if present is None else (session_owner(tenant, "mcp", present.id),)
    if not SESSION_NAME.fullmatch(name) or name.lower() in RESERVED_NAMES:
        raise invalid(
            "session: expected a name of 1 to 128 letters, digits and . _ ~ -, and not a word such "
            "as default"
        )
    if subject is None and len(name) < UNGUESSABLE:
        raise invalid(
            f"session: expected at least {UNGUESSABLE} random characters, as nothing else protects "
            "the session of an anonymous caller"
        )
    return (session_owner(tenant, "named", subject or "", name),)


def _agent(context: Context, claim: str) -> str | None:
    """The agent that the token names; without authentication, that of the address."""
    if not context.identity.verified:
        return context.options.agent
    named = context.principal.claims.get(claim) if claim else None
    return named if isinstance(named, str) and named.strip() else None


def _missing(scope: Scope, *, anonymous: bool) -> ProblemDetails:
    reasons = {
        "session": "the call is in no session: name one with the argument `session`",
        "user": "the caller is anonymous: use the scope session",
        "agent": "the caller is no agent: its token names none",
    }
    text = reasons.get(scope, "it cannot be written")
    if scope == "user" and not anonymous:
        text = "there is no user"
    return invalid(f"scope {scope}: {text}")
