"""Events of one gateway process. They are made first, and each part gets them when it is made."""

from dataclasses import dataclass, field

from gateway.abc import SessionChange
from gateway.context import Session
from registry.catalog.events import CatalogEvents
from schemas.signals import AsyncSignal, Signal


@dataclass(frozen=True, slots=True)
class Events(CatalogEvents):
    rules_changed: Signal[str] = field(default_factory=Signal)
    """The policy rules of a tenant differ from those before."""

    source_recovered: Signal[str] = field(default_factory=Signal)
    """The server of a source answers again."""

    watch_changed: AsyncSignal[tuple[str, str | None], str, bool] = field(
        default_factory=AsyncSignal
    )
    """A resource (tenant and toolset, URI) got its first listener here (True), or lost its last
    one. Listeners raise Fault when its server refuses."""

    subscription_changed: AsyncSignal[Session, SessionChange] = field(default_factory=AsyncSignal)
    """A client subscribed to a resource or unsubscribed; awaited until it is stored."""

    session_ended: Signal[Session] = field(default_factory=Signal)
    """A session is no longer open here: at each node that had it, also when that shuts down and
    others continue with it. Opened elsewhere, its principal has no more than its id and tenant."""

    person_erased: AsyncSignal[str, str] = field(default_factory=AsyncSignal)
    """All that is held of a person (tenant, id of its principal) is erased; awaited until the
    listeners have erased theirs."""

    draining: Signal[()] = field(default_factory=Signal[()])
    """A graceful shutdown begins: no new work, and streams are closed."""
