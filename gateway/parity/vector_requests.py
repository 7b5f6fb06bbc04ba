"""Sends one request of a vector over HTTP, and reads the answer."""

import base64
import binascii
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import aiohttp
from msgspec import UNSET
from yarl import URL

from gateway.parity.vectors import VectorRequest
from registry.documents.fetch import read_at_most
from schemas.errors import ToolgateError

ANSWER_LIMIT_BYTES = 64 * 2**20


class NoAnswer(ToolgateError):
    """No HTTP answer was received; `str()` gives the reason."""


@dataclass(frozen=True, slots=True)
class VectorAnswer:
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes


@dataclass(frozen=True, slots=True)
class Sender:
    """HTTP client for one server."""

    base: str
    paths: Mapping[str, str]  # by target; a path, or an absolute URL
    http: aiohttp.ClientSession
    timeout: aiohttp.ClientTimeout

    def url(self, target: str) -> str:
        path = self.paths[target]
        return path if "://" in path else self.base.rstrip("/") + path

    def path(self, target: str) -> str:
        return URL(self.url(target)).raw_path

    async def send(self, request: VectorRequest, tokens: Mapping[str, str]) -> VectorAnswer:
        """The answer to one request. Raises Unanswered. `tokens` has those that `request` names."""
        query = query_string(request.query)
        url = self.url(str(request.target)) + (f"?{query}" if query else "")
        content = body(request)
        return await self._request(
            request.method, URL(url, encoded=True), content, headers(request, tokens)
        )

    async def _request(
        self, method: str, url: URL, content: bytes | None, headers: Mapping[str, str]
    ) -> VectorAnswer:
        try:
            async with self.http.request(
                method,
                url,
                data=content,
                headers=headers,
                allow_redirects=False,
                skip_auto_headers=("Content-Type",),
                timeout=self.timeout,
            ) as response:
                received = await _read(response)
        except TimeoutError as error:
            raise NoAnswer(f"no answer within {self.timeout.total:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise NoAnswer(_why(error)) from error
        headers_ = {name.lower(): value for name, value in response.headers.items()}
        return VectorAnswer(response.status, headers_, received)


def _why(error: Exception) -> str:
    """Readable reason; messages of the HTTP client describe its internals."""
    match error:
        case aiohttp.ClientConnectorDNSError():
            return f"the name {error.host} does not resolve"
        case aiohttp.ClientSSLError():
            return "TLS failed: the server does not support it, or its certificate is not trusted"
        case aiohttp.ClientConnectorError() if error.errno:
            return os.strerror(error.errno).lower()  # connection refused, no route to host
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientPayloadError() | OSError():
            return "the connection broke off before the answer was complete"
        case aiohttp.ClientResponseError():
            return "the answer is no HTTP"
        case aiohttp.InvalidURL():
            return "the URL is not valid"
        case aiohttp.ClientError():
            return "no connection"
    return str(error)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    body = await read_at_most(response, ANSWER_LIMIT_BYTES)
    if body is None:
        raise ValueError(f"the answer exceeds {ANSWER_LIMIT_BYTES} bytes")
    return body


@asynccontextmanager
async def open_sender(
    base: str, paths: Mapping[str, str], timeout_s: float
) -> AsyncIterator[Sender]:
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as http:
        yield Sender(base, paths, http, timeout)


def query_string(query: str | Mapping[str, Any]) -> str:
    """Query string of `query`: each member percent-encoded once, except letters, digits and -._~;
    values other than text as JSON. A query given as text is not encoded."""
    if isinstance(query, str):
        return query
    return "&".join(
        f"{quote(name, safe='')}={quote(_text(query[name]), safe='')}" for name in query
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def body(request: VectorRequest) -> bytes | None:
    if request.body is not UNSET:
        return _json(request.body).encode()
    if request.parts is not None:
        return "".join(text * count for text, count in request.parts).encode()
    if request.base64 is not None:
        try:
            return base64.b64decode(request.base64, validate=True)
        except binascii.Error as error:
            raise ToolgateError(f"base64 of a vector: {error}") from error
    return None if request.text is None else request.text.encode()


def headers(request: VectorRequest, tokens: Mapping[str, str]) -> dict[str, str]:
    """Request headers; the body is JSON unless the vector sets another type."""
    all_headers: dict[str, str | None] = {}
    if body(request) is not None:
        all_headers["Content-Type"] = "application/json"
    if request.token is not None:
        all_headers["Authorization"] = f"Bearer {tokens[request.token]}"
    if request.scope_token is not None:
        all_headers["X-Scope-Token"] = f"Bearer {tokens[request.scope_token]}"
    all_headers |= request.headers
    return {name: value for name, value in all_headers.items() if value is not None}
