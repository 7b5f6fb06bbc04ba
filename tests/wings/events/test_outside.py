"""Events from and to the outside: CloudEvents, Standard Webhooks, topics and sessions."""

import base64
import json
import os
import subprocess
import time
import uuid
from asyncio import gather
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest
from msgspec import Raw
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from config.access import SecretsSettings
from config.events import EventInbound, EventWebhook
from config.settings import DatabaseSettings, Settings
from gateway.context import Principal
from gateway.http_client.webhooks import SignatureRefused, WebhookSender, sign, verify
from gateway.operations.operation import OperationInput
from gateway.wings.events.invocation_journal import Journal
from gateway.wings.events.outbox import CompletionOutbox
from gateway.wings.events.webhook_deliveries import Redelivery, WebhookDeliveries
from gateway.wings.events.webhook_receivers import WebhookReceivers
from gateway.wings.events.wing import check_webhook
from gateway.wings.interface import Notify
from registry.access.secrets import Keys
from registry.database.postgres import Database, borrow
from schemas.errors import ToolgateError, Unavailable
from tests.fixtures_database import HOST
from tests.fixtures_gateway import DEADLINE_S, Client, running
from tests.fixtures_servers import serving
from tests.gateway.cli.processes import command
from tests.gateway.console.visiting import console
from tests.gateway.events import listening
from tests.polling import until
from tests.wings.events.drafts import OTHER, accept_draft, claim_calls, end
from tests.wings.events.rig import (
    EVENT,
    ROOT,
    STRUCTURED,
    got,
    invoke_skill,
    wait_for_end,
    with_events,
)
from tests.wings.events.shared import anyio_backend, client, service, shared_events

__all__ = ["anyio_backend", "client", "service", "shared_events"]

pytestmark = pytest.mark.anyio

OLD, NEW = (f"whsec_{base64.b64encode(bytes([one]) * 32).decode()}" for one in (1, 2))


NO_WEBHOOKS: Mapping[str, EventWebhook] = {}


async def refuse_notice(*_: Any) -> bool:
    return False


