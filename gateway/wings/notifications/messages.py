"""Messages about incidents, in the form that each kind of target takes. Pure.

Texts of strangers (names of tools, reasons of failures) are in all of them. No form lets them be
more than text: Slack and Teams get them where they read no markup, mail gets no control characters.
"""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from typing import Any, Literal

from msgspec import Struct

from schemas.jsonrpc import encode

Kind = Literal["webhook", "slack", "teams", "mail"]
Phase = Literal["begun", "ended"]
EVENT_TYPE = "dev.toolgate.notification.v1"
TITLE, DETAIL = 150, 500  # characters; a header block of Slack takes 150
_CONTROL = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff]+"
)


def plain(text: str, limit: int) -> str:
    """One line of text without control characters, marks of direction and lone surrogates, and not
    too long."""
    line = " ".join(_CONTROL.sub(" ", text).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


class IncidentMessage(Struct, frozen=True, kw_only=True):
    """A message. `id` is the same in each attempt; `link`: a page of the console, or nothing."""

    id: str
    incident: str
    tenant: str
    phase: Phase
    subject: str
    title: str
    detail: str
    begun: datetime
    ended: datetime | None = None
    link: str = ""

    @property
    def headline(self) -> str:
        return plain(f"{'Over: ' if self.phase == 'ended' else ''}{self.title}", TITLE)

    @property
    def facts(self) -> str:
        since = self.begun.strftime("%Y-%m-%d %H:%M UTC")
        end = "" if self.ended is None else f", until {self.ended.strftime('%Y-%m-%d %H:%M UTC')}"
        return f"{self.subject}, since {since}{end}"


def cloud_event(message: IncidentMessage) -> bytes:
    """A CloudEvent 1.0, for receivers of signed webhooks."""
    data: dict[str, Any] = {
        "incident": message.incident,
        "state": message.phase,
        "subject": message.subject,
        "title": plain(message.title, TITLE),
        "detail": plain(message.detail, DETAIL),
        "begun": message.begun,
        "ended": message.ended,
        "link": message.link,
    }
    return encode(
        {
            "specversion": "1.0",
            "id": message.id,
            "source": f"/toolgate/{message.tenant}",
            "type": EVENT_TYPE,
            "time": message.ended or message.begun,
            "datacontenttype": "application/json",
            "data": data,
        }
    )


def slack_blocks(message: IncidentMessage) -> bytes:
    """Block Kit, for an incoming webhook of Slack. `plain_text` has no markup; `text`, which
    previews show, has, so its three special characters are escaped."""
    escaped = message.headline.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    blocks: list[Any] = [
        {"type": "header", "text": _plain_text(message.headline)},
        {"type": "section", "text": _plain_text(plain(message.detail, DETAIL) or "-")},
        {"type": "context", "elements": [_plain_text(message.facts)]},
    ]
    if message.link:
        button = {"type": "button", "text": _plain_text("Open the console"), "url": message.link}
        blocks.append({"type": "actions", "elements": [button]})
    return encode({"text": escaped, "blocks": blocks})


def _plain_text(text: str) -> Mapping[str, Any]:
    return {"type": "plain_text", "text": text, "emoji": False}


def teams_card(message: IncidentMessage) -> bytes:
    """An Adaptive Card, for a webhook of a Teams workflow. Text runs, other than text blocks, have
    no Markdown."""
    good = message.phase == "ended"
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [
            _run(
                message.headline,
                size="Large",
                weight="Bolder",
                color="Good" if good else "Attention",
            ),
            _run(plain(message.detail, DETAIL) or "-"),
            _run(message.facts, isSubtle=True),
        ],
        "actions": [{"type": "Action.OpenUrl", "title": "Open the console", "url": message.link}]
        if message.link
        else [],
    }
    content_type = "application/vnd.microsoft.card.adaptive"
    attachment = {"contentType": content_type, "contentUrl": None, "content": card}
    return encode({"type": "message", "attachments": [attachment]})


def _run(text: str, **look: Any) -> Mapping[str, Any]:
    return {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": text, **look}]}


def mail(message: IncidentMessage, sender: str, recipient: str) -> EmailMessage:
    """A mail. Replies of machines are not wanted (RFC 3834); both mails of an incident are one
    thread."""
    letter = EmailMessage(policy=SMTP)
    domain = sender.rpartition("@")[2]
    letter["From"] = Address("Toolgate", addr_spec=sender)
    letter["To"] = Address(addr_spec=recipient)
    # Encoded words of a text would be decoded here, and line ends in them would end the header.
    letter["Subject"] = f"[Toolgate] {message.headline.replace('=?', '= ?')}"
    letter["Message-ID"] = f"<{message.id}@{domain}>"
    if message.phase == "ended":
        letter["References"] = f"<{message.incident}.begun@{domain}>"
    letter["Date"] = message.ended or message.begun
    letter["Auto-Submitted"] = "auto-generated"
    lines = [plain(message.detail, DETAIL), "", message.facts, message.link]
    letter.set_content("\n".join(lines).strip() + "\n")
    return letter


BODIES: Mapping[Kind, tuple[Callable[[IncidentMessage], bytes], str]] = {
    "webhook": (cloud_event, "application/cloudevents+json"),
    "slack": (slack_blocks, "application/json"),
    "teams": (teams_card, "application/json"),
}
"""By kind: the body of a request, and its media type."""
