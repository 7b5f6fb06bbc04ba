"""`toolgate serve` with TLS: the certificate, and that of the next SIGHUP."""

import asyncio
import json
import signal
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from config.settings import DatabaseSettings, ListenerTls
from gateway.cli.common.tls import CertificateUnusable, ListenerCertificate
from tests.fixtures_gateway import Recorder
from tests.gateway.cli.processes import DEADLINE_S, Served, ran, serving
from tests.gateway.cli.test_serve import write_settings
from tests.servers.tls import Authority

pytestmark = pytest.mark.anyio


async def certificate_name(gateway: Served, authority: Authority) -> str:
    """The name in the certificate that a new connection is shown, once it was verified."""
    trusting = ssl.create_default_context(cafile=str(authority.file))
    port = int(gateway.url.rpartition(":")[2])
    async with asyncio.timeout(DEADLINE_S):
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
        certificate: Any = writer.get_extra_info("peercert")
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
    return str(certificate["subject"][0][0][1])


async def test_a_renewed_certificate_is_shown_after_sighup(
    folder: Path, service: Recorder, database_settings: DatabaseSettings
) -> None:
    authority = Authority(folder)
    files = [folder / "tls.crt", folder / "tls.key"]
    for source, file in zip(authority.sign("first"), files, strict=True):
        source.rename(file)
    config = write_settings(folder, service)
    config.write_text(
        f"{config.read_text()}\nserver: {{tls: {{cert: tls.crt, key: tls.key}}}}\n"
        "embedding: {provider: disabled}\n"
    )
    url = {"TOOLGATE_DATABASE__URL": database_settings.url}
    async with serving("--config", str(config), **url) as gateway:
        await gateway.ready()
        assert gateway.url.startswith("https://")
        assert await certificate_name(gateway, authority) == "first"
        port = {"TOOLGATE_SERVER__PORT": gateway.url.rpartition(":")[2]}
        assert (await ran("health", "--config", str(config), **url, **port))[:2] == (0, "ok\n")
        for source, file in zip(authority.sign("second"), files, strict=True):
            source.rename(file)
        gateway.process.send_signal(signal.SIGHUP)
        await gateway.event("settings_reloaded")
        assert await certificate_name(gateway, authority) == "second"
        files[1].write_text("no key")
        gateway.process.send_signal(signal.SIGHUP)
        rejected = await gateway.event("settings_rejected")
        assert "tls.key cannot be used" in json.dumps(rejected)
        assert await certificate_name(gateway, authority) == "second"
        assert (await gateway.stop())[0] == 0


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("missing", "no such file"),
        ("another", "KEY_VALUES_MISMATCH"),
        ("encrypted", "expected one without a password"),
    ],
)
def test_files_that_do_not_fit_are_refused(tmp_path: Path, kind: str, said: str) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.sign("a", password=b"secret" if kind == "encrypted" else None)
    if kind == "missing":
        key = tmp_path / "none.key"
    elif kind == "another":
        key = authority.sign("b")[1]
    with pytest.raises(CertificateUnusable, match=f"(?i){said}"):
        ListenerCertificate(ListenerTls(str(cert), str(key)))