class Receiver:
    """Receives webhooks, and answers with the statuses that a test names, then with 200."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.heard: list[tuple[dict[str, str], bytes]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        self.heard.append((dict(request.headers), await request.body()))
        status = self.statuses.pop(0) if self.statuses else 200
        await Response(status_code=status)(scope, receive, send)


@pytest.fixture(scope="module")
def event_changes() -> dict[str, Any]:
    paid = EventInbound(
        skill="getPet",
        secret=NEW,
        old_secret=OLD,
        principal="shop",
        arguments='{"id": body.pet}',
        when='body.type == "paid"',
        order_key="has(body.key) ? body.key : null",
    )
    return {"inbound": {"paid": paid}}


async def post_body(client: Client, path: str, body: Any, **headers: str) -> tuple[int, Any]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with client.http.post(client.url + path, data=data, headers=headers) as response:
        text = await response.read()
        return response.status, json.loads(text) if text else None


async def test_cloudevents_are_accepted_in_each_mode(client: Client) -> None:
    """CloudEvents are accepted in each mode (V02)."""
    path, json_type = "/events/cloudevents", {"Content-Type": "application/json"}
    status, one = await post_body(client, path, EVENT, **{"Content-Type": STRUCTURED})
    assert status == 202, one
    again = await post_body(client, path, EVENT, **{"Content-Type": STRUCTURED})
    assert again[1]["id"] == one["id"]
    binary = {f"ce-{name}": str(EVENT[name]) for name in ("specversion", "id", "source", "type")}
    status, same = await post_body(client, path, EVENT["data"], **binary, **json_type)
    assert (status, same["id"]) == (202, one["id"])
    other = {**EVENT, "data": {"skillName": "nowhere"}, "id": "e-2"}
    kind = {"Content-Type": "application/cloudevents-batch+json"}
    status, batch = await post_body(client, path, [EVENT, other], **kind)
    assert (status, [item["status"] for item in batch["items"]]) == (202, [202, 422])
    kind = {"Content-Type": "Application/CloudEvents-Batch+JSON; charset=utf-8"}
    status, again = await post_body(client, path, [EVENT, EVENT], **kind)
    assert (status, len(again["items"])) == (202, 2)
    for wrong in (b"\xff", b'{"data":' + b"[" * 100_000):
        status, problem = await post_body(client, path, wrong, **{"Content-Type": STRUCTURED})
        assert (status, "No CloudEvent" in problem["detail"]) == (422, True)
    assert (await wait_for_end(client, one["id"]))["status"] == "ACKED"


@pytest.mark.parametrize(
    ("changes", "kind", "said"),
    [
        ({"specversion": "0.3"}, STRUCTURED, "specversion"),
        ({"type": "other"}, STRUCTURED, "dev.toolgate.skill.invocation.v1"),
        ({"data": {}}, STRUCTURED, "skillName"),
        ({}, "application/json", "ce-"),
        ({"id": None}, STRUCTURED, "id"),
        ({"correlationid": "a b"}, STRUCTURED, "correlationid"),
        ({"partitionkey": "a\n"}, STRUCTURED, "partitionkey"),
        ({"replyto": "a\n"}, STRUCTURED, "replyto"),
    ],
)
async def test_invalid_cloudevents_are_refused(
    client: Client, changes: dict[str, Any], kind: str, said: str
) -> None:
    """Invalid CloudEvents are refused (V02)."""
    body = {**EVENT, **changes}
    status, problem = await post_body(client, "/events/cloudevents", body, **{"Content-Type": kind})
    assert (status, said in problem["detail"]) == (422, True)


CE = {"ce-specversion": "1.0", "ce-id": "a b", "ce-type": EVENT["type"]}


async def test_an_event_is_one_invocation_in_every_mode(client: Client) -> None:
    """Attributes in headers are percent-decoded, and data may be base64 (mending 34)."""
    path, data = "/events/cloudevents", EVENT["data"]
    whole = {**EVENT, "id": "a b", "source": "/büro/100%"}
    encoded = base64.b64encode(json.dumps(data).encode()).decode()
    in_base64 = {**whole, "data_base64": encoded, "datacontenttype": "application/x+json"}
    del in_base64["data"]
    ids = []
    for body in (whole, in_base64):
        status, one = await post_body(client, path, body, **{"Content-Type": STRUCTURED})
        assert status == 202, one
        ids.append(one["id"])
    status, batch = await post_body(
        client, path, [in_base64], **{"Content-Type": "application/cloudevents-batch+json"}
    )
    ids.append(batch["items"][0]["body"]["id"])
    for kind in ("application/json; charset=utf-8", "application/vnd.shop+json"):
        for source in ("/b%C3%BCro/100%25", "/büro/100%", '"/b%c3%bcro\\/100%25"'):
            headers = {**CE, "ce-source": source, "Content-Type": kind}
            status, one = await post_body(client, path, data, **headers)
            assert status == 202, one
            ids.append(one["id"])
    assert set(ids) == {ids[0]}


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"ce-source": "/%FF"}, "The header ce-source is not UTF-8, percent-encoded"),
        ({"ce-subject": "%C3"}, "The header ce-subject is not UTF-8"),
        ({"Content-Type": "text/plain"}, "The data of an event is application/json, or +json"),
        ({"Content-Type": "application/cloudevents+xml"}, "application/json, or +json"),
    ],
)
async def test_headers_of_events_that_cannot_be_read_are_named(
    client: Client, headers: dict[str, str], said: str
) -> None:
    sound = {**CE, "ce-source": "/x", "Content-Type": "application/json"}
    status, problem = await post_body(client, "/events/cloudevents", b"{}", **{**sound, **headers})
    assert status == 422
    assert said in problem["detail"]


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"data": 1, "data_base64": "MQ=="}, "Expected data or data_base64, found both"),
        ({"data_base64": "?"}, "data_base64 is not valid base64"),
        ({"data_base64": "e30", "datacontenttype": "text/plain"}, "or +json, found 'text/plain'"),
        ({"data_base64": "e30="}, "skillName"),
    ],
)
async def test_data_in_base64_that_is_none_is_refused(
    client: Client, members: Any, said: str
) -> None:
    body = {name: value for name, value in EVENT.items() if name != "data"}
    kind = {"Content-Type": STRUCTURED}
    status, problem = await post_body(client, "/events/cloudevents", {**body, **members}, **kind)
    assert status == 422
    assert said in problem["detail"]


async def test_a_bad_event_of_a_batch_is_named_by_its_index(client: Client) -> None:
    """The sound events of a batch are accepted, and the others told one by one (mending 34)."""
    kind = {"Content-Type": "application/cloudevents-batch+json"}
    bad = [{**EVENT, "specversion": "0.3"}, {**EVENT, "type": "other"}, 7]
    path = "/events/cloudevents"
    status, batch = await post_body(client, path, [bad[0], EVENT, *bad[1:]], **kind)
    assert status == 202
    assert [one["status"] for one in batch["items"]] == [422, 202, 422, 422]
    for index in (0, 2, 3):
        assert f"The event at index {index}" in batch["items"][index]["body"]["detail"]
    status, batch = await post_body(client, path, bad, **kind)
    assert (status, len(batch["items"])) == (422, 3)  # so that it is not taken for accepted


async def test_the_cloudevents_webhook_handshake_is_answered(client: Client) -> None:
    """The OPTIONS handshake of CloudEvents' webhooks is answered (mending 34)."""
    url, origin = client.url + "/events/cloudevents", "emitter.example.com"
    asked = {"WebHook-Request-Origin": origin, "WebHook-Request-Rate": "120"}
    async with client.http.options(url, headers=asked) as response:
        assert response.status == 200
        assert response.headers["WebHook-Allowed-Origin"] == origin
        assert response.headers["WebHook-Allowed-Rate"] == "*"
        assert "POST" in response.headers["Allow"]
    async with client.http.options(url, headers={"WebHook-Request-Origin": "a b"}) as response:
        assert response.status == 422
    async with client.http.options(url) as response:
        assert "WebHook-Allowed-Origin" not in response.headers


