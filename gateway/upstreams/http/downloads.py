"""Downloads: answers too long for a result are stored while they arrive, and linked to."""

from collections.abc import AsyncIterator
from email.message import Message
from email.utils import collapse_rfc2231_value
from typing import Any
from urllib.parse import unquote

import aiohttp

from gateway.context import Principal
from gateway.http_client.http1 import Http1Response, TooLarge
from gateway.state.stored_answers import AnswerInfo, StorageFull, StoredAnswers
from gateway.upstreams.http.client import Download
from gateway.upstreams.http.responses_as_results import charset_of, essence, is_textual
from gateway.upstreams.http.source_pools import declared_within
from schemas.errors import Unavailable

_SETTING = "answers.download_bytes"
NAME_LIMIT = 120  # characters of a file's name
_UNICODE = frozenset(("", "utf-8", "utf8", "us-ascii", "ascii"))


class NoRoom(TooLarge):
    """There is no room to store an answer."""

    def __init__(self, why: str) -> None:
        Exception.__init__(self, f"answered more than can be kept now: {why}")


class Downloads:
    def __init__(self, answers: StoredAnswers, inline_bytes: int, download_bytes: int) -> None:
        """Answers longer than `inline_bytes` are stored if they are neither JSON nor text, or
        declared as an attachment."""
        self._kept = answers
        self.inline_bytes = inline_bytes
        self._download_bytes = download_bytes

    async def read(
        self, principal: Principal, tool: str, response: Http1Response, limit_bytes: int
    ) -> bytes | Download:
        """Read an answer for `principal`, from the tool with this id. Raises TooLarge for more than
        `limit_bytes` without a download, and NoRoom."""
        body = response.body
        if body is not None and len(body) <= limit_bytes and len(body) <= self.inline_bytes:
            return body
        reading = _Reading(
            self._kept, self.inline_bytes, self._download_bytes, principal=principal, tool=tool
        )
        return await reading.read(response, limit_bytes)


class _Reading:
    """Reads one answer, into memory or into storage."""

    __slots__ = ("_download_bytes", "_inline_bytes", "_kept", "_principal", "_tool")

    def __init__(
        self,
        answers: StoredAnswers,
        inline_bytes: int,
        download_bytes: int,
        *,
        principal: Principal,
        tool: str,
    ) -> None:
        self._kept = answers
        self._inline_bytes = inline_bytes
        self._download_bytes = download_bytes
        self._principal = principal
        self._tool = tool

    async def read(self, response: Http1Response, limit_bytes: int) -> bytes | Download:
        shortest = min(self._inline_bytes, limit_bytes)
        if declared_within(response, shortest):
            return await response.read()
        good = 200 <= response.status < 300
        inline = shortest if good and not _belongs_into_result(response) else limit_bytes
        most = max(self._download_bytes, inline) if good else limit_bytes
        declared = response.content_length
        if declared is not None and declared > most and response.request.method != "HEAD":
            raise _too_large(most, limit_bytes)
        chunks: list[bytes] = []
        size = 0
        arriving = response.iter_any()  # decompressed: a bomb counts in full
        async for chunk in arriving:
            size += len(chunk)
            chunks.append(chunk)
            if size > inline:
                if size > most:
                    raise _too_large(most, limit_bytes)
                return await self._keep(response, chunks, aiter(arriving), most)
        return b"".join(chunks)

    async def _keep(
        self,
        response: Http1Response,
        chunks: list[bytes],
        arriving: AsyncIterator[bytes],
        most: int,
    ) -> Download:
        kind = essence(response.headers.get("Content-Type", "")) or "application/octet-stream"
        text = is_textual(kind) and charset_of(response.headers.get("Content-Type", "")) in _UNICODE
        about = AnswerInfo(kind, text, self._tool)
        try:
            return await self._kept_while(response, chunks, arriving, most=most, about=about)
        except StorageFull as full:
            raise NoRoom(str(full)) from full
        except Unavailable as away:  # the service has already done its work: no "try again"
            raise NoRoom("what keeps answers is away") from away

    async def _kept_while(
        self,
        response: Http1Response,
        chunks: list[bytes],
        arriving: AsyncIterator[bytes],
        *,
        most: int,
        about: AnswerInfo,
    ) -> Download:
        writing = await self._kept.begin(self._principal, about)
        try:
            while chunks:
                await writing.add(chunks.pop(0))
            async for chunk in arriving:
                if writing.size + len(chunk) > most:
                    raise TooLarge(most, _SETTING)
                await writing.add(chunk)
            handle = await writing.end()
        except (StorageFull, TooLarge, aiohttp.ClientError):
            await writing.drop()
            raise
        return Download(handle, name_of(response), about.mime_type, writing.size)


def _too_large(most: int, limit_bytes: int) -> TooLarge:
    return TooLarge(most) if most == limit_bytes else TooLarge(most, _SETTING)


def _belongs_into_result(response: Http1Response) -> bool:
    """Whether it is JSON or text, and not declared as an attachment."""
    kind = essence(response.headers.get("Content-Type", ""))
    disposition = response.headers.get("Content-Disposition", "")
    return is_textual(kind) and not disposition.lstrip().lower().startswith("attachment")


def name_of(response: Http1Response) -> str:
    """The file name from the service, else the last segment of its path."""
    disposition = _one_line(response.headers.get("Content-Disposition", ""))
    path, _, _ = response.request.target.partition("?")
    named = _extended_filename(disposition) or unquote(path.rpartition("/")[2])
    return _safe(named) or "download"


def _extended_filename(disposition: str) -> str:
    """The `filename*`, which takes precedence over `filename` (RFC 6266, section 4.3)."""
    message = Message()
    message["Content-Disposition"] = disposition
    parameters: list[tuple[str, Any]] = [*message.get_params([], "Content-Disposition")]
    names = [value for name, value in parameters if name.lower() == "filename"]
    extended = [value for value in names if isinstance(value, tuple)]
    return collapse_rfc2231_value(next(iter(extended + names), "")).strip()


def _one_line(header: str) -> str:
    return "".join(char for char in header if char.isprintable())


def _safe(name: str) -> str:
    """Without directories and unprintable characters."""
    last = name.replace("\\", "/").rpartition("/")[2]
    printable = "".join(char for char in last if char.isprintable()).strip(" .")
    return printable.encode("utf-8", errors="replace").decode()[:NAME_LIMIT]
