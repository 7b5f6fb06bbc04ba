"""Failures of HTTP calls: their texts for callers, and which of them are outages."""

import socket
import ssl
from types import UnionType

import aiohttp

from gateway.http_client.http1 import ConnectFailed, MalformedRequest, MalformedResponse, TooLarge
from registry.documents.ssrf_protection import is_private


def failure_text(error: Exception, timeout_s: float) -> str:
    """Text of a failure, which follows the name of a source and contains no address."""
    if type(error) is TimeoutError:
        return f"did not answer within {timeout_s:g} s"
    if is_private(error):
        return (
            "lies in a private network and only its description says so;"
            " set its base_url, or imports.private_networks"
        )
    if isinstance(error, TooLarge):
        return str(error)
    failures = (error, error.__cause__) if isinstance(error, ConnectFailed) else (error,)
    for kind, words in _CAUSES:
        if any(isinstance(failure, kind) for failure in failures):
            return words
    return "could not be reached"


def is_outage(error: Exception) -> bool:
    """Whether the source is unavailable, as opposed to a failure specific to the request."""
    return not isinstance(error, _OF_THE_REQUEST) and not is_private(error)


_OF_THE_REQUEST = (
    TooLarge,
    MalformedResponse,
    MalformedRequest,
    aiohttp.InvalidURL,
    aiohttp.ClientResponseError,
)
_CAUSES: tuple[tuple[type[Exception] | UnionType, str], ...] = (
    (
        aiohttp.ClientConnectorDNSError | socket.gaierror | UnicodeError,
        "could not be reached: its host name does not resolve",
    ),
    (
        aiohttp.ClientConnectorCertificateError | ssl.SSLCertVerificationError,
        "could not be reached: its certificate is not to be believed",
    ),
    (aiohttp.ClientSSLError | ssl.SSLError, "could not be reached: TLS failed"),
    (
        aiohttp.InvalidURL | aiohttp.NonHttpUrlClientError,
        "has no usable address; set its base_url",
    ),
    (
        ConnectFailed | aiohttp.ClientConnectorError | aiohttp.ServerTimeoutError,
        "could not be reached: the connection was refused or timed out",
    ),
    (
        aiohttp.ClientPayloadError | aiohttp.ServerDisconnectedError,
        "closed the connection before its answer was complete",
    ),
    (
        MalformedRequest,
        "was not called: a header or the path of the request has characters that HTTP forbids",
    ),
    (MalformedResponse | aiohttp.ClientResponseError, "sent an answer that cannot be read"),
)