@pytest.mark.parametrize("secret", [NEW, OLD])
async def test_a_webhook_becomes_an_invocation_once(client: Client, secret: str) -> None:
    """A webhook becomes an invocation once (V24)."""
    body = b'{"type": "paid", "pet": 7}'
    headers = sign("msg-1", int(time.time()), body, [secret])
    status, one = await post_body(client, "/events/hooks/paid", body, **headers)
    assert (status, one["principal"]) == (202, "shop")
    status, again = await post_body(client, "/events/hooks/paid", body, **headers)
    assert (status, again["id"]) == (202, one["id"])
    other = b'{"type": "paid", "pet": 8}'
    headers = sign("msg-1", int(time.time()), other, [secret])
    assert await post_body(client, "/events/hooks/paid", other, **headers) == (200, None)
    refund = b'{"type": "refund"}'
    headers = sign("msg-2", int(time.time()), refund, [secret])
    assert await post_body(client, "/events/hooks/paid", refund, **headers) == (200, None)
    headers = sign("msg-3", int(time.time()), b'{"type": "paid"}', [secret])
    assert (await post_body(client, "/events/hooks/paid", b'{"type": "paid"}', **headers))[0] == 422
    unfit = b'{"type": "paid", "pet": 7, "key": "a\\n"}'
    headers = sign("msg-4", int(time.time()), unfit, [secret])
    assert (await post_body(client, "/events/hooks/paid", unfit, **headers))[0] == 422


async def test_webhooks_without_a_valid_signature_are_refused(client: Client) -> None:
    """Webhooks without a valid signature are refused (V24)."""
    body, now = b'{"type": "paid", "pet": 7}', int(time.time())
    good = sign("msg-1", now, body, [NEW])
    stranger = f"whsec_{base64.b64encode(b'x' * 32).decode()}"
    for headers in (
        {},
        sign("msg-1", now, body, [stranger]),
        sign("msg-1", now - 400, body, [NEW]),
        sign("msg-1", now + 400, body, [NEW]),
        {**good, "webhook-id": "msg-2"},
        {**good, "webhook-signature": ""},
        {**good, "webhook-timestamp": "x"},
    ):
        assert (await post_body(client, "/events/hooks/paid", body, **headers))[0] == 401
    assert (await post_body(client, "/events/hooks/paid", body + b" ", **good))[0] == 401
    assert (await post_body(client, "/events/hooks/else", body, **good))[0] == 404
    async with client.http.get(f"{client.url}/events/hooks/paid") as response:
        assert response.status == 405
    assert (await got(client, ROOT))[1] == {"items": []}


async def test_completions_are_sent_to_webhooks(settings: Settings) -> None:
    """Completions are sent to webhooks (V20)."""
    receiver, gone = Receiver(), Receiver(410)
    async with serving(receiver) as url, serving(gone) as gone_url:
        webhooks = {
            "crm": EventWebhook(url=url, secret=NEW, old_secret=OLD, private=True),
            "gone": EventWebhook(url=gone_url, secret=NEW, private=True),
        }
        async with running(with_events(settings, webhooks=webhooks)) as client:
            one = await invoke_skill(client, "getPet", {"id": 7}, replyTo="webhook:crm")
            with anyio.fail_after(DEADLINE_S):
                while not receiver.heard:  # noqa: ASYNC110 - a server of the test
                    await anyio.sleep(0.02)
            headers, body = receiver.heard[0]
            for secret in (NEW, OLD):
                assert verify(headers, body, [secret], time.time()) == f"{one['id']}.0"
            event = json.loads(body)
            assert (event["type"], event["data"]["correlationId"], event["data"]["status"]) == (
                "dev.toolgate.skill.completion.v1",
                one["correlationId"],
                "ACKED",
            )
            for _ in range(2):
                two = await invoke_skill(client, "getPet", {"id": 7}, replyTo="webhook:gone")
                await wait_for_end(client, two["id"])
                await until(lambda: all_sent(client))
            assert len(gone.heard) == 1


async def test_accepted_test_event_enables_a_webhook_of_the_settings_again(
    settings: Settings,
) -> None:
    """A webhook of the settings that answered 410 cannot be put, so a test event enables it."""
    receiver = Receiver(410, 500)
    async with serving(receiver) as url:
        webhooks = {"gone": EventWebhook(url=url, secret=NEW, private=True)}
        async with running(with_events(settings, webhooks=webhooks)) as client:
            await invoke_skill(client, "getPet", {"id": 7}, replyTo="webhook:gone")
            await until(lambda: is_disabled(client))
            failure = {"done": False, "error": "status 500"}
            assert (await client.post(f"{HOOKS}/gone/tests", b""))[:2] == (200, failure)
            assert await is_disabled(client)
            assert (await client.post(f"{HOOKS}/gone/tests", b""))[1] == {"done": True}
            assert not await is_disabled(client)


