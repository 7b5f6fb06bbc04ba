"""The authorization endpoint: what a client may ask for, and what a browser must not be made to."""

import re
from uuid import uuid4

import anyio
import pytest

from config.settings import DatabaseSettings
from gateway.login.browser_sessions import is_same_origin
from gateway.login.redirects import matches, redirect_problem
from registry.login.logins_and_grants import Logins, NewGrant
from tests.gateway.login.company import REDIRECT, Company, browsing, company, fields

pytestmark = pytest.mark.anyio


async def test_without_a_known_client_and_redirect_nobody_is_sent_anywhere(made: Company) -> None:
    async with browsing() as browser:
        client = (await made.register(REDIRECT, "https://app.example/back"))["client_id"]
        for changes in (
            {"client_id": "nobody"},
            {"client_id": ""},
            {"redirect_uri": ""},  # it has two
            {"redirect_uri": "https://app.example/back/"},
            {"redirect_uri": "https://app.example:444/back"},
            {"redirect_uri": "https://app.example/back?x=1"},
            {"redirect_uri": "https://evil.example/back"},
            {"redirect_uri": "http://127.0.0.1:7777/other"},
            {"redirect_uri": "http://localhost:7777/callback"},
        ):
            url = made.authorize(**{"client_id": client, **changes})
            answer = await browser.get(url)
            assert answer.status == 400, changes
            assert not answer.location
            assert re.search(r"<code>[\w-]{8,}</code>", answer.text)  # its number


async def test_other_errors_go_back_to_the_client(made: Company) -> None:
    async with browsing() as browser:
        client = (await made.register())["client_id"]
        for changes, error in (
            ({"response_type": "token"}, "unsupported_response_type"),
            ({"code_challenge": ""}, "invalid_request"),
            ({"code_challenge_method": "plain"}, "invalid_request"),
            ({"code_challenge_method": ""}, "invalid_request"),
            ({"code_challenge": "short"}, "invalid_request"),
            ({"resource": "https://elsewhere.example/mcp"}, "invalid_target"),
            ({"response_mode": "fragment"}, "invalid_request"),
            ({"request": "eyJ"}, "request_not_supported"),
            ({"prompt": "none"}, "login_required"),
        ):
            answer = await browser.get(made.authorize(client, **changes))
            assert answer.status == 303, changes
            assert answer.location.startswith(f"{REDIRECT}?")
            assert answer.query["error"] == error, changes
            assert (answer.query["iss"], answer.query["state"]) == (made.url, "s t/ä")
        url = f"{made.authorize(client)}&resource={made.url}/rpc"
        assert (await browser.get(url)).query["error"] == "invalid_target"
        url = f"{made.authorize(client)}&scope=a&scope=b"
        assert (await browser.get(url)).query["error"] == "invalid_request"


async def test_a_client_on_loopback_listens_at_any_port(made: Company) -> None:
    async with browsing() as browser:
        client = (await made.register("http://localhost/callback"))["client_id"]
        redirect = "http://localhost:51234/callback"
        url = made.authorize(client, redirect_uri=redirect)
        back = await browser.log_in(url)
        assert back.location.startswith(redirect)
        status, _ = await made.take_code(client, back.query["code"], redirect_uri=redirect)
        assert status == 200


@pytest.mark.parametrize(
    ("asked", "registered", "same"),
    [
        ("http://127.0.0.1:5/cb", "http://127.0.0.1/cb", True),
        ("http://[::1]:5/cb", "http://[::1]:6/cb", True),
        ("http://127.0.0.1:5/cb", "http://localhost/cb", False),
        ("http://localhost:5/cb?a=1", "http://localhost/cb", False),
        ("http://localhost:5/cb", "https://localhost/cb", False),
        ("https://localhost:5/cb", "http://localhost/cb", False),
        ("http://localhost@evil.example/cb", "http://localhost/cb", False),
        ("http://user@localhost:5/cb", "http://localhost/cb", False),
        ("https://localhost:5/cb", "https://localhost/cb", False),
        ("http://localhost.evil.example/cb", "http://localhost/cb", False),
        ("app.example:/cb", "app.example:/cb", True),
        ("http://localhost:x/cb", "http://localhost/cb", False),
    ],
)
def test_redirects_differ_in_the_port_of_loopback_at_most(
    asked: str, registered: str, same: bool
) -> None:
    assert matches(asked, registered) is same


@pytest.mark.parametrize(
    "uri",
    [
        *("javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", "intent://x"),
        *("http://app.example/cb", "https://app.example/cb#x", "https://u:p@app.example/cb"),
        *("https:///cb", "/cb", "", "https://app.example/\u0430", "https://app.example/a b"),
        *("JaVaScRiPt:alert(1)", "view-source:https://x", "blob:https://x/1", "ftp://x/y"),
    ],
)
def test_some_redirects_cannot_be_registered(uri: str) -> None:
    assert redirect_problem(uri)


