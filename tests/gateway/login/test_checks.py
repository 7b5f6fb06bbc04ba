"""Checks of the login, each of which a test misses where it is taken out."""

import re
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace

from config.login import LoginClient
from config.settings import DatabaseSettings
from gateway.login.providers import Provider
from tests.gateway.login.company import REDIRECT, Company, browsing, challenge, company
from tests.gateway.login.test_attacks import sql

pytestmark = pytest.mark.anyio

WEB = "https://app.example/back"
SECRET = "a secret of a machine"


async def test_codes_and_ways_back_end(database_settings: DatabaseSettings) -> None:
    """A code after a minute, the way back from a provider after ten."""
    async with company(database_settings) as made, browsing() as browser:
        client = (await made.register())["client_id"]
        back = await browser.log_in(made.authorize(client))
        await sql(
            database_settings,
            "UPDATE login_grant_t SET code_ts = code_ts - interval '61 seconds'",
        )
        status, answer = await made.take_code(client, back.query["code"])
        assert (status, answer["error"]) == (400, "invalid_grant")
        sent = await browser.press(made.authorize(client), "at:corp")
        back = await browser.get(sent.location)
        await sql(
            database_settings,
            "UPDATE login_attempt_t SET expires_ts = expires_ts - interval '601 seconds'",
        )
        assert (await browser.get(back.location, site="cross-site")).status == 400


async def test_codes_are_stored_as_digests(database_settings: DatabaseSettings) -> None:
    async with company(database_settings) as made, browsing() as browser:
        client, tokens = await made.grant_tokens(browser)
        back = await browser.log_in(made.authorize(client))
        tables = ("login_grant_t", "login_refresh_t", "login_t", "login_key_t", "login_attempt_t")
        for table in tables:
            rows = str(await sql(database_settings, f"SELECT row_to_json(t)::text FROM {table} t"))
            assert back.query["code"] not in rows
            assert tokens["refresh_token"] not in rows


async def test_a_reader_of_the_database_finishes_no_login(
    database_settings: DatabaseSettings,
) -> None:
    """The browser's cookie, the verifier and the nonce of a login under way are not stored."""
    async with company(database_settings) as made, browsing() as browser:
        client = (await made.register())["client_id"]
        sent = await browser.press(made.authorize(client), "at:corp")
        cookies = [cookie.value for cookie in browser.http.cookie_jar]
        ((row,),) = await sql(
            database_settings, "SELECT row_to_json(a)::text FROM login_attempt_t a"
        )
        assert cookies
        for secret in (*cookies, sent.query["nonce"], sent.query["state"]):
            assert secret not in row
        words = re.findall(r"[A-Za-z0-9._~-]{43,}", row)
        assert sent.query["code_challenge"] not in map(challenge, words)
        back = await browser.get(sent.location)
        assert (await browser.get(back.location, site="cross-site")).query["code"]


async def test_an_answer_counts_at_its_provider(database_settings: DatabaseSettings) -> None:
    async with company(database_settings) as made, browsing() as browser:
        server = made.gateway.login._server  # type: ignore[union-attr]
        assert server is not None
        entry = server.parts.providers["corp"].entry
        server.parts.providers["twin"] = Provider("twin", entry, made.gateway.settings)
        client = (await made.register())["client_id"]
        sent = await browser.press(made.authorize(client), "at:corp")
        back = await browser.get(sent.location)
        mixed = back.location.replace("/login/callback/corp", "/login/callback/twin")
        answer = await browser.get(mixed, site="cross-site")
        assert (answer.status, answer.location) == (400, "")


async def test_consents_are_of_one_client_host_and_scope(
    database_settings: DatabaseSettings,
) -> None:
    second = "https://second.example/back"
    client = LoginClient(redirect_uris=(WEB, second))
    clients = {"web": client, "other": client}
    async with company(database_settings, clients=clients) as made, browsing() as browser:
        made.identity.person["roles"] = ["clerk"]
        url = made.authorize("web", redirect_uri=WEB, scope="tools:read")
        page = await browser.get(url)
        assert "Leads back to" in page.text
        assert "<strong>app.example</strong>" in page.text
        await browser.log_in(url)
        assert (await browser.get(url)).query["code"]
        for changed in (
            made.authorize("other", redirect_uri=WEB, scope="tools:read"),
            made.authorize("web", redirect_uri=second, scope="tools:read"),
            made.authorize("web", redirect_uri=WEB, scope="tools:read tools:write"),
        ):
            page = await browser.get(changed)
            assert (page.status, page.location) == (200, ""), changed
            assert "Allow as Ann" in page.text
        made.identity.person = {"sub": "bob", "name": "Bob", "roles": ["clerk"]}
        async with browsing() as another:
            await another.log_in(f"{url}&prompt=login")
            await sql(database_settings, "DELETE FROM login_consent_t WHERE principal = 'corp:bob'")
            page = await another.get(url)
            assert "Allow as Bob" in page.text


