"""Users of the gateway's own: invitations, passwords, and the end of what they have."""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, LiteralString

import anyio
import jwt
import pytest
from cryptography.exceptions import UnsupportedAlgorithm
from msgspec.structs import replace
from starlette.routing import Route

from config.load import load
from config.settings import DatabaseSettings
from examples.login.client import Memory
from gateway.audit.records import AuditEntry
from gateway.login import passwords as module
from gateway.login.passwords import PasswordRefused, Passwords, hash_of, is_password, weakness
from registry.database.postgres import borrow
from registry.login.password_users import Users
from tests.gateway.login.company import Browser, Company, browsing, company, fields, query_of
from tests.gateway.login.test_official import Desk, connecting

pytestmark = pytest.mark.anyio

PASSWORD = "three otters juggle plums"
NEW = "a green lamp sings at noon"


@dataclass
class Town(Company):
    """A company with users of its own."""

    users: Users

    @property
    def tenant(self) -> str:
        return self.gateway.settings.tenant.host_id

    async def invitation(self, name: str = "ann", *roles: str, lasts_s: float = 600) -> str:
        ticket = await self.users.add(self.tenant, name, roles, lasts_s, again=False)
        assert ticket is not None
        return f"{self.url}/login/invitation?ticket={ticket}"

    async def user(self, browser: Browser, name: str = "ann", *roles: str) -> None:
        """A user who has set the password."""
        url = await self.invitation(name, *roles)
        answer = await set_password(browser, url)
        assert answer.status == 303, answer.text

    async def grant_tokens(self, browser: Browser, **changes: str) -> tuple[str, dict[str, Any]]:
        client = (await self.register())["client_id"]
        back = await log_in(browser, self.authorize(client, **changes))
        status, tokens = await self.take_code(client, back.query["code"])
        assert status == 200, tokens
        return client, tokens


PARAMETERS = module.ARGON2


