"""Untrusted text for a terminal. Descriptions, names and answers come from others: escape sequences
can rewrite a terminal, and bidirectional marks show a line in another order than it has."""

from schemas.invisible_characters import visible, without_hidden


def harmless(text: str) -> str:
    r"""`text` with control characters and invisible characters escaped, as in `\u{1b}`."""
    return visible(text).replace("\r", "\\u{d}")


def is_harmless(text: str) -> bool:
    """Whether there is nothing to escape. What `harmless` has written is harmless."""
    return "\r" not in text and without_hidden(text) == text


def one_line(text: str) -> str:
    return harmless(" ".join(text.split()))


def first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
