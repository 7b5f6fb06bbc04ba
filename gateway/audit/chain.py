"""The chain that this process writes: records get their numbers and hashes in order. Pure."""

from collections.abc import Iterable
from datetime import datetime
from uuid import uuid4

from gateway.audit.records import (
    AuditEntry,
    Head,
    Header,
    Line,
    canonical,
    encode_header,
    first_hash,
    linked,
)


class Chain:
    def __init__(
        self, host_id: str, node: str, started: datetime, key: bytes, seen: Iterable[Head] = ()
    ) -> None:
        self.id = str(uuid4())
        self.header = encode_header(Header(host_id, self.id, node, started, tuple(seen)))
        self._key = key
        self._hash = first_hash(key, self.header)
        self._sequence = 0

    def link(self, entries: Iterable[AuditEntry]) -> list[Line]:
        """The next records."""
        lines = []
        for entry in entries:
            self._sequence += 1
            text = canonical(self.id, self._sequence, entry)
            self._hash = linked(self._key, self._hash, text)
            lines.append(Line(self._sequence, entry.recorded_ts, self._hash, text))
        return lines