@pytest.fixture(autouse=True)
def quick_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hash with the real parameters takes 30 ms."""
    monkeypatch.setattr(module, "ARGON2", "argon2id$64$1$1")


@asynccontextmanager
async def town(
    database: DatabaseSettings,
    url: str = "",
    env: Mapping[str, str] | None = None,
    **changes: Any,
) -> AsyncIterator[Town]:
    async with AsyncExitStack() as stack:
        defaults = load(None, {}).login.password
        password = replace(defaults, **changes)
        made = await stack.enter_async_context(
            company(database, url=url, env=env, users=True, providers={}, password=password)
        )
        feed = made.gateway.feed
        assert feed.database is not None
        users = Users(feed.database.pool, made.gateway.settings.tenant.host_id)
        yield Town(made.url, made.gateway, made.identity, made.http, users)


async def log_in(browser: Browser, url: str, name: str = "ann", password: str = PASSWORD) -> Any:
    page = await browser.get(url)
    assert page.status == 200, page.text
    form = {**fields(page.text), "choice": "password", "name": name, "password": password}
    return await browser.post(url, form)


async def set_password(
    browser: Browser, url: str, new: str = PASSWORD, repeated: str | None = None, old: str = ""
) -> Any:
    page = await browser.get(url)
    assert page.status == 200, page.text
    form = {"new": new, "repeated": new if repeated is None else repeated, "password": old}
    return await browser.post(url, {**fields(page.text), **form})


async def in_table(made: Town, text: LiteralString) -> Any:
    """The first value of a statement, in a transaction of its own."""
    async with borrow(made.users._pool) as connection:
        rows = await connection.execute(text)
        row = await rows.fetchone() if rows.description else None
    return None if row is None else row[0]


class UserDesk(Desk):
    async def redirect(self, url: str) -> None:
        self.logins += 1
        self.back = (await log_in(self.browser, url)).query


async def test_an_official_client_logs_in_with_a_password(
    database_settings: DatabaseSettings,
) -> None:
    async with town(database_settings) as made, browsing() as browser:
        await made.user(browser, "ann", "clerk")
        desk, memory = UserDesk(browser), Memory()
        async with connecting(made, desk, memory) as (client, _):
            await client.list_tools()
        assert desk.logins == 1
        assert memory.tokens is not None
        claims = jwt.decode(memory.tokens.access_token, options={"verify_signature": False})
        assert (claims["sub"], claims["roles"]) == ("user:ann", ["clerk"])
        assert claims["scope"] == "tools:read tools:write"


async def test_an_invitation_sets_a_password_once(database_settings: DatabaseSettings) -> None:
    async with town(database_settings) as made, browsing() as browser, browsing() as thief:
        url = await made.invitation()
        for _ in range(2):
            page = await thief.get(url)  # such as a scanner of mails
            assert (page.status, "ann" in page.text) == (200, True)
        assert (await set_password(browser, url, "short")).status == 403
        assert (await set_password(browser, url, PASSWORD, NEW)).status == 403
        forged = {"new": NEW, "repeated": NEW}
        evil = {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}
        own = fields((await browser.get(url)).text)
        assert (await browser.post(url, {**forged, **own}, evil)).status == 403
        assert "once more" in (await browser.post(url, forged)).text
        assert (await set_password(browser, url)).status == 303
        assert (await thief.get(url)).status == 404
        assert (await thief.post(url, forged)).status == 404
        sent = await log_in(browser, f"{made.url}/login")
        assert sent.location.endswith("/login/sessions")
        page = await browser.get(f"{made.url}/login/sessions")
        assert "user:ann" in page.text


async def test_an_invitation_ends(database_settings: DatabaseSettings) -> None:
    """An invitation is no good after its time, after a new one, and for a disabled user."""
    async with town(database_settings) as made, browsing() as browser:
        old = await made.invitation("old", lasts_s=-1)
        assert (await browser.get(old)).status == 404
        first = await made.invitation("ann")
        second = await made.users.invite(made.tenant, "ann", 600)
        assert (await browser.get(first)).status == 404
        url = f"{made.url}/login/invitation?ticket={second}"
        assert (await browser.get(url)).status == 200
        await made.users.set_disabled(made.tenant, "ann", True)
        assert (await browser.get(url)).status == 404


async def test_an_invitation_used_twice_at_once_sets_one_password(
    database_settings: DatabaseSettings,
) -> None:
    async with town(database_settings) as made:
        ticket = query_of(await made.invitation())["ticket"]
        done: list[bool] = []

        async def accept(number: int) -> None:
            done.append(await made.users.accept(ticket, f"hash {number}") is not None)

        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for number in range(4):
                    tasks.start_soon(accept, number)
        assert sorted(done) == [False, False, False, True]


async def test_a_wrong_name_costs_as_much_as_a_wrong_password(
    database_settings: DatabaseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody learns who has an account: the text, the status and the hashes are the same."""
    async with town(database_settings) as made, browsing() as browser:
        await made.user(browser)
        await made.user(browser, "off")
        await made.users.set_disabled(made.tenant, "off", True)
        await made.invitation("waits")
        await log_in(browser, f"{made.url}/login", "nobody", "x")  # makes the hash of nobody
        hashed: list[str] = []
        derive = module._derive

        def counting(password: str, parameters: str, salt: bytes) -> bytes:
            hashed.append(parameters)
            return derive(password, parameters, salt)

        monkeypatch.setattr(module, "_derive", counting)
        answers = []
        for name in ("ann", "nobody", "off", "waits", "a\0b", "x" * 300):
            answer = await log_in(browser, f"{made.url}/login", name, "wrong")
            answers.append((answer.status, answer.text.count("Name or password is wrong.")))
        assert set(answers) == {(403, 1)}
        assert len(hashed) == len(answers)
        assert len(set(hashed)) == 1


async def test_guesses_wait_and_a_stranger_delays_nobody(
    database_settings: DatabaseSettings,
) -> None:
    async with (
        town(database_settings, failures=2, delay_s=600) as made,
        browsing() as browser,
        browsing() as another,
    ):
        await made.user(browser)
        url = f"{made.url}/login"
        assert (await log_in(browser, url, password="wrong")).status == 403
        for _ in range(3):  # at another address
            await made.users.count_attempt("ann", "198.51.100.7", 2, 600)
        assert await made.users.count_attempt("ann", "198.51.100.7", 2, 600) > 0
        assert (await log_in(another, url)).status == 303  # and forgets the failure here
        for _ in range(2):
            assert (await log_in(browser, url, password="wrong")).status == 403
        refused = await log_in(browser, url)  # the right one, at once
        assert refused.status == 429
        assert re.search("Try again in [1-9]", refused.text)
        assert (await log_in(browser, url, "ben", "wrong")).status == 403  # another name


async def test_waits_grow_and_attempts_at_once_are_all_counted(
    database_settings: DatabaseSettings,
) -> None:
    async with town(database_settings) as made:
        waits: list[float] = []

        async def attempt() -> None:
            waits.append(await made.users.count_attempt("ann", "192.0.2.1", 3, 100))

        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for _ in range(8):
                    tasks.start_soon(attempt)
        assert waits.count(0.0) == 3
        growing = []
        for _ in range(8):
            await in_table(made, "UPDATE login_failure_t SET next_ts = last_ts")
            await attempt()
            text = "SELECT extract(epoch FROM next_ts - last_ts)::int FROM login_failure_t"
            growing.append(await in_table(made, f"{text} WHERE failures > 3"))
        assert growing == [2, 4, 8, 16, 32, 64, 100, 100]


