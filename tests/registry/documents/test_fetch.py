import gzip
import os
import ssl
from contextlib import asynccontextmanager
from datetime import timedelta
from ipaddress import ip_address

import anyio
import pytest
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from registry.documents import ssrf_protection
from registry.documents.fetch import (
    REDIRECT_LIMIT,
    FetchedDocument,
    _redirect_target,
    fetch,
    freshness,
)
from schemas.errors import ImportRejected
from tests.servers.tls import Authority, https

pytestmark = pytest.mark.anyio


async def get(location, limit_bytes=1000, timeout_s=5, private_networks=False) -> FetchedDocument:
    with anyio.fail_after(30):
        return await fetch(
            str(location),
            limit_bytes=limit_bytes,
            timeout_s=timeout_s,
            private_networks=private_networks,
        )


async def refusal(location, **options) -> str:
    with pytest.raises(ImportRejected) as caught:
        await get(location, **options)
    return str(caught.value)


@asynccontextmanager
async def serve(handler, host="127.0.0.1"):
    """The URL of a server that answers every request by `handler`."""
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.01)
    await runner.setup()
    site = web.TCPSite(runner, host, 0)
    await site.start()
    try:
        yield f"http://{host}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def answer(**response):
    async def handler(request):
        return web.Response(**response)

    return handler


def redirect(to, status=302):
    return answer(status=status, headers={"Location": to})


async def test_a_path_is_read_and_made_absolute(tmp_path, monkeypatch):
    (tmp_path / "api.yaml").write_bytes(b"openapi: 3.1.0")
    monkeypatch.chdir(tmp_path)
    assert await get("api.yaml") == FetchedDocument(b"openapi: 3.1.0", str(tmp_path / "api.yaml"))


async def test_a_file_url_is_read(tmp_path):
    path = tmp_path / "my api.json"
    path.write_bytes(b"{}")
    assert (await get(path.as_uri())).location == str(path)


async def test_a_home_directory_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a.json").write_bytes(b"{}")
    assert (await get("~/a.json")).data == b"{}"


async def test_errors_of_files_name_the_kind_of_file(tmp_path):
    assert await refusal(tmp_path / "none.json") == f"{tmp_path}/none.json does not exist."
    assert "is a directory" in await refusal(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert "is not a regular file" in await refusal(tmp_path / "pipe")
    assert "file:///path" in await refusal("file://server/share.json")
    reason = await refusal("ftp://ann:s3cret@example.com/a.json")
    assert "expected a path or an http(s) URL" in reason
    assert "s3cret" not in reason
    assert "Cannot read" in await refusal("a\0b")


async def test_a_file_above_the_limit_names_the_setting(tmp_path):
    (tmp_path / "big").write_bytes(b"x" * 1001)
    assert "larger than 1,000 bytes (setting imports.document_limit_bytes)" in await refusal(
        tmp_path / "big"
    )


async def test_a_private_url_is_fetched_if_named_by_the_operator():
    async with serve(answer(body=b"{}")) as url:
        assert await get(f"{url}/api.json?v=1") == FetchedDocument(b"{}", f"{url}/api.json?v=1")


async def test_credentials_are_sent_and_never_shown():
    async def handler(request):
        allowed = request.headers.get("Authorization") == "Basic bWU6c2VjcmV0"
        return web.Response(status=200 if allowed else 401)

    async with serve(handler) as url:
        named = url.replace("//", "//me:secret@")
        assert (await get(named)).location == url
        message = await refusal(url.replace("//", "//me:wrong@"))
    assert message == f"{url} answered 401 Unauthorized (it needs credentials)."


async def test_a_refused_certificate_names_the_way_to_trust_its_issuer(tmp_path):
    authority = Authority(tmp_path)
    async with https(authority.sign("server")) as (url, _):
        message = await refusal(f"{url}/api.json")
    assert "its TLS certificate is not accepted (" in message
    assert message.endswith("; the variable SSL_CERT_FILE names a file with its issuer.")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"until": timedelta(-1)}, "expired"), ({"host": "127.0.0.2"}, "IP address mismatch")],
)
async def test_a_certificate_of_a_trusted_issuer_is_refused_with_its_own_reason(
    tmp_path, monkeypatch, changes, reason
):
    authority = Authority(tmp_path)
    trusting = ssl.create_default_context(cafile=str(authority.file))
    monkeypatch.setattr("aiohttp.connector._SSL_CONTEXT_VERIFIED", trusting)
    async with https(authority.sign("server", **changes)) as (url, _):
        message = await refusal(f"{url}/api.json")
    assert reason in message
    assert "SSL_CERT_FILE" not in message


@pytest.mark.parametrize("status", [404, 500, 204, 304])
async def test_only_200_is_a_document(status):
    async with serve(answer(status=status)) as url:
        assert f"answered {status}" in await refusal(url)


async def test_the_limit_counts_bytes_after_decompression():
    async def handler(request):
        body = gzip.compress(b"x" * 1_000_000)
        return web.Response(body=body, headers={"Content-Encoding": "gzip"})

    async with serve(handler) as url:
        assert "larger than 5,000 bytes" in await refusal(url, limit_bytes=5_000)
        assert len((await get(url, limit_bytes=1_000_000)).data) == 1_000_000


