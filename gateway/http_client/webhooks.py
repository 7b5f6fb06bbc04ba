"""Standard Webhooks (standardwebhooks.com): signatures, and requests to registered addresses.

A secret is `whsec_` and the base64 of 24 to 64 bytes. While it is rotated, requests carry the
signatures of the new and of the old one, and either is accepted.
"""

import base64
import binascii
import hashlib
import hmac
import random
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType

import aiohttp

from gateway.http_client.pool import IDLE_S
from registry.documents.ssrf_protection import (
    PrivateAddress,
    PublicResolver,
    check_url_host,
    is_private,
    read_url,
)
from schemas.errors import ToolgateError
from schemas.retry_after import retry_after_s

ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
TOLERANCE_S = 300
TIMEOUT_S = 15.0
LONGEST_WAIT_S = 86_400.0  # that a receiver may ask for
PREFIX = "whsec_"
REDIRECTED = " (redirects are not followed)"
ANSWER_BYTES = 200  # of a receiver, for people who look for a mistake


class SignatureRefused(ToolgateError):
    """A request without a valid signature, or out of time."""


def key_of(secret: str) -> bytes:
    """The key in a secret, whatever its padding: which one is refused differs between versions of
    Python. Raises ToolgateError."""
    text = secret.removeprefix(PREFIX).rstrip("=")
    try:
        key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error as error:
        raise ToolgateError("a secret of webhooks is not whsec_ and base64") from error
    if not 24 <= len(key) <= 64:
        raise ToolgateError(f"a secret of webhooks has {len(key)} bytes, expected 24 to 64")
    return key


def sign(id_: str, timestamp: int, body: bytes, secrets: Sequence[str]) -> dict[str, str]:
    """The headers of a request, with a signature for each secret."""
    signatures = (_signature(id_, str(timestamp), body, secret) for secret in secrets)
    return {ID: id_, TIMESTAMP: str(timestamp), SIGNATURE: " ".join(signatures)}


SIGNATURE_EXPECTED = "expected a webhook-signature of the body"
_SIGNATURE = re.compile("v1,[A-Za-z0-9+/]{43}=")


def verify(headers: Mapping[str, str], body: bytes, secrets: Sequence[str], now: float) -> str:
    """The id of a request, whose headers have lower-case names. Raises SignatureRefused."""
    check_headers(headers, now)
    id_, timestamp = headers[ID], headers[TIMESTAMP]
    signatures = headers[SIGNATURE].split()[:20]
    expected = [_signature(id_, timestamp, body, secret) for secret in secrets]
    # All pairs, each in constant time: how long it takes tells nothing.
    agree = [hmac.compare_digest(a.encode(), b.encode()) for a in signatures for b in expected]
    if not any(agree):
        raise SignatureRefused(SIGNATURE_EXPECTED)
    return id_


def check_headers(headers: Mapping[str, str], now: float) -> None:
    """Check what is known before the body is read. Raises SignatureRefused."""
    id_, timestamp = headers.get(ID, ""), headers.get(TIMESTAMP, "")
    if not id_ or len(id_) > 200 or not id_.isascii():
        raise SignatureRefused("expected webhook-id")
    if not timestamp.isdecimal() or abs(int(timestamp[:15]) - now) > TOLERANCE_S:
        raise SignatureRefused(f"expected a webhook-timestamp within {TOLERANCE_S} s")
    if not any(
        _SIGNATURE.fullmatch(signature) for signature in headers.get(SIGNATURE, "").split()[:20]
    ):
        raise SignatureRefused(SIGNATURE_EXPECTED)


