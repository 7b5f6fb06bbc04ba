"""Metadata of a text: lines of conversations, and whether it is trivial.
Pure.
"""

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

# Lines that begin an exchange, as bots write it: metadata, of which the text stays as it is.
_LINE = re.compile(r"^(Date|Skill|User|Assistant):[ \t]?", re.MULTILINE)
_GREETINGS = frozenset(
    ("hi", "hello", "hey", "bye", "thanks", "thank you", "ok", "okay", "yes", "no", "privet",
     "poka", "spasibo", "da", "net")
)  # fmt: skip
_GREETING = 100  # characters of a greeting, with what follows its words


@dataclass(frozen=True, slots=True)
class ConversationTurn:
    """Exchange between a user and an assistant, as a text describes it."""

    metadata: dict[str, Any] = field(default_factory=dict)
    dated: datetime | None = None
    user: str | None = None
    assistant: str | None = None


def exchange(text: str) -> ConversationTurn:
    """The parts of an exchange; empty if the text does not begin with one of its lines."""
    if not _LINE.match(text):
        return ConversationTurn()
    pieces = _LINE.split(text)[1:]
    parts: dict[str, str] = {}
    for name, body in zip(pieces[::2], pieces[1::2], strict=True):
        parts.setdefault(name.lower(), body.strip())
    dated = _date(parts.get("date", ""))
    metadata: dict[str, Any] = {
        name: parts[name][:255] for name in ("date", "skill") if parts.get(name)
    }
    if "user" in parts or "assistant" in parts:
        metadata["conversation"] = True
    return ConversationTurn(metadata, dated, parts.get("user"), parts.get("assistant"))


def is_trivial(turn: ConversationTurn, least: int) -> bool:
    """Whether an exchange is a greeting, has fewer than `least` characters or no answer."""
    if turn.user is None and turn.assistant is None:
        return False
    user, assistant = turn.user or "", turn.assistant or ""
    return _greets(user) or len(user) + len(assistant) < least or not assistant.strip()


def _greets(text: str) -> bool:
    """Whether it is a greeting, whatever punctuation follows."""
    if len(text) > _GREETING:
        return False
    while text and not text[-1].isalnum():
        text = text[:-1]
    return text.lower() in _GREETINGS


def _date(text: str) -> datetime | None:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    if not 2 <= time.year <= 9990:
        return None
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
