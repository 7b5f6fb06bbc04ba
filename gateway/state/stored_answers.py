"""Results too long for one response, stored for the caller and readable at any node.

A result is a stream of the log: its description, its bytes in pieces, its end. The stream's name
contains the owner, so a handle is of no use to other principals; and it cannot be guessed.
"""

import asyncio
import re
import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from hashlib import blake2b

import msgspec
from msgspec import Struct

from gateway.context import Principal
from gateway.interfaces import Counter, Log
from schemas.errors import InvalidParams
from schemas.jsonrpc import encode

PREFIX = "k/"  # of the names of the streams
SCHEME = "toolgate-answer:"  # distinct from those of sources, `toolgate://<source>/`
PIECE_BYTES = 3 << 16  # whole groups of base64
_READ_AT_ONCE = 8

_HANDLE = re.compile(r"[0-9a-f]{40}")
_HEAD, _PIECE, _END = b"?", b"+", b"."


class StorageFull(Exception):
    """A storage limit is reached; the text names its setting and when there is room again."""

    def __init__(self, setting: str, retry_after_s: float) -> None:
        super().__init__(f"{setting} is reached; again in {max(1, round(retry_after_s))} s")


class AnswerInfo(Struct, frozen=True, omit_defaults=True):
    """Description of a stored result."""

    mime_type: str
    text: bool = False  # UTF-8
    tool: str = ""  # id of the tool
    size: int = -1  # bytes; -1: not known when it began


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAnswerLimits:
    keep_s: float
    caller_bytes: int  # of one caller in `keep_s` seconds
    kept_bytes: int  # of all callers
    tenant_bytes: int = 0  # of one tenant; 0: no limit of its own


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    info: AnswerInfo
    pieces: list[bytes]  # of PIECE_BYTES each, except the last


@dataclass(frozen=True, slots=True)
class AnswerSlice:
    info: AnswerInfo
    data: bytes
    ended: bool  # end of the result


class AnswerWriter:
    """Writer of one stored result."""

    def __init__(self, answers: "StoredAnswers", principal: Principal, handle: str) -> None:
        self._answers = answers
        self._owner = _owner(principal)
        self._tenant = principal.tenant
        self.handle = handle
        self.size = 0  # bytes
        self._pending = bytearray()

    async def add(self, data: bytes) -> None:
        """Append `data`. Raises StorageFull, and Unavailable."""
        self._pending += data
        self.size += len(data)
        while len(self._pending) >= PIECE_BYTES:
            await self._put(bytes(self._pending[:PIECE_BYTES]))
            del self._pending[:PIECE_BYTES]

    async def end(self) -> str:
        """Finish the result; returns its handle, which is readable from now on."""
        if self._pending:
            await self._put(bytes(self._pending))
        await self._answers.log.append(self._stream, _END)
        return self.handle

    async def drop(self) -> None:
        await self._answers.log.drop(self._stream)

    async def _put(self, piece: bytes) -> None:
        await self._answers.make_room(self._owner, self._tenant)
        await self._answers.log.append(self._stream, _PIECE + piece)

    @property
    def _stream(self) -> str:
        return f"{self._owner}/{self.handle}"


class StoredAnswers:
    """Stored results of all callers."""

    def __init__(self, log: Log, counter: Counter, limits: StoredAnswerLimits) -> None:
        """Stored results in `log`, which keeps every event of a stream for `limits.keep_s`."""
        self.log = log
        self.keep_s = limits.keep_s
        self._counter = counter
        self._limits = limits

    async def begin(self, principal: Principal, info: AnswerInfo) -> AnswerWriter:
        """Begin to store a result. Raises Unavailable."""
        writing = AnswerWriter(self, principal, secrets.token_hex(20))
        await self.log.append(f"{_owner(principal)}/{writing.handle}", _HEAD + encode(info))
        return writing

    async def store(self, principal: Principal, info: AnswerInfo, data: bytes) -> str:
        """Store `data`; returns its handle. Raises StorageFull, and Unavailable."""
        writing = await self.begin(principal, info)
        try:
            await writing.add(data)
        except StorageFull:
            await writing.drop()
            raise
        return await writing.end()

    async def whole(self, principal: Principal, handle: str) -> StoredAnswer | None:
        """The whole result; None if unknown, expired or of another caller. Raises Unavailable."""
        info: AnswerInfo | None = None
        pieces: list[bytes] = []
        async with aclosing(self._events(principal, handle)) as events:
            async for kind, data in events:
                if kind == _HEAD:
                    info = msgspec.json.decode(data, type=AnswerInfo)
                elif info is None:
                    return None  # its beginning has expired
                elif kind == _END:
                    return StoredAnswer(info, pieces)
                else:
                    pieces.append(data)
                    await asyncio.sleep(0)  # yields to other tasks
        return None

    async def slice(
        self, principal: Principal, handle: str, start: int, length: int
    ) -> AnswerSlice | None:
        """At most `length` bytes from byte `start` on; None as with `whole`."""
        info: AnswerInfo | None = None
        part, at = bytearray(), 0
        async with aclosing(self._events(principal, handle)) as events:
            async for kind, data in events:
                if kind == _HEAD:
                    info = msgspec.json.decode(data, type=AnswerInfo)
                elif info is None:
                    return None
                elif kind == _END:
                    return AnswerSlice(info, bytes(part), ended=True)
                else:
                    part += data[max(0, start - at) :][: length - len(part)]
                    at += len(data)
                    if at > start + length:
                        return AnswerSlice(info, bytes(part), ended=False)
        return None

    async def make_room(self, owner: str, tenant: str) -> None:
        """Reserve room for one more piece. Raises StorageFull, and Unavailable. Expired results no
        longer count: the counter's window is as long as their retention."""
        limits = self._limits
        bounds = [
            (f"kept/{owner}", limits.caller_bytes, "answers.caller_bytes"),
            (f"kept/tenant/{tenant}", limits.tenant_bytes, "answers.tenant_share"),
            ("kept", limits.kept_bytes, "answers.stored_bytes"),
        ]
        for key, limit, setting in bounds:
            if not limit:
                continue
            verdict = await self._counter.hit(key, max(1, limit // PIECE_BYTES), limits.keep_s)
            if not verdict.is_allowed:
                raise StorageFull(setting, verdict.retry_after_s)

    async def _events(
        self, principal: Principal, handle: str
    ) -> AsyncGenerator[tuple[bytes, bytes], None]:
        if not _HANDLE.fullmatch(handle):
            return
        stream, after = f"{_owner(principal)}/{handle}", ""
        while True:
            try:
                events = await self.log.read(stream, after, _READ_AT_ONCE)
            except InvalidParams:
                return  # expired while it was read
            if not events:
                return
            for event in events:
                yield event.data[:1], event.data[1:]
            after = events[-1].id


def uri_of(handle: str) -> str:
    return SCHEME + handle


def handle_of(uri: str) -> str | None:
    """The handle in a URI of `uri_of`; None for another URI."""
    return uri.removeprefix(SCHEME) if uri.startswith(SCHEME) else None


def _owner(principal: Principal) -> str:
    digest = blake2b(encode(list(principal.key)), digest_size=20)
    return f"{PREFIX}{digest.hexdigest()}"
