"""Pages of lists, and the cursors between them."""

import base64
import binascii
from collections.abc import Callable, Iterable
from typing import Annotated, Generic, TypeVar

from msgspec import Meta, Struct

from config.value_types import END
from gateway.operations.problems import Mistake, ProblemDetails, invalid

Cursor = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9_-]{1,1024}" + END,
        description="`next` of the page before, unchanged",
    ),
]


class Paging(Struct, frozen=True, forbid_unknown_fields=True):
    """Paging parameters of a list."""

    limit: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    after: Cursor | None = None


T = TypeVar("T")


class ListPage(Struct, Generic[T], frozen=True, omit_defaults=True):
    """`next` is the cursor of the next page; absent on the last."""

    items: tuple[T, ...]
    next: str = ""


class Pages:
    def __init__(self, size: int, limit: int) -> None:
        """Default page size, and the maximum that a client may request."""
        self._size = size
        self._limit = limit

    def limit(self, paging: Paging) -> int:
        return min(paging.limit or self._size, self._limit)

    def page(self, paging: Paging, entries: Iterable[T], key: Callable[[T], str]) -> ListPage[T]:
        """One page of the entries, ordered by their unique keys."""
        after = place(paging.after)
        entries_after = sorted((entry for entry in entries if key(entry) > after), key=key)
        return self.cut(paging, entries_after, key)

    def cut(self, paging: Paging, entries: list[T], key: Callable[[T], str]) -> ListPage[T]:
        """One page of `entries`, which begins after the cursor and has one extra entry if there are
        more."""
        limit = self.limit(paging)
        page = entries[:limit]
        return ListPage(tuple(page), cursor(key(page[-1])) if len(entries) > limit else "")


def cursor(after: str) -> str:
    return base64.urlsafe_b64encode(after.encode()).decode().rstrip("=")


def place(cursor_text: str | None) -> str:
    """The key in a cursor; "" without one. Raises ProblemDetails for a foreign one."""
    if cursor_text is None:
        return ""
    try:
        padded = cursor_text.encode("ascii") + b"=" * (-len(cursor_text) % 4)
        after = base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (UnicodeError, binascii.Error) as error:
        raise unknown() from error
    if cursor(after) != cursor_text or "\0" in after:
        raise unknown()
    return after


def unknown() -> ProblemDetails:
    """422 for a foreign cursor."""
    text = "expected `next` of the page before, unchanged"
    return invalid("The cursor cannot be read.", Mistake(text, parameter="after"))
