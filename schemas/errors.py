"""Faults: everything that makes a request fail, with its JSON-RPC code and HTTP status.

A `Fault` describes what was wrong with the *request*. A tool that ran and failed is not one, but a
`ToolResult` with `is_error`. Messages are public: no secret, SQL, upstream URL or stack trace.

Codes: JSON-RPC 2.0 section 5.1; MCP 2026-07-28 (-32020, -32021, -32022). Codes of our own lie
outside -32768...-32000, which both specifications reserve.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from schemas.retry_after import whole_seconds
from schemas.urls import without_queries


class ToolgateError(Exception):
    """Base of all errors raised on purpose; `str()` is a human-readable message."""


class Fault(ToolgateError):
    """A request that cannot be served."""

    code: int = -32603
    status: int = 200  # HTTP status when the whole HTTP request fails with it

    def __init__(self, message: str, data: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.data = data

    def failed_status(self, default: int = 400) -> int:
        """HTTP status outside JSON-RPC: `default` for a fault that JSON-RPC answers with 200."""
        return self.status if self.status >= 400 else default

    @property
    def log_message(self) -> str:
        """The message as logs may have it: without values of arguments."""
        return self.message


class ParseError(Fault):
    """The body is no JSON."""

    code = -32700
    status = 400


class InvalidRequest(Fault):
    """The message is no request of JSON-RPC, or breaks a rule of its transport."""

    code = -32600
    status = 400


class MethodNotFound(Fault):
    """There is no such method in the revision of the request."""

    code = -32601
    status = 404  # 2026-07-28; earlier revisions and /rpc answer it with 200


class InvalidParams(Fault):
    """The parameters of the method are invalid, or name what does not exist."""

    code = -32602
    # 200: a 400 without a modern code makes a dual-era client fall back to `initialize`
    status = 200


class InvalidArguments(InvalidParams):
    """Arguments of a tool that its input schema refuses. The message may quote their values."""

    def __init__(
        self, message: str, names: Sequence[str], data: dict[str, Any] | None = None
    ) -> None:
        """`names` of the refused arguments; empty: the arguments as a whole."""
        super().__init__(message, data)
        self.names = names

    @property
    def log_message(self) -> str:
        return f"Invalid arguments: {', '.join(filter(None, self.names)) or 'as a whole'}"


class MalformedEnvelope(InvalidParams):
    """A 2026-07-28 request without its required `_meta`."""

    status = 400


class InternalError(Fault):
    """An unexpected error; the log has `unexpected_error`."""

    code = -32603


class DuplicateKeys(InvalidRequest):
    """An object has duplicate member names, of which parsers may pick different ones."""


class HeaderMismatch(Fault):
    """A routing header is missing, malformed, duplicated or contradicts the body."""

    code = -32020
    status = 400


class UnsupportedProtocolVersion(Fault):
    """The request names a revision of MCP that is not served."""

    code = -32022
    status = 400


class SessionRequired(InvalidRequest):
    """A handshake revision's request without `Mcp-Session-Id`."""


class SessionNotFound(Fault):
    """The session is unknown, expired or of another caller: one answer, so that ids cannot be
    probed."""

    code = -32001  # sent by both official SDKs with the 404
    status = 404


class NotAcceptable(InvalidRequest):
    """The Accept header admits none of the media types of the answer."""

    status = 406


class UnsupportedMediaType(InvalidRequest):
    """The Content-Type of the request is not one that is read."""

    status = 415


class UnsupportedContentCoding(UnsupportedMediaType):
    """The body of the request has a Content-Encoding, such as gzip; no coding is read."""

    def __init__(self, coding: str) -> None:
        super().__init__(
            f"Content-Encoding {coding[:60]} is not supported: send the body uncompressed, "
            "without this header"
        )


class PayloadTooLarge(InvalidRequest):
    """The body of the request is larger than its limit."""

    status = 413


class Forbidden(InvalidRequest):
    """The Host or Origin header, the path or the caller is not allowed here."""

    status = 403


class MethodNotAllowed(InvalidRequest):
    """The path does not have this HTTP method."""

    status = 405

    def __init__(self, message: str, allow: str) -> None:
        """`allow` is the value of the Allow header (RFC 9110, 15.5.6)."""
        super().__init__(message)
        self.allow = allow


