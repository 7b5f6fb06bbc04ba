"""What a person who tries a tool sees of its requests: no secret, however it is written."""

import base64
import html
import json
from urllib.parse import quote

import pytest

from config.sources import SchemeSettings, SourceSettings
from gateway.interfaces import RelayRequest
from gateway.upstreams.call_recording import (
    BODY_BYTES,
    CallRecording,
    RecordingRelay,
    without_userinfo,
)
from gateway.upstreams.http.client import Client, HttpRequest, HttpResponse
from schemas.binding import Credential
from schemas.errors import SourceDown
from tests.gateway.upstreams.callers import caller, tool
from tests.gateway.upstreams.conftest import open_client, source

pytestmark = pytest.mark.anyio

KEY = Credential("key", "apiKey", "header", "X-Key")
SHORT, ODD = "q7", 'a"b/c d\\é<&>+7'
ADDRESS = "http://ann:p%40ss-word@127.0.0.1:9/x"
COOKIE = "first=one; session=cookie-4711"
BASIC = base64.b64encode(b"bob:basic-4711").decode()
HEADERS = {"Cookie": COOKIE, "X-Basic": f"Basic {BASIC}"}
SETTINGS = SourceSettings(
    base_url=ADDRESS,
    headers=HEADERS,
    credentials={"key": SchemeSettings(value=SHORT), "odd": SchemeSettings(token=ODD)},
)


async def preview(one: Client, arguments: object = None, **headers: str) -> CallRecording:
    recording = CallRecording(tool((KEY,)), arguments, sends=False)
    request = HttpRequest("GET", "/x", {"X-Key": SHORT, **headers})
    pool = one.connections.of(source("http://pets.example"))
    recording.begin(pool, request, pool.with_configured(request.headers))
    return recording


async def test_echoed_secrets_are_masked_in_any_encoding() -> None:
    basic = base64.b64encode(b"ann:p@ss-word").decode()
    in_text = json.dumps({"text": json.dumps({"odd": ODD})})
    written = (
        *(f"key {SHORT}.", ODD, quote(ODD, safe=""), quote(ODD, safe="").lower()),
        *(json.dumps(ODD), json.dumps(ODD, ensure_ascii=False), in_text, html.escape(ODD)),
        *("p@ss-word", "p%40ss-word", basic, "cookie-4711", BASIC, "basic-4711"),
    )
    async with open_client(SETTINGS) as one:
        recording = await preview(one)
        assert recording.exchanges[0].address == "http://***@127.0.0.1:9/x/x"
        for each in written:
            answer = HttpResponse(401, f"No {each}", {"ETag": each}, each.encode())
            exchange = recording.exchanges[0]
            recording.end(exchange, answer)
            recording.fail(exchange, each)
            assert exchange.answer_headers is not None
            for shown in (
                exchange.reason, exchange.answer_body, exchange.failure,
                exchange.answer_headers["ETag"],
            ):  # fmt: skip
                assert "***" in shown
                assert each not in shown
                assert "ss-word" not in shown
        assert recording.mask(f"a{SHORT}b") == f"a{SHORT}b"  # too short to be sure of


async def test_the_end_of_a_long_answer_shows_no_beginning_of_a_secret() -> None:
    async with open_client(SETTINGS) as one:
        recording = await preview(one)
        for inside in range(1, len("cookie-4711")):
            body = "x" * (BODY_BYTES - inside) + "cookie-4711"
            recording.end(recording.exchanges[0], HttpResponse(200, "OK", {}, body.encode()))
            assert set(recording.exchanges[0].answer_body) == {"x"}


async def test_credential_headers_stay_masked_despite_guessing_arguments() -> None:
    guesses = {"q": ["q6", SHORT, "q8"]}
    async with open_client(SETTINGS) as one:
        recording = await preview(one, guesses, **{"X-Trace": "q6"})
        assert recording.exchanges[0].headers["X-Key"] == "***"
        assert recording.exchanges[0].headers["X-Trace"] == "q6"


async def test_an_mcp_server_that_echoes_its_credentials_shows_none() -> None:
    class Echo:
        async def request(self, *_: object) -> dict[str, object]:
            return {
                "content": [{"text": json.dumps({"cookie": COOKIE, "odd": ODD, "by": "eve-1"})}]
            }

    async with open_client(SETTINGS) as one:
        far = source("http://pets.example")
        for sends in (False, True):
            recording = CallRecording(tool(), {}, sends=sends)
            relay = RecordingRelay(Echo(), one.connections, recording)  # type: ignore[arg-type]
            request = RelayRequest(far, "tools/call", {})
            if sends:
                await relay.request(request, caller("eve-1"))
            else:
                with pytest.raises(SourceDown):
                    await relay.request(request, caller("eve-1"))
        shown = recording.exchanges[0].answer_body
        assert "***" in shown
        for secret in ("cookie-4711", ODD, json.dumps(ODD)[1:-1], "eve-1"):
            assert secret not in shown


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("http://a:b@h/x", "http://***@h/x"),
        ("HTTPS://a:b@h/x", "HTTPS://***@h/x"),
        ("http://a:b@c@h/x@y", "http://***@h/x@y"),
        ("http://h/x?to=a@b", "http://h/x?to=a@b"),
    ],
)
def test_an_address_is_shown_without_user_and_password(address: str, shown: str) -> None:
    assert without_userinfo(address) == shown
