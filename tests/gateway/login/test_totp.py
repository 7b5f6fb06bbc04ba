"""One-time codes of users (USR-4): set up, needed at a login, good once, lost, and taken away."""

import base64
import re
from typing import Any

import anyio
import pytest

from config.settings import DatabaseSettings
from gateway.login import password_logins, totp
from tests.gateway.admin.test_logins import asking
from tests.gateway.login.company import Answer, Browser, browsing, fields
from tests.gateway.login.test_attacks import sql
from tests.gateway.login.test_password_logins import (
    PASSWORD,
    Town,
    in_table,
    log_in,
    set_password,
    town,
)

pytestmark = pytest.mark.anyio

SECRET = re.compile(r'name="secret" value="([A-Z2-7]{32})"')
RECOVERY = re.compile(r"<li><code[^>]*>([0-9a-f-]{19})</code>")
RFC_6238 = base64.b32encode(b"12345678901234567890").decode()


class Clock:
    """The clock by which codes are checked: it stands, but for `step`."""

    def __init__(self) -> None:
        self.now = 1_800_000_015.0

    def time(self) -> float:
        return self.now

    def step(self, count: int = 1) -> None:
        self.now += count * totp.STEP_S


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(password_logins, "time", made)
    return made


def code_at(secret: str, now: float) -> str:
    return totp._totp(secret).generate(int(now)).decode()


async def post_code(made: Town, browser: Browser, code: str, **changes: str) -> Answer:
    """Log in with the password and a code."""
    url = f"{made.url}/login"
    page = await browser.get(url)
    form = {"choice": "password", "name": "ann", "password": PASSWORD, "code": code, **changes}
    return await browser.post(url, {**fields(page.text), **form})


async def set_up(made: Town, browser: Browser, clock: Clock, **changes: str) -> tuple[str, Answer]:
    """The secret of a user who sets one-time codes up, and the page that answers."""
    url = f"{made.url}/login/totp"
    page = await browser.get(url)
    found = SECRET.search(page.text)
    assert found is not None, page.text
    assert f"secret={found[1]}" in page.text  # in the address for the app
    code = code_at(found[1], clock.now)
    form = {"secret": found[1], "name": "ann", "password": PASSWORD, "code": code, **changes}
    return found[1], await browser.post(url, {**fields(page.text), **form})


@pytest.mark.parametrize(
    ("now", "code"),
    [
        (1111111109, "081804"),
        (1111111111, "050471"),
        (1234567890, "005 924"),
        (2000000000, "279037"),
    ],
)
def test_codes_follow_the_standard(now: int, code: str) -> None:
    """RFC 6238, appendix B, of six digits."""
    step = now // 30
    assert totp.step_of(RFC_6238, code, now) == step
    assert totp.step_of(RFC_6238, code, now + 30) == step  # a clock that is behind
    assert totp.step_of(RFC_6238, code, now - 30) == step
    assert totp.step_of(RFC_6238, code, now + 60) is None
    for wrong in ("", "28708", "2870821", "٢٨٧٠٨٢", "28708a"):
        assert totp.step_of(RFC_6238, wrong, now) is None


async def test_a_login_needs_a_code_after_setup(
    database_settings: DatabaseSettings, clock: Clock
) -> None:
    async with town(database_settings) as made, browsing() as browser, browsing() as second:
        await made.user(browser)
        _, tokens = await made.grant_tokens(browser)
        secret, page = await set_up(made, browser, clock)
        assert len(RECOVERY.findall(page.text)) == totp.RECOVERY_CODES
        assert await made.status(tokens["access_token"]) == 401  # what was there has ended
        used = code_at(secret, clock.now)
        for wrong in ("", "000000", used):  # that one was shown when it was set up
            answer = await post_code(made, second, wrong)
            assert (answer.status, "one-time code is wrong" in answer.text) == (403, True), wrong
        assert (await post_code(made, second, used, password="wrong")).status == 403
        clock.step()
        fresh = code_at(secret, clock.now)
        assert (await post_code(made, second, f"{fresh[:3]} {fresh[3:]}")).status == 303
        async with browsing() as third:
            assert (await post_code(made, third, fresh)).status == 403  # somebody looked on
        row = await in_table(made, "SELECT row_to_json(u)::text FROM login_user_t AS u")
        assert secret not in row
        assert base64.b32decode(secret).hex() not in row
        assert RECOVERY.findall(page.text)[0] not in row


