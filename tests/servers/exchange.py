"""An authorisation server that exchanges tokens (RFC 8693) for one client, and refuses everything
that the RFC does not allow."""

import asyncio
import base64
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote_plus

from msgspec.json import encode
from starlette.types import Receive, Scope, Send

from tests.servers.rest import JSON, Seen, read_seen, respond

CLIENT, SECRET = "gate:way", "s&cret"
GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"
FORM = frozenset(
    {"grant_type", "subject_token", "subject_token_type", "actor_token", "actor_token_type"}
    | {"audience", "resource", "scope", "requested_token_type", "client_id", "client_secret"}
)


@dataclass
class ExchangeServer:
    """Answers `ann>1` for the first exchange of the token `ann`, `own>2` for one of the client's
    own. `also` stands beside that."""

    revoked: set[str] = field(default_factory=set)  # actors' tokens
    subjects: set[str] = field(default_factory=lambda: {"ann", "bob"})
    also: dict[str, Any] = field(default_factory=lambda: {"expires_in": 3600})
    error: str = ""
    status: int = 200
    body: bytes | None = None
    asked: list[dict[str, str]] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    released: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.released.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        seen = await read_seen(scope, receive)
        form = parse_qs(seen.body.decode(), keep_blank_values=True, strict_parsing=True)
        asked = {name: values[0] for name, values in form.items()}
        self.seen.append(seen)
        self.asked.append(asked)
        number = len(self.asked)
        await self.released.wait()
        error = self.error or self._wrong(seen, form, asked)
        status = 400 if error and self.status == 200 else self.status
        whose = asked.get("subject_token", "own")
        told: dict[str, Any] = {"error": error, "error_description": f"no {whose} at {seen.target}"}
        if not error:
            issued = {"issued_token_type": ACCESS_TOKEN} if whose != "own" else {}
            told = {
                "access_token": f"{whose}>{number}",
                "token_type": "Bearer",
                **issued,
                **self.also,
            }
        await respond(send, status, self.body or encode(told), [("content-type", JSON)])

    def _wrong(self, seen: Seen, form: dict[str, list[str]], fields: dict[str, str]) -> str:
        typed = seen.all("content-type") == ["application/x-www-form-urlencoded"]
        once = all(len(values) == 1 and values[0] for values in form.values())
        if seen.method != "POST" or not typed or not once or fields.keys() - FORM:
            return "invalid_request"
        if _client(seen, fields) != (CLIENT, SECRET):
            return "invalid_client"
        if fields["grant_type"] == "client_credentials":
            return "" if "subject_token" not in fields else "invalid_request"
        if fields["grant_type"] != GRANT:
            return "unsupported_grant_type"
        if fields.get("subject_token_type") != ACCESS_TOKEN or fields["subject_token"] not in (
            self.subjects
        ):
            return "invalid_request"
        actor = fields.get("actor_token")
        if (actor is None) != ("actor_token_type" not in fields):
            return "invalid_request"
        good = actor is None or (actor.startswith("own>") and actor not in self.revoked)
        return "" if good else "invalid_request"


def _client(seen: Seen, fields: dict[str, str]) -> tuple[str, str] | None:
    headers = seen.all("authorization")
    if not headers:
        return fields.get("client_id", ""), fields.get("client_secret", "")
    if "client_secret" in fields:
        return None  # RFC 6749, section 2.3: one way only
    name, _, secret = base64.b64decode(headers[0].removeprefix("Basic ")).decode().partition(":")
    return unquote_plus(name), unquote_plus(secret)
