"""Sender of webhooks: receivers of several people share its connections."""

import base64

import aiohttp
import pytest

from gateway.http_client.webhooks import PREFIX, WebhookSender, key_of
from gateway.middleware.hooks.configured_hook import HttpHook
from schemas.errors import ToolgateError

pytestmark = pytest.mark.anyio


async def test_receivers_set_no_cookies() -> None:
    async with WebhookSender() as sender:
        for client in (sender._public, sender._private):
            assert isinstance(client.cookie_jar, aiohttp.DummyCookieJar)


@pytest.mark.parametrize("padding", ["", "=", "==", "==="])
@pytest.mark.parametrize("length", [24, 25, 26])
def test_key_of_a_secret_does_not_depend_on_its_padding(padding: str, length: int) -> None:
    """What is refused of padding differs between versions of Python."""
    key = bytes(range(length))
    assert key_of(PREFIX + base64.b64encode(key).decode().rstrip("=") + padding) == key


def test_useless_secret_of_a_hook_is_refused_with_the_settings() -> None:
    """Its calls would fail otherwise, one by one."""
    with pytest.raises(ToolgateError, match="not whsec_ and base64"):
        HttpHook("https://a.example/", PREFIX + "Y" * 33, 1, 1000)
