"""Sessions as the store has them."""

from gateway.abc import SessionRecord
from gateway.context import Outbox, Principal, Session
from registry.catalog import Kind
from schemas.mcp.revisions import HANDSHAKE


def record_of(session: Session) -> SessionRecord:
    return SessionRecord(
        session.id,
        session.revision.name,
        session.principal.tenant,
        session.principal.id,
        session.toolset,
        dict(session.client),
        dict(session.capabilities),
        session.log_level,
        tuple(sorted(session.subscriptions)),
        session.outbox.told,
        tuple(sorted(session.skills)),
    )


def restored(record: SessionRecord, calls_limit: int, news: frozenset[Kind]) -> Session:
    """The session at a node that did not open it. Its principal's scopes and claims come with each
    request."""
    return Session(
        record.id,
        HANDSHAKE[record.revision],
        Principal(record.principal, record.tenant),
        record.client,
        record.capabilities,
        calls_limit,
        record.toolset,
        record.log_level,
        set(record.subscriptions),
        set(record.skills),
        outbox=Outbox(record.told),
        heard=None,
        news=news,
    )