async def test_a_server_that_does_not_answer_ends_at_the_deadline():
    async def handler(request):
        await anyio.sleep_forever()

    async with serve(handler) as url:
        message = await refusal(url, timeout_s=0.1)
    assert "no answer within 0.1 s (setting imports.fetch_timeout_s)" in message


async def test_a_server_that_is_not_there_is_an_error_that_says_so():
    async with serve(answer()) as url:
        pass
    assert await refusal(url) == f"Cannot fetch {url}: connection refused."


async def test_an_answer_cut_short_is_an_error():
    async def handler(request):
        response = web.StreamResponse(headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b"half")
        request.transport.abort()
        return response

    async with serve(handler) as url:
        assert "Cannot fetch" in await refusal(url)


async def test_an_unknown_host_is_named():
    message = await refusal("http://no-such-host.invalid/a.json")
    assert "host name no-such-host.invalid cannot be resolved" in message


@pytest.mark.parametrize("url", ["http://", "http://[::1", "http://a:99999/"])
async def test_a_malformed_url_is_refused(url):
    assert "Cannot fetch" in await refusal(url)


@pytest.mark.parametrize("url", ["http://a:99999/x?key=some secret", "http://me:secret@a:99999/x"])
async def test_the_secrets_of_a_malformed_url_are_not_shown(url):
    message = await refusal(url)
    assert message.startswith("Cannot fetch http://")
    assert "secret" not in message


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_followed_and_the_last_url_is_the_location(status):
    async def handler(request):
        if request.path == "/old":
            return web.Response(status=status, headers={"Location": "new.json"})
        return web.Response(body=b"{}")

    async with serve(handler) as url:
        assert (await get(f"{url}/old")).location == f"{url}/new.json"


async def test_redirects_end():
    async with serve(redirect("/again")) as url:
        assert f"more than {REDIRECT_LIMIT} redirects" in await refusal(url)


@pytest.mark.parametrize("to", ["file:///etc/passwd", "ftp://example.com/", "gopher://x"])
async def test_a_redirect_to_another_scheme_is_refused(to):
    async with serve(redirect(to)) as url:
        assert "which is not http(s)" in await refusal(url)


# On one machine everything is loopback, so these tests move the border: one address of it is the
# public Internet and the others are the company's network.
@pytest.fixture
def only_public(monkeypatch):
    def move(address):
        def is_public(other):
            return ip_address(other) == ip_address(address)

        monkeypatch.setattr(ssrf_protection, "is_public", is_public)

    return move


async def test_a_public_host_may_not_redirect_to_a_private_address(only_public):
    only_public("127.0.0.1")
    async with (
        serve(answer(body=b"secret"), "127.0.0.2") as inside,
        serve(redirect(inside)) as url,
    ):
        message = await refusal(url)
        assert f"redirects to {inside}: 127.0.0.2 is not a public address" in message
        assert "imports.private_networks" in message
        assert (await get(url, private_networks=True)).data == b"secret"


async def test_a_public_host_may_not_redirect_to_a_name_that_is_private(only_public):
    only_public("127.0.0.2")
    async with (
        serve(answer(body=b"secret")) as inside,
        serve(redirect(inside.replace("127.0.0.1", "localhost")), "127.0.0.2") as url,
    ):
        message = await refusal(url)
    assert "localhost (" in message
    assert "imports.private_networks" in message


async def test_a_private_host_may_redirect_within_the_private_network(only_public):
    only_public("127.0.0.1")
    async with serve(answer(body=b"{}")) as target, serve(redirect(target), "127.0.0.2") as url:
        assert (await get(url)).data == b"{}"


async def test_a_redirect_may_not_give_up_tls():
    with pytest.raises(ImportRejected, match="redirects from https to http"):
        _redirect_target(URL("https://a.example/"), "http://b.example/x")


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"Cache-Control": "max-age=600"}, 600.0),
        ({"Cache-Control": 'Public, Max-Age="600"', "Age": "100"}, 500.0),
        ({"Cache-Control": "max-age=600, s-maxage=60"}, 60.0),
        ({"Cache-Control": "max-age=600", "Age": "9000"}, 0.0),
        ({"Cache-Control": "max-age=600, no-cache"}, 0.0),
        ({"Cache-Control": "no-store"}, 0.0),
        ({"Cache-Control": "private, max-age=600"}, 0.0),
        ({"Cache-Control": "max-age=soon"}, None),
        ({"Cache-Control": "max-age=600", "Age": "x"}, None),
        ({"Cache-Control": f"max-age={'9' * 400}"}, None),
        (
            {
                "Date": "Sat, 28 Nov 2026 10:00:00 GMT",
                "Expires": "Sat, 28 Nov 2026 10:10:00 GMT",
            },
            600.0,
        ),
        ({"Date": "Sat, 28 Nov 2026 10:00:00 GMT", "Expires": "0"}, None),
    ],
)
def test_headers_name_the_freshness_of_an_answer(
    headers: dict[str, str], expected: float | None
) -> None:
    assert freshness(CIMultiDict(headers)) == expected


async def test_fetched_documents_have_their_freshness():
    async with serve(answer(text="{}", headers={"Cache-Control": "max-age=77"})) as url:
        assert (await get(url)).fresh_s == 77.0
