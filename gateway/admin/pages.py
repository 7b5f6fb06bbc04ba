"""Lists in parts. A cursor names the last thing that was seen: what comes and goes between two
pages makes none be missed or seen twice that stayed."""

import base64
import binascii
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from msgspec import Struct

from gateway.admin.operations import Paging
from gateway.admin.problems import Mistake, ProblemDetails, invalid

T = TypeVar("T")


class ListPage(Struct, Generic[T], frozen=True, omit_defaults=True):
    """`next` is the cursor of the page behind; without it this is the last."""

    items: tuple[T, ...]
    next: str = ""


class Pages:
    def __init__(self, size: int, limit: int) -> None:
        """`size` entries unless a client asks for another number, of at most `limit`."""
        self._size = size
        self._limit = limit

    def limit(self, asked: Paging) -> int:
        return min(asked.limit or self._size, self._limit)

    def page(self, asked: Paging, entries: Iterable[T], key: Callable[[T], str]) -> ListPage[T]:
        """The entries in the order of their keys, which are unlike."""
        after = place(asked.after)
        found = sorted((one for one in entries if key(one) > after), key=key)
        return self.cut(asked, found, key)

    def cut(self, asked: Paging, found: list[T], key: Callable[[T], str]) -> ListPage[T]:
        """Of `found`, which begins behind the cursor and has one more than fits where there is
        more."""
        limit = self.limit(asked)
        shown = found[:limit]
        return ListPage(tuple(shown), cursor(key(shown[-1])) if len(found) > limit else "")


def cursor(after: str) -> str:
    return base64.urlsafe_b64encode(after.encode()).decode().rstrip("=")


def place(sealed: str | None) -> str:
    """What a cursor names; "" without one. Raises Problem for what is none of ours."""
    if sealed is None:
        return ""
    try:
        padded = sealed.encode("ascii") + b"=" * (-len(sealed) % 4)
        after = base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (UnicodeError, binascii.Error) as error:
        raise unknown() from error
    if cursor(after) != sealed or "\0" in after:
        raise unknown()
    return after


def unknown() -> ProblemDetails:
    """A cursor is none of ours."""
    text = "expected `next` of the page before, unchanged"
    return invalid("The cursor cannot be read.", Mistake(text, parameter="after"))
