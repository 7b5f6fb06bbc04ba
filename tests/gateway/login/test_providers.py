"""Identity providers: the claims by which they name people, their pages, and their keys."""

from collections.abc import Mapping
from itertools import product
from typing import Any

import jwt
import pytest

from config.login import LoginClient
from config.settings import DatabaseSettings
from gateway.login.providers import Provider
from tests.gateway.login.company import Company, browsing, company
from tests.gateway.login.test_checks import SECRET, ask

pytestmark = pytest.mark.anyio

CORP = "TOOLGATE_LOGIN__PROVIDERS__CORP__"
ADDRESS = "ann@corp.example"


def provider_of(made: Company) -> Provider:
    server = made.gateway.login._server  # type: ignore[union-attr]
    assert server is not None
    return server.parts.providers["corp"]


@pytest.mark.parametrize(
    "settings",
    [
        {"SUBJECT_CLAIM": "email"},
        {"ROLES_CLAIM": "email", "ROLES": '{"ann@corp.example": "clerk"}'},
    ],
    ids=["subject", "roles"],
)
async def test_an_address_that_is_not_verified_names_nobody(
    database_settings: DatabaseSettings, settings: Mapping[str, str]
) -> None:
    """LOG-8: at many providers people write their address themselves."""
    env = {f"{CORP}{name}": value for name, value in settings.items()}
    async with company(database_settings, env=env) as made, browsing() as browser:
        client = (await made.register())["client_id"]
        for verified in (None, False, "false", 1, "yes"):
            said = {} if verified is None else {"email_verified": verified}
            made.identity.person = {"sub": "ann", "email": ADDRESS, **said}
            answer = await browser.log_in(made.authorize(client))
            assert answer.status == 403, verified
            assert "email_verified" in answer.text, verified
            assert (await browser.get(f"{made.url}/login/sessions")).status == 303, verified
        made.identity.person["email_verified"] = True
        assert (await browser.log_in(made.authorize(client))).query["code"]


async def test_a_renewed_login_needs_a_verified_address(
    database_settings: DatabaseSettings,
) -> None:
    env = {f"{CORP}SUBJECT_CLAIM": "email"}
    async with company(database_settings, env=env, check_s=0.001) as made, browsing() as browser:
        made.identity.person = {"sub": "ann", "email": ADDRESS, "email_verified": True}
        client, tokens = await made.grant_tokens(browser)
        made.identity.person |= {"email_verified": False, "roles": ["clerk"]}
        _, renewed = await made.refresh(client, tokens["refresh_token"])
        claims = jwt.decode(renewed["access_token"], options={"verify_signature": False})
        assert (claims["sub"], claims["roles"]) == (f"corp:{ADDRESS}", [])


async def test_rules_read_no_address_that_is_not_verified(
    database_settings: DatabaseSettings,
) -> None:
    """A rule that compares `claims.email` must not believe what people wrote themselves."""
    env = {f"{CORP}CLAIMS": '["email", "team"]'}
    async with company(database_settings, env=env) as made:
        for verified, repeated in ((True, ADDRESS), (False, None), (None, None)):
            said = {} if verified is None else {"email_verified": verified}
            made.identity.person = {"sub": "ann", "email": ADDRESS, "team": "sales", **said}
            async with browsing() as browser:
                _, tokens = await made.grant_tokens(browser)
            claims = jwt.decode(tokens["access_token"], options={"verify_signature": False})
            assert (claims.get("email"), claims["team"]) == (repeated, "sales"), verified


async def test_configured_parameters_of_a_provider_are_sent(
    database_settings: DatabaseSettings,
) -> None:
    """LOG-8: some providers give a refresh token only with a prompt of their own."""
    authorize = '{"prompt": "consent", "access_type": "offline", "state": "x", "nonce": "x"}'
    env = {f"{CORP}AUTHORIZE": authorize}
    async with company(database_settings, env=env) as made, browsing() as browser:
        client = (await made.register())["client_id"]
        await browser.log_in(made.authorize(client))
        sent = await browser.press(made.authorize(client), "at:corp")  # to another account
        assert (sent.query["prompt"], sent.query["access_type"]) == ("consent", "offline")
        assert "x" not in (sent.query["state"], sent.query["nonce"])


