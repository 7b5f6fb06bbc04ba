"""Sender of webhooks: receivers of several people share its connections."""

import aiohttp
import pytest

from gateway.http_client.webhooks import WebhookSender

pytestmark = pytest.mark.anyio


async def test_receivers_set_no_cookies() -> None:
    async with WebhookSender() as sender:
        for client in (sender._public, sender._private):
            assert isinstance(client.cookie_jar, aiohttp.DummyCookieJar)
