"""Changes that commands make by themselves, as the audit log names them."""

import getpass
from datetime import UTC, datetime

from msgspec import Struct

from config.settings import Settings
from gateway.audit.records import AuditEntry, storable_text

VIA = "cli"


class AuditedCommand(Struct, frozen=True):
    """A change made by a command: `operation` has the name of the admin API's."""

    operation: str
    subject: str
    tenant: str | None = None  # None: the gateway's own

    def entry(self, settings: Settings, outcome: str) -> AuditEntry:
        return AuditEntry(
            self.tenant or settings.tenant.host_id,
            datetime.now(UTC),
            principal=storable_text(actor()),
            front=VIA,
            method=self.operation,
            subject=storable_text(self.subject),
            decision="allow",
            outcome=outcome,
        )


def actor() -> str:
    """The operating-system user; the form cannot be a token's principal."""
    return f"{getpass.getuser()} (command line)"
