"""Pagination cursors: opaque to clients, stateless here. A cursor names the last item of a page, so
a list that changes between two pages neither repeats nor skips items that stayed. It has a digest
of its list, which holds on all nodes; it gives no access, so it needs no key."""

import base64
import binascii
import hashlib

from schemas.errors import InvalidParams

DIGEST_BYTES = 8


def seal(after: str, of: str) -> str:
    """The cursor behind the item `after` of the list `of`."""
    name = after.encode()
    return base64.urlsafe_b64encode(_digest(name, of) + name).decode().rstrip("=")


def unseal(cursor: str | None, of: str) -> str | None:
    """The name encoded in a cursor of `seal`. Raises InvalidParams for any other text, and for a
    cursor of another list."""
    if cursor is None:
        return None
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        after = base64.b64decode(padded, altchars=b"-_", validate=True)[DIGEST_BYTES:].decode()
    except (UnicodeError, binascii.Error) as error:
        raise _invalid(of) from error
    if not after or seal(after, of) != cursor:
        raise _invalid(of)
    return after


def _digest(name: bytes, of: str) -> bytes:
    return hashlib.blake2b(of.encode() + b"\0" + name, digest_size=DIGEST_BYTES).digest()


def _invalid(of: str) -> InvalidParams:
    text = f"Invalid cursor: pass nextCursor of the page before of this list of {of}, unchanged"
    return InvalidParams(text)
