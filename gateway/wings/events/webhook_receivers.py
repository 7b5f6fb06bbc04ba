"""Receivers of completions (`replyTo: webhook:NAME`): those of the settings, for the tenant of the
gateway, and those that each tenant registers over REST, whose secrets are encrypted."""

import base64
import logging
import os
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import LiteralString

from msgspec import UNSET, Struct, UnsetType
from psycopg.rows import class_row

from config.events import EventWebhook
from config.sources import SchemeSettings
from config.value_types import SkillKey
from gateway.http_client.webhooks import PREFIX, WebhookSender, check_receiver
from gateway.operations.operation import Operation, OperationInput, OperationOutput
from gateway.operations.paging import ListPage, Pages, Paging
from gateway.operations.problems import ProblemDetails, conflict, invalid, not_found, unavailable
from gateway.wings.events.member_texts import WEBHOOK
from registry.access.secrets import Keys, SecretRefused, Secrets
from registry.database.postgres import Pool, borrow
from schemas.cloudevents import CLOUD_EVENT
from schemas.errors import ToolgateError
from schemas.jsonrpc import encode

log = logging.getLogger("toolgate.events")

SOURCE = "events"  # of the secrets
SECRET_BYTES = 32
ADMIN = "events:admin"
ONE = "/webhooks/{webhook}"
PAGES = Pages(100, 1000)
PRIVATE = "it is an entry of events.webhooks with `private: true`"
TEST = {"specversion": "1.0", "source": "/toolgate", "type": "dev.toolgate.webhook.test.v1"}


class NewWebhook(Struct, frozen=True, forbid_unknown_fields=True):
    """Where completions go: an https URL at a public address."""

    url: str


class WebhookView(Struct, frozen=True, omit_defaults=True):
    """`secret` is shown once: when it is made."""

    name: str
    url: str
    stored: bool  # False: of the settings
    disabled: bool = False  # its receiver answered 410
    secret: str | UnsetType = UNSET


class WebhookTest(Struct, frozen=True, omit_defaults=True):
    done: bool
    error: str = ""


@dataclass(frozen=True, slots=True)
class _Row:
    name: str
    url: str


