"""Pagination cursors: opaque to clients, stateless here. A cursor names the last item of a page, so
a list that changes between two pages neither repeats nor skips items that stayed."""

import base64
import binascii

from schemas.errors import InvalidParams


def seal(after: str) -> str:
    return base64.urlsafe_b64encode(after.encode()).decode().rstrip("=")


def unseal(cursor: str | None) -> str | None:
    """The name encoded in a cursor of `seal`. Raises InvalidParams for any other text."""
    if cursor is None:
        return None
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        after = base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (UnicodeError, binascii.Error) as error:
        raise InvalidParams(
            "Invalid cursor: pass nextCursor of the page before, unchanged"
        ) from error
    if seal(after) != cursor or not after:
        raise InvalidParams("Invalid cursor: pass nextCursor of the page before, unchanged")
    return after