async def test_a_page_warns_of_programs_on_the_computer(
    database_settings: DatabaseSettings,
) -> None:
    async with company(database_settings) as made, browsing() as browser:
        client = (await made.register(REDIRECT, WEB))["client_id"]
        warning = "This leads to a program on your computer"
        assert warning in (await browser.get(made.authorize(client))).text
        web = made.authorize(client, redirect_uri=WEB)
        assert warning not in (await browser.get(web)).text


async def ask(made: Company, client: str, typ: str = "oauth-id-jag+jwt", **changes: Any) -> Any:
    """Status and answer of an identity assertion; changes of its claims, or of the `form`."""
    form = changes.pop("form", {})
    claims = {
        "sub": "ann",
        "aud": made.url,
        "client_id": client,
        "resource": f"{made.url}/mcp",
        "scope": "tools:read tools:write",
        "jti": str(uuid4()),
        **changes,
    }
    return await made.token(
        grant_type="urn:ietf:params:oauth:grant-type:jwt-bearer",
        assertion=made.identity.sign(claims, typ),
        client_id=client,
        **form,
    )


async def test_assertions_are_for_clients_that_have_a_secret_and_the_grant(
    database_settings: DatabaseSettings,
) -> None:
    clients = {
        "machine": LoginClient(secret=SECRET, grants=("id_jag",)),
        "another": LoginClient(secret=SECRET, grants=("client_credentials",)),
        "public": LoginClient(redirect_uris=(REDIRECT,), grants=("authorization_code", "id_jag")),
    }
    secret: dict[str, Any] = {"form": {"client_secret": SECRET}}
    async with company(database_settings, clients=clients) as made:
        server = made.gateway.login._server  # type: ignore[union-attr]
        assert server is not None
        corp = server.parts.providers["corp"]
        status, answer = await ask(made, "machine", **secret)
        assert (status, answer["error"]) == (400, "unauthorized_client")  # no provider is marked
        corp.entry = replace(corp.entry, id_jag=True)
        plain = Provider("plain", replace(corp.entry, id_jag=False, issuer="https://plain.example"),
                         made.gateway.settings)  # fmt: skip
        providers = server.parts.providers
        providers.update({"plain": plain, "corp": providers.pop("corp")})
        status, answer = await ask(made, "machine", **secret)
        assert (status, answer["scope"]) == (200, "tools:read")
        cases: tuple[tuple[str, dict[str, Any]], ...] = (("another", secret), ("public", {}))
        for client, more in cases:
            status, answer = await ask(made, client, **more)
            assert (status, answer["error"]) == (400, "unauthorized_client"), client
        for issuer in ("https://plain.example", "https://nobody.example"):
            status, answer = await ask(made, "machine", **secret, iss=issuer)
            assert (status, answer["error"]) == (400, "invalid_grant"), issuer
            assert "nobody that is trusted" in answer["error_description"]
        form = {"client_secret": SECRET, "resource": f"{made.url}/rpc"}
        status, answer = await ask(made, "machine", form=form)
        assert (status, answer["error"]) == (400, "invalid_target")
        form = {"client_secret": SECRET, "scope": "tools:write"}
        status, answer = await ask(made, "machine", form=form)
        assert (status, answer["scope"]) == (200, "")


async def test_consent_to_a_client_that_lost_its_secret_is_asked_for_again(
    database_settings: DatabaseSettings,
) -> None:
    """LOG-7: whoever is on the person's computer could be a public client on loopback."""
    known, public = (
        LoginClient(secret=secret, redirect_uris=(REDIRECT,)) for secret in (SECRET, "")
    )
    async with company(database_settings, clients={"app": known}) as made, browsing() as browser:
        await browser.log_in(made.authorize("app"))
        assert (await browser.get(made.authorize("app"))).status == 303
        server = made.gateway.login._server  # type: ignore[union-attr]
        assert server is not None
        clients = server.parts.clients
        clients._login = replace(clients._login, clients={"app": public})
        assert (await browser.get(made.authorize("app"))).status == 200


async def test_requests_grant_no_more_than_the_rules_allow(
    database_settings: DatabaseSettings,
) -> None:
    """LOG-6, LOG-9: a state without bound, scopes that nobody has, and a verifier to be guessed."""
    async with company(database_settings) as made, browsing() as browser:
        client = (await made.register())["client_id"]
        answer = await browser.get(made.authorize(client, state="s" * 4001))
        assert answer.query["error"] == "invalid_request"
        assert "state" not in answer.query
        asked = {"scope": "tools:read tools:write admin", "code_challenge": challenge("short")}
        back = await browser.log_in(made.authorize(client, **asked))
        code = back.query["code"]
        status, refused = await made.take_code(client, code, code_verifier="short")
        assert status == 400, refused
        async with browsing() as second:
            _, tokens = await made.grant_tokens(second, scope="tools:read tools:write admin")
        assert tokens["scope"] == "tools:read"
