"""Operations of the admin API: where messages go, and the incidents that they are about."""

import base64
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from config.notifications import MAIL_PATTERN, NotificationsSettings
from config.value_types import END, SourceName
from gateway.http_client.webhooks import PREFIX, WebhookSender
from gateway.operations.member_texts import MemberText, MemberTexts
from gateway.operations.operation import Operation, OperationInput, OperationOutput
from gateway.operations.paging import ListPage, Paging
from gateway.operations.problems import conflict, invalid, not_found, unavailable
from gateway.wings.interface import AdminAccess, Sentence, Subject
from gateway.wings.notifications.messages import IncidentMessage, Kind
from gateway.wings.notifications.senders import Destination, Endpoint, TargetSender, check_url
from gateway.wings.notifications.store import NotificationStore, StoredTarget
from registry.access.column_encryption import SealedColumn, Vault
from registry.access.secrets import SecretRefused
from schemas.errors import ToolgateError

READ, WRITE = "admin:notifications:read", "admin:notifications:write"
SUBJECTS: tuple[Subject, ...] = Subject.__args__  # type: ignore[attr-defined]
SECRET_BYTES = 32
TARGET = {"target": SourceName}

Recipient = Annotated[
    str, Meta(pattern=rf"^{MAIL_PATTERN}" + END, max_length=254, description="a mail address")
]


class NewTarget(Struct, frozen=True, forbid_unknown_fields=True):
    """Where messages go, and about what: of a webhook, Slack and Teams by `url`, of mail by
    `recipients`."""

    kind: Annotated[
        Kind, Meta(description="webhook: signed requests; slack, teams: their incoming webhooks")
    ]
    subjects: Annotated[
        tuple[Subject, ...],
        Meta(min_length=1, description="what messages are about; all if absent"),
    ] = SUBJECTS
    url: Annotated[
        str, Meta(max_length=2000, description="kept if absent, as https://hooks.slack.com/...")
    ] = ""
    recipients: Annotated[
        tuple[Recipient, ...], Meta(max_length=20, description="mail addresses; kept if absent")
    ] = ()
    new_secret: Annotated[
        bool, Meta(description="a webhook gets a new secret; the one before signs, too")
    ] = False


_NAME: MemberTexts = {
    "target": MemberText("Name of the target", "You choose it; letters, digits, - and _.", "ops")
}
TEXTS: MemberTexts = {
    **_NAME,
    "kind": MemberText("Kind of target", "A signed webhook, a channel of Slack or Teams, or mail."),
    "subjects": MemberText("Messages about", "Nothing else is sent there.", "approvals"),
    "url": MemberText(
        "Address",
        "Of a webhook, or the incoming webhook of Slack or Teams; empty: it stays as it is.",
        "https://hooks.slack.com/services/T0/B0/XYZ",
    ),
    "recipients": MemberText(
        "Mail addresses", "One on each line; empty: they stay as they are.", "ops@example.com"
    ),
    "new_secret": MemberText(
        "New secret", "The one before signs requests of a webhook, too, until the next.",
        rarely=True,
    ),
}  # fmt: skip


class TargetView(Struct, frozen=True, omit_defaults=True):
    """A target. `place`: the origin of its URL, or its recipients; `secret` signs requests to a
    webhook, and is shown once."""

    name: str
    kind: Kind
    subjects: list[str]
    place: str
    state: Literal["ok", "failed", "new"]
    waiting: int = 0
    last: datetime | None = None
    answer: str = ""
    secret: str | UnsetType = UNSET


class TargetTest(Struct, frozen=True):
    """Whether a target took a test message, and what it answered."""

    done: bool
    answer: str


class IncidentView(Struct, frozen=True, omit_defaults=True):
    """An incident. `sentences`: its title and detail with their values apart, for translations;
    `sent`, `failed`: targets that took a message about it, or did not."""

    id: str
    subject: str
    title: str
    detail: str
    state: Literal["open", "ended"]
    begun: datetime
    ended: datetime | None = None
    sent: list[str] = []
    failed: list[str] = []
    sentences: Mapping[str, Sentence] = {}


class IncidentQuery(Paging, frozen=True):
    state: Annotated[Literal["open", "ended"] | None, Meta(description="all if absent")] = None