class UnknownToolset(InvalidRequest):
    """The path, or `?scope=`, names no toolset."""

    status = 404


class TooManyRequests(Fault):
    """The caller has exceeded a rate limit, quota or concurrency limit."""

    code = 1429
    status = 429

    def __init__(self, message: str, retry_after_s: float, limit: str = "") -> None:
        """`limit` is the key of the setting that was exceeded."""
        self.retry_after = whole_seconds(retry_after_s)
        data: dict[str, Any] = {"retryAfter": self.retry_after}
        super().__init__(message, {**data, "limit": limit} if limit else data)


class ApprovalRequired(Fault):
    """The call needs approval by a person; it succeeds when retried after approval."""

    code = 1428
    status = 403

    def __init__(self, message: str, approval: str, expires: str) -> None:
        """`approval` is the id of the pending approval, which ends at `expires` (RFC 3339)."""
        super().__init__(message, {"approval": approval, "expires": expires})


class ConnectionRequired(Fault):
    """The call needs an account of its caller at the service; it succeeds when retried after they
    have connected one. The service was not called, or refused the one that there is."""

    code = 1427
    status = 403
    retry_state = ""  # sealed, of what was decided about the call before

    def __init__(
        self,
        message: str,
        *,
        url: str,
        source: str,
        reason: str,
        expires: str,
        account: str = "",
        wait: Callable[[float], Awaitable[bool]] | None = None,
        note_session: Callable[[str], Awaitable[str]] | None = None,
    ) -> None:
        """`url` is where the caller connects, until `expires` (RFC 3339); `reason` is "missing",
        "expired", "scopes", "login", "refused" or "suspended"; `account` is the key of one that
        lacks scopes, or a stricter login; `wait` waits until they have connected, so many seconds
        at most; `note_session`: see the method."""
        data = {"url": url, "source": source, "reason": reason, "ends": expires}
        super().__init__(message, data)
        self.url = url
        self.account = account
        self._wait = wait
        self._note_session = note_session

    async def wait(self, seconds: float) -> bool:
        """Wait for the caller to connect; returns whether a retry may succeed."""
        return self._wait is not None and await self._wait(seconds)

    async def note_session(self, session: str) -> str:
        """Have a session told when its caller has connected; returns the id of that elicitation,
        "" where nobody is told."""
        return "" if self._note_session is None else await self._note_session(session)

    @property
    def log_message(self) -> str:
        return f"An account has to be connected ({(self.data or {})['reason']})"


class ClaimsRequired(Fault):
    """The caller's token lacks claims that a service asks for, such as a second factor. Their
    client logs in again with them (claims challenge of Entra ID)."""

    code = 1426
    status = 401

    def __init__(self, message: str, claims: str) -> None:
        """`claims` in JSON, as the identity provider asks for them."""
        super().__init__(message)
        self.claims = claims


class Denied(Fault):
    """A rule forbids the call. Each front answers it like a call of an unknown tool."""


class Unavailable(Fault):
    """The gateway is temporarily unavailable: starting, draining or full. A retry may succeed."""

    code = 1503
    status = 503
    retry_after = 1  # seconds


class Overloaded(Unavailable):
    """Load shedding: the gateway is overloaded, for every caller."""

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        self.retry_after = whole_seconds(retry_after_s)
        super().__init__(message, {"retryAfter": self.retry_after})


class Unreachable(Fault):
    """The upstream server gave no usable answer."""

    code = 1502


class SourceDown(Unreachable):
    """The whole source is down at the moment, for every caller and request."""


class MissingClientCapability(Fault):
    """The client lacks a capability; `data.requiredCapabilities` names it."""

    code = -32021
    status = 400


class ClientRequestFailed(Fault):
    """The client answered a request of ours with an error; code and data are the client's."""

    code = 1504


class RelayedFault(Fault):
    """An error of another server, passed on unchanged."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message, data)
        self.code = code


class ToolFailed(Fault):
    """The tool ran and reported an error (`/rpc` only); `data` holds its result."""

    code = 1500


class ImportRejected(ToolgateError):
    """The description cannot be imported at all; nothing was written. Texts name locations, whose
    queries are left out."""

    def __init__(self, text: str) -> None:
        super().__init__(without_queries(text))
