"""People connect accounts by OAuth, whose tokens are renewed."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from config.settings import DatabaseSettings
from config.sources import Connect
from gateway.connections.oauth.server_metadata import AuthorizationServer
from gateway.connections.oauth_accounts import OAuthRefused, check_pin
from registry.database.postgres import borrow
from tests.fixtures_gateway import DEADLINE_S
from tests.fixtures_servers import serving
from tests.gateway.connections.oauth_service import Drive, SlowDrive
from tests.gateway.connections.services import Notes, Office, description, link_of, token_of
from tests.gateway.connections.test_fronts import call_stateless
from tests.gateway.login.company import Answer, Browser, browsing, company, fields
from tests.servers.authorization import Late

pytestmark = pytest.mark.anyio
NO_ENV: Mapping[str, str] = {}


@asynccontextmanager
async def drive_office(
    database: DatabaseSettings,
    folder: Path,
    drive: Drive,
    *,
    url: str = "",
    more: Mapping[str, str] = NO_ENV,
    **connect: Any,
) -> AsyncIterator[Office]:
    """A gateway in front of `drive`, which is served unless it is already."""
    late = Late()
    async with serving(late) as own:
        if not drive.url:
            drive.url, late.app = own, drive.app
        path = folder / "drive.json"
        oauth = {"type": "http", "scheme": "bearer"}
        path.write_text(json.dumps(description(drive.url, {"oauth": []}, oauth=oauth)))
        settings = {
            "mode": "user",
            "issuer": drive.url,
            "client": {"id": "gateway", "secret": "gateway-secret"},
            "scopes": ["notes.read"],
            **connect,
        }
        env = {
            "TOOLGATE_CONNECTIONS__REFUSED_TOKEN_S": "0.001",
            "TOOLGATE_SOURCES__DRIVE__OPENAPI": str(path),
            "TOOLGATE_SOURCES__DRIVE__BASE_URL": drive.url,
            "TOOLGATE_SOURCES__DRIVE__CONNECT": json.dumps(settings),
            **more,
        }
        async with company(database, url=url, env=env) as made:
            yield Office(made, Notes())


async def authorize(browser: Browser, link: str) -> Answer:
    """Go the whole way; the last page."""
    page = await browser.get(link)
    assert page.status == 200, page.text
    away = await browser.post(link, {**fields(page.text), "choice": "authorize"})
    assert away.status == 303, away.text
    back = await browser.get(away.location)
    return await browser.get(back.location, site="cross-site")


@asynccontextmanager
async def connected_office(
    database: DatabaseSettings, folder: Path, drive: Drive, **more: Any
) -> AsyncIterator[tuple[Office, Browser, str]]:
    """As `drive_office`, with the browser and the token of a person who has connected."""
    async with drive_office(database, folder, drive, **more) as made, browsing() as browser:
        token = await token_of(made, browser)
        await authorize(browser, link_of(await made.call(token)))
        yield made, browser, token


async def test_an_account_is_connected_by_oauth(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    drive = Drive()
    async with (
        drive_office(database_settings, tmp_path, drive) as made,
        browsing() as browser,
    ):
        token = await token_of(made, browser)
        link = link_of(await made.call(token))
        page = await browser.get(link)
        assert "127.0.0.1" in page.text
        done = await authorize(browser, link)
        assert done.status == 200, done.text
        assert (await made.call(token))["result"]["structuredContent"] == {"owner": "ann"}
        (asked,) = drive.asked
        assert asked["scope"] == "notes.read"
        assert asked["redirect_uri"] == f"{made.url}/connect/drive/callback"
        assert "resource" not in asked
        assert drive.requests == {"authorization_code": 1}


async def test_an_ended_token_is_renewed_once_for_fifty_calls_at_two_gateways(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    """Two gateways share the connection; the refresh token is good once."""
    drive = Drive(slow_s=0.3)
    async with (
        drive_office(database_settings, tmp_path, drive) as made,
        drive_office(database_settings, tmp_path, drive, url=made.url) as other,
        browsing() as browser,
    ):
        token = await token_of(made, browser)
        await authorize(browser, link_of(await made.call(token)))
        assert (await other.call(token))["result"]["structuredContent"] == {"owner": "ann"}
        drive.end_tokens()
        owners: list[Any] = []

        async def call(at: Office) -> None:
            owners.append((await at.call(token))["result"].get("structuredContent"))

        with anyio.fail_after(DEADLINE_S):
            async with anyio.create_task_group() as tasks:
                for number in range(50):
                    tasks.start_soon(call, (made, other)[number % 2])
        assert owners == [{"owner": "ann"}] * 50
        assert drive.requests["refresh_token"] == 1


async def test_an_outage_of_the_server_forgets_nothing_and_an_end_asks_again(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    drive = Drive()
    async with connected_office(database_settings, tmp_path, drive) as (made, browser, token):
        drive.end_tokens()
        drive.down = True
        refused = await made.call(token)
        assert "could not be renewed" in json.dumps(refused)
        assert "/connect" not in json.dumps(refused)
        drive.down = False
        assert (await made.call(token))["result"]["structuredContent"] == {"owner": "ann"}
        drive.end_tokens()
        drive.refresh.clear()
        again = await made.call(token)
        assert again["result"]["_meta"]["toolgate/connect"]["reason"] == "expired"
        await authorize(browser, link_of(again))
        assert (await made.call(token))["result"]["structuredContent"] == {"owner": "ann"}


async def test_scopes_that_no_row_takes_fail_a_connection_and_a_renewal(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    drive = Drive(grants_scope="notes\0")
    async with (
        drive_office(database_settings, tmp_path, drive) as made,
        browsing() as browser,
    ):
        token = await token_of(made, browser)
        link = link_of(await made.call(token))
        assert (await authorize(browser, link)).status == 502
        drive.grants_scope = ""
        await authorize(browser, link)
        drive.end_tokens()
        for grant in drive.refresh.values():
            grant.scope = "notes\0"
        assert "could not be renewed" in json.dumps(await made.call(token))


async def test_a_renewal_that_is_not_answered_in_time_is_tried_again_at_once(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    drive = Drive()
    limits = {
        "TOOLGATE_CONNECTIONS__REQUEST_S": "0.9",
        "TOOLGATE_CONNECTIONS__RENEW_TIMEOUT_S": "1",
    }
    async with connected_office(database_settings, tmp_path, drive, more=limits) as (
        made,
        _browser,
        token,
    ):
        drive.end_tokens()
        drive.slow_s = DEADLINE_S
        assert "could not be renewed" in json.dumps(await made.call(token))
        people = made.company.gateway.connections
        assert people is not None
        async with borrow(people.connector._pool()) as connection:
            rows = await connection.execute("SELECT renewing_ts, failure <> '' FROM connection_t")
            assert await rows.fetchall() == [(None, True)]


async def test_requests_to_connect_and_renewals_are_counted_by_source(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    """Operators see in the metrics that a service refuses the accounts of their people."""
    drive = Drive()
    async with (
        drive_office(database_settings, tmp_path, drive) as made,
        browsing() as browser,
    ):
        registry = made.company.gateway.metrics.registry

        def count(name: str, **labels: str) -> float | None:
            name = f"toolgate_connection_{name}_total"
            return registry.get_sample_value(name, {"source": "drive", **labels})

        token = await token_of(made, browser)
        await authorize(browser, link_of(await made.call(token)))
        assert count("requests", reason="missing") == 1
        drive.end_tokens()
        drive.down = True
        await made.call(token)
        assert count("renewals", outcome="failed") == 1
        drive.down = False
        await made.call(token)
        assert count("renewals", outcome="renewed") == 1
        drive.end_tokens()
        drive.refresh.clear()
        await made.call(token)
        assert count("renewals", outcome="refused") == 1
        assert count("requests", reason="expired") == 1
        assert count("renewals", outcome="renewed") == 1


async def test_connections_are_counted_by_source_and_state(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    """CON-14."""
    drive = Drive()
    async with (
        drive_office(database_settings, tmp_path, drive) as made,
        browsing() as browser,
    ):
        people = made.company.gateway.connections
        assert people is not None

        async def states() -> dict[str, float]:
            await people.count()
            metrics = people.connector.metrics.collect()
            (gauge,) = (each for each in metrics if each.name == "toolgate_connections")
            return {each.labels["state"]: each.value for each in gauge.samples}

        token = await token_of(made, browser)
        assert await states() == {}
        await authorize(browser, link_of(await made.call(token)))
        assert await states() == {"ok": 1}
        drive.end_tokens()
        drive.down = True
        await made.call(token)
        assert await states() == {"failing": 1}
        async with borrow(people.connector._pool()) as connection:
            await connection.execute("UPDATE login_person_t SET disabled_ts = now()")
        assert await states() == {"suspended": 1}


async def test_scopes_granted_before_are_asked_for_with_a_refused_scope(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    drive = Drive()
    async with connected_office(database_settings, tmp_path, drive) as (made, browser, token):
        drive.needs = "notes.write"
        refused = await made.call(token)
        assert refused["result"]["_meta"]["toolgate/connect"]["reason"] == "scopes"
        await authorize(browser, link_of(refused))
        assert drive.asked[-1]["scope"].split() == ["notes.read", "notes.write"]
        assert (await made.call(token))["result"]["structuredContent"] == {"owner": "ann"}


async def test_a_service_that_never_gives_enough_scopes_is_not_followed_for_ever(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    """CON-13: another tool still asks."""
    drive = Drive(needs="notes.write", grants_scope="notes.read")
    async with connected_office(database_settings, tmp_path, drive) as (made, browser, token):
        for _ in range(3):
            link = link_of(await made.call(token))
            link_of(await made.call(token))  # again, before the person has acted
            await authorize(browser, link)
        refused = json.dumps(await made.call(token))
        assert "connections.scope_rounds" in refused
        assert "/connect?" not in refused
        link_of(await made.call(token, "add_note"))


async def test_an_answer_counts_in_the_browser_that_left_alone(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    drive = Drive()
    async with (
        drive_office(database_settings, tmp_path, drive) as made,
        browsing() as ann,
        browsing() as bob,
    ):
        link = link_of(await made.call(await token_of(made, ann)))
        await token_of(made, bob, "bob")
        page = await ann.get(link)
        away = await ann.post(link, {**fields(page.text), "choice": "authorize"})
        back = await ann.get(away.location)
        await bob.get(f"{made.url}/connect")
        stolen = await bob.get(back.location, site="cross-site")
        assert stolen.status == 400
        assert drive.requests["authorization_code"] == 0
        mixed = back.location.replace("/drive/", "/other/")
        assert (await ann.get(mixed, site="cross-site")).status == 400


async def test_disconnecting_revokes_at_the_service(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    drive = Drive()
    async with connected_office(database_settings, tmp_path, drive) as (made, browser, token):
        page = await browser.get(f"{made.url}/connect")
        assert "drive" in page.text
        (id_,) = [part.split('"')[0] for part in page.text.split('name="end" value="')[1:]]
        await browser.post(f"{made.url}/connect", {**fields(page.text), "end": id_})
        link_of(await made.call(token))
        assert len(drive.revoked) == 1
        assert drive.revoked[0].startswith("refresh-")


async def test_a_service_that_names_another_login_is_not_followed(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    """An operator has to name the new server first."""
    drive, elsewhere = Drive(), Drive()
    async with (
        drive_office(database_settings, tmp_path, drive) as made,
        serving(elsewhere.app) as elsewhere.url,
        browsing() as browser,
    ):
        token = await token_of(made, browser)
        await authorize(browser, link_of(await made.call(token)))
        people = made.company.gateway.connections
        assert people is not None
        pinned = await people.connector.connections.pinned_server("drive")
        assert pinned is not None
        server = msgspec.convert(pinned, AuthorizationServer)
        check_pin(server, pinned, Connect(), "drive")
        moved = msgspec.structs.replace(server, token_endpoint=f"{elsewhere.url}/token")
        with pytest.raises(OAuthRefused, match="another authorization server"):
            check_pin(moved, pinned, Connect(), "drive")
        check_pin(moved, pinned, Connect(issuer=elsewhere.url), "drive")


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ('acr_values="phr", max_age="300"', {"acr_values": "phr", "max_age": "300"}),
        ('acr_values="phr", max_age="-1"', {"acr_values": "phr"}),
    ],
)
async def test_a_stricter_login_is_asked_for_at_the_service_s_server(
    database_settings: DatabaseSettings, tmp_path: Path, more: str, expected: dict[str, str]
) -> None:
    """RFC 9470: the token is good, and the login that it came of is not; nothing is renewed."""
    drive = Drive()
    async with connected_office(database_settings, tmp_path, drive) as (made, browser, token):
        drive.acr = "phr"
        drive.challenge = f'Bearer error="insufficient_user_authentication", {more}'
        answer = await made.call(token)
        assert answer["result"]["_meta"]["toolgate/connect"]["reason"] == "login"
        await authorize(browser, link_of(answer))
        asked = drive.asked[-1]
        assert {
            name: asked[name] for name in ("acr_values", "max_age") if name in asked
        } == expected
        assert (await made.call(token))["result"]["structuredContent"] == {"owner": "ann"}
        assert drive.requests["refresh_token"] == 0


async def test_a_session_at_another_gateway_is_told_of_the_end_of_its_elicitation(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    """MCP 2025-11-25: the client calls again by itself."""
    drive, url = Drive(), {"elicitation": {"url": {}}}
    shared = {"TOOLGATE_STATE__BACKEND": "postgres"}
    async with (
        drive_office(database_settings, tmp_path, drive, more=shared) as made,
        drive_office(database_settings, tmp_path, drive, url=made.url, more=shared) as other,
        browsing() as browser,
    ):
        token = await token_of(made, browser)
        for node in (made, other):
            await node.company.gateway.shared.bus.following.wait()
        headers = await other.begin(token, "2025-11-25", url)
        call = {"name": "list_notes", "arguments": {}}
        stream = {**headers, "Accept": "text/event-stream"}
        async with other.company.http.get(f"{other.url}/mcp", headers=stream) as events:
            asked = await other.send(headers, "tools/call", call)
            again = await other.send(headers, "tools/call", call)
            (elicitation,) = asked["error"]["data"]["elicitations"]
            assert again["error"]["data"]["elicitations"] == [elicitation]
            await authorize(browser, elicitation["url"])
            with anyio.fail_after(DEADLINE_S):
                while b"elicitation/complete" not in (line := await events.content.readline()):
                    pass
            told = json.loads(line.removeprefix(b"data: "))
            assert told["method"] == "notifications/elicitation/complete"
            assert told["params"] == {"elicitationId": elicitation["elicitationId"]}
        answer = await other.send(headers, "tools/call", call)
        assert answer["result"]["structuredContent"] == {"owner": "ann"}


async def test_a_retry_waits_for_the_rights_that_a_person_is_asked_for(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    drive, capabilities = Drive(), {"elicitation": {"url": {}}}
    async with connected_office(database_settings, tmp_path, drive) as (made, browser, token):
        drive.needs = "notes.write"
        asked = (await call_stateless(made, token, capabilities))["result"]
        ((name, request),) = asked["inputRequests"].items()
        results: list[Any] = []

        async def retry() -> None:
            answers = {name: {"action": "accept"}}
            state = asked["requestState"]
            results.append(
                await call_stateless(
                    made, token, capabilities, inputResponses=answers, requestState=state
                )
            )

        with anyio.fail_after(DEADLINE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(retry)
                await authorize(browser, request["params"]["url"])
        assert results[0]["result"]["structuredContent"] == {"owner": "ann"}, results


async def test_an_idle_connection_ends_until_its_person_connects_again(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    """Calls that it does not serve are no use of it."""
    drive = Drive()
    async with connected_office(database_settings, tmp_path, drive) as (made, browser, token):
        assert "structuredContent" in (await made.call(token))["result"]
        gateway = made.company.gateway
        assert gateway.connections is not None
        connector = gateway.connections.connector
        async with borrow(connector._pool()) as connection:
            long_ago = "UPDATE connection_t SET used_ts = now() - interval '400 days'"
            await connection.execute(long_ago)
        for _ in range(2):
            await connector.load_now()
            asked = await made.call(token)
            assert asked["result"]["_meta"]["toolgate/connect"]["reason"] == "expired"
        await authorize(browser, link_of(asked))
        assert "structuredContent" in (await made.call(token))["result"]


async def test_a_connection_that_ends_while_its_token_is_renewed_makes_no_call(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    """Neither does an account that its owner takes back: no request goes without a token."""
    drive = SlowDrive(lasts_s=0)
    async with connected_office(database_settings, tmp_path, drive) as (made, _browser, token):

        async def call() -> None:
            link_of(await made.call(token))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            with anyio.fail_after(DEADLINE_S):
                await drive.asked_for.wait()
            gateway = made.company.gateway
            assert gateway.connections is not None
            async with borrow(gateway.connections.connector._pool()) as connection:
                await connection.execute("DELETE FROM connection_t")
            drive.gate.set()
        assert drive.requests["notes"] == 0
        assert len(drive.revoked) == 1