@pytest.mark.parametrize("change", ["disable", "remove", "roles", "invitation", "page"])
async def test_a_change_of_a_user_ends_their_logins(
    database_settings: DatabaseSettings, change: str
) -> None:
    async with town(database_settings) as made, browsing() as browser:
        await made.user(browser, "ann", "clerk")
        client, tokens = await made.grant_tokens(browser)
        assert await made.status(tokens["access_token"]) == 200
        match change:
            case "disable":
                await made.users.set_disabled(made.tenant, "ann", True)
            case "remove":
                await made.users.remove(made.tenant, "ann")
            case "roles":
                await made.users.set_roles(made.tenant, "ann", ())
            case "invitation":
                ticket = await made.users.invite(made.tenant, "ann", 600)
                await set_password(browser, f"{made.url}/login/invitation?ticket={ticket}", NEW)
            case _:
                url = f"{made.url}/login/password"
                assert (await set_password(browser, url, NEW, old="wrong")).status == 403
                assert (await set_password(browser, url, NEW, old=PASSWORD)).status == 303
        await made.gateway.access.reload("revocations")
        assert await made.status(tokens["access_token"]) == 401
        status, refused = await made.refresh(client, tokens["refresh_token"])
        assert (status, refused["error"]) == (400, "invalid_grant")
        page = await browser.get(f"{made.url}/login/sessions")
        assert (page.status == 200) is (change == "page")  # the browser of the change goes on
        again = await log_in(browser, made.authorize(client))
        expected = {"roles": 303}.get(change, 403)
        assert again.status == expected
        if change in {"invitation", "page"}:
            assert (await log_in(browser, made.authorize(client), password=NEW)).status == 303


