"""Accounts that their owners share with people of some roles (CON-16)."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from config.settings import DatabaseSettings
from gateway.app.method_tables import resource_reader
from gateway.cli.local import open_operations
from gateway.cli.running.client import OperationRefused
from gateway.context import Context, Identity, Principal
from registry.access.api_keys import ApiKeys
from registry.database.postgres import borrow
from schemas.errors import Forbidden
from schemas.jsonrpc import Request
from schemas.mcp.revisions import V2025_11_25
from tests.fixtures_database import HOST
from tests.fixtures_gateway import DEADLINE_S
from tests.gateway.connections.oauth_service import Drive, SlowDrive
from tests.gateway.connections.services import (
    Office,
    connect,
    description,
    link_of,
    office,
    rows_of,
    token_of,
)
from tests.gateway.connections.test_leavers import pool_of
from tests.gateway.connections.test_oauth import authorize, drive_office
from tests.gateway.login.company import Answer, Browser, browsing, fields
from tests.polling import until

pytestmark = pytest.mark.anyio
KEY = "ann-key-123456"
SHARED = {"mode": "user_or_shared", "sharers": ["lead"]}


async def token_with(made: Office, browser: Browser, name: str, *roles: str) -> str:
    made.company.identity.person["roles"] = [*roles]
    return await token_of(made, browser, name)


async def share(made: Office, browser: Browser, roles: str) -> Answer:
    page = await browser.get(f"{made.url}/connect")
    (id_,) = [part.split('"')[0] for part in page.text.split('name="end" value="')[1:]]
    form = {**fields(page.text), "share": id_, "roles": roles}
    done = await browser.post(f"{made.url}/connect", form)
    assert done.status == 303
    return await browser.get(f"{made.url}/connect")


@asynccontextmanager
async def team(
    database: DatabaseSettings, folder: Path, mode: str = "user_or_shared", **env: str
) -> AsyncIterator[tuple[Office, Browser, Browser, str, str]]:
    """Ann, a lead, who has connected her account, and Bob, who is in the team."""
    settings = {"mode": mode, "sharers": ["lead"]}
    async with (
        office(database, folder, connect=settings, env=env) as made,
        browsing() as ann,
        browsing() as bob,
    ):
        of_ann = await token_with(made, ann, "ann", "lead")
        page = await ann.get(f"{made.url}/connect")
        begun = await ann.post(f"{made.url}/connect", {**fields(page.text), "connect": "notes"})
        asked = await ann.get(begun.location)
        assert "roles that you share it with" in asked.text
        await connect(ann, begun.location, KEY)
        yield made, ann, bob, of_ann, await token_with(made, bob, "bob", "team")


def owner_of(answer: dict[str, Any]) -> Any:
    return answer.get("result", {}).get("structuredContent", {}).get("owner")


def text_of(answer: dict[str, Any]) -> str:
    return json.dumps(answer)


@pytest.mark.parametrize("mode", ["shared", "user_or_shared"])
async def test_people_of_a_role_use_a_shared_account_and_the_audit_log_has_its_owner(
    database_settings: DatabaseSettings, tmp_path: Path, mode: str
) -> None:
    """CT9: the record has caller and owner."""
    async with team(database_settings, tmp_path, mode) as (made, ann, bob, of_ann, of_bob):
        assert owner_of(await made.call(of_bob)) is None
        page = await share(made, ann, "team, other")
        assert "Shared with other, team" in page.text
        for token in (of_ann, of_bob, of_bob):
            assert owner_of(await made.call(token)) == "ann"
        stranger = await token_with(made, bob, "cy", "guest")
        assert owner_of(await made.call(stranger)) is None
        uses = "SELECT principal, owner, connection IS NULL FROM audit_t WHERE source = 'notes'"
        records = await rows_of(made, f"{uses} AND outcome = 'ok' ORDER BY sequence")
        ours, foreign = ("corp:ann", None, False), ("corp:bob", "corp:ann", False)
        assert records == [ours, foreign, foreign]
        await share(made, ann, "")
        assert owner_of(await made.call(of_bob)) is None


async def test_an_own_account_goes_before_a_shared_account(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    async with team(database_settings, tmp_path) as (made, ann, bob, of_ann, of_bob):
        await connect(bob, link_of(await made.call(of_bob)), "bob-key-123456")
        await share(made, ann, "team")
        assert owner_of(await made.call(of_bob)) == "bob"
        assert owner_of(await made.call(of_ann)) == "ann"


async def test_changed_roles_bind_former_users_of_a_shared_account(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    """Also where somebody of the new roles has called before them."""
    async with team(database_settings, tmp_path) as (made, ann, bob, _, of_bob):
        await share(made, ann, "team")
        assert owner_of(await made.call(of_bob)) == "ann"
        of_cy = await token_with(made, bob, "cy", "other")
        await share(made, ann, "other")
        assert owner_of(await made.call(of_cy)) == "ann"
        assert owner_of(await made.call(of_bob)) is None


async def test_an_own_account_goes_before_a_shared_account_that_was_used_before(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    async with team(database_settings, tmp_path) as (made, ann, bob, _, of_bob):
        await share(made, ann, "team")
        assert owner_of(await made.call(of_bob)) == "ann"
        page = await bob.get(f"{made.url}/connect")
        begun = await bob.post(f"{made.url}/connect", {**fields(page.text), "connect": "notes"})
        await connect(bob, begun.location, "bob-key-123456")
        of_cy = await token_with(made, ann, "cy", "team")
        assert owner_of(await made.call(of_cy)) == "ann"
        assert owner_of(await made.call(of_bob)) == "bob"


async def test_an_own_account_serves_nobody_where_all_are_shared(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    """Nobody without the right is asked to connect, or may."""
    async with team(database_settings, tmp_path, "shared") as (made, _, bob, of_ann, of_bob):
        for token in (of_ann, of_bob):
            refused = text_of(await made.call(token))
            assert "an account that is shared" in refused
            assert "/connect?" not in refused
        page = await bob.get(f"{made.url}/connect")
        assert 'name="connect"' not in page.text
        form = {"_csrf": fields(page.text).get("_csrf", ""), "connect": "notes"}
        answer = await bob.post(f"{made.url}/connect", form)
        assert "ticket" not in answer.location
        assert made.notes.seen == []


async def test_accounts_are_shared_by_their_owners_alone_and_with_the_right(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    async with team(database_settings, tmp_path) as (made, ann, bob, _, of_bob):
        await connect(bob, link_of(await made.call(of_bob)), "bob-key-123456")
        page = await share(made, bob, "team")
        assert "Shared with" not in page.text
        own = await ann.get(f"{made.url}/connect")
        (id_,) = [part.split('"')[0] for part in own.text.split('name="end" value="')[1:]]
        await token_with(made, bob, "bob", "lead")
        page = await bob.get(f"{made.url}/connect")
        form = {**fields(page.text), "share": id_, "roles": "team"}
        await bob.post(f"{made.url}/connect", form)
        assert "Shared with" not in (await ann.get(f"{made.url}/connect")).text
        async with open_operations(made.company.gateway.settings) as operations:
            with pytest.raises(OperationRefused, match="themselves"):
                await operations.call(
                    "shareConnection", {"connection": id_, "body": {"roles": ["team"]}}
                )
        assert ("share", "deny") in await rows_of(made, "SELECT method, decision FROM audit_t")


async def test_operators_take_a_shared_account_back(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    async with team(database_settings, tmp_path) as (made, ann, _, _, of_bob):
        await share(made, ann, "team")
        assert owner_of(await made.call(of_bob)) == "ann"
        async with open_operations(made.company.gateway.settings) as operations:
            (entry,) = (await operations.call("listConnections", {})).value["items"]
            assert entry["shared_with"] == ["team"]
            await operations.call(
                "shareConnection", {"connection": entry["id"], "body": {"roles": []}}
            )

        async def is_refused() -> bool:
            return owner_of(await made.call(of_bob)) is None

        await until(is_refused)


async def test_disabling_the_owner_suspends_a_shared_account(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    async with team(database_settings, tmp_path, "shared") as (made, ann, _, _, of_bob):
        await share(made, ann, "team")
        assert owner_of(await made.call(of_bob)) == "ann"
        async with borrow(pool_of(made)) as connection:
            await connection.execute(
                "UPDATE login_person_t SET disabled_ts = now() WHERE principal = 'corp:ann'"
            )

        async def is_suspended() -> bool:
            return "(suspended)" in text_of(await made.call(of_bob))

        await until(is_suspended)
        assert "/connect?" not in text_of(await made.call(of_bob))


async def test_revoking_an_api_key_suspends_its_shared_account(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    """CON-15; operators share accounts of keys, which have no browser."""
    env = {"TOOLGATE_AUTH__API_KEYS": "true"}
    async with (
        office(database_settings, tmp_path, connect=SHARED, env=env) as made,
        browsing() as bob,
    ):
        keys = ApiKeys(pool_of(made), HOST)
        stored, key = await keys.create("bot")
        await made.company.gateway.access.reload("keys")
        body = {"schemes": {"key": {"value": KEY}}}
        headers = {"Authorization": f"Bearer {key}"}
        link = link_of(await made.call(key))
        async with made.company.http.post(link, json=body, headers=headers) as done:
            assert done.status == 200
        async with open_operations(made.company.gateway.settings) as operations:
            (entry,) = (await operations.call("listConnections", {})).value["items"]
            asked = {"connection": entry["id"], "body": {"roles": ["team"]}}
            await operations.call("shareConnection", asked)
            of_bob = await token_with(made, bob, "bob", "team")

            async def is_lent() -> bool:
                return owner_of(await made.call(of_bob)) == "ann"

            async def is_suspended() -> bool:
                return not await is_lent()

            await until(is_lent)
            assert await keys.revoke(stored.id)
            await until(is_suspended)
            (entry,) = (await operations.call("listConnections", {})).value["items"]
            assert entry["state"] == "suspended"


async def test_rules_read_whether_the_account_is_shared(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    rule = {"effect": "deny", "when": "connection.shared && !tool.readOnly"}
    env = {"TOOLGATE_POLICY__RULES__SHARED": json.dumps(rule)}
    async with team(database_settings, tmp_path, **env) as (made, ann, _, of_ann, of_bob):
        await share(made, ann, "team")
        assert owner_of(await made.call(of_ann, "add_note")) == "ann"
        assert owner_of(await made.call(of_bob)) == "ann"
        calls = len(made.notes.seen)
        assert "Unknown tool" in text_of(await made.call(of_bob, "add_note"))
        assert len(made.notes.seen) == calls


async def test_a_shared_account_works_in_absence_only_where_its_owner_allows_that(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    """CON-19: the tick is the owner's."""
    settings = {**SHARED, "absent": "allow"}
    async with (
        office(database_settings, tmp_path, connect=settings) as made,
        browsing() as ann,
    ):
        token = await token_with(made, ann, "ann", "lead")
        await connect(ann, link_of(await made.call(token)), KEY)
        await share(made, ann, "team")
        gateway = made.company.gateway
        catalog = gateway.catalogs.of(HOST)
        tool = catalog.find("list_notes")
        assert tool is not None
        assert gateway.connections is not None
        bob = Principal("corp:bob", HOST, roles=frozenset({"team"}))
        later = Context(Identity(bob, verified=True), V2025_11_25, "r", absent=True)
        asked = catalog.sources["notes"], tool.binding.security, later
        with pytest.raises(Forbidden, match="owner has not allowed"):
            await gateway.connections.connector.account(*asked)
        page = await ann.get(f"{made.url}/connect")
        (id_,) = [part.split('"')[0] for part in page.text.split('name="away" value="')[1:]]
        form = {**fields(page.text), "away": id_, "allowed": "yes"}
        await ann.post(f"{made.url}/connect", form)

        async def is_allowed() -> bool:
            with suppress(Forbidden):
                account = await gateway.connections.connector.account(*asked)
                return account is not None and account.lender == "corp:ann"
            return False

        await until(is_allowed)


