"""Acts of connections, for the audit log."""

from collections.abc import Callable
from typing import Literal

from msgspec import Struct


class ConnectionAct(Struct, frozen=True):
    """An act: "connect", "disconnect", "away", ...; `subject` is a source and a connection's id,
    or one of the two."""

    act: str
    subject: str
    decision: Literal["allow", "deny"]
    tenant: str
    principal: str


RecordConnection = Callable[[ConnectionAct], None]
