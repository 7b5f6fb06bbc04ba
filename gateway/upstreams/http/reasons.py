"""Failure reasons of HTTP calls, as texts for callers."""

import socket
from types import UnionType

import aiohttp

from gateway.upstreams.http.connections import TooLarge
from registry.documents.addresses import is_private


def why(error: Exception, timeout_s: float) -> str:
    """Failure reason, to follow the name of a source, without addresses."""
    if type(error) is TimeoutError:
        return f"did not answer within {timeout_s:g} s"
    if is_private(error):
        return "lies in a private network and only its description says so; set its base_url"
    if isinstance(error, TooLarge):
        return str(error)
    for kind, words in _CAUSES:
        if isinstance(error, kind):
            return words
    return "could not be reached"


def is_outage(error: Exception) -> bool:
    """Whether the source is unavailable, as opposed to a failure specific to the request."""
    if isinstance(error, TooLarge | aiohttp.InvalidURL | aiohttp.ClientResponseError):
        return False
    return not is_private(error)


_CAUSES: tuple[tuple[type[Exception] | UnionType, str], ...] = (
    (
        aiohttp.ClientConnectorDNSError | socket.gaierror,
        "could not be reached: its host name does not resolve",
    ),
    (
        aiohttp.ClientConnectorCertificateError,
        "could not be reached: its certificate is not to be believed",
    ),
    (aiohttp.ClientSSLError, "could not be reached: TLS failed"),
    (
        aiohttp.InvalidURL | aiohttp.NonHttpUrlClientError,
        "has no usable address; set its base_url",
    ),
    (
        aiohttp.ClientConnectorError | aiohttp.ServerTimeoutError,
        "could not be reached: the connection was refused or timed out",
    ),
    (
        aiohttp.ClientPayloadError | aiohttp.ServerDisconnectedError,
        "closed the connection before its answer was complete",
    ),
    (aiohttp.ClientResponseError, "sent an answer that cannot be read"),
)
