"""Forms of messages, with texts of strangers in them."""

import json
from datetime import UTC, datetime
from email import message_from_bytes, policy
from html import escape

import pytest

from gateway.wings.notifications.messages import (
    IncidentMessage,
    cloud_event,
    mail,
    plain,
    slack_blocks,
    teams_card,
)

HOSTILE = "<!all> *pay* [here](http://evil.example)\r\nBcc: all@example.com\x00 & \u202egro.live"
BEGUN = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
ONE_LINE = "<!all> *pay* [here](http://evil.example) Bcc: all@example.com & gro.live"


def message(**changes: object) -> IncidentMessage:
    values = {
        "id": "i-1.begun", "incident": "i-1", "tenant": "t", "phase": "begun",
        "subject": "sources", "title": HOSTILE, "detail": HOSTILE, "begun": BEGUN,
        "link": "https://gw.example/console/sources/a", **changes,
    }  # fmt: skip
    return IncidentMessage(**values)  # type: ignore[arg-type]  # of one test


def test_slack_shows_strange_texts_without_markup() -> None:
    blocks = json.loads(slack_blocks(message()))
    assert blocks["text"] == escape(ONE_LINE, quote=False)
    kinds = {block["text"]["type"] for block in blocks["blocks"] if "text" in block}
    assert kinds == {"plain_text"}
    assert blocks["blocks"][0]["text"]["text"] == ONE_LINE
    assert blocks["blocks"][-1]["elements"][0]["url"] == "https://gw.example/console/sources/a"


def test_teams_shows_strange_texts_without_markup() -> None:
    [attachment] = json.loads(teams_card(message(link="")))["attachments"]
    card = attachment["content"]
    assert {block["type"] for block in card["body"]} == {"RichTextBlock"}
    assert card["body"][0]["inlines"][0]["text"] == ONE_LINE
    assert card["actions"] == []


def test_mail_has_no_header_of_strangers() -> None:
    letter = mail(message(phase="ended", ended=BEGUN), "gateway@example.com", "ops@example.com")
    read = message_from_bytes(letter.as_bytes(), policy=policy.default)
    assert read["Bcc"] is None
    assert read["To"] == "ops@example.com"
    assert read["Subject"] == f"[Toolgate] Over: {ONE_LINE}"
    assert read["References"] == "<i-1.begun@example.com>"
    assert "Bcc: all@example.com" in read.get_content()


def test_mail_does_not_decode_strange_texts_into_headers() -> None:
    """Encoded words (RFC 2047) are decoded when a header is set, line ends included."""
    hostile = "=?utf-8?q?=0d=0aBcc:_eve=40evil.example?= waits"
    letter = mail(message(title=hostile), "gateway@example.com", "ops@example.com")
    read = message_from_bytes(letter.as_bytes(), policy=policy.default)
    assert read["Bcc"] is None
    assert read["Subject"] == f"[Toolgate] {hostile.replace('=?', '= ?')}"


def test_a_cloud_event_has_the_incident_and_its_times() -> None:
    event = json.loads(cloud_event(message(phase="ended", ended=BEGUN)))
    assert (event["type"], event["id"]) == ("dev.toolgate.notification.v1", "i-1.begun")
    assert event["data"]["state"] == "ended"
    assert event["data"]["begun"] == "2026-03-01T12:30:00Z"


@pytest.mark.parametrize(
    ("text", "limit", "line"),
    [
        ("a\r\n\tb", 9, "a b"),
        ("\u2066x\u2069", 9, "x"),
        ("x" * 20, 5, "xxxx…"),
        ("", 5, ""),
        pytest.param("a\ud800b", 9, "a b", id="surrogate"),
    ],
)
def test_plain_texts_are_one_line(text: str, limit: int, line: str) -> None:
    assert plain(text, limit) == line