def _signature(id_: str, timestamp: str, body: bytes, secret: str) -> str:
    signed_text = b".".join((id_.encode(), timestamp.encode(), body))
    digest = hmac.new(key_of(secret), signed_text, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def check_receiver(url: str, *, private: bool = False, condition: str) -> None:
    """Check an address that is to be reached on the public Internet; `private`: or in the own
    network. `condition` says when that is so, as in "a2a.push_private is true". Raises
    ToolgateError."""
    refused = f"; refused unless {condition}"
    if not url.startswith(("https://", "http://")):
        raise ToolgateError("expected https://" + " or http://" * private)
    if not private and not url.startswith("https://"):
        raise ToolgateError(f"expected https://{refused}")
    if not url.isprintable() or " " in url:
        raise ToolgateError("expected a URL without spaces and control characters")
    try:
        address = read_url(url)
        if not address.host or not address.port:
            raise ToolgateError("expected a URL with a host, and with a port above 0 if any")
        if not private:
            check_url_host(url)
    except PrivateAddress as error:
        raise ToolgateError(f"{error}{refused}") from error
    except ValueError as error:
        raise ToolgateError(str(error)) from error


def retry_delay_s(attempt: int, first_s: float, longest_s: float, *, factor: int = 4) -> float:
    """The time until the next attempt, between half of it and all, so that messages spread out.
    `attempt`: how many there were."""
    wait_s = min(longest_s, first_s * factor ** min(attempt - 1, 20))
    return random.uniform(wait_s / 2, wait_s)  # noqa: S311 - no secret


class WebhookFailed(ToolgateError):
    """A request without a usable answer; the text has no address."""


@dataclass(frozen=True, slots=True)
class WebhookSent:
    """The outcome of a request."""

    done: bool
    gone: bool = False  # the receiver wants no more
    error: str = ""
    retry_s: float = 0.0  # as Retry-After says
    answer: str = ""  # status, and the first characters of the body


class WebhookSender:
    """Sends requests; names are resolved to public addresses only, and redirects not followed.

    Queues limit how many there are at once, for each tenant or owner: for a connection of a shared
    limit, a request would wait behind those of others to receivers that never answer.
    """

    def __init__(self) -> None:
        self._public = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                resolver=PublicResolver(), limit=0, keepalive_timeout=IDLE_S
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=TIMEOUT_S),
        )
        self._private = operator_session(0)

    async def __aenter__(self) -> "WebhookSender":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._public.close()
        await self._private.close()

    async def send(
        self,
        url: str,
        id_: str,
        body: bytes,
        *,
        content_type: str,
        secrets: Sequence[str],
        private: bool,
    ) -> WebhookSent:
        """Send a signed request. `private`: the address may be one of the own network."""
        headers = _signed_headers(id_, body, content_type, secrets)
        return await self.post(url, body, headers, private=private)

    async def post(
        self, url: str, body: bytes, headers: Mapping[str, str], *, private: bool
    ) -> WebhookSent:
        """Send a request without a signature."""
        client = self._private if private else self._public
        headers = {"User-Agent": "toolgate", **headers}
        try:
            async with client.post(
                url, data=body, headers=headers, allow_redirects=False
            ) as response:
                status, wait = response.status, response.headers.get("Retry-After", "")
                answer = f"{status} {(await _beginning(response)).decode(errors='replace')}".strip()
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            reason = "its address is not public" if is_private(error) else "no answer"
            return WebhookSent(done=False, error=reason)
        if 200 <= status < 300:
            return WebhookSent(done=True, answer=answer)
        retry_s = retry_after_s(wait, LONGEST_WAIT_S) or 0.0
        return WebhookSent(
            done=False,
            gone=status == 410,
            error=f"status {status}" + REDIRECTED * (300 <= status < 400),
            retry_s=retry_s,
            answer=answer,
        )


async def _beginning(response: aiohttp.ClientResponse) -> bytes:
    """The first bytes of a body; none of one that cannot be read, since its status is known."""
    try:
        return await response.content.read(ANSWER_BYTES)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
        return b""


def operator_session(connections: int) -> aiohttp.ClientSession:
    """Connections to addresses that the operator wrote, which may be of the own network; 0: without
    limit."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=connections, keepalive_timeout=IDLE_S),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=TIMEOUT_S),
    )


async def request_answer(
    http: aiohttp.ClientSession, url: str, id_: str, body: bytes, *, secret: str, limit_bytes: int
) -> bytes:
    """The body of the answer to a signed request of JSON. An answer over plain HTTP is signed like
    the request, under the same id: nothing else proves who gave it, and to which request. Raises
    WebhookFailed."""
    headers = _signed_headers(id_, body, "application/json", [secret])
    try:
        async with http.post(url, data=body, headers=headers, allow_redirects=False) as response:
            if not 200 <= response.status < 300:
                raise WebhookFailed(f"answered with status {response.status}")
            answer = await response.content.read(limit_bytes + 1)
            while len(answer) <= limit_bytes and (more := await response.content.readany()):
                answer += more
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise WebhookFailed("gave no answer") from error
    if len(answer) > limit_bytes:
        raise WebhookFailed(f"answered with more than {limit_bytes} bytes")
    if url.startswith("http://"):
        answer_headers = {name.lower(): value for name, value in response.headers.items()}
        try:
            if verify(answer_headers, answer, [secret], time.time()) != id_:
                raise SignatureRefused("expected the webhook-id of the request")
        except SignatureRefused as error:
            raise WebhookFailed(f"did not sign its answer: {error}") from error
    return answer


def _signed_headers(
    id_: str, body: bytes, content_type: str, secrets: Sequence[str]
) -> dict[str, str]:
    return {
        "Content-Type": content_type,
        "User-Agent": "toolgate",
        **sign(id_, int(time.time()), body, secrets),
    }
