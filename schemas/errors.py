"""Faults: everything that makes a request fail, with its JSON-RPC code and HTTP status.

A `Fault` says what was wrong with the *request*. A tool that ran and failed is no fault; it is a
`ToolResult` with `is_error`. Messages are public: no secret, SQL, upstream URL or stack trace.

Codes: JSON-RPC 2.0 section 5.1; MCP 2026-07-28 (-32020, -32021, -32022). Codes of our own lie
outside -32768...-32000, which both specifications reserve.
"""

import math
from typing import Any


class ToolgateError(Exception):
    """Anything we raise on purpose; `str()` is fit for a person to read."""


class Fault(ToolgateError):
    """A request that cannot be served."""

    code: int = -32603
    status: int = 200  # HTTP status when the whole HTTP request fails by it

    def __init__(self, message: str, data: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.data = data


class ParseError(Fault):
    code = -32700
    status = 400


class InvalidRequest(Fault):
    code = -32600
    status = 400


class MethodNotFound(Fault):
    code = -32601
    status = 404  # 2026-07-28; earlier revisions and /rpc answer it with 200


class InvalidParams(Fault):
    code = -32602
    # 200: a 400 without a modern code makes a dual-era client fall back to `initialize`
    status = 200


class MalformedEnvelope(InvalidParams):
    """A 2026-07-28 request without its required `_meta`."""

    status = 400


class InternalError(Fault):
    code = -32603


class DuplicateKeys(InvalidRequest):
    """An object names a member twice, and two readers may believe two different ones."""


class HeaderMismatch(Fault):
    """A routing header is missing, malformed, duplicated or contradicts the body."""

    code = -32020
    status = 400


class UnsupportedProtocolVersion(Fault):
    code = -32022
    status = 400


class SessionRequired(InvalidRequest):
    """A handshake revision's request without `Mcp-Session-Id`."""


class SessionNotFound(Fault):
    """Unknown, expired or somebody else's: one answer, so that ids cannot be probed."""

    code = -32001  # what both official SDKs send with the 404
    status = 404


class NotAcceptable(InvalidRequest):
    status = 406


class UnsupportedMediaType(InvalidRequest):
    status = 415


class PayloadTooLarge(InvalidRequest):
    status = 413


class Forbidden(InvalidRequest):
    status = 403


class MethodNotAllowed(InvalidRequest):
    status = 405

    def __init__(self, message: str, allow: str) -> None:
        """`allow` is the value of the Allow header (RFC 9110, 15.5.6)."""
        super().__init__(message)
        self.allow = allow


class UnknownToolset(InvalidRequest):
    """The path, or `?scope=`, names no toolset."""

    status = 404


class TooManyRequests(Fault):
    """More than the caller may do for now."""

    code = 1429
    status = 429

    def __init__(self, message: str, retry_after_s: float, limit: str = "") -> None:
        """`limit` is the setting that has the number."""
        self.retry_after = whole_seconds(retry_after_s)
        data: dict[str, Any] = {"retryAfter": self.retry_after}
        super().__init__(message, {**data, "limit": limit} if limit else data)


class ApprovalRequired(Fault):
    """Somebody has to agree to the call first; made again after that, it goes through."""

    code = 1428
    status = 403

    def __init__(self, message: str, approval: str, expires: str) -> None:
        """`approval` is the id of what waits now, until `expires` (RFC 3339)."""
        super().__init__(message, {"approval": approval, "expires": expires})


class Denied(Fault):
    """A rule forbids the call. Whoever serves it says what they say where there is no such tool."""


class Unavailable(Fault):
    """Not now: starting, draining or full. Worth a retry."""

    code = 1503
    status = 503
    retry_after = 1  # seconds


class Overloaded(Unavailable):
    """The gateway has more to do than it can, whoever asks."""

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        self.retry_after = whole_seconds(retry_after_s)
        super().__init__(message, {"retryAfter": self.retry_after})


class Unreachable(Fault):
    """The server behind the gateway gave no usable answer."""

    code = 1502


class SourceDown(Unreachable):
    """It answers nobody at the moment, whatever is asked."""


class MissingClientCapability(Fault):
    """`data.requiredCapabilities` says which."""

    code = -32021
    status = 400


class AskFailed(Fault):
    """A client could not or would not answer a request of ours; code and data are its own."""

    code = 1504


class RelayedFault(Fault):
    """An error of another server, as it came."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message, data)
        self.code = code


class ToolFailed(Fault):
    """`/rpc` only: the tool ran and reported an error; `data` holds what it said."""

    code = 1500


class ImportRejected(ToolgateError):
    """A description that cannot be imported at all; nothing was written."""


def whole_seconds(seconds: float) -> int:
    """As Retry-After has them (RFC 9110, 10.2.3): never too few, at least one."""
    return max(1, math.ceil(seconds))