async def test_keys_that_a_provider_has_replaced_are_good_no_longer(
    database_settings: DatabaseSettings,
) -> None:
    """LOG-8: a key is withdrawn because somebody else has it."""
    env = {"TOOLGATE_AUTH__JWKS_TTL_S": "600", "TOOLGATE_AUTH__JWKS_COOLDOWN_S": "0.001"}
    async with company(database_settings, env=env) as made, browsing() as browser:
        await made.grant_tokens(browser)
        provider, audience = provider_of(made), made.url
        withdrawn = made.identity.sign({"sub": "ann", "aud": audience})
        assert (await provider.assertion(withdrawn, audience))["sub"] == "ann"
        made.identity.use_key("k1")
        keys = provider._keys
        keys._fetched -= 601  # as if so many seconds had passed
        with pytest.raises(Exception, match="not good"):
            await provider.assertion(withdrawn, audience)
        fresh = made.identity.sign({"sub": "ann", "aud": audience})
        assert (await provider.assertion(fresh, audience))["sub"] == "ann"


async def test_a_provider_moves_its_keys(database_settings: DatabaseSettings) -> None:
    """LOG-8: the key set is where the metadata says now."""
    env = {
        "TOOLGATE_OAUTH__METADATA_TTL_S": "0",
        "TOOLGATE_AUTH__JWKS_COOLDOWN_S": "0.001",
    }
    async with company(database_settings, env=env) as made, browsing() as browser:
        await made.grant_tokens(browser)
        made.identity.use_key("k2", "/moved/jwks")
        client = (await made.register())["client_id"]
        assert (await browser.log_in(made.authorize(client))).query["code"]


async def test_a_login_whose_key_cannot_be_had_is_an_outage(
    database_settings: DatabaseSettings,
) -> None:
    """LOG-8: the provider has a new key, and its key set is away."""
    env = {"TOOLGATE_AUTH__JWKS_COOLDOWN_S": "0.001"}
    async with company(database_settings, env=env) as made, browsing() as browser:
        await made.grant_tokens(browser)
        made.identity.use_key("k2", "/away/jwks")
        client = (await made.register())["client_id"]
        assert (await browser.log_in(made.authorize(client))).status == 502
        made.identity.jwks = "/jwks"
        assert (await browser.log_in(made.authorize(client))).query["code"]


@pytest.mark.parametrize(
    ("switch", "said", "subject"),
    [
        ("true", {"email": "ANN@corp.example", "email_verified": True}, "corp:ann"),
        ("true", {"email": ADDRESS, "email_verified": False}, "corp:p-1"),
        ("true", {"email": ADDRESS}, "corp:p-1"),
        ("true", {"email": "bob@corp.example", "email_verified": True}, "corp:p-1"),
        ("true", {"email": ADDRESS, "email_verified": True, "sub": "bea"}, "corp:bea"),
        ("false", {"email": ADDRESS, "email_verified": True}, "corp:p-1"),
    ],
    ids=["verified", "not verified", "says nothing", "of nobody", "subject first", "off"],
)
async def test_an_assertion_names_a_person_by_address(
    database_settings: DatabaseSettings, switch: str, said: Mapping[str, Any], subject: str
) -> None:
    """EMA-4: the subject first, then the verified address, if that is switched on."""
    env = {f"{CORP}ID_JAG": "true", f"{CORP}ID_JAG_EMAIL": switch}
    clients = {"machine": LoginClient(secret=SECRET, grants=("id_jag",))}
    async with (
        company(database_settings, env=env, clients=clients) as made,
        browsing() as browser,
        browsing() as second,
    ):
        made.identity.person = {"sub": "ann", "email": ADDRESS, "email_verified": True}
        await made.grant_tokens(browser)
        made.identity.person = {"sub": "bea", "email": "bea@corp.example", "email_verified": True}
        await made.grant_tokens(second)
        status, tokens = await ask(
            made, "machine", form={"client_secret": SECRET}, **{"sub": "p-1", **said}
        )
        assert status == 200, tokens
        claims = jwt.decode(tokens["access_token"], options={"verify_signature": False})
        assert claims["sub"] == subject


