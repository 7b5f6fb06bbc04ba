"""Acts of people in browsers, at the login and for their connections, for the audit log."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from registry.login.people import Person

Decision = Literal["allow", "deny"]


@dataclass(frozen=True, slots=True)
class LoginAct:
    """An act of the login: "login", "grant", "token", "refresh", "reuse", "end", "register", ...;
    `subject` is a provider, a client, or what was ended. Of a connection: "connect", "disconnect",
    "away", ...; `subject` is a source and a connection's id, or one of the two."""

    act: str
    subject: str
    decision: Decision
    tenant: str = ""
    principal: str = ""
    address: str = ""  # of the client

    @classmethod
    def of(
        cls, person: Person, act: str, subject: str, decision: Decision, *, address: str = ""
    ) -> "LoginAct":
        return cls(act, subject, decision, person.tenant, person.principal, address)


RecordLogin = Callable[[LoginAct], None]
