"""Gateways that send notifications, and servers that take them."""

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiosmtpd.smtp import SMTP, Envelope, Session
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from config.access import Rule, SecretsSettings
from config.settings import Settings
from tests.fixtures_database import HOST
from tests.fixtures_gateway import Client
from tests.gateway.admin.client import KEY, bearer
from tests.gateway.guards.signing import by_jwks
from tests.wings.test_toy import got

TARGETS = "/admin/v1/notifications/targets"
INCIDENTS = "/admin/v1/notifications/incidents"
OTHER = "00000000-0000-4000-8000-000000000abc"  # another tenant


def caller(name: str, scope: str = "admin", host: str = HOST) -> dict[str, str]:
    return bearer(name, scope=scope, host=host)


OPERATOR = caller("ops")


class Receiver:
    """Takes messages, and answers with the statuses that a test names, then with 200."""

    def __init__(self, *statuses: int, text: str = "ok") -> None:
        self.statuses = list(statuses)
        self.text = text
        self.requests: list[tuple[dict[str, str], bytes]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        self.requests.append((dict(request.headers), await request.body()))
        status = self.statuses.pop(0) if self.statuses else 200
        await Response(self.text, status)(scope, receive, send)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The data of the CloudEvents that were received."""
        return [json.loads(body)["data"] for _, body in self.requests]


class Mailbox:
    """Handler of a real SMTP server."""

    def __init__(self) -> None:
        self.letters: list[bytes] = []

    async def handle_RCPT(  # noqa: N802 - its name in aiosmtpd
        self, _server: SMTP, _session: Session, envelope: Envelope, address: str, _options: Any
    ) -> str:
        if address.startswith("nobody@"):
            return "550 No such user"
        if address.startswith("later@"):
            return "451 Try again"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(  # noqa: N802 - its name in aiosmtpd
        self, _server: SMTP, _session: Session, envelope: Envelope
    ) -> str:
        self.letters.append(envelope.original_content or b"")
        return "250 taken"


@asynccontextmanager
async def mail_server(
    tls: ssl.SSLContext | None = None, **options: Any
) -> AsyncIterator[tuple[Mailbox, int]]:
    """A mail server on loopback, from the first byte on in TLS where `tls` is given, and its port.
    `options`: of aiosmtpd's SMTP."""
    mailbox = Mailbox()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: SMTP(mailbox, loop=loop, **options), "127.0.0.1", 0, ssl=tls
    )
    try:
        yield mailbox, server.sockets[0].getsockname()[1]
    finally:
        server.close()


def with_notifications(settings: Settings, folder: Path, **changes: Any) -> Settings:
    """The settings with notifications that are looked for often, and with a rule that asks."""
    values = {
        "enabled": True, "check_s": 0.1, "private_hosts": ("127.0.0.1", "localhost"), **changes,
    }  # fmt: skip
    ask = Rule(effect="approve", tools=("createPet",), reason="ask <b>first</b>")
    policy = replace(settings.policy, default="allow", rules={"ask": ask})
    return replace(
        settings,
        auth=replace(by_jwks(folder, [KEY.jwk()]), tenant_claim="host"),
        policy=policy,
        secrets=SecretsSettings(base64.b64encode(bytes(32)).decode(), ()),
        server=replace(settings.server, public_url="http://127.0.0.1:8765"),
        console=replace(settings.console, enabled=True),
        notifications=replace(settings.notifications, **values),
    )


async def put(client: Client, name: str, headers: dict[str, str] = OPERATOR, **body: Any) -> Any:
    """Status and answer of a new target."""
    url = f"{client.url}{TARGETS}/{name}"
    async with client.http.put(url, json=body, headers=headers) as response:
        return response.status, await response.json()


async def try_target(client: Client, name: str, headers: dict[str, str] = OPERATOR) -> Any:
    _, answer, _ = await client.post(f"{TARGETS}/{name}/tests", b"", headers)
    return answer


async def items(client: Client, path: str, headers: dict[str, str] = OPERATOR) -> list[Any]:
    status, page, _ = await got(client, path, **headers)
    assert status == 200, page
    return list(page["items"])


async def ask_for_approval(client: Client, user: str = "ann") -> None:
    """Make a call that waits for an approval."""
    await client.modern(
        "tools/call", {"name": "createPet", "arguments": {"name": user}}, **caller(user)
    )