async def test_a_code_is_good_once_at_all_nodes(
    database_settings: DatabaseSettings, clock: Clock
) -> None:
    async with town(database_settings) as made, browsing() as browser:
        await made.user(browser)
        _, page = await set_up(made, browser, clock)
        user = await made.users.find("ann")
        assert user is not None
        recovery = totp.plain_recovery_code(RECOVERY.findall(page.text)[0])
        step, done = int(clock.now) // totp.STEP_S + 1, list[Any]()

        async def use() -> None:
            done.append(("step", await made.users.use_step(user, step)))
            digest = password_logins.secret_digest(recovery)
            done.append(("recovery", await made.users.use_recovery(user, digest)))

        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                for _ in range(4):
                    tasks.start_soon(use)
        assert sorted(done) == sorted(
            [("step", True), ("recovery", True), *[("step", False), ("recovery", False)] * 3]
        )
        assert not await made.users.use_step(user, step - 1)  # an earlier one of a slow clock


async def test_recovery_codes_log_in_once(
    database_settings: DatabaseSettings, clock: Clock
) -> None:
    async with town(database_settings) as made, browsing() as browser:
        await made.user(browser)
        _, page = await set_up(made, browser, clock)
        first, second, *_ = RECOVERY.findall(page.text)
        for code, status in ((first, 303), (first, 403), (second.upper(), 303), ("0" * 16, 403)):
            async with browsing() as other:
                assert (await post_code(made, other, code)).status == status, code


async def test_a_stolen_password_replaces_no_codes(
    database_settings: DatabaseSettings, clock: Clock
) -> None:
    async with town(database_settings) as made, browsing() as browser, browsing() as thief:
        await made.user(browser)
        await set_up(made, browser, clock)
        _, page = await set_up(made, thief, clock)
        assert (page.status, "have one-time codes already" in page.text) == (403, True)
        for changes in ({"password": "wrong"}, {"name": "nobody"}):
            _, page = await set_up(made, thief, clock, **changes)
            assert "Name or password is wrong" in page.text
        form = {"name": "ann", "password": PASSWORD, "secret": RFC_6238, "code": "287082"}
        forged = await thief.post(f"{made.url}/login/totp", form, {"Origin": "https://x.example"})
        assert forged.status == 403
    rows = await sql(
        database_settings,
        "SELECT principal FROM audit_t WHERE method = 'totp' AND decision = 'deny'",
    )
    assert ("user:ann",) in rows


async def test_guesses_of_codes_wait_whatever_their_address(
    database_settings: DatabaseSettings, clock: Clock
) -> None:
    async with town(database_settings, failures=2, delay_s=900) as made, browsing() as browser:
        await made.user(browser)
        secret, _ = await set_up(made, browser, clock)
        clock.step()
        for status in (403, 403):
            assert (await post_code(made, browser, "000000")).status == status
        answer = await post_code(made, browser, code_at(secret, clock.now))
        assert answer.status == 429


async def test_codes_can_be_required(database_settings: DatabaseSettings, clock: Clock) -> None:
    env = {"TOOLGATE_LOGIN__USERS_TOTP": "required"}
    async with town(database_settings, env=env) as made, browsing() as browser:
        await set_password(browser, await made.invitation())
        refused = await log_in(browser, f"{made.url}/login")
        assert (refused.status, "set them up first" in refused.text) == (403, True)
        assert 'href="/login/totp"' in refused.text
        _, wrong = await set_up(made, browser, clock, code="000000")
        assert wrong.status == 403
        secret, page = await set_up(made, browser, clock)
        assert page.status == 200
        clock.step()
        assert (await post_code(made, browser, code_at(secret, clock.now))).status == 303


async def test_operators_take_codes_from_a_user(
    database_settings: DatabaseSettings, clock: Clock
) -> None:
    async with town(database_settings) as made, browsing() as browser:
        await made.user(browser)
        await set_up(made, browser, clock)
        ask = await asking(made, "admin")
        assert (await ask("GET", "/users/ann"))[1]["has_totp"] is True
        writer = await asking(made, "admin:logins:write")
        assert (await writer("DELETE", "/users/ann/totp"))[0] == 403
        status, user = await ask("DELETE", "/users/ann/totp")
        assert (status, user["has_totp"]) == (200, False)
        assert (await log_in(browser, f"{made.url}/login")).status == 303
