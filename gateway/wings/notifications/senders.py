"""Sends a message to a target, and says what the target answered."""

import smtplib
import ssl
import time
from collections.abc import Collection
from urllib.parse import urlsplit

from anyio import to_thread
from msgspec import Struct

from config.notifications import NotificationsSettings, SmtpSettings
from gateway.http_client.webhooks import WebhookSender, WebhookSent, check_receiver, sign
from gateway.wings.notifications.messages import BODIES, IncidentMessage, Kind, mail, plain
from schemas.errors import ToolgateError

ANSWER = 200  # characters of an answer that are shown


class Endpoint(Struct, frozen=True):
    """Where a target of HTTP is. `secrets` sign requests; of Slack and Teams there are none."""

    url: str
    secrets: tuple[str, ...] = ()


class Destination(Struct, frozen=True):
    kind: Kind
    endpoint: Endpoint | None = None
    recipients: tuple[str, ...] = ()  # of mail


def is_private_host(url: str, private_hosts: Collection[str]) -> bool:
    """Whether the operator lets a host be one of the own network."""
    parts = urlsplit(url)
    return bool({parts.hostname, parts.netloc} & {*private_hosts})


def check_url(url: str, private_hosts: Collection[str]) -> None:
    """Raises ToolgateError for an address that a message may not be sent to."""
    try:
        private = is_private_host(url, private_hosts)
    except ValueError as error:
        raise ToolgateError("expected a URL") from error
    check_receiver(url, private=private, condition="notifications.private_hosts names its host")


class TargetSender:
    def __init__(self, settings: NotificationsSettings, http: WebhookSender) -> None:
        self._settings = settings
        self._http = http

    async def send(self, destination: Destination, message: IncidentMessage) -> WebhookSent:
        if destination.endpoint is None:
            return await self._send_mail(destination.recipients, message)
        endpoint, (write, content_type) = destination.endpoint, BODIES[destination.kind]
        body = write(message)
        headers = {"Content-Type": content_type}
        if endpoint.secrets:
            headers |= sign(message.id, int(time.time()), body, endpoint.secrets)
        private = is_private_host(endpoint.url, self._settings.private_hosts)
        return await self._http.post(endpoint.url, body, headers, private=private)

    async def _send_mail(
        self, recipients: Collection[str], message: IncidentMessage
    ) -> WebhookSent:
        smtp = self._settings.smtp
        if not smtp.host:
            return WebhookSent(done=False, error="notifications.smtp.host is not set")
        return await to_thread.run_sync(send_mail, smtp, recipients, message)


def send_mail(
    smtp: SmtpSettings, recipients: Collection[str], message: IncidentMessage
) -> WebhookSent:
    """Send a mail of its own to each recipient; blocks. A server that refuses one for good (5xx)
    is not asked again, unless it refuses another for now (4xx)."""
    refused: list[str] = []
    over = True
    try:
        with _connect(smtp) as server:
            for recipient in recipients:
                try:
                    server.send_message(mail(message, smtp.sender, recipient))
                except smtplib.SMTPRecipientsRefused as error:
                    [(code, reason)] = error.recipients.values()
                    over = over and code >= 500
                    refused.append(f"{recipient}: {code} {reason.decode(errors='replace')}")
    except smtplib.SMTPResponseException as error:
        answer: str | bytes = error.smtp_error
        text = answer if isinstance(answer, str) else answer.decode(errors="replace")
        return _failure(f"{error.smtp_code} {text}", over=error.smtp_code >= 500)
    except (smtplib.SMTPException, OSError) as error:
        return _failure(str(error) or type(error).__name__)
    if refused:
        return _failure("; ".join(refused), over=over)
    count = len(recipients)
    return WebhookSent(done=True, answer=f"{smtp.host} took {count} mail{'s' * (count != 1)}")


def _failure(text: str, *, over: bool = False) -> WebhookSent:
    return WebhookSent(done=False, gone=over, error=plain(text, ANSWER))


def _connect(smtp: SmtpSettings) -> smtplib.SMTP:
    """Raises OSError and smtplib.SMTPException."""
    trust = ssl.create_default_context(cafile=smtp.ca_file or None)
    if smtp.security == "tls":
        server: smtplib.SMTP = smtplib.SMTP_SSL(
            smtp.host, smtp.port, timeout=smtp.timeout_s, context=trust
        )
    else:
        server = smtplib.SMTP(smtp.host, smtp.port, timeout=smtp.timeout_s)
    try:
        if smtp.security == "starttls":
            server.starttls(context=trust)
        if smtp.user:
            server.login(smtp.user, smtp.password)
    except BaseException:
        server.close()
        raise
    return server