async def test_a_login_that_is_under_way_ends_with_its_user(
    database_settings: DatabaseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who is disabled while the password is hashed gets no login."""
    async with town(database_settings) as made, browsing() as browser:
        await made.user(browser)
        check = Passwords.check

        async def slow(self: Passwords, password: str, hashed: str | None) -> bool:
            right = await check(self, password, hashed)
            await made.users.set_disabled(made.tenant, "ann", True)
            return right

        monkeypatch.setattr(Passwords, "check", slow)
        answer = await log_in(browser, f"{made.url}/login")
        assert (answer.status, "disabled" in answer.text) == (403, True)


async def test_a_refresh_reads_the_roles_of_the_user_again(
    database_settings: DatabaseSettings,
) -> None:
    """A refresh reads the user: what another way has changed counts, and who is gone gets none."""
    async with town(database_settings) as made, browsing() as browser:
        await made.user(browser, "ann", "clerk")
        client, tokens = await made.grant_tokens(browser)
        await in_table(made, "UPDATE login_user_t SET roles = '{}'")
        _, following = await made.refresh(client, tokens["refresh_token"])
        assert following["scope"] == "tools:read"
        await in_table(made, "UPDATE login_user_t SET disabled_ts = now()")
        status, _ = await made.refresh(client, following["refresh_token"])
        assert status == 400
        assert await made.status(following["access_token"]) == 401


async def test_the_name_of_a_removed_user_is_given_again_only_if_that_is_said(
    database_settings: DatabaseSettings,
) -> None:
    async with town(database_settings) as made, browsing() as browser:
        await made.user(browser)
        await log_in(browser, f"{made.url}/login")
        assert await made.users.add(made.tenant, "ann", (), 600, again=True) is None
        await made.users.remove(made.tenant, "ann")
        assert await made.users.add(made.tenant, "ann", (), 600, again=False) is None
        assert await made.users.add(made.tenant, "ann", (), 600, again=True)


async def test_without_users_there_are_no_passwords(database_settings: DatabaseSettings) -> None:
    async with company(database_settings) as made, browsing() as browser:
        page = await browser.get(f"{made.url}/login")
        assert 'type="password"' not in page.text
        form = {**fields(page.text), "choice": "password", "name": "ann", "password": PASSWORD}
        assert (await browser.post(f"{made.url}/login", form)).status == 200
        for path in ("/login/password", "/login/invitation?ticket=x"):
            assert (await browser.get(made.url + path)).status == 404


@pytest.mark.parametrize(
    "password",
    [
        *("", "short", "passwordpassword1!", "Toolgate-Gateway-2026", "annannannannannann1"),
        *("aaaaaaaaaaaaaaaaaaaa", "abcdefghijklmnopqrs", "12345678901234567890"),
        *("blue42blue42blue42", "qwertyuiopasdfghjkl", "CorrectHorseBatteryStaple", "x" * 257),
        "\uff50assword\uff30ASSWORD1!!",
    ],
)
def test_some_passwords_are_refused(password: str) -> None:
    assert weakness(password, "ann", 15)


@pytest.mark.parametrize(
    "password", [PASSWORD, NEW, "8f2kQz71LmWp0Xy", "四十匹の猫が月の裏で静かに眠る夜"]
)
def test_other_passwords_are_accepted(password: str) -> None:
    assert weakness(password, "ann", 15) == ""


def test_a_hash_names_its_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ARGON2", PARAMETERS)
    hashed = hash_of(PASSWORD)
    assert hashed.startswith("argon2id$19456$2$1$")
    assert is_password(PASSWORD, hashed)
    assert not is_password(PASSWORD + "s", hashed)
    weak = module._encode(
        "scrypt$1024$8$1", b"s" * 16, module._derive("x", "scrypt$1024$8$1", b"s" * 16)
    )
    assert is_password("x", weak)


def test_passwords_are_hashed_by_scrypt_without_argon2(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks(**_more: object) -> None:
        raise UnsupportedAlgorithm("no argon2")

    monkeypatch.setattr(module, "Argon2id", lacks)
    monkeypatch.setattr(module, "SCRYPT", "scrypt$1024$8$1")
    assert hash_of("x").startswith("scrypt$1024$8$1$")


async def test_too_many_passwords_at_once_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most so many are hashed at once, and so many wait."""
    monkeypatch.setattr(module, "WAITING", 0)
    with pytest.raises(PasswordRefused, match="Too many people"):
        await Passwords(1).hash("x")


async def test_no_log_has_an_invitation(
    database_settings: DatabaseSettings, caplog: pytest.LogCaptureFixture
) -> None:
    """USR-1: whoever reads the access log must not be able to set the password."""
    caplog.set_level("DEBUG")
    env = {"TOOLGATE_LOGGING__ACCESS": "true"}
    async with town(database_settings, env=env) as made, browsing() as browser:
        url = await made.invitation()
        ticket = query_of(url)["ticket"]
        await browser.get(f"{url}x")
        assert (await set_password(browser, url)).status == 303
    records = [vars(record) for record in caplog.records if record.name.startswith("toolgate")]
    requests = [record["path"] for record in records if record["name"] == "toolgate.access"]
    assert "/login/invitation" in requests
    assert ticket not in str(records)


async def test_no_route_has_a_secret_in_its_path(database_settings: DatabaseSettings) -> None:
    """Paths are logged, by this gateway, its audit and by proxies; queries are not by either of
    its own."""
    async with town(database_settings) as made:
        server = made.gateway.login._server  # type: ignore[union-attr]
        assert server is not None
        paths = [route.path for route in server.routes if isinstance(route, Route)]
    assert "/login/invitation" in paths
    parameters = re.findall(r"{(\w+)", " ".join(paths))
    assert {*parameters} == {"provider", "name"}


async def test_an_erased_user_is_gone(database_settings: DatabaseSettings) -> None:
    async with town(database_settings) as made, browsing() as browser:
        await made.user(browser)
        _, tokens = await made.grant_tokens(browser)
        await made.gateway.events.person_erased.publish(made.tenant, "user:ann")
        assert await made.users.all(made.tenant) == []
        assert await made.status(tokens["access_token"]) == 401
        async with browsing() as another:
            back = await log_in(another, made.authorize((await made.register())["client_id"]))
            assert (back.status, back.location) == (403, "")
        assert await made.users.add(made.tenant, "ann", (), 600, again=False) is not None


async def test_guesses_leave_few_records(
    database_settings: DatabaseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The audit has the first of each name, and the number of the others: at any rate a stranger
    writes as much as an interval has names."""
    records: list[AuditEntry] = []
    async with town(database_settings, failures=2, delay_s=600) as made, browsing() as browser:
        await made.user(browser)
        auditing = made.gateway.access.auditing
        monkeypatch.setattr(auditing._writer, "add", records.append)
        url = f"{made.url}/login"
        for number in range(6):
            assert (await log_in(browser, url, password="wrong")).status in (403, 429)
            await log_in(browser, url, f"nobody{number}", "wrong")
        await log_in(browser, url)
        refused = [record for record in records if record.decision == "deny"]
        assert len(refused) <= 4
        auditing._trail.sum_up()
        auditing._trail.sum_up()  # nothing more came
        refused = [record for record in records if record.decision == "deny"]
        assert {record.principal for record in refused} == {"user:ann", ""}
        assert all(record.client for record in refused)
        more = [
            int(n) for record in refused for n in re.findall(r"user \((\d+) more\)", record.subject)
        ]
        assert sum(more) + len(refused) - len(more) >= 12
