"""Targets over REST and the command line: stored, tested, guarded."""

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from aiosmtpd.smtp import AuthResult, LoginPassword
from anyio import to_thread
from msgspec.structs import replace

from config.settings import Settings
from gateway.http_client.webhooks import WebhookSent, verify
from gateway.wings.notifications.senders import send_mail
from registry.access.column_encryption import SealedColumn
from tests.fixtures_gateway import Client, running
from tests.fixtures_servers import serving
from tests.gateway.cli.processes import command
from tests.servers.tls import Authority
from tests.wings.notifications.rig import (
    INCIDENTS,
    OPERATOR,
    OTHER,
    TARGETS,
    Receiver,
    caller,
    items,
    mail_server,
    put,
    try_target,
    with_notifications,
)
from tests.wings.notifications.test_messages import message
from tests.wings.test_toy import got

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client(settings: Settings, tmp_path: Path) -> AsyncIterator[Client]:
    on = with_notifications(settings, tmp_path, check_s=60, tenant_targets=3)
    async with running(on) as client:
        await client.gateway.wait_for_wings()
        yield client


async def test_a_webhook_is_signed_and_its_address_sealed(
    client: Client, settings: Settings
) -> None:
    receiver = Receiver(500, text="out of <paper>")
    async with serving(receiver) as url:
        status, made = await put(client, "crm", kind="webhook", url=f"{url}/hooks?token=hidden")
        assert (status, made["state"], made["place"]) == (201, "new", url)
        assert len(made["subjects"]) == 7
        failed = {"done": False, "answer": "500 out of <paper>"}
        assert await try_target(client, "crm") == failed
        taken = {"done": True, "answer": "200 out of <paper>"}
        assert await try_target(client, "crm") == taken
        headers, body = receiver.requests[-1]
        assert verify(headers, body, [made["secret"]], time.time()).startswith("test.")
        _, renewed = await put(client, "crm", kind="webhook", new_secret=True, subjects=["sources"])
        await try_target(client, "crm")
        headers, body = receiver.requests[-1]
        for secret in (made["secret"], renewed["secret"]):
            assert verify(headers, body, [secret], time.time())
    [stored] = await items(client, TARGETS)
    assert "secret" not in stored
    assert (stored["state"], stored["subjects"]) == ("ok", ["sources"])
    async with await psycopg.AsyncConnection.connect(settings.database.url) as connection:
        rows = await connection.execute("SELECT t::text FROM notification_target_t t")
        assert "hidden" not in str(await rows.fetchall())
    assert SealedColumn.NOTIFICATION_TARGET.place == ("name",)


async def test_targets_are_checked(client: Client) -> None:
    for body, text in (
        ({"kind": "slack", "url": "http://hooks.example/x"}, "expected https://"),
        ({"kind": "slack", "url": "https://169.254.169.254/x"}, "is not a public address"),
        ({"kind": "teams", "url": "https://10.0.0.1/"}, "unless notifications.private_hosts names"),
        ({"kind": "slack"}, "expected the address"),
        ({"kind": "slack", "url": "https://a.example/", "new_secret": True}, "new_secret"),
        ({"kind": "slack", "url": "https://a.example/", "recipients": ["a@b.c"]}, "no recipients"),
        ({"kind": "mail", "recipients": ["a@b.c\r\nBcc: x@y.z"]}, "a mail address"),
        ({"kind": "mail", "recipients": ["a,b@c.d"]}, "a mail address"),
        ({"kind": "mail", "recipients": ['"@c.d']}, "a mail address"),
        ({"kind": "mail", "recipients": ["=?utf-8?q?=41?=@c.d"]}, "a mail address"),
        ({"kind": "mail", "recipients": ["a@c..d"]}, "a mail address"),
        ({"kind": "webhook", "url": "https://a.example/", "subjects": ["weather"]}, "/subjects/0"),
    ):
        status, answer = await put(client, "wrong", **body)
        assert status == 422, (body, answer)
        assert text in json.dumps(answer), (body, answer)
    status, answer = await put(client, "wrong", kind="mail", recipients=["a@b.c"])
    assert (status, "notifications.smtp.host" in answer["detail"]) == (409, True)
    for name in ("a", "b", "c"):
        assert (await put(client, name, kind="slack", url="https://a.example/x"))[0] == 201
    status, answer = await put(client, "d", kind="slack", url="https://a.example/x")
    assert (status, "tenant_targets" in answer["detail"]) == (409, True)
    status, answer = await put(client, "a", kind="teams", url="https://a.example/x")
    assert (status, "of the kind slack" in answer["detail"]) == (409, True)


async def test_targets_that_are_stored_at_once_stay_below_their_number(client: Client) -> None:
    body = {"kind": "slack", "url": "https://a.example/x"}
    answers = await asyncio.gather(*(put(client, f"t{number}", **body) for number in range(12)))
    assert sorted(status for status, _ in answers) == [201] * 3 + [409] * 9


async def test_a_private_address_behind_a_name_is_refused(client: Client) -> None:
    """The address is checked where it is connected to, not only where it is stored."""
    assert (await put(client, "inside", kind="slack", url="https://localhost.localdomain/"))[
        0
    ] == 201
    answer = await try_target(client, "inside")
    assert answer["done"] is False
    assert answer["answer"] in {"its address is not public", "no answer"}


