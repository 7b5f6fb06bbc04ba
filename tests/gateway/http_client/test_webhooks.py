"""Sender of webhooks: receivers of several people share its connections."""

import base64

import aiohttp
import anyio
import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.http_client.webhooks import PREFIX, WebhookSender, key_of
from gateway.middleware.hooks.configured_hook import HttpHook
from schemas.errors import ToolgateError
from tests.fixtures_gateway import DEADLINE_S
from tests.fixtures_servers import Serve

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


async def test_silent_receivers_take_no_connection_of_other_receivers(serve: Serve) -> None:
    """Their number is limited by the queues; here a request would wait in its own time limit."""

    ended = anyio.Event()

    async def receiver(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/dead":
            await ended.wait()
        await Response()(scope, receive, send)

    url = await serve(receiver)
    async with WebhookSender() as sender, anyio.create_task_group() as group:

        async def post(path: str) -> bool:
            return (await sender.post(url + path, b"", {}, private=True)).done

        for _ in range(120):
            group.start_soon(post, "/dead")
        with anyio.fail_after(DEADLINE_S):
            assert await post("/good")
        assert sender._public.connector is not None
        assert sender._public.connector.limit == 0
        ended.set()
