"""`toolgate health`: whether a gateway takes requests.

Container images run it every ten seconds, so it imports no more than an HTTP client.
"""

from typing import IO

import click

from config.settings import Settings
from gateway.cli.common.event_loop import run
from gateway.cli.common.failure import fail
from gateway.cli.common.output import say
from gateway.cli.common.settings import settings_option
from gateway.cli.running.client import (
    EXPECTED_URL,
    RunningGateway,
    gateway_options,
    running_gateway,
)
from gateway.cli.running.http_requests import send_request

TIMEOUT_S = 10.0


@click.command()
@gateway_options(key_required=False)
@settings_option
def health(settings: Settings, *, url: str | None, key_file: IO[str] | None) -> None:
    """Tell whether a gateway takes requests: exit code 0, or 1 if not.

    It is for container images and unit files, which need no curl then.
    """
    gateway = running_gateway(settings, "/ready", url=url, key_file=key_file)
    status, text = run(get_text(gateway))
    state = text.partition('"status":"')[2].partition('"')[0]
    if status != 200:
        fail(f"{gateway.url} is not ready: {state or f'answers {status}'}")
    if not state:
        fail(f"{gateway.url} answers, but not as a gateway: {EXPECTED_URL}")
    say(state)


async def get_text(gateway: RunningGateway) -> tuple[int, str]:
    """Status and body of what the gateway has at its root."""
    url, key = f"{gateway.url}{gateway.root}", gateway.key
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    data, status, _ = await send_request(
        "GET", url, headers, gateway=url, tls=gateway.tls, timeout_s=TIMEOUT_S
    )
    return status, data.decode(errors="replace")