async def test_first_failure_of_a_completion_is_logged_with_its_receiver(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the line an operator hears of a receiver that fails after three days."""
    async with serving(Receiver(500)) as url:
        webhooks = {"crm": EventWebhook(url=url, secret=NEW, private=True)}
        async with running(with_events(settings, webhooks=webhooks)) as client:
            await invoke_skill(client, "getPet", {"id": 7}, replyTo="webhook:crm")
            records = await until(
                lambda: [r for r in caplog.records if r.message == "completion_delayed"]
            )
    [record] = records
    assert (record.__dict__["target"], record.__dict__["reason"]) == ("crm", "status 500")


async def test_logs_of_completions_have_no_session_id(
    journal: Journal,
    events_database: DatabaseSettings,
    settings: Settings,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The id is what requests of the session are known by."""
    await accept_draft(journal, reply_to="session:s3ssion")
    for taken in await claim_calls(journal):
        await journal.end([end(taken)])

    async def notify(*_: Any) -> bool:
        raise Unavailable("The state is away")

    async with (
        Database.open(events_database, wait=False, migrate=False) as database,
        WebhookSender() as sender,
    ):
        outbox = outbox_of(database, journal, settings, sender)
        outbox._notify = notify
        async with anyio.create_task_group() as group:
            await outbox._send_some(group)
    [record] = [r for r in caplog.records if r.message == "completion_delayed"]
    assert "s3ssion" not in str(record.__dict__)


async def is_disabled(client: Client) -> bool:
    [webhook] = (await got(client, HOOKS))[1]["items"]
    return bool(webhook.get("disabled", False))


async def test_deliveries_are_listed_and_sent_again(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A receiver that was away, or said 410 by mistake, gets what it missed."""
    monkeypatch.setattr("gateway.wings.events.outbox.FIRST_S", 600.0)  # nothing is tried again
    receiver = Receiver(500, 200, 410)
    async with serving(receiver) as url:
        webhooks = {"crm": EventWebhook(url=url, secret=NEW, private=True)}
        async with running(with_events(settings, webhooks=webhooks)) as client:
            path, deliveries = f"{HOOKS}/crm", f"{HOOKS}/crm/deliveries"
            assert await got(client, deliveries) == (200, {"items": []})

            async def send(status: str, number: int = 1) -> Any:
                """The newest delivery, once that many have a status."""
                invocation = await invoke_skill(client, "getPet", {"id": 7}, replyTo="webhook:crm")
                await wait_for_end(client, invocation["id"])
                return await await_deliveries(status, number)

            async def await_deliveries(status: str, number: int) -> Any:
                async def look() -> Any:
                    items = (await got(client, f"{deliveries}?status={status}"))[1]["items"]
                    return items if len(items) == number and items[0]["attempts"] else None

                return (await until(look))[0]

            waiting = await send("PENDING")
            assert (waiting["error"], waiting["due"] > waiting["created"]) == ("status 500", True)
            sent = await send("ACKED")
            assert ("error" in sent, "due" in sent, "finished" in sent) == (False, False, True)
            failed = await send("FAILED")
            assert failed["error"] == "status 410"
            (status, page), least = await got(client, f"{deliveries}?limit=2"), waiting["id"]
            assert [item["id"] for item in page["items"]] == [failed["id"], sent["id"]]
            _, rest = await got(client, f"{deliveries}?limit=2&after={page['next']}")
            assert [item["id"] for item in rest["items"]] == [least]

            status, problem, _ = await client.post(f"{path}/redeliveries", {})
            assert (status, "answered 410" in problem["detail"]) == (409, True)
            assert (await client.post(f"{path}/tests", b""))[1] == {"done": True}
            status, again, _ = await client.post(f"{path}/redeliveries", {})
            assert (status, sorted(again["ids"])) == (200, sorted([waiting["id"], failed["id"]]))
            await await_deliveries("ACKED", 3)
            assert (await client.post(f"{path}/redeliveries", {}))[1] == {"count": 0, "ids": []}
            body = {"ids": [sent["id"], str(uuid.uuid4())]}
            _, chosen, _ = await client.post(f"{path}/redeliveries", body)
            assert chosen == {"count": 1, "ids": [sent["id"]]}
            await until(lambda: len(receiver.heard) == 7)
            ids = [headers["webhook-id"] for headers, _ in receiver.heard]
            assert (ids[1], ids[0] in ids[4:6], ids[2] in ids[4:6]) == (ids[6], True, True)

            for wrong, expected in (
                (await got(client, f"{HOOKS}/other/deliveries"), 404),
                (await got(client, f"{deliveries}?status=LATE"), 400),
                (await got(client, f"{deliveries}?after=eHh4"), 422),
                (await client.post(f"{HOOKS}/other/redeliveries", {}), 404),
                (await client.post(f"{path}/redeliveries", {"ids": ["x"]}), 422),
            ):
                assert wrong[0] == expected, wrong


async def test_deliveries_without_an_invocation_take_no_place_of_redeliveries(
    journal: Journal, events_database: DatabaseSettings
) -> None:
    webhooks = {"crm": EventWebhook(url="https://crm.example", secret=NEW)}
    await complete(journal, HOST, 3, "webhook:crm")
    async with (
        Database.open(events_database, wait=False, migrate=False) as database,
        WebhookSender() as sender,
    ):
        async with borrow(database.pool) as connection:
            await connection.execute("UPDATE outbox_t SET status = 'FAILED', finished_ts = now()")
            rows = await connection.execute("SELECT outbox_id::text FROM outbox_t ORDER BY seq")
            gone, *ids = [id_ async for (id_,) in rows]
            await connection.execute(
                "DELETE FROM invocation_t AS i USING outbox_t AS o"
                " WHERE o.outbox_id = %s AND o.invocation_id = i.invocation_id",
                [gone],
            )
        receivers = WebhookReceivers(database.pool, webhooks, sender, tenant=HOST, keys=Keys())
        deliveries = WebhookDeliveries(database.pool, receivers, lambda: None)
        names = {"webhook": "crm"}
        for body, expected in (
            (Redelivery(limit=1), ids[:1]),
            (Redelivery(limit=1), ids[1:]),
            (Redelivery(), []),
            (Redelivery((gone, ids[0])), ids[:1]),
        ):
            request = OperationInput(Principal("ada", HOST), names, query=None, body=body)
            assert [*(await deliveries.redeliver(request)).ids] == expected
        assert await journal.erase(HOST, "ada") == 2
        request = OperationInput(
            Principal("ada", HOST), names, query=None, body=Redelivery(tuple(ids))
        )
        assert (await deliveries.redeliver(request)).count == 0


async def test_results_of_erased_invocations_are_not_sent(
    journal: Journal, events_database: DatabaseSettings, settings: Settings
) -> None:
    """A completion without a result would be taken for the outcome."""
    receiver = Receiver()
    await complete(journal, HOST, 1, "webhook:crm")
    assert await journal.erase(HOST, "ada") == 1

    async def are_all_sent() -> bool:
        return (await journal.counts(HOST)).unsent == 0

    async with serving(receiver) as url:
        webhooks = {"crm": EventWebhook(url=url, secret=NEW, private=True)}
        async with sending(events_database, journal, settings, webhooks=webhooks):
            await until(are_all_sent)
    assert receiver.heard == []


async def test_forms_of_a_webhook_lead_back_and_show_a_refused_test_event(
    settings: Settings,
) -> None:
    async with serving(Receiver(500)) as url:
        webhooks = {"crm": EventWebhook(url=url, secret=NEW, private=True)}
        async with console(with_events(settings, webhooks=webhooks)) as (_, browser):
            back = 'href="/console/webhooks/crm">Back<'
            for act in ("redeliver", "test_webhook", "delete_webhook"):
                _, page = await browser.get(f"do/events_{act}?name.webhook=crm")
                assert back in page, act
            form = {"name.webhook": "crm", "act": "do"}
            for expected, absent in (("This did not work", "Done."), ("Done.", "did not work")):
                _, page = await browser.post("do/events_test_webhook", form)
                assert (back in page, expected in page, absent in page) == (True, True, False)


async def test_redirect_of_a_receiver_is_named_as_the_mistake(settings: Settings) -> None:
    async with serving(Receiver(302)) as url:
        webhooks = {"moved": EventWebhook(url=url, secret=NEW, private=True)}
        async with running(with_events(settings, webhooks=webhooks)) as client:
            answer = (await client.post(f"{HOOKS}/moved/tests", b""))[1]
            assert answer["error"] == "status 302 (redirects are not followed)"


@pytest.mark.parametrize("language", ["python", "sh"])
def test_signatures_are_checked_by_the_recipes_of_the_chapter(
    tmp_path: Path, language: str
) -> None:
    chapter = (Path(__file__).parents[3] / "docs/events.md").read_text()
    section = chapter.partition("## Signatures of webhooks")[2].partition("\n## ")[0]
    recipe = section.partition(f"```{language}\n")[2].partition("```")[0]
    assert recipe
    body, now = b'{"pet": "Z\xc3\xbcrich\\n"}', int(time.time())
    headers = sign("e1.0", now, body, [OLD, NEW])
    if language == "python":
        names: dict[str, Any] = {}
        exec(recipe, names)
        assert names["is_genuine"](NEW, headers, body)
        assert not names["is_genuine"](NEW, headers, body + b" ")
        assert not names["is_genuine"](NEW, sign("e1.0", now - 600, body, [NEW]), body)
    else:
        (tmp_path / "body.json").write_bytes(body)
        env = {**os.environ, "SECRET": NEW, "ID": "e1.0", "TIMESTAMP": str(now)}
        ran = subprocess.run(
            ["sh", "-c", recipe], cwd=tmp_path, env=env, capture_output=True, check=True
        )
        assert f"v1,{ran.stdout.decode().strip()}" in headers["webhook-signature"].split()


HOOKS = "/events/v1/webhooks"


async def test_webhooks_are_registered_over_rest(settings: Settings) -> None:
    """Webhooks are registered over REST (V24)."""
    receiver, key = Receiver(), base64.b64encode(bytes(32)).decode()
    sealing = replace(with_events(settings), secrets=SecretsSettings(key, ()))
    async with serving(receiver) as url, running(sealing) as client:
        for wrong in ("http://a.example/x", "https://127.0.0.1/x", "https://10.0.0.1/"):
            status, problem = await put(client, "crm", wrong)
            assert status == 422
            assert "an entry of events.webhooks with `private: true`" in problem["detail"]
        status, made = await put(client, "crm", "https://crm.example/hooks")
        assert (status, made["stored"]) == (200, True)
        assert "secret" not in (await put(client, "crm", "https://crm.example/x"))[1]
        at_once = await gather(*(put(client, "at-once", "https://a.example/") for _ in range(8)))
        assert len([one for _, one in at_once if "secret" in one]) == 1
        async with client.http.delete(f"{client.url}{HOOKS}/at-once") as response:
            assert response.status == 204
        async with await psycopg.AsyncConnection.connect(settings.database.url) as connection:
            # No address of a test is public.
            await connection.execute("UPDATE webhook_t SET url = %s", [url])
            found = await connection.execute("SELECT sealed FROM secret_t")
            [(sealed,)] = await found.fetchall()
        assert made["secret"].removeprefix("whsec_").encode() not in sealed
        one = await invoke_skill(client, "getPet", {"id": 7}, replyTo="webhook:crm")
        [(headers, body)] = await until(lambda: receiver.heard)
        assert verify(headers, body, [made["secret"]], time.time()) == f"{one['id']}.0"
        _, rotated, _ = await client.post(f"{HOOKS}/crm/rotations", b"")
        assert (await client.post(f"{HOOKS}/crm/tests", b""))[1] == {"done": True}
        headers, body = receiver.heard[-1]
        for secret in (made["secret"], rotated["secret"]):
            assert verify(headers, body, [secret], time.time()).startswith("test.")
        listed = (await got(client, HOOKS))[1]["items"]
        assert listed == [{"name": "crm", "url": url, "stored": True}]
        async with client.http.delete(f"{client.url}{HOOKS}/crm") as response:
            assert response.status == 204
        body = {"skillName": "getPet", "arguments": {"id": 7}, "replyTo": "webhook:crm"}
        assert (await client.post(ROOT, body))[0] == 422
        assert (await client.post(f"{HOOKS}/crm/rotations", b""))[0] == 404


async def test_webhooks_are_managed_on_the_command_line(settings: Settings) -> None:
    receiver, key = Receiver(410), base64.b64encode(bytes(32)).decode()
    webhooks = {"own": EventWebhook(url="http://127.0.0.1/", secret=OLD, private=True)}
    sealing = replace(with_events(settings, webhooks=webhooks), secrets=SecretsSettings(key, ()))
    async with serving(receiver) as url, running(sealing) as client:

        async def run_webhooks(*args: str) -> tuple[int, str]:
            code, out, err = await command("webhooks", *args, "--url", client.url)
            return code, err if code else out.strip()

        assert verifies((await run_webhooks("add", "crm", "https://crm.example/hooks"))[1])
        changed = (await run_webhooks("add", "crm", "https://crm.example/x"))[1]
        assert ("https://crm.example/x" in changed, "secret" in changed) == (True, False)
        assert verifies((await run_webhooks("rotate", "crm"))[1])
        async with await psycopg.AsyncConnection.connect(settings.database.url) as connection:
            await connection.execute("UPDATE webhook_t SET url = %s", [url])
        assert "crm: " in (await run_webhooks("test", "crm"))[1]
        assert await run_webhooks("test", "crm") == (0, "crm took the event.")
        assert await run_webhooks("resend", "crm") == (0, "Sent again to crm: 0.")
        _, listed = await run_webhooks("list")
        assert [line.split()[0] for line in listed.splitlines()] == ["crm", "own"]
        assert await run_webhooks("remove", "crm") == (0, "Removed crm.")
        assert "409" in (await run_webhooks("remove", "own"))[1]
        assert [one["name"] for one in json.loads((await run_webhooks("list", "--json"))[1])] == [
            "own"
        ]


def verifies(secret: str) -> bool:
    return bool(verify(sign("m", 0, b"{}", [secret]), b"{}", [secret], 0.0))


async def test_webhooks_of_the_settings_and_without_a_key_are_refused(settings: Settings) -> None:
    webhooks = {"own": EventWebhook(url="https://a.example/", secret=NEW)}
    async with running(with_events(settings, webhooks=webhooks)) as client:
        status, problem = await put(client, "crm", "https://crm.example/hooks")
        assert (status, "secrets.key" in problem["detail"]) == (503, True)
        assert (await put(client, "own", "https://b.example/"))[0] == 409
        [listed] = (await got(client, HOOKS))[1]["items"]
        assert listed == {"name": "own", "url": "https://a.example/", "stored": False}


async def put(client: Client, name: str, url: str) -> tuple[int, Any]:
    async with client.http.put(f"{client.url}{HOOKS}/{name}", json={"url": url}) as response:
        return response.status, await response.json(content_type=None)


async def all_sent(client: Client) -> bool:
    return bool((await got(client, "/events/v1/stats"))[1]["unsent"] == 0)


async def test_completions_are_read_from_topics(client: Client) -> None:
    """Completions are read from topics (V03)."""
    path = "/events/v1/topics/agent-events"
    first = await got(client, path)
    assert first == (200, {"items": [], "next": ""})
    ids = []
    for number in (7, 8):
        one = await invoke_skill(client, "getPet", {"id": number}, replyTo="agent-events")
        ids.append((await wait_for_end(client, one["id"]))["id"])
    _, page = await got(client, f"{path}?limit=1&waitS=30")
    _, rest = await got(client, f"{path}?after={page['next']}&waitS=30")
    read = [item["id"].partition(".")[0] for item in (*page["items"], *rest["items"])]
    assert read == ids
    assert (await got(client, "/events/v1/topics/else"))[0] == 404


async def test_an_open_session_is_notified_of_the_completion(client: Client) -> None:
    """An open session is notified of the completion (V20)."""
    session = await client.session("2025-11-25")
    async with listening(client, "/mcp", session.headers) as events:
        arguments = {"skillName": "getPet", "arguments": {"id": 7}, "replyTo": "session"}
        await session.call("tools/call", {"name": "events_invoke", "arguments": arguments})
        with anyio.fail_after(DEADLINE_S):
            while (message := await events.message()).get("method") != "notifications/message":
                pass
    assert message["params"]["data"]["data"]["status"] == "ACKED"


async def test_completions_of_an_erased_caller_do_not_block_later_completions(
    client: Client,
) -> None:
    session = await client.session("2025-11-25")
    arguments = {"skillName": "report", "delayS": 3600, "replyTo": "session"}
    await session.call("tools/call", {"name": "events_invoke", "arguments": arguments})
    [one] = (await got(client, ROOT))[1]["items"]
    body = {"principal": one["principal"]}
    assert (await client.post("/events/v1/erasures", body))[1] == {"invocations": 1}
    await until(lambda: all_sent(client))
    other = await invoke_skill(client, "getPet", {"id": 7}, replyTo="agent-events")
    await wait_for_end(client, other["id"])
    await until(lambda: all_sent(client))


async def test_completions_wait_while_the_database_is_away(
    journal: Journal,
    events_database: DatabaseSettings,
    settings: Settings,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await accept_draft(journal, reply_to="webhook:none")
    [taken] = await claim_calls(journal)
    assert await journal.end([end(taken)])

    async with Database.open(events_database, wait=False, migrate=False) as closed:
        pass
    async with (
        Database.open(events_database, wait=False, migrate=False) as database,
        WebhookSender() as sender,
        anyio.create_task_group() as group,
    ):
        outbox = outbox_of(database, Journal(closed.pool), settings, sender)
        group.start_soon(outbox.run)
        with anyio.fail_after(DEADLINE_S):
            while "journal_unavailable" not in caplog.text:  # noqa: ASYNC110 - a log
                await anyio.sleep(0.02)
        group.cancel_scope.cancel()


def outbox_of(
    database: Database,
    journal: Journal,
    settings: Settings,
    sender: WebhookSender,
    *,
    webhooks: Mapping[str, EventWebhook] = NO_WEBHOOKS,
    notify: Notify = refuse_notice,
) -> CompletionOutbox:
    events = with_events(settings, result_bytes=250).events
    receivers = WebhookReceivers(database.pool, webhooks, sender, tenant=HOST, keys=Keys())
    return CompletionOutbox(
        database.pool,
        journal,
        events,
        notify=notify,
        sender=sender,
        receivers=receivers,
        publish=None,
    )


@asynccontextmanager
async def sending(
    database_settings: DatabaseSettings, journal: Journal, settings: Settings, **more: Any
) -> AsyncIterator[None]:
    """An outbox that sends."""
    async with (
        Database.open(database_settings, wait=False, migrate=False) as database,
        WebhookSender() as sender,
        anyio.create_task_group() as group,
    ):
        group.start_soon(outbox_of(database, journal, settings, sender, **more).run)
        yield
        group.cancel_scope.cancel()


async def complete(journal: Journal, host: str, count: int, reply_to: str) -> None:
    """End `count` invocations of a tenant, whose completions go to `reply_to`."""
    for number in range(count):
        caller = Raw(b'{"principal":{"id":"ada","tenant":"%b"}}' % host.encode())
        draft = {"number": number, "host_id": host, "principal": caller}
        await accept_draft(journal, reply_to=reply_to, **draft)
    for taken in await claim_calls(journal, count, host=host):
        await journal.end([end(taken)])


async def test_a_dead_webhook_leaves_a_place_to_other_webhooks_of_its_tenant(
    journal: Journal, events_database: DatabaseSettings, settings: Settings
) -> None:
    heard = anyio.Event()
    dead: list[str] = []

    async def receiver(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/dead":
            dead.append("asked")
            await heard.wait()
        heard.set()
        await Response()(scope, receive, send)

    async with serving(receiver) as url:
        webhooks = {
            name: EventWebhook(f"{url}/{name}", NEW, private=True) for name in ("dead", "good")
        }
        await complete(journal, HOST, 40, "webhook:dead")
        await complete(journal, HOST, 1, "webhook:good")
        async with sending(events_database, journal, settings, webhooks=webhooks):
            with anyio.fail_after(DEADLINE_S):
                await heard.wait()
    assert len(dead) < 20  # none of them was asked again


async def test_two_dead_webhooks_leave_places_to_other_webhooks_of_their_tenant(
    journal: Journal,
    events_database: DatabaseSettings,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.http_client.webhooks.TIMEOUT_S", 0.5)
    heard = anyio.Event()
    dead: list[str] = []

    async def receiver(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != "/good":
            dead.append(scope["path"])
            await heard.wait()
        heard.set()
        await Response()(scope, receive, send)

    async with serving(receiver) as url:
        names = ("dead", "silent", "good")
        webhooks = {name: EventWebhook(f"{url}/{name}", NEW, private=True) for name in names}
        for name, count in zip(names, (60, 60, 1), strict=True):
            await complete(journal, HOST, count, f"webhook:{name}")
        async with sending(events_database, journal, settings, webhooks=webhooks):
            with anyio.fail_after(DEADLINE_S):
                await heard.wait()
    assert len(dead) < 60


async def test_a_tenant_without_completions_at_work_has_the_next_place(
    journal: Journal,
    events_database: DatabaseSettings,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.wings.events.outbox.AT_ONCE", 20)
    begun: list[str] = []
    next_end = anyio.Semaphore(0)

    async def notify(
        _principal: Principal, _toolset: str | None, session: str, _message: bytes
    ) -> bool:
        begun.append(session)
        await next_end.acquire()
        return True

    await complete(journal, OTHER, 40, "session:busy")
    async with sending(events_database, journal, settings, notify=notify):
        with anyio.fail_after(DEADLINE_S):
            await until(lambda: len(begun) == 20)
            await complete(journal, HOST, 1, "session:quiet")
            next_end.release()
            await until(lambda: len(begun) == 21)
    assert begun[20] == "quiet"


async def test_a_page_of_a_topic_is_no_larger_than_a_result_may_be(
    journal: Journal, events_database: DatabaseSettings, settings: Settings
) -> None:
    ids = [await accept_draft(journal, number=n, reply_to="topic:t") for n in range(5)]
    for taken in await claim_calls(journal, 5):
        await journal.end([end(taken, result=b'"' + b"x" * 98 + b'"')])
    other = await accept_draft(journal, number=9, reply_to="topic:t")
    for taken in await claim_calls(journal):
        await journal.end([end(taken, error=b"{}")])
    assert await journal.redrive(HOST, [other]) == [other]
    async with (
        Database.open(events_database, wait=False, migrate=False) as database,
        WebhookSender() as sender,
    ):
        outbox = outbox_of(database, journal, settings, sender)
        first, place = await outbox.read(HOST, "t", "", 10)
        rest, at_end = await outbox.read(HOST, "t", place, 2)
        none, after = await outbox.read(HOST, "t", at_end, 10)
    assert [row.invocation_id for row in (*first, *rest)] == ids
    assert (len(first), none, after != at_end) == (3, [], True)


@pytest.mark.parametrize(
    "url", ["http://example.com/", "https://127.0.0.1/", "https://10.0.0.1/", "https://[::1]/"]
)
def test_webhook_urls_must_be_public(url: str) -> None:
    """Webhook URLs must be public (V06)."""
    with pytest.raises(ToolgateError, match="refused unless `private: true` is beside it"):
        check_webhook("one", EventWebhook(url=url, secret=NEW))
    check_webhook("one", EventWebhook(url=url, secret=NEW, private=True))


def test_signatures_match_the_example_of_standard_webhooks() -> None:
    """The example of the specification (V24)."""
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    headers = sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}', [secret])
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    with pytest.raises(SignatureRefused):
        verify(headers, b'{"test": 2432232314}', [secret], 0)


async def test_completions_of_a_tenant_do_not_wait_for_a_thousand_of_another(
    journal: Journal, events_database: DatabaseSettings, settings: Settings
) -> None:
    """Each tenant with completions has its turn, however many others have (mending 5)."""
    id_ = await accept_draft(journal, reply_to="session:gone", host_id=OTHER)
    for taken in await claim_calls(journal, host=OTHER):
        await journal.end([end(taken)])
    async with (
        Database.open(events_database, migrate=False) as database,
        WebhookSender() as sender,
        anyio.create_task_group() as group,
    ):
        async with borrow(database.pool) as connection:
            await connection.execute(
                "INSERT INTO outbox_t (host_id, invocation_id, kind, target, due_ts)"
                " SELECT %s, gen_random_uuid(), 'session', 'gone', now() - interval '1 hour'"
                " FROM generate_series(1, 1500)",
                [HOST],
            )
        outbox = outbox_of(database, journal, settings, sender)
        await outbox._send_some(group)
        async with borrow(database.pool) as connection:
            rows = await connection.execute(
                "SELECT attempt FROM outbox_t WHERE invocation_id = %s", [id_]
            )
            assert await rows.fetchall() == [(1,)]
        group.cancel_scope.cancel()


async def test_a_claim_does_not_read_the_rows_of_busy_webhooks(
    journal: Journal, events_database: DatabaseSettings, settings: Settings
) -> None:
    """Few rows are read, however many of webhooks without a free place are due."""
    async with (
        Database.open(replace(events_database, pool_max=1), migrate=False) as database,
        WebhookSender() as sender,
    ):
        async with borrow(database.pool) as connection:
            await connection.execute(
                "INSERT INTO outbox_t (host_id, invocation_id, kind, target, due_ts)"
                " SELECT %(host)s::uuid, gen_random_uuid(), 'webhook', 'busy' || n %% 3,"
                " now() - interval '1 hour' FROM generate_series(1, 20000) AS n"
                " UNION ALL SELECT %(host)s, gen_random_uuid(), kind, target, now()"
                " FROM (VALUES ('webhook', 'free'), ('session', 'open')) AS v (kind, target)",
                {"host": HOST},
            )
        outbox = outbox_of(database, journal, settings, sender)
        outbox._to_webhooks.update({(HOST, f"busy{n}"): 10 for n in range(3)})
        before = await completions_read(database)
        entries = await outbox._claim_entries(HOST, 10)
        rows = await completions_read(database) - before
    assert sorted((entry.kind, entry.target) for entry in entries) == [
        ("session", "open"),
        ("webhook", "free"),
    ]
    assert rows < 100


async def completions_read(database: Database) -> int:
    """Completions that statements on the only connection of the pool have read."""
    async with borrow(database.pool) as connection:  # the counts are written as it ends
        await connection.execute("SELECT pg_stat_force_next_flush()")
    async with borrow(database.pool) as connection:
        counts = await connection.execute(
            "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables"
            " WHERE relname = 'outbox_t'"
        )
        ((count,),) = await counts.fetchall()
        return int(count)
