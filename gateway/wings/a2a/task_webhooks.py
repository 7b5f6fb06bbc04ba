"""Webhooks of tasks: each gets the changes of its task in their order, at least once.

A row has the number of the newest event that its receiver has taken; what is sent is read from the
events, so that nothing is lost with a process.
"""

import logging
import os
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from uuid import uuid4

import anyio
import msgspec
from msgspec.structs import replace
from psycopg import sql

from config.a2a import A2ASettings
from gateway.http_client.webhooks import WebhookSender, check_receiver, retry_delay_s
from gateway.wings.a2a.task_store import A2ATasks, StoredTask
from registry.access.secrets import Keys, SecretRefused
from registry.database.postgres import AWAY, Pool, borrow
from registry.database.tables import Tables
from schemas.a2a.errors import InvalidParameters, PushNotSupported
from schemas.a2a.model import PushConfig, StreamResponse
from schemas.a2a.versions import Version, encode
from schemas.errors import ToolgateError
from schemas.masking import MASK

log = logging.getLogger("toolgate.a2a")

LEASE_S = 60.0
# Webhooks that a process sends to at the same time, and those of a tenant among them; and those of
# one principal at all nodes.
AT_ONCE, OF_TENANT, OF_OWNER = 100, 20, 5
FIRST_S, LONGEST_S = 1.0, 3600.0  # between attempts
TOKEN_HEADER = "X-A2A-Notification-Token"  # noqa: S105 - the name of a header
NONCE_BYTES = 12


@dataclass(frozen=True, slots=True)
class DueWebhook:
    host_id: str
    task_id: str
    config_id: str
    version: str
    config: bytes
    sent: int
    attempt: int
    fence: int
    age_s: float


_CLAIM = sql.SQL(
    "WITH here AS (SELECT * FROM unnest(%(hosts)s::uuid[], %(counts)s::int[]) AS h(host_id, rows)),"
    " owned AS (SELECT p.host_id, p.task_id, p.config_id, p.due_ts, t.owner,"
    " coalesce(p.lease_ts >= statement_timestamp(), false) AS held"
    " FROM a2a_push_t p JOIN a2a_task_t t USING (host_id, task_id)"
    " WHERE p.due_ts <= statement_timestamp()),"
    # those that are held have the first turns of their owner
    " turns AS (SELECT *, row_number() OVER (PARTITION BY host_id, owner"
    " ORDER BY held DESC, due_ts) AS turn FROM owned),"
    # those that this process sends have the first turns of their tenant
    " next AS (SELECT *, row_number() OVER (PARTITION BY host_id ORDER BY turn, due_ts)"
    " + coalesce((SELECT rows FROM here WHERE here.host_id = turns.host_id), 0) AS tenant_turn"
    " FROM turns WHERE NOT held AND turn <= %(of_owner)s),"
    " due AS MATERIALIZED (SELECT host_id, task_id, config_id FROM next"
    " WHERE tenant_turn <= %(of_tenant)s ORDER BY tenant_turn, turn, due_ts LIMIT %(limit)s)"
    " UPDATE a2a_push_t AS r SET fence = r.fence + 1,"
    " since_ts = coalesce(r.since_ts, clock_timestamp()),"
    " lease_ts = clock_timestamp() + make_interval(secs => %(lease)s)"
    " FROM due WHERE (r.host_id, r.task_id, r.config_id) ="
    " (due.host_id, due.task_id, due.config_id)"
    " AND (r.lease_ts IS NULL OR r.lease_ts < statement_timestamp())"
    " RETURNING r.host_id::text, r.task_id::text, r.config_id, r.version, r.config, r.sent,"
    " r.attempt, r.fence,"
    " extract(epoch FROM clock_timestamp() - r.since_ts)::float8 AS age_s"
)


