"""Session records: sessions as the store keeps them."""

from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from gateway.abc import SessionChange, SessionRecord
from gateway.context import Outbox, Principal, Session
from schemas.mcp.messages import ListKind
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
        session.version,
    )


def changed(record: SessionRecord, change: SessionChange) -> SessionRecord:
    """The record with `change` applied, one version later."""
    said = {name: getattr(change, name) for name in ("log_level", "client", "capabilities")}
    new: dict[str, Any] = {name: value for name, value in said.items() if value is not UNSET}
    subscriptions = {*record.subscriptions, *change.subscribe}.difference(change.unsubscribe)
    skills = {*record.skills, *change.use}.difference(change.leave)
    new["subscriptions"], new["skills"] = tuple(sorted(subscriptions)), tuple(sorted(skills))
    return replace(record, version=record.version + 1, **new)


def update(session: Session, record: SessionRecord) -> bool:
    """Update the session here from `record`; False when it has that version or a newer one: records
    may arrive out of order."""
    if record.version <= session.version:
        return False
    session.version, session.log_level = record.version, record.log_level
    session.client, session.capabilities = record.client, record.capabilities
    session.subscriptions, session.skills = set(record.subscriptions), set(record.skills)
    return True


def restored(record: SessionRecord, calls_limit: int, news: frozenset[ListKind]) -> Session:
    """The session, restored at a node that did not open it. Its principal's scopes and claims come
    with each request."""
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
        version=record.version,
    )
