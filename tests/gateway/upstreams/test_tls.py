"""Whom sources have to prove themselves to be, and what is proved to them."""

import dataclasses
import ssl
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest

from config.sources import SchemeSettings, SourceSettings, Tls
from gateway.upstreams.http.client import HttpRequest
from gateway.upstreams.http.source_pools import TlsUnusable, UpstreamFailed, contexts
from tests.gateway.upstreams.callers import Calling, caller
from tests.gateway.upstreams.conftest import GET, open_client, source
from tests.gateway.upstreams.test_credentials import BEARER
from tests.servers.tls import Authority, https

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


async def status_of(url: str, request: HttpRequest = GET, **settings) -> int:
    async with open_client(SourceSettings(**settings)) as client:
        return (await client.send(source(url), request)).status


async def test_a_server_is_believed_by_the_authority_of_the_settings_alone(authority, tmp_path):
    stranger = Authority(tmp_path, "stranger")
    async with https(authority.sign("server")) as (url, shown):
        assert await status_of(url, tls=Tls(ca_file=str(authority.file))) == 200
        for tls in (None, Tls(), Tls(ca_file=str(stranger.file))):
            with pytest.raises(UpstreamFailed, match=r"its certificate is not to be believed"):
                await status_of(url, tls=tls, retries=0)
    assert shown == [""]


@pytest.mark.parametrize(
    "changes", [{"host": "127.0.0.2"}, {"until": timedelta(days=-1)}], ids=["host", "expired"]
)
async def test_a_certificate_of_another_host_or_of_yesterday_is_not_believed(authority, changes):
    certificate, key = authority.sign("gateway")
    ours = Tls(str(authority.file), str(certificate), str(key))
    async with https(authority.sign("server", **changes), authority.file) as (url, shown):
        with pytest.raises(UpstreamFailed, match="its certificate is not to be believed"):
            await status_of(url, tls=ours, retries=0)
    assert shown == []  # nothing was said


async def test_a_server_that_signs_for_itself_is_not_believed(authority, tmp_path):
    own = Authority(tmp_path, "own").sign("own")
    async with https(own) as (url, shown):
        for tls in (None, Tls(str(authority.file))):
            with pytest.raises(UpstreamFailed, match="its certificate is not to be believed"):
                await status_of(url, tls=tls, retries=0)
    assert shown == []


async def test_certificates_are_trusted_per_source(authority):
    """Connections are kept: what one source believes opens none for another."""
    trusting = SourceSettings(tls=Tls(str(authority.file)), retries=0)
    both = {"pets": trusting, "other": SourceSettings(retries=0)}
    async with https(authority.sign("server")) as (url, _), open_client(trusting) as client:
        await client.configure(client.connections.limits, both)
        assert (await client.send(source(url), GET)).status == 200
        other = dataclasses.replace(source(url), name="other")
        with pytest.raises(UpstreamFailed, match="its certificate is not to be believed"):
            await client.send(other, GET)


async def test_a_client_certificate_is_presented_on_request(authority):
    certificate, key = authority.sign("gateway")
    ours = Tls(str(authority.file), str(certificate), str(key))
    async with https(authority.sign("server"), authority.file) as (url, shown):
        assert await status_of(url, tls=ours) == 200
        with pytest.raises(UpstreamFailed):
            await status_of(url, tls=Tls(str(authority.file)), retries=0)
    assert shown == ["gateway"]


async def test_no_certificate_of_ours_is_shown_to_a_token_url(authority):
    certificate, key = authority.sign("gateway")
    ours = Tls(str(authority.file), str(certificate), str(key))
    async with (
        https(authority.sign("server")) as (url, pets),
        https(authority.sign("tokens"), authority.file) as (tokens, shown),
    ):
        login = SchemeSettings(client_id="a", client_secret="b", token_url=tokens)
        settings = SourceSettings(tls=ours, credentials={"bearer": login})
        async with open_client(settings) as client:
            result = await Calling(client, url, (BEARER,))(caller())
    assert "its token_url could not be reached" in result.content[0].text
    assert (shown, pets) == ([], [])


def test_verification_cannot_be_switched_off_and_old_versions_are_not_supported(authority):
    certificate, key = authority.sign("gateway")
    for tls in (Tls(), Tls(str(authority.file), str(certificate), str(key))):
        made = contexts({"pets": SourceSettings(tls=tls)})["pets"]
        for context in (made.calls, made.tokens):
            if isinstance(context, ssl.SSLContext):
                assert context.verify_mode is ssl.CERT_REQUIRED
                assert context.check_hostname
                assert context.minimum_version is ssl.TLSVersion.TLSv1_2


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
async def test_a_server_that_speaks_older_versions_only_is_not_called(authority):
    old = ssl.create_default_context(cafile=str(authority.file))
    old.minimum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    files = authority.sign("server")
    async with https(files, newest=ssl.TLSVersion.TLSv1_1) as (url, shown):
        with pytest.raises(UpstreamFailed, match="could not be reached"):
            await status_of(url, tls=Tls(str(authority.file)), retries=0)
        async with aiohttp.ClientSession() as http:  # which somebody less careful could call
            assert (await http.get(url, ssl=old)).status == 200
    assert shown == [""]


@pytest.mark.parametrize(
    ("key", "file", "reason"),
    [
        ("ca_file", "missing", "no such file or directory"),
        ("ca_file", "junk", "expected certificates in PEM"),
        ("cert_file", "missing", "no such file or directory"),
        (
            "cert_file",
            "junk",
            "expected a certificate in PEM and the key to it, without a password",
        ),
        ("key_file", "missing", "no such file or directory"),
    ],
)
def test_unusable_certificate_files_are_named_at_start(authority, tmp_path, key, file, reason):
    certificate, private = authority.sign("gateway")
    (tmp_path / "junk").write_text("hunter2")
    values = {"cert_file": str(certificate), "key_file": str(private)}
    values[key] = str(tmp_path / file)
    with pytest.raises(TlsUnusable) as caught:
        contexts({"pets": SourceSettings(tls=Tls(**values))})
    assert str(caught.value) == f"sources.pets.tls.{key}: {tmp_path / file}: {reason}"


def test_a_key_with_a_password_or_of_another_certificate_is_refused(authority, tmp_path):
    certificate, key = authority.sign("locked", password=b"hunter2")
    other, _ = authority.sign("other")
    for files in ((certificate, key), (other, key)):
        with pytest.raises(TlsUnusable, match=r"sources\.pets\.tls\.cert_file: .*without a passw"):
            contexts({"pets": SourceSettings(tls=Tls("", *map(str, files)))})


async def test_new_settings_that_cannot_be_used_change_nothing(authority):
    good = SourceSettings(tls=Tls(str(authority.file)))
    bad = SourceSettings(tls=Tls(str(Path("/nowhere.pem"))))
    async with https(authority.sign("server")) as (url, _), open_client(good) as client:
        with pytest.raises(TlsUnusable):
            await client.configure(client.connections.limits, {"pets": bad})
        assert (await client.send(source(url), GET)).status == 200