class Webhooks(Tables):
    def __init__(
        self,
        pool: Pool,
        settings: A2ASettings,
        *,
        keys: Keys,
        tasks: A2ATasks,
        sender: WebhookSender,
    ) -> None:
        self._pool = pool
        self._settings = settings
        self._keys = keys
        self._tasks = tasks
        self._sender = sender
        self._sending: Counter[str] = Counter()  # by tenant

    async def add(self, row: StoredTask, config: PushConfig, version: Version) -> PushConfig:
        """Store a webhook of a task, or change the one of its id. Raises InvalidParameters and
        PushNotSupported."""
        self.check(config)
        # 0.3 sets the one without an id, and reads it by any
        unnamed = str(uuid4()) if version is Version.V1_0 else "default"
        config = replace(config, id=config.id or unnamed, task_id=row.id)
        values = {
            "host": row.tenant,
            "task": row.id,
            "config": config.id,
            "version": version.value,
            "data": self._seal(config),
            "most": self._settings.push_configs,
        }
        stored = await self._execute(
            "INSERT INTO a2a_push_t (host_id, task_id, config_id, version, config, sent,"
            # due even before the first event, whose writer may not see this row yet
            " due_ts) SELECT %(host)s, %(task)s, %(config)s, %(version)s, %(data)s, 0, now()"
            " WHERE (SELECT count(*) FROM a2a_push_t WHERE host_id = %(host)s"
            " AND task_id = %(task)s AND config_id <> %(config)s) < %(most)s"
            " ON CONFLICT (host_id, task_id, config_id) DO UPDATE SET"
            " config = excluded.config, version = excluded.version, error = ''",
            values,
        )
        if not stored:
            raise InvalidParameters(f"A task has {self._settings.push_configs} webhooks at most")
        return config

    def check(self, config: PushConfig) -> None:
        """Raises InvalidParameters for an address that is not sent to, and for a credential that
        cannot be encrypted; PushNotSupported where it is switched off."""
        if not self._settings.push:
            raise PushNotSupported("Push notifications are switched off (a2a.push)")
        headers = [config.token, *_authorization(config).values()]
        if not all(text.isascii() and text.isprintable() for text in headers):
            raise InvalidParameters("Expected a token and credentials of printable ASCII")
        try:
            check_receiver(
                config.url,
                private=self._settings.push_private,
                condition="a2a.push_private is true",
            )
            if config.token or config.authentication:
                self._keys.sealing()
        except ToolgateError as error:
            raise InvalidParameters(f"The webhook is not accepted: {error}") from error

    async def all(self, row: StoredTask) -> list[PushConfig]:
        """The webhooks of a task; those that cannot be read have an id alone."""
        rows = await self._fetch(
            "SELECT config_id, config FROM a2a_push_t WHERE host_id = %s AND task_id = %s"
            " ORDER BY config_id",
            [row.tenant, row.id],
        )
        configs = []
        for id_, data in rows:
            try:
                config = self._unseal(row.id, data)
            except (SecretRefused, ValueError, msgspec.DecodeError):
                config = PushConfig(url="")
            configs.append(replace(config, id=id_, task_id=row.id))
        return configs

    async def delete(self, row: StoredTask, id_: str) -> None:
        await self._delete(row.tenant, row.id, id_)

    async def _delete(self, host_id: str, task_id: str, id_: str) -> None:
        await self._execute(
            "DELETE FROM a2a_push_t WHERE host_id = %s AND task_id = %s AND config_id = %s",
            [host_id, task_id, id_],
        )

    async def run(self) -> None:
        """Send what is due, until cancelled."""
        async with anyio.create_task_group() as group:
            while True:
                with suppress(*AWAY):
                    for due in await self._claim(AT_ONCE - self._sending.total()):
                        self._sending[due.host_id] += 1
                        group.start_soon(self._send_all, due)
                await anyio.sleep(self._settings.poll_s)

    async def _claim(self, limit: int) -> list[DueWebhook]:
        values = {
            "hosts": [*self._sending.keys()],
            "counts": [*self._sending.values()],
            "limit": limit,
            "of_tenant": OF_TENANT,
            "of_owner": OF_OWNER,
            "lease": LEASE_S,
        }
        return await self._fetch_rows(DueWebhook, _CLAIM, values)

    async def _send_all(self, due: DueWebhook) -> None:
        """Send the events that a receiver lacks, one after the other, up to a failure."""
        try:
            with suppress(*AWAY):  # or its lease ends, and it is sent again
                await self._send_until_failure(due)
        finally:
            self._sending[due.host_id] -= 1
            if not self._sending[due.host_id]:
                del self._sending[due.host_id]

    async def _send_until_failure(self, due: DueWebhook) -> None:
        try:
            with anyio.move_on_after(LEASE_S / 2):
                await self._send_in_order(due)
        except AWAY:
            raise
        except Exception:  # an unreadable row must not end the sender
            log.exception("a2a_push_failed", extra={"task": due.task_id})
            if due.age_s < self._settings.push_s:
                await self._settle(due, due.sent, "Internal error", _pause_s(due))
            elif (row := await self._tasks.find(due.host_id, due.task_id)) is not None:
                log.warning("a2a_push_given_up", extra={"task": due.task_id})
                await self._settle(due, row.number, "Internal error", 0.0)

    async def _send_in_order(self, due: DueWebhook) -> None:
        last_sent = due.sent
        while events := await self._tasks.events(due.host_id, due.task_id, last_sent, 1):
            [(number, event)] = events
            outcome = await self._send(due, event)
            if outcome == "gone":
                await self._delete(due.host_id, due.task_id, due.config_id)
                return
            if outcome and due.age_s < self._settings.push_s:
                await self._settle(due, last_sent, outcome, _pause_s(due))
                return
            if outcome:
                extra = {"task": due.task_id, "reason": outcome}
                log.warning("a2a_push_given_up", extra=extra)
            last_sent = number
            if not await self._settle(due, last_sent, outcome, None):
                return  # another process has it
        await self._settle(due, last_sent, "", 0.0)

    async def _settle(
        self, due: DueWebhook, last_sent: int, error: str, wait_s: float | None
    ) -> bool:
        """Store what was sent. `wait_s` until the next attempt, which ends the lease; 0: when there
        is more; None: this process goes on. False: another one has the webhook."""
        values = {
            "host": due.host_id,
            "task": due.task_id,
            "config": due.config_id,
            "fence": due.fence,
            "sent": last_sent,
            "error": error,
            "wait": wait_s,
            "failed": bool(error) and bool(wait_s),
        }
        async with borrow(self._pool) as connection:
            if wait_s is not None:  # the next statement sees the event whose writer has the row
                await connection.execute(
                    "SELECT FROM a2a_push_t WHERE host_id = %(host)s AND task_id = %(task)s"
                    " AND config_id = %(config)s FOR UPDATE",
                    values,
                )
            stored = await connection.execute(
                "UPDATE a2a_push_t AS r SET sent = %(sent)s, error = %(error)s,"
                " attempt = CASE WHEN %(failed)s THEN attempt + 1 ELSE 0 END,"
                " since_ts = CASE WHEN %(failed)s THEN since_ts END,"
                " lease_ts = CASE WHEN %(wait)s::float8 IS NULL THEN lease_ts END,"
                " due_ts = CASE WHEN %(wait)s::float8 IS NULL THEN due_ts"
                " WHEN EXISTS (SELECT FROM a2a_event_t e WHERE e.host_id = %(host)s"
                " AND e.task_id = %(task)s AND e.number > %(sent)s)"
                " THEN clock_timestamp() + make_interval(secs => %(wait)s) END"
                " WHERE host_id = %(host)s AND task_id = %(task)s AND config_id = %(config)s"
                " AND fence = %(fence)s",
                values,
            )
            return bool(stored.rowcount)

    async def _send(self, due: DueWebhook, event: StreamResponse) -> str:
        """Send an event; "": it was taken, "gone": the receiver wants no more, else the error."""
        try:
            config = self._unseal(due.task_id, due.config)
        except SecretRefused as error:
            return str(error)
        version = Version(due.version)
        if version is Version.V1_0:
            body, media_type = encode(version, event), "application/a2a+json"
        else:  # whose webhooks get the task
            row = await self._tasks.find(due.host_id, due.task_id)
            if row is None:
                return "gone"
            body, media_type = encode(version, row.task), "application/json"
        outcome = await self._sender.post(
            config.url,
            msgspec.json.encode(body),
            {
                "Content-Type": media_type,
                **({TOKEN_HEADER: config.token} if config.token else {}),
                **_authorization(config),
            },
            private=self._settings.push_private,
        )
        if outcome.done:
            return ""
        return "gone" if outcome.gone else outcome.error

    def _seal(self, config: PushConfig) -> bytes:
        """The config as it is stored, encrypted if it has a credential."""
        plain = msgspec.json.encode(config)
        if not config.token and config.authentication is None:
            return plain
        id_, cipher = self._keys.sealing()
        nonce = os.urandom(NONCE_BYTES)
        sealed = cipher.encrypt(nonce, plain, config.task_id.encode())
        return b"%s %b" % (id_.encode(), nonce + sealed)

    def _unseal(self, task_id: str, data: bytes) -> PushConfig:
        """Raises SecretRefused."""
        from cryptography.exceptions import InvalidTag  # as in `registry.access.secrets`

        if not data.startswith(b"{"):
            id_, _, sealed = data.partition(b" ")
            cipher = self._keys.opening(id_.decode())
            try:
                data = cipher.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], task_id.encode())
            except InvalidTag as error:
                raise SecretRefused("a webhook of A2A is not what was stored there") from error
        return msgspec.json.decode(data, type=PushConfig)


def mask_credentials(config: PushConfig) -> PushConfig:
    """A webhook as it is shown, without its credentials: its client gets them back by A2A alone."""
    authentication = config.authentication
    return replace(
        config,
        token=config.token and MASK,
        authentication=authentication
        and replace(authentication, credentials=authentication.credentials and MASK),
    )


def _pause_s(due: DueWebhook) -> float:
    """The time until the next attempt."""
    return retry_delay_s(due.attempt + 1, FIRST_S, LONGEST_S, factor=2)


def _authorization(config: PushConfig) -> dict[str, str]:
    authentication = config.authentication
    if authentication is None or not authentication.scheme:
        return {}
    return {"Authorization": f"{authentication.scheme} {authentication.credentials}".strip()}