def test_redirects_are_narrowed_by_patterns() -> None:
    allowed = ("https://claude.ai/*", "http://localhost:*")
    assert redirect_problem("https://claude.ai/api/mcp/auth_callback", allowed) is None
    assert redirect_problem("https://app.example/cb", allowed)
    assert redirect_problem("cursor://anysphere.cursor-mcp/oauth/callback") is None


async def test_a_forged_form_grants_nothing(made: Company) -> None:
    async with browsing() as victim, browsing() as evil:
        client = (await made.register())["client_id"]
        await victim.log_in(made.authorize(client))  # so that one button would be enough
        url = made.authorize(client, state="the attacker's")
        own = fields((await victim.get(url)).text)
        foreign = fields((await evil.get(url)).text)
        good = {"Sec-Fetch-Site": "same-origin", "Origin": made.url}
        for form, headers, status in (
            (own, {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}, 403),
            (own, {"Origin": "https://evil.example"}, 403),
            (own, {"Origin": "null"}, 403),
            (own, {}, 403),
            (own, {"Sec-Fetch-Site": "same-site", "Origin": made.url}, 403),
            (foreign, good, 200),  # asked again
            ({"_csrf": ""}, good, 200),
        ):
            answer = await victim.post(url, {**form, "choice": "allow"}, headers)
            assert (answer.status, answer.location) == (status, ""), (form, headers)
        other = made.authorize(client, state="another request")
        answer = await victim.post(other, {**own, "choice": "allow"}, good)
        assert (answer.status, answer.location) == (200, "")
        answer = await victim.post(url, {**own, "choice": "allow"}, good)
        assert answer.query["code"]


async def test_a_provider_answers_the_browser_that_left_alone(made: Company) -> None:
    async with browsing() as evil, browsing() as victim:
        client = (await made.register())["client_id"]
        sent = await evil.press(made.authorize(client), "at:corp")
        back = await evil.get(sent.location)
        await victim.get(made.authorize(client))  # has a cookie of its own
        answer = await victim.get(back.location, site="cross-site")
        assert (answer.status, answer.location) == (400, "")
        answer = await evil.get(back.location, site="cross-site")
        assert answer.query["code"]
        answer = await evil.get(back.location, site="cross-site")  # once: it begins again
        assert answer.status == 303
        assert answer.location.startswith("/authorize?")
        page = await evil.get(made.url + answer.location)
        assert "Allow as Ann" in page.text


async def test_a_page_that_is_opened_twice_still_works(made: Company) -> None:
    async with browsing() as browser, browsing() as other:
        client = (await made.register())["client_id"]
        url = made.authorize(client)
        page = await browser.get(url)
        await browser.get(url)  # a prefetch
        sent = await browser.post(url, {**fields(page.text), "choice": "at:corp"})
        assert sent.status == 303

        page = await other.get(url)
        other.http.cookie_jar.clear()  # another rendering's cookie took the place of this one's
        again = await other.post(url, {**fields(page.text), "choice": "at:corp"})
        assert again.status == 200
        assert "confirm once more" in again.text
        sent = await other.post(url, {**fields(again.text), "choice": "at:corp"})
        assert sent.status == 303

        async with browsing() as cookieless:
            page = await cookieless.get(url)
            for _ in range(2):
                cookieless.http.cookie_jar.clear()
                page = await cookieless.post(url, {**fields(page.text), "choice": "at:corp"})
            assert page.status == 400
            assert "keeps no cookies" in page.text


async def test_two_tabs_log_in_at_once(made: Company) -> None:
    async with browsing() as browser:
        clients = [(await made.register())["client_id"] for _ in range(2)]
        sent = [await browser.press(made.authorize(client), "at:corp") for client in clients]
        for each in sent:
            back = await browser.get(each.location)
            answer = await browser.get(back.location, site="cross-site")
            assert answer.query["code"]


async def test_consent_that_stands_is_silent_for_verified_clients_alone(made: Company) -> None:
    redirect = "https://app.example/back"
    async with browsing() as browser:
        web = (await made.register(redirect))["client_id"]
        url = made.authorize(web, redirect_uri=redirect)
        await browser.log_in(url)
        assert (await browser.get(url)).query["code"]
        assert (await browser.get(f"{url}&prompt=none")).query["code"]
        assert (await browser.get(url, site="cross-site")).status == 200
        assert (await browser.get(f"{url}&prompt=consent")).status == 200
        page = await browser.get(f"{url}&prompt=login")
        assert "Allow as" not in page.text
        local = (await made.register())["client_id"]  # any program could be this one
        await browser.log_in(made.authorize(local))
        assert (await browser.get(made.authorize(local))).status == 200
        made.identity.person = {"sub": "bob", "name": "Bob"}
        async with browsing() as second:
            await second.log_in(made.authorize(local))
            page = await second.get(url)  # somebody else has not allowed it
            assert page.status == 200
            assert "Bob" in page.text