class TargetOperations:
    def __init__(self, access: AdminAccess) -> None:
        self._access = access
        self._settings: NotificationsSettings = access.settings

    @property
    def operations(self) -> Sequence[Operation]:
        path = "/notifications/targets/{target}"
        return (
            Operation(
                "listTargets", "GET", "/notifications/targets", "List where notifications go.",
                READ, self.list, ListPage[TargetView], query=Paging,
            ),
            Operation(
                "getTarget", "GET", path, "Show where notifications go.", READ, self.get,
                TargetView, types=TARGET, members=_NAME,
            ),
            Operation(
                "putTarget", "PUT", path, "Send notifications to a target.", WRITE, self.put,
                TargetView, body=NewTarget, members=TEXTS, types=TARGET, secret=True,
                problems=(409,),
                no_tool="its request and its response hold secrets, which no model is to see",
            ),
            Operation(
                "testTarget", "POST", f"{path}/tests", "Send a test message to a target.", WRITE,
                self.test, TargetTest, types=TARGET, members=_NAME,
            ),
            Operation(
                "deleteTarget", "DELETE", path, "Send no more notifications to a target.", WRITE,
                self.delete, status=204, types=TARGET, members=_NAME,
            ),
            Operation(
                "listIncidents", "GET", "/notifications/incidents",
                "List incidents, the newest first, and who was notified.", READ, self.incidents,
                ListPage[IncidentView], query=IncidentQuery,
            ),
        )  # fmt: skip

    async def list(self, request: OperationInput) -> ListPage[TargetView]:
        rows = await self._store.targets(request.tenant)
        return self._access.pages.page(request.query, [*map(_view, rows)], lambda row: row.name)

    async def get(self, request: OperationInput) -> TargetView:
        return _view(await self._row(request))

    async def put(self, request: OperationInput) -> OperationOutput:
        name, body, tenant = request.names["target"], request.body, request.tenant
        targets = await self._store.targets(tenant, name)
        recipients = body.recipients or (targets[0].recipients if targets else ())
        self._check(body, recipients, tenant)
        if targets and targets[0].kind != body.kind:
            raise conflict(f"The target {name} is of the kind {targets[0].kind}: delete it first.")
        before = self._endpoint(tenant, targets[0]) if targets else None
        secret, endpoint = self._endpoint_of(body, before)
        try:
            sealed = (
                None
                if endpoint is None
                else self._vault(tenant).seal(
                    msgspec.json.encode(endpoint), SealedColumn.NOTIFICATION_TARGET, name
                )
            )
        except SecretRefused as error:
            raise unavailable(f"The target cannot be stored: {error}.") from error
        place = ", ".join(recipients) if endpoint is None else _origin(endpoint.url)
        stored = await self._store.put_target(
            tenant, name, kind=body.kind, subjects=dict.fromkeys(body.subjects), place=place,
            recipients=recipients, sealed_secrets=sealed, most=self._settings.tenant_targets,
        )  # fmt: skip
        if not stored:
            most = self._settings.tenant_targets
            raise conflict(f"There are {most} targets already (notifications.tenant_targets).")
        view = _view(await self._row(request))
        with_secret = msgspec.structs.replace(view, secret=secret)
        return OperationOutput(with_secret, 200 if targets else 201, untold=view)

    async def test(self, request: OperationInput) -> TargetTest:
        """The answer comes with status 200, whatever the target said."""
        row, name = await self._row(request), request.names["target"]
        destination = self.destination(request.tenant, row)
        id_ = f"test.{os.urandom(8).hex()}"
        message = IncidentMessage(
            id=id_,
            incident=id_,
            tenant=request.tenant,
            phase="begun",
            subject="test",
            title="A test message of Toolgate",
            detail=f"The target {name} gets messages about {', '.join(row.subjects)}.",
            begun=datetime.now(UTC),
        )
        async with WebhookSender() as http:
            outcome = await TargetSender(self._settings, http).send(destination, message)
        answer = outcome.answer or outcome.error
        await self._store.note_answer(request.tenant, name, done=outcome.done, answer=answer)
        return TargetTest(outcome.done, answer)

    async def delete(self, request: OperationInput) -> None:
        name = request.names["target"]
        if not await self._store.delete_target(request.tenant, name):
            raise not_found("target", name)

    async def incidents(self, request: OperationInput) -> ListPage[IncidentView]:
        query, limit = request.query, self._access.pages.limit(request.query)
        rows = await self._store.incidents(
            request.tenant, state=query.state, after=query.after or "", limit=limit + 1
        )
        views = tuple(
            IncidentView(
                row.incident_id, row.subject, row.title, row.detail,
                "ended" if row.ended_ts else "open", row.begun_ts, row.ended_ts, row.sent,
                row.failed, row.sentences,
            )
            for row in rows[:limit]
        )  # fmt: skip
        last = rows[limit - 1] if len(rows) > limit else None
        return ListPage(views, f"{last.begun_ts.isoformat()} {last.incident_id}" if last else "")

    def destination(self, tenant: str, row: StoredTarget) -> Destination:
        """Raises ProblemDetails."""
        return Destination(row.kind, self._endpoint(tenant, row), tuple(row.recipients))

    @property
    def _store(self) -> NotificationStore:
        return NotificationStore(self._access.pool())

    def _vault(self, tenant: str) -> Vault:
        return Vault(self._access.keys, tenant)

    async def _row(self, request: OperationInput) -> StoredTarget:
        rows = await self._store.targets(request.tenant, request.names["target"])
        if not rows:
            raise not_found("target", request.names["target"])
        return rows[0]

    def _check(self, body: NewTarget, recipients: Sequence[str], tenant: str) -> None:
        if body.kind == "mail":
            if body.url or body.new_secret:
                raise invalid("A target of mail has recipients, and no url and no secret.")
            if not recipients:
                raise invalid("recipients: expected at least one mail address.")
            if not self._settings.smtp.host:
                raise conflict("No mail is sent: notifications.smtp.host is not set.")
            if tenant != self._access.tenant:
                raise conflict("The mail server is for the gateway's own tenant only.")
            return
        if body.recipients:
            raise invalid(f"A target of the kind {body.kind} has a url, and no recipients.")
        if body.new_secret and body.kind != "webhook":
            raise invalid("new_secret: only requests to a webhook are signed.")
        if body.url:
            try:
                check_url(body.url, self._settings.private_hosts)
            except ToolgateError as error:
                raise invalid(f"url: {error} (notifications.private_hosts).") from error

    def _endpoint(self, tenant: str, row: StoredTarget) -> Endpoint | None:
        """Raises ProblemDetails."""
        try:
            return open_endpoint(self._vault(tenant), row)
        except SecretRefused as error:
            raise conflict(f"The target {row.name} cannot be read: {error}.") from error

    def _endpoint_of(
        self, body: NewTarget, before: Endpoint | None
    ) -> tuple[str | UnsetType, Endpoint | None]:
        """The endpoint, with its secret if it has a new one. Raises ProblemDetails."""
        if body.kind == "mail":
            return UNSET, None
        url = body.url or (before.url if before else "")
        if not url:
            raise invalid("url: expected the address that messages are sent to.")
        secrets = before.secrets if before else ()
        if body.kind != "webhook" or (secrets and not body.new_secret):
            return UNSET, Endpoint(url, secrets)
        secret = PREFIX + base64.b64encode(os.urandom(SECRET_BYTES)).decode()
        return secret, Endpoint(url, (secret, *secrets[:1]))


def open_endpoint(vault: Vault, row: StoredTarget) -> Endpoint | None:
    """The endpoint of a target; None: mail. Raises SecretRefused."""
    if row.sealed is None:
        return None
    plain = vault.unseal(bytes(row.sealed), SealedColumn.NOTIFICATION_TARGET, row.name)
    return msgspec.json.decode(plain, type=Endpoint)


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _view(row: StoredTarget) -> TargetView:
    state: Literal["ok", "failed", "new"] = (
        "new" if row.last_ok is None else "ok" if row.last_ok else "failed"
    )
    return TargetView(
        row.name, row.kind, row.subjects, row.place, state, row.waiting, row.last_ts,
        row.last_answer,
    )  # fmt: skip


def notification_operations(access: AdminAccess) -> Sequence[Operation]:
    return TargetOperations(access).operations
