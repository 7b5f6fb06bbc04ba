"""Regular expressions of rules, in RE2's syntax: time linear in any text. Pure.

(The engine behind JSON Schema's `pattern` is linear too, but reports only whether a text matches.)
"""

from collections.abc import Sequence
from typing import Any

import re2

from schemas.errors import ToolgateError

MEMORY_BYTES = 1 << 20  # of one compiled pattern
MANY_BYTES = 1 << 25  # of one pattern that combines many texts


class InvalidPattern(ToolgateError):
    """The text is not a regular expression, or one that would take too much memory."""


class Pattern:
    def __init__(self, text: str, memory_bytes: int = MEMORY_BYTES) -> None:
        """Raises InvalidPattern with the reason, without the text."""
        options = re2.Options()
        options.log_errors = False
        options.max_mem = memory_bytes
        try:
            self._compiled: Any = re2.compile(text.encode(), options)
        except re2.error as error:
            reason = error.args[0] if error.args else error
            message = reason.decode() if isinstance(reason, bytes) else str(reason)
            raise InvalidPattern(message.partition(":")[0]) from error

    @classmethod
    def of_any(cls, texts: Sequence[str]) -> "Pattern":
        """Pattern that matches any of these texts literally; of several at one position, the first.
        Raises InvalidPattern for too many."""
        return cls("|".join(map(re2.escape, texts)), MANY_BYTES)

    @classmethod
    def of_words(cls, texts: Sequence[str]) -> "Pattern":
        """Pattern that matches any of these texts as a whole word. Raises InvalidPattern for too
        many."""
        either = "|".join(map(re2.escape, sorted(texts, key=len, reverse=True)))
        return cls(rf"\b(?:{either})\b", MANY_BYTES)

    def is_in(self, text: str) -> bool:
        return self._compiled.search(text.encode()) is not None

    def replace(self, text: str, by: str) -> str:
        """`text` with each non-empty match replaced by the literal `by`."""
        encoded, mask = text.encode(), by.encode()
        replaced_text = self._compiled.sub(lambda match: mask if match.group(0) else b"", encoded)
        return str(replaced_text, "utf-8")