async def test_a_provider_is_asked_for_another_account(made: Company) -> None:
    async with browsing() as browser:
        client = (await made.register())["client_id"]
        await browser.press(made.authorize(client), "at:corp")
        await browser.log_in(made.authorize(client))
        for changes, prompt in (
            ({}, "select_account"),
            ({"prompt": "login consent"}, "login"),
        ):
            sent = await browser.press(made.authorize(client, **changes), "at:corp")
            assert sent.query["prompt"] == prompt
        assert "prompt" not in made.identity.asked[0]
        answer = await browser.get(made.authorize(client, prompt="none login"))
        assert answer.query["error"] == "invalid_request"


async def test_a_login_that_has_ended_grants_nothing(
    database_settings: DatabaseSettings,
) -> None:
    async with company(database_settings) as made, browsing() as browser:
        await made.grant_tokens(browser)
        pool, host_id = made.gateway._handle.pool(), made.gateway.settings.tenant.host_id
        assert pool is not None
        new = NewGrant("client", "Client", REDIRECT, "x", f"{made.url}/mcp", ())
        assert await Logins(pool, host_id).add_grant(str(uuid4()), new) is None


@pytest.mark.parametrize(
    ("public", "origin", "same"),
    [
        ("https://GW.example:443/prefix", "https://gw.example", True),
        ("https://gw.example", "https://gw.example:443", True),
        ("https://gw.example", "http://gw.example", False),
        ("https://gw.example", "https://gw.example:444", False),
        ("https://gw.example", "null", False),
        ("https://gw.example", "https://gw.example.evil.example", False),
        ("http://127.0.0.1:8765", "http://127.0.0.1:8765", True),
        ("http://127.0.0.1:8765", "http://127.0.0.1:x", False),
    ],
)
def test_origins_are_compared_without_default_ports(public: str, origin: str, same: bool) -> None:
    assert is_same_origin({"origin": origin}, public) is same


async def test_a_person_denies(made: Company) -> None:
    async with browsing() as browser:
        client = (await made.register())["client_id"]
        answer = await browser.press(made.authorize(client), "deny")
        assert answer.query["error"] == "access_denied"
        assert answer.query["state"] == "s t/ä"


@pytest.mark.parametrize(
    ("switch", "words"),
    [
        ({"refuses": "access_denied"}, "AADSTS: said so"),
        ({"wrong_iss": True}, "another provider"),
        ({"wrong_nonce": True}, "another login"),
        ({"wrong_audience": True}, "not good"),
        ({"fails": 500}, "HTTP 500"),
        ({"person": {"sub": ""}}, "no usable subject"),
        ({"person": {"sub": "ann", "azp": "another"}}, "another client"),
    ],
    ids=["refusal", "iss", "nonce", "audience", "outage", "nobody", "azp"],
)
async def test_a_provider_that_answers_wrong_logs_nobody_in(
    made: Company, switch: dict[str, object], words: str
) -> None:
    async with browsing() as browser:
        client = (await made.register())["client_id"]
        for name, value in switch.items():
            setattr(made.identity, name, value)
        answer = await browser.log_in(made.authorize(client))
        assert answer.status in (403, 502)
        assert words in answer.text.replace("&#39;", "'")
        assert "Try again" in answer.text
        assert (await browser.get(f"{made.url}/login/sessions")).status == 303


async def test_pages_have_no_script_and_no_frame(made: Company) -> None:
    async with browsing() as browser:
        client = (await made.register(client_name="<b>\u202eevil</b>"))["client_id"]
        page = await browser.get(made.authorize(client))
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "script" not in page.text
        assert "<b>" not in page.text
        assert "\u202e" not in page.text
        assert page.headers["cache-control"] == "no-store"


async def test_one_address_cannot_ask_without_end(database_settings: DatabaseSettings) -> None:
    async with company(database_settings, requests=5) as made, anyio.create_task_group() as tasks:
        statuses: list[int] = []

        async def ask() -> None:
            status, _ = await made.token(grant_type="refresh_token", client_id="nobody")
            statuses.append(status)

        for _ in range(8):
            tasks.start_soon(ask)
    assert sorted(statuses) == [401] * 5 + [429] * 3
