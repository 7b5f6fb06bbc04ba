"""Audit records: entries of messages and the hash chain. Pure.

A record is a JSON object: `chain_id` and `sequence` first, then the members of `AuditEntry` in
their order, empty ones omitted. Its hash is SHA-256, or HMAC-SHA-256 where `audit.key` is set, over
the previous hash and that text. Newer releases append members only, so that the text of older
records stays the same.
"""

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal
from uuid import uuid4

import msgspec
from msgspec import Struct

SUBJECT_LIMIT = 255  # characters of names, which clients may choose
METHOD_LIMIT = 100


Decision = Literal["allow", "deny", "approve", ""]

_encode = msgspec.json.Encoder().encode


class AuditEntry(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """The audit entry of one answered message."""

    host_id: str  # the caller's tenant
    recorded_ts: datetime  # UTC
    principal: str = ""
    mark: str = ""  # see Principal.mark
    front: str = ""  # name of the revision
    session: str = ""  # digest of its id
    method: str = ""
    subject: str = ""  # the tool, prompt or resource
    source: str = ""
    decision: Decision = ""
    rule: str = ""
    outcome: str = ""  # ok, tool_error, cancelled, crashed, or the code of an error
    latency_us: int = 0
    request_bytes: int = 0  # of the arguments, encoded
    result_bytes: int = 0  # of content and structured content
    digest: str = ""  # of the arguments, as msgspec encodes them: hex SHA-256, or HMAC with a key
    arguments: str = ""  # masked; only with `audit.arguments: masked`
    request_id: str = ""
    client: str = ""  # address
    connection: str = ""  # ids of the connections of people that the call was made with
    owner: str = ""  # whose shared account the call was made with
    hooks: str = ""  # that ran: JSON of {name, version, changed (JSON Pointers), us}, by order


class Header(Struct, frozen=True):
    """Header of a chain. Its hash is the previous hash of the first record."""

    host_id: str  # the tenant of the gateway
    chain_id: str  # UUID
    node: str
    started_ts: datetime
    seen: tuple["Head", ...] = ()  # heads of other chains at that time


class Head(Struct, frozen=True):
    """Last record of a chain at some time."""

    chain_id: str
    sequence: int
    hash: str  # hex


class Line(Struct, frozen=True, gc=False):
    """A record's text in a chain, and its hash."""

    sequence: int
    recorded_ts: datetime
    hash: bytes
    text: bytes  # hash input
    entry: AuditEntry | None = None  # that the text is of; None: read from a file


def canonical(chain_id: str, sequence: int, entry: AuditEntry) -> bytes:
    """The canonical text of a record."""
    return b'{"chain_id":"%s","sequence":%d,' % (chain_id.encode(), sequence) + _encode(entry)[1:]


def with_hash(line: Line) -> bytes:
    """The exported record: its text, with its hash as the last member."""
    return b'%s,"hash":"%s"}' % (line.text[:-1], line.hash.hex().encode())


def link_hash(key: bytes, before: bytes, text: bytes) -> bytes:
    """The hash of `text` chained to the previous hash `before`."""
    if key:
        return hmac.digest(key, before + text, "sha256")
    return hashlib.sha256(before + text).digest()


def first_hash(key: bytes, header: bytes) -> bytes:
    """The hash of a chain's encoded header."""
    return link_hash(key, b"", header)


def seal(key: bytes, chain_id: str, last: tuple[int, bytes], removed: tuple[int, bytes]) -> bytes:
    """Seal over sequence and hash of a chain's last record and of its last removed one."""
    (end, end_hash), (removed_sequence, removed_hash) = last, removed
    text = f"seal {chain_id} {end} {end_hash.hex()} {removed_sequence} {removed_hash.hex()}"
    return link_hash(key, b"", text.encode())


class ChainEnd(Struct, frozen=True):
    """The row of a chain: sequence and hash of its last record, and of the last one removed."""

    chain_id: str
    last: tuple[int, bytes]
    removed: tuple[int, bytes]
    seal: bytes

    @classmethod
    def of(cls, chain_id: str, last: int, last_hash: bytes, *rest: Any) -> "ChainEnd":
        """The chain end in columns of audit_chain_t; `rest`: removed_sequence, removed_hash and
        seal."""
        removed, removed_hash, seal = rest
        return cls(chain_id, (last, bytes(last_hash)), (removed, bytes(removed_hash)), bytes(seal))

    def is_sealed(self, key: bytes) -> bool:
        return hmac.compare_digest(seal(key, self.chain_id, self.last, self.removed), self.seal)

    def sealed_with(
        self,
        key: bytes,
        last: tuple[int, bytes] | None = None,
        removed: tuple[int, bytes] | None = None,
    ) -> bytes:
        """The seal of the row with these ends. A tampered row keeps its invalid seal: a new one
        would hide the change."""
        if not self.is_sealed(key):
            return self.seal
        return seal(key, self.chain_id, last or self.last, removed or self.removed)


def argument_digest(key: bytes, data: bytes) -> str:
    """Digest of arguments. Keyed if possible: short values could be guessed."""
    if key:
        return hmac.digest(key, data, "sha256").hex()
    return hashlib.sha256(data).hexdigest()


def entry_of(row: Mapping[str, Any]) -> AuditEntry:
    """The entry of a row of audit_t. Raises ValueError for a row that no gateway writes."""
    members = {name: row[name] for name in AuditEntry.__struct_fields__ if row[name] is not None}
    members["host_id"] = str(members["host_id"])
    members["recorded_ts"] = members["recorded_ts"].astimezone(UTC)
    return msgspec.convert(members, AuditEntry)


def encode_header(header: Header) -> bytes:
    return _encode(header)


def storable_text(text: str, limit: int = SUBJECT_LIMIT) -> str:
    """`text` truncated, and without NUL, which PostgreSQL cannot store."""
    text = text[:limit]
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}") if "\0" in text else text


class Chain:
    def __init__(
        self, host_id: str, *, node: str, started: datetime, key: bytes, seen: Iterable[Head] = ()
    ) -> None:
        self.id = str(uuid4())
        self.header = encode_header(
            Header(host_id, chain_id=self.id, node=node, started_ts=started, seen=tuple(seen))
        )
        self._key = key
        self._hash = first_hash(key, self.header)
        self._sequence = 0

    @property
    def head(self) -> Head:
        return Head(self.id, self._sequence, self._hash.hex())

    def link(self, entries: Iterable[AuditEntry]) -> list[Line]:
        """Append entries to the chain."""
        lines, key, before, sequence = [], self._key, self._hash, self._sequence
        for entry in entries:
            sequence += 1
            text = canonical(self.id, sequence, entry)
            before = link_hash(key, before, text)
            lines.append(Line(sequence, entry.recorded_ts, before, text, entry))
        self._hash, self._sequence = before, sequence
        return lines