@dataclass(eq=False)
class WebhookReceivers:
    pool: Pool
    configured: Mapping[str, EventWebhook]  # in the settings, for `tenant`
    sender: WebhookSender
    _: KW_ONLY
    tenant: str
    keys: Keys

    @property
    def operations(self) -> tuple[Operation, ...]:
        types = {"webhook": SkillKey}
        secret = "its response holds a secret, which no model is to see"  # noqa: S105 - none
        return (
            Operation(
                "events_webhooks", "GET", "/webhooks",
                "List the webhooks that completions can be sent to.", ADMIN,
                self.list_webhooks, ListPage[WebhookView], query=Paging,
            ),
            Operation(
                "events_webhook", "GET", ONE, "Show a webhook.", ADMIN,
                self.get, WebhookView, types=types,
            ),
            Operation(
                "events_put_webhook", "PUT", ONE,
                "Register a webhook, or change its address. A new one gets a secret.", ADMIN,
                self.put, WebhookView, body=NewWebhook, types=types, no_tool=secret,
                problems=(409,),
            ),
            Operation(
                "events_rotate_webhook", "POST", f"{ONE}/rotations",
                "Give a webhook a new secret. Requests are signed with the one before, too.", ADMIN,
                self.rotate, WebhookView, types=types, no_tool=secret,
            ),
            Operation(
                "events_test_webhook", "POST", f"{ONE}/tests",
                "Send a test event. A disabled webhook that accepts it is enabled again.", ADMIN,
                self.test, WebhookTest, types=types, members=WEBHOOK,
            ),
            Operation(
                "events_delete_webhook", "DELETE", ONE, "Delete a webhook.", ADMIN,
                self.delete, status=204, types=types, members=WEBHOOK,
            ),
        )  # fmt: skip

    async def is_known(self, host_id: str, name: str) -> bool:
        return name in self._of_settings(host_id) or bool(await self._rows(host_id, name))

    async def find(self, host_id: str, name: str) -> EventWebhook | None:
        """The receiver, unless it has answered 410. Raises SecretRefused."""
        webhook = await self._find_any(host_id, name)
        if webhook is None or (name, webhook.url) in await self._gone_webhooks(host_id):
            return None
        return webhook

    async def _find_any(self, host_id: str, name: str) -> EventWebhook | None:
        """The receiver, whether it has answered 410 or not. Raises SecretRefused."""
        return self._of_settings(host_id).get(name) or await self._stored_webhook(host_id, name)

    async def _enable(self, host_id: str, name: str) -> None:
        await self._execute(
            "DELETE FROM webhook_gone_t WHERE host_id = %s AND name = %s", [host_id, name]
        )

    async def disable(self, host_id: str, name: str, url: str) -> None:
        """Send no more to an address that answered 410."""
        log.warning("webhook_disabled", extra={"webhook": name})
        await self._execute(
            "INSERT INTO webhook_gone_t (host_id, name, url) VALUES (%s, %s, %s)"
            " ON CONFLICT DO NOTHING",
            [host_id, name, url],
        )

    async def list_webhooks(self, request: OperationInput) -> ListPage[WebhookView]:
        views = await self._views(request.tenant)
        return PAGES.page(request.query, views, lambda view: view.name)

    async def get(self, request: OperationInput) -> WebhookView:
        """Raises ProblemDetails for a webhook that there is not."""
        name = request.names["webhook"]
        views = [view for view in await self._views(request.tenant, name) if view.name == name]
        if not views:
            raise not_found("webhook", name)
        return views[0]

    async def _views(self, host: str, name: str | None = None) -> list[WebhookView]:
        """Webhooks of the settings, and the stored ones, or that of a name."""
        gone = await self._gone_webhooks(host)
        configured = {name: row.url for name, row in self._of_settings(host).items()}
        stored = {row.name: row.url for row in await self._rows(host, name)}
        return [
            WebhookView(name, url, name not in configured, (name, url) in gone)
            for name, url in sorted({**stored, **configured}.items())
        ]

    async def put(self, request: OperationInput) -> OperationOutput:
        name, url = self._own_name(request), request.body.url
        try:
            check_receiver(url, condition=PRIVATE)
        except ToolgateError as error:
            raise invalid(f"url: {error}.") from error
        is_new = await self._put_row(request.tenant, name, url)
        secret = await self._first_secret(request.tenant, name) if is_new else UNSET
        await self._enable(request.tenant, name)
        return OperationOutput(WebhookView(name, url, True, secret=secret))

    async def rotate(self, request: OperationInput) -> OperationOutput:
        name, secrets = self._own_name(request), self._secrets(request.tenant)
        row = await self._row(request.tenant, name)
        try:
            present = await secrets.get(SOURCE, _scheme(name))
            if present is not None:
                await secrets.put(SOURCE, _scheme(name, old=True), present)
        except SecretRefused as error:
            raise conflict(f"{error}.") from error
        secret = await self._make_secret(request.tenant, name)
        view = WebhookView(name, row.url, True, secret=secret)
        return OperationOutput(view, untold=WebhookView(name, row.url, True))

    async def test(self, request: OperationInput) -> WebhookTest:
        """Send a test event, also to a webhook that answered 410: one that accepts it is enabled
        again."""
        name, id_ = request.names["webhook"], f"test.{os.urandom(8).hex()}"
        try:
            webhook = await self._find_any(request.tenant, name)
        except SecretRefused as error:
            raise conflict(f"{error}.") from error
        if webhook is None:
            raise not_found("webhook", name)
        event = encode({**TEST, "id": id_, "subject": name})
        answer = await self.sender.send(
            webhook.url, id_, event, content_type=CLOUD_EVENT, secrets=webhook.secrets,
            private=webhook.private,
        )  # fmt: skip
        if answer.done:
            await self._enable(request.tenant, name)
        return WebhookTest(answer.done, answer.error)

    async def delete(self, request: OperationInput) -> None:
        name = self._own_name(request)
        await self._row(request.tenant, name)
        await self._delete_row(request.tenant, name)
        for old in (False, True):
            await self._secrets(request.tenant).delete(SOURCE, _scheme(name, old=old))

    def _of_settings(self, host_id: str) -> Mapping[str, EventWebhook]:
        return self.configured if host_id == self.tenant else {}

    def _own_name(self, request: OperationInput) -> str:
        """Raises ProblemDetails for a webhook of the settings."""
        name = request.names["webhook"]
        if name in self._of_settings(request.tenant):
            raise conflict(
                f"The webhook {name} is one of the settings: see events.webhooks.{name}."
            )
        return name

    async def _stored_webhook(self, host_id: str, name: str) -> EventWebhook | None:
        rows, secrets = await self._rows(host_id, name), self._secrets(host_id)
        present = await secrets.get(SOURCE, _scheme(name)) if rows else None
        if present is None or present.value is None:
            return None
        old = await secrets.get(SOURCE, _scheme(name, old=True))
        return EventWebhook(rows[0].url, present.value, None if old is None else old.value)

    def _secrets(self, host_id: str) -> Secrets:
        return Secrets(self.pool, host_id, self.keys)

    async def _make_secret(self, host_id: str, name: str) -> str:
        secret = PREFIX + base64.b64encode(os.urandom(SECRET_BYTES)).decode()
        try:
            await self._secrets(host_id).put(SOURCE, _scheme(name), SchemeSettings(value=secret))
        except SecretRefused as error:
            raise unavailable(f"The secret cannot be stored: {error}.") from error
        return secret

    async def _first_secret(self, host_id: str, name: str) -> str:
        """The secret of a webhook whose row is new; without one the row is deleted."""
        try:
            return await self._make_secret(host_id, name)
        except ProblemDetails:
            await self._delete_row(host_id, name)
            raise

    async def _put_row(self, host_id: str, name: str, url: str) -> bool:
        """Whether it is new: that is so for one of several at once."""
        async with borrow(self.pool) as connection:
            rows = await connection.execute(
                "INSERT INTO webhook_t (host_id, name, url) VALUES (%s, %s, %s)"
                " ON CONFLICT (host_id, name) DO UPDATE SET url = excluded.url RETURNING xmax = 0",
                [host_id, name, url],
            )
            [(is_new,)] = await rows.fetchall()
            return bool(is_new)

    async def _delete_row(self, host_id: str, name: str) -> None:
        await self._execute(
            "DELETE FROM webhook_t WHERE host_id = %s AND name = %s", [host_id, name]
        )

    async def _row(self, host_id: str, name: str) -> _Row:
        rows = await self._rows(host_id, name)
        if not rows:
            raise not_found("webhook", name)
        return rows[0]

    async def _rows(self, host_id: str, name: str | None = None) -> list[_Row]:
        async with borrow(self.pool) as connection:
            cursor = connection.cursor(row_factory=class_row(_Row))
            await cursor.execute(
                "SELECT name, url FROM webhook_t WHERE host_id = %(host)s"
                " AND (%(name)s::text IS NULL OR name = %(name)s) ORDER BY name",
                {"host": host_id, "name": name},
            )
            return await cursor.fetchall()

    async def _gone_webhooks(self, host_id: str) -> set[tuple[str, str]]:
        async with borrow(self.pool) as connection:
            rows = await connection.execute(
                "SELECT name, url FROM webhook_gone_t WHERE host_id = %s", [host_id]
            )
            return {(name, url) async for name, url in rows}

    async def _execute(self, statement: LiteralString, values: list[str]) -> None:
        async with borrow(self.pool) as connection:
            await connection.execute(statement, values)


def _scheme(name: str, *, old: bool = False) -> str:
    """Name of the secret of a webhook, or of the one before."""
    return f"old webhook {name}" if old else f"webhook {name}"