async def test_targets_are_of_their_tenant(client: Client) -> None:
    await put(client, "crm", kind="slack", url="https://a.example/x")
    other = caller("eve", host=OTHER)
    assert await items(client, TARGETS, other) == []
    assert (await got(client, f"{TARGETS}/crm", **other))[0] == 404
    assert (await client.post(f"{TARGETS}/crm/tests", b"", other))[0] == 404
    reader = caller("eve", scope="admin:notifications:read")
    assert (await put(client, "crm", reader, kind="slack", url="https://a.example/"))[0] == 403
    assert len(await items(client, TARGETS, reader)) == 1
    assert await items(client, INCIDENTS, reader) == []


async def test_the_command_line_stores_and_tests_targets(client: Client, tmp_path: Path) -> None:
    file = tmp_path / "ops.key"
    file.write_text(OPERATOR["Authorization"].removeprefix("Bearer "))

    async def run(*args: str) -> tuple[int, str, str]:
        return await command("notifications", *args, "--url", client.url, "--key-file", str(file))

    receiver = Receiver()
    async with serving(receiver) as url:
        code, out, err = await run("send", "crm", "--kind", "webhook", "--address", url)
        assert (code, out.startswith("whsec_")) == (0, True), err
        code, out, err = await run("test", "crm")
        assert (code, out) == (0, "crm answered: 200 ok\n"), err
        code, out, _ = await run("list")
        assert "200 ok" in out
        assert (await run("remove", "crm"))[0] == 0


async def test_mail_that_is_refused_for_now_is_sent_again(settings: Settings) -> None:
    """As servers with greylists do (451); one whose refusal is no text is read all the same."""
    smtp = replace(settings.notifications.smtp, host="127.0.0.1", sender="gateway@example.com")
    smtp = replace(smtp, security="none")

    async def refuse(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"554 \xff\r\n")
        writer.close()

    async with mail_server() as (_, port):
        later = await to_thread.run_sync(
            send_mail, replace(smtp, port=port), ["later@example.com"], message()
        )
    assert (later.done, later.gone) == (False, False)
    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        refused = await to_thread.run_sync(
            send_mail, replace(smtp, port=port), ["a@example.com"], message()
        )
    assert (refused.gone, refused.error) == (True, "554 \N{REPLACEMENT CHARACTER}")


@pytest.mark.parametrize("security", ["tls", "starttls"])
async def test_mail_is_sent_over_tls_with_a_login(
    settings: Settings, tmp_path: Path, security: str
) -> None:
    """The certificate is checked before the password is sent, and a server that offers no TLS gets
    neither password nor mail."""
    trusted, stranger = (Authority(tmp_path, name) for name in ("trusted", "stranger"))
    trust = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trust.load_cert_chain(*trusted.sign("mail"))
    logins: list[LoginPassword] = []

    def log_in(*arguments: Any) -> AuthResult:
        logins.append(arguments[-1])
        return AuthResult(success=logins[-1] == LoginPassword(b"gateway", b"s3cret"), handled=False)

    smtp = replace(
        settings.notifications.smtp,
        host="127.0.0.1",
        sender="gateway@example.com",
        security=security,
        user="gateway",
        password="s3cret",
        ca_file=str(trusted.file),
    )

    async def send(**changes: Any) -> WebhookSent:
        changed = replace(smtp, port=port, **changes)
        return await to_thread.run_sync(send_mail, changed, ["ops@example.com"], message())

    options: dict[str, Any] = {"tls": trust, "auth_require_tls": False}
    if security == "starttls":
        options = {"tls_context": trust, "require_starttls": True, "auth_required": True}
    async with mail_server(**options, authenticator=log_in) as (mailbox, port):
        sent = await send()
        assert (sent.answer, sent.error) == ("127.0.0.1 took 1 mail", "")
        denied = await send(password="wrong")
        assert (denied.gone, denied.error[:3]) == (True, "535")
        logins.clear()
        doubted = await send(ca_file=str(stranger.file))
        assert (doubted.done, "CERTIFICATE_VERIFY_FAILED" in doubted.error) == (False, True)
    async with mail_server(authenticator=log_in, auth_require_tls=False) as (plain, port):
        assert not (await send()).done
    assert (len(mailbox.letters), plain.letters, logins) == (1, [], [])


@pytest.mark.parametrize("recipient", ["ops@example.com", "nobody@example.com"])
async def test_mail_is_sent_and_the_answer_of_the_server_is_shown(
    settings: Settings, tmp_path: Path, recipient: str
) -> None:
    async with mail_server() as (mailbox, port):
        smtp = replace(
            settings.notifications.smtp,
            host="127.0.0.1",
            port=port,
            security="none",
            sender="gateway@example.com",
        )
        async with running(with_notifications(settings, tmp_path, smtp=smtp)) as client:
            await client.gateway.wait_for_wings()
            assert (await put(client, "ops", kind="mail", recipients=[recipient]))[0] == 201
            answer = await try_target(client, "ops")
    if recipient.startswith("nobody"):
        assert answer == {"done": False, "answer": f"{recipient}: 550 No such user"}
    else:
        assert answer == {"done": True, "answer": "127.0.0.1 took 1 mail"}
        assert b"A test message of Toolgate" in mailbox.letters[0]