async def test_a_shared_token_is_renewed_once_and_asks_its_owner_alone_at_its_end(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    drive = Drive()
    async with (
        drive_office(database_settings, tmp_path, drive, **SHARED) as made,
        browsing() as ann,
        browsing() as bob,
    ):
        of_ann = await token_with(made, ann, "ann", "lead")
        await authorize(ann, link_of(await made.call(of_ann)))
        await share(made, ann, "team")
        of_bob = await token_with(made, bob, "bob", "team")
        assert owner_of(await made.call(of_bob)) == "ann"
        drive.end_tokens()
        for _ in range(3):
            assert owner_of(await made.call(of_bob)) == "ann"
        assert owner_of(await made.call(of_ann)) == "ann"
        assert drive.requests["refresh_token"] == 1
        drive.end_tokens()
        drive.refresh.clear()
        refused = text_of(await made.call(of_bob))
        assert "Its owner has to connect it again" in refused
        assert "/connect?" not in refused
        again = await made.call(of_ann)
        assert again["result"]["_meta"]["toolgate/connect"]["reason"] == "expired"
        await authorize(ann, link_of(again))
        assert owner_of(await made.call(of_bob)) == "ann"  # it is shared as before


async def test_a_resource_that_a_call_reads_may_take_another_account() -> None:
    """The account that rules have read is that of the call alone."""
    borrows: list[bool | None] = []

    async def outcome(context: Context, _request: Request) -> None:
        borrows.append(context.borrows)

    bob = Identity(Principal("corp:bob", HOST), verified=True)
    await resource_reader(outcome)("files://a", Context(bob, V2025_11_25, "r", borrows=True))
    assert borrows == [None]


@pytest.mark.parametrize("odd", ["a\0b", "\u202ea", "a" * 200])
async def test_odd_values_of_forms_and_tools_change_nothing(
    database_settings: DatabaseSettings, tmp_path: Path, odd: str
) -> None:
    async with team(database_settings, tmp_path) as (made, ann, _, of_ann, _):
        await import_shop(made)
        url = f"{made.url}/connect"
        page = await ann.get(url)
        forms = [{name: odd} for name in ("end", "away", "share", "connect")]
        for form in (*forms, {"connect": "shop"}):
            done = await ann.post(url, {**fields(page.text), "roles": "team", **form})
            assert (done.status, done.location) == (303, "/connect")
        shared = await share(made, ann, f"{odd}, guest")
        assert "Shared with guest<" in shared.text
        call = {"action": "disconnect", "connection": odd}
        asked = await made.call(of_ann, "connections", arguments=call)
        assert "expected the id" in text_of(asked)
        assert owner_of(await made.call(of_ann)) == "ann"


async def import_shop(made: Office) -> None:
    """A source that the settings do not name."""
    document = json.dumps(description("http://127.0.0.1:1")).replace("_note", "_item")
    body = {"kind": "openapi", "name": "shop", "document": document}
    async with open_operations(made.company.gateway.settings) as operations:
        await operations.call("importSource", {"body": {**body, "base_url": "https://s.example"}})

    async def is_imported() -> bool:
        return "shop" in made.company.gateway.catalogs.of(HOST).sources

    await until(is_imported)


async def expect_refusal(made: Office, token: str) -> None:
    assert "own account there" in text_of(await made.call(token))


async def test_roles_that_change_while_a_token_is_renewed_count_afterwards(
    database_settings: DatabaseSettings, tmp_path: Path
) -> None:
    drive = SlowDrive(lasts_s=0)
    async with (
        drive_office(database_settings, tmp_path, drive, **SHARED) as made,
        browsing() as ann,
        browsing() as bob,
    ):
        of_ann = await token_with(made, ann, "ann", "lead")
        await authorize(ann, link_of(await made.call(of_ann)))
        await share(made, ann, "team")
        of_bob = await token_with(made, bob, "bob", "team")
        of_cy = await token_with(made, bob, "cy", "other")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(expect_refusal, made, of_bob)
            with anyio.fail_after(DEADLINE_S):
                await drive.asked_for.wait()
            await share(made, ann, "other")
            drive.lasts_s = 3600
            drive.gate.set()
        assert owner_of(await made.call(of_cy)) == "ann"
        assert owner_of(await made.call(of_bob)) is None