async def test_an_address_of_two_people_names_neither(database_settings: DatabaseSettings) -> None:
    env = {f"{CORP}ID_JAG": "true", f"{CORP}ID_JAG_EMAIL": "true"}
    clients = {"machine": LoginClient(secret=SECRET, grants=("id_jag",))}
    async with company(database_settings, env=env, clients=clients) as made:
        for name in ("ann", "bea"):
            made.identity.person = {"sub": name, "email": ADDRESS, "email_verified": True}
            async with browsing() as browser:
                await made.grant_tokens(browser)
        said = {"sub": "p-1", "email": ADDRESS, "email_verified": True}
        _, tokens = await ask(made, "machine", form={"client_secret": SECRET}, **said)
        claims = jwt.decode(tokens["access_token"], options={"verify_signature": False})
        assert claims["sub"] == "corp:p-1"


async def test_claims_that_no_column_takes_are_refused(
    database_settings: DatabaseSettings,
) -> None:
    """A NUL is the provider's fault, and is neither stored nor dropped: a role would be another."""
    env = {f"{CORP}CLAIMS": '["groups"]'}
    async with company(database_settings, env=env) as made, browsing() as browser:
        client = (await made.register())["client_id"]
        for said in (
            {"name": "An\0n"},
            {"roles": ["cl\0erk"]},
            {"groups": {"a": ["\0"]}},
            {"groups": {"\0": 1}},
        ):
            made.identity.person = {"sub": "ann", **said}
            answer = await browser.log_in(made.authorize(client))
            assert answer.status == 403, said
            assert "NUL" in answer.text, said


async def test_members_of_answers_may_be_null(
    database_settings: DatabaseSettings,
) -> None:
    async with company(database_settings, check_s=0.001) as made, browsing() as browser:
        made.identity.says = {"authorization_response_iss_parameter_supported": None}
        made.identity.adds = {"refresh_token": None, "scope": None}
        await made.grant_tokens(browser)
        made.identity.adds = {"id_token": None}
        client = (await made.register())["client_id"]
        answer = await browser.log_in(made.authorize(client))
        assert answer.status == 403
        assert "sent no ID token" in answer.text


async def test_endpoints_of_a_provider_are_encrypted(database_settings: DatabaseSettings) -> None:
    """The secret of the gateway goes to one of them, and keys come from another."""
    names = ("authorization_endpoint", "token_endpoint", "jwks_uri")
    urls = ("http://sso.example/x", "javascript:alert(1)", "file:///etc/passwd", "http://[", "x")
    env = {"TOOLGATE_OAUTH__METADATA_TTL_S": "0"}
    async with company(database_settings, env=env) as made, browsing() as browser:
        client = (await made.register())["client_id"]
        for name, url in product(names, urls):
            made.identity.says = {name: url}
            answer = await browser.press(made.authorize(client), "at:corp")
            assert (answer.status, answer.location) == (502, ""), (name, url)
            assert f"expected an https:// URL as its {name}" in answer.text, (name, url)


async def test_a_provider_writes_its_issuer_otherwise(database_settings: DatabaseSettings) -> None:
    """ID tokens have the issuer that the metadata has now, also with the former key set."""
    env = {"TOOLGATE_OAUTH__METADATA_TTL_S": "0"}
    async with company(database_settings, env=env) as made, browsing() as browser:
        await made.grant_tokens(browser)
        made.identity.says, made.identity.sends_iss = {"issuer": f"{made.identity.url}/"}, False
        made.identity.person["iss"] = f"{made.identity.url}/"
        client = (await made.register())["client_id"]
        assert (await browser.log_in(made.authorize(client))).query["code"]
