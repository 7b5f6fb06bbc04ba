"""What goes out, and how often."""

import asyncio

import anyio
import pytest

from config.sources import SourceSettings
from gateway.upstreams.http.client import HttpRequest
from tests.gateway.upstreams.conftest import GET, failure, open_client, source
from tests.servers.raw import response, speaking
from tests.servers.rest import Flaky, Recorder, Silent

pytestmark = pytest.mark.anyio


async def test_a_request_arrives_as_built(client, serve):
    pets = Recorder(201, b'{"id": 1}', headers=[("x-extra", "1")])
    headers = {"Content-Type": "application/json", "X-Trace": "é"}
    request = HttpRequest("POST", "/a%2Fb/%252e?q=%20&r=1,2", headers, b'{"a":1}')
    answer = await client.send(source(await serve(pets)), request)
    assert (answer.status, answer.reason, answer.body) == (201, "Created", b'{"id": 1}')
    assert answer.headers["X-Extra"] == "1"
    [seen] = pets.seen
    assert (seen.method, seen.target, seen.body) == ("POST", "/a%2Fb/%252e?q=%20&r=1,2", b'{"a":1}')
    assert seen.all("content-type") == ["application/json"]
    assert seen.all("x-trace") == ["é"]
    assert seen.all("user-agent") == ["toolgate"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "GET"])
async def test_a_request_without_body_names_no_type(client, serve, method):
    pets = Recorder()
    await client.send(source(await serve(pets)), HttpRequest(method, "/x", {}))
    assert pets.seen[0].all("content-type") == []
    assert pets.seen[0].body == b""


@pytest.mark.parametrize("base", ["/v1", "/v1/", ""])
async def test_the_path_of_the_base_url_comes_first(client, serve, base):
    pets = Recorder()
    await client.send(source(await serve(pets) + base), GET)
    assert pets.seen[0].target == base.rstrip("/") + "/x"


async def test_settings_of_a_source_apply_to_every_call(serve):
    ours, theirs = Recorder(), Recorder()
    adjusted = SourceSettings(
        base_url=await serve(ours), headers={"Authorization": "Bearer s", "X-A": "1"}
    )
    async with open_client(adjusted) as client:
        described = source(await serve(theirs), trusted=False)
        await client.send(described, GET)
        await client.send(described, HttpRequest("GET", "/x", {"x-a": "2"}))
    assert theirs.seen == []
    assert [seen.all("authorization") for seen in ours.seen] == [["Bearer s"], ["Bearer s"]]
    assert [seen.all("x-a") for seen in ours.seen] == [["1"], ["1"]]  # no argument replaces them


async def test_credentials_go_along_when_the_operation_names_a_server_that_is_overridden(serve):
    ours, theirs = Recorder(), Recorder()
    adjusted = SourceSettings(base_url=await serve(ours), headers={"Authorization": "Bearer s"})
    request = HttpRequest("GET", "/x", {}, server=await serve(theirs))
    async with open_client(adjusted) as client:
        await client.send(source(None), request)
    assert theirs.seen == []
    assert ours.seen[0].all("authorization") == ["Bearer s"]


@pytest.mark.parametrize(
    ("server", "target"),
    [("{}/v2/", "/v2/x"), ("/v2", "/v2/x"), ("v2", "/v1/v2/x"), ("http://example.com", "/v1/x")],
)
async def test_a_server_of_the_operation_at_the_same_place_is_called(client, serve, server, target):
    pets = Recorder()
    url = await serve(pets)
    request = HttpRequest("GET", "/x", {}, server=server.format(url))
    await client.send(source(f"{url}/v1"), request)
    assert [seen.target for seen in pets.seen] == [target]


async def test_cookies_of_one_call_do_not_come_along_with_the_next(client, serve):
    pets = Recorder(headers=[("set-cookie", "session=ann; Path=/")])
    of = source(await serve(pets))
    await client.send(of, GET)
    await client.send(of, GET)
    assert pets.seen[1].all("cookie") == []


async def test_a_large_body_arrives_whole_in_every_attempt(client, serve):
    pets = Flaky([502, 200])
    body = b"x" * 3_000_000
    await client.send(source(await serve(pets)), HttpRequest("PUT", "/x", {}, body))
    assert pets.bodies == [body, body]


@pytest.mark.parametrize(
    ("method", "statuses", "status", "attempts"),
    [
        ("GET", [503, 502, 200], 200, 3),
        ("HEAD", [503, 200], 200, 2),
        ("PUT", [504, 200], 200, 2),
        ("DELETE", [503, 200], 200, 2),
        ("GET", [503], 503, 3),  # one attempt and two more
        ("POST", [503, 200], 503, 1),  # RFC 9110, section 9.2.2: may not be repeated
        ("PATCH", [502, 200], 502, 1),
        ("GET", [500, 200], 500, 1),
        ("GET", [429, 200], 429, 1),
        ("GET", [404, 200], 404, 1),
    ],
)
async def test_only_repeatable_requests_are_retried(
    client, serve, method, statuses, status, attempts
):
    pets = Flaky(statuses)
    answer = await client.send(source(await serve(pets)), HttpRequest(method, "/x", {}))
    assert (answer.status, len(pets.bodies)) == (status, attempts)


@pytest.mark.parametrize(("retries", "attempts"), [(0, 1), (1, 2), (4, 5)])
async def test_a_source_has_a_number_of_attempts_of_its_own(serve, retries, attempts):
    pets = Flaky([503])
    async with open_client(SourceSettings(retries=retries)) as client:
        await client.send(source(await serve(pets)), GET)
    assert len(pets.bodies) == attempts


@pytest.mark.parametrize(
    "lost", [b"", response(b"x", length=500), b"HTTP/1.1 200 OK\r\nContent-Le"]
)
async def test_a_lost_connection_is_tried_again_where_that_is_safe(client, lost):
    async with speaking(lost, lost, response(b"there")) as (url, script):
        assert (await client.send(source(url), GET)).body == b"there"
        assert len(script.requests) == 3
    async with speaking(lost, response(b"there")) as (url, script):
        text = await failure(client, source(url), HttpRequest("POST", "/x", {}, b"{}"))
        assert text == "pets closed the connection before its answer was complete"
        assert len(script.requests) == 1


async def test_an_answer_that_never_comes_is_given_up_and_the_service_told(serve):
    pets = Silent()
    async with open_client(timeout_s=0.1) as client:
        text = await failure(client, source(await serve(pets)))
        assert text == "pets did not answer within 0.1 s"
        await pets.left.wait()


async def test_an_answer_that_comes_too_slowly_is_given_up(serve, clock):
    left = asyncio.Event()

    async def drips(_scope, receive, send):
        await receive()  # the request
        gone = asyncio.create_task(receive())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not gone.done():
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
            clock.advance(1)
            await asyncio.sleep(0.01)
        left.set()

    async with open_client() as client:
        text = await failure(client, source(await serve(drips)))
        assert text == "pets did not answer within 30 s"
        with anyio.fail_after(60):
            await left.wait()


async def test_a_source_has_a_patience_of_its_own(serve):
    async with open_client(SourceSettings(timeout_s=0.05)) as client:
        text = await failure(client, source(await serve(Silent())))
    assert text == "pets did not answer within 0.05 s"


async def test_pauses_count_as_waiting(serve):
    async with open_client(timeout_s=0.1, retry_backoff_s=60) as client:
        text = await failure(client, source(await serve(Flaky([503]))))
    assert text == "pets did not answer within 0.1 s"
