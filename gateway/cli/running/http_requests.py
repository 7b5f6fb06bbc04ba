"""HTTP requests of commands, imported with the first one for the sake of aiohttp."""

import json
import os
import ssl
from collections.abc import Mapping
from typing import Any

import aiohttp

from gateway.cli.common.failure import fail
from schemas.refused_certificates import certificate_reason

READ_TIMEOUT_S = 60.0
CALL_TIMEOUT_S = 900.0  # imports, programs and runs of agents take minutes
CONNECT_TIMEOUT_S = 10.0
FORM_TIMEOUT_S = 30.0


async def send_request(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes | None = None,
    *,
    gateway: str,
    tls: ssl.SSLContext | bool,
    timeout_s: float | None = None,
) -> tuple[bytes, int, Mapping[str, str]]:
    """Body, status and headers of an answer; fails where nothing answers at the URL `gateway`."""
    if timeout_s is None:
        timeout_s = READ_TIMEOUT_S if method == "GET" else CALL_TIMEOUT_S
    timeout = aiohttp.ClientTimeout(timeout_s, sock_connect=min(CONNECT_TIMEOUT_S, timeout_s))
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as http,
            http.request(
                method, url, data=body, headers=headers, allow_redirects=False, ssl=tls
            ) as response,
        ):
            return await response.read(), response.status, response.headers
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        if isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ClientError):
            fail(f"{gateway} gave no answer within {timeout_s:g} s")
        fail(_unreachable(gateway, error))


async def post_form(url: str, form: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
    """Send a form; its status and JSON object. Fails where nothing answers at the URL."""
    timeout = aiohttp.ClientTimeout(FORM_TIMEOUT_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as http,
            http.post(url, data=dict(form), allow_redirects=False) as response,
        ):
            text = await response.text()
            return response.status, json.loads(text) if text.startswith("{") else {}
    except aiohttp.ClientConnectorCertificateError as error:
        fail(f"{url} does not answer: {certificate_reason(error.certificate_error)}")
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        fail(f"{url} does not answer: {type(error).__name__}")


def _unreachable(url: str, error: Exception) -> str:
    """The reason why nothing answers at `url`, and what to do."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"no gateway answers at {url}: {certificate_reason(error.certificate_error)}"
    if isinstance(error, aiohttp.ClientSSLError):
        return f"no gateway answers at {url}: it does not speak TLS; expected http://"
    if isinstance(error, TimeoutError):
        return f"no gateway answers at {url}: nothing came in time"
    if isinstance(error, aiohttp.ClientConnectorError):
        remedy = "`toolgate serve` starts one, and --url names another"
        return f"no gateway answers at {url}: {_reason(error.os_error)}; {remedy}"
    return f"no gateway answers at {url} ({error or type(error).__name__}); does it speak TLS?"


def _reason(error: OSError) -> str:
    """Connection refused, or why a name has no address."""
    if error.errno is None or error.errno <= 0:  # of a name: codes of the resolver
        return (error.strerror or str(error)).lower()
    return os.strerror(error.errno).lower()
