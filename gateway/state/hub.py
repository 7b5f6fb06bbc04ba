"""Who wants to hear that the tools of a tenant changed."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.context import Outbox
from schemas.errors import Unavailable


class Hub:
    """Fans a change out to its followers; changes that nobody read yet are one piece of news."""

    def __init__(self, stream_limit: int) -> None:
        self._followers: defaultdict[str, dict[Outbox, bytes]] = defaultdict(dict)
        self._stream_limit = stream_limit
        self._open: set[Outbox] = set()
        self._closed = False

    @property
    def streams(self) -> int:
        return len(self._open)

    def follow(self, tenant: str, outbox: Outbox, message: bytes) -> None:
        """From now on put `message`, as it goes over the wire, whenever the tools change."""
        self._followers[tenant][outbox] = message

    def leave(self, tenant: str, outbox: Outbox) -> None:
        followers = self._followers[tenant]
        followers.pop(outbox, None)
        if not followers:
            del self._followers[tenant]

    def tools_changed(self, tenant: str) -> None:
        for outbox, message in self._followers.get(tenant, {}).items():
            outbox.put_once(message)

    @contextmanager
    def stream(self, outbox: Outbox) -> Iterator[None]:
        """Count an open stream that follows `outbox`. Raises Unavailable at the limit."""
        if self._closed:
            raise Unavailable("The gateway is shutting down")
        if len(self._open) >= self._stream_limit:
            raise Unavailable(f"Too many open streams (limit {self._stream_limit})")
        self._open.add(outbox)
        try:
            yield
        finally:
            self._open.discard(outbox)

    def close(self) -> None:
        """End every stream, after what it still has to say: the gateway stops."""
        self._closed = True
        for outbox in list(self._open):
            outbox.close()
