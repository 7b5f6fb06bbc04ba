"""Attacks on the login: foreign bytes, foreign keys, floods, mixed-up people and tokens."""

import asyncio
import base64
import logging
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import jwt
import msgspec
import psycopg
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from jwt.algorithms import ECAlgorithm
from msgspec.structs import replace

from config.access import IssuerSettings
from config.conflicts import LOGIN_PATHS
from config.login import LoginClient, ProviderSettings, shared_names
from config.settings import DatabaseSettings
from gateway.guards.host_and_origin import OriginGuard
from gateway.login.clients import ASSERTION, LoginClients, is_document_url
from gateway.login.providers import Provider, ProviderRefused
from gateway.login.redirects import matches, redirect_problem
from registry.login.people import People
from schemas.errors import ImportRejected
from tests.fixtures_gateway import wordless
from tests.gateway.login.company import (
    REDIRECT,
    VERIFIER,
    Company,
    browsing,
    company,
    fields,
    settings_of,
)
from tests.gateway.login.test_clients import DOCUMENT, Published
from tests.servers.identity import Identity

pytestmark = pytest.mark.anyio

WEB = "https://app.example/back"
NO_DATABASE = wordless().database  # of tests that open none


@pytest.fixture
def published_documents(monkeypatch: pytest.MonkeyPatch) -> Published:
    made = Published()
    monkeypatch.setattr("gateway.login.clients.fetch", made.fetch)
    made.documents[DOCUMENT] = {
        "client_id": DOCUMENT,
        "client_name": "Program",
        "redirect_uris": [REDIRECT, WEB],
    }
    return made


async def sql(database: DatabaseSettings, text: str) -> list[tuple[Any, ...]]:
    """Rows of a statement."""
    async with await psycopg.AsyncConnection.connect(database.url, autocommit=True) as connection:
        cursor = await connection.execute(text.encode())
        return await cursor.fetchall() if cursor.description else []


async def post(made: Company, path: str, **asked: Any) -> int:
    async with made.http.post(made.url + path, **asked) as answer:
        return answer.status


async def test_bytes_that_no_column_takes_are_refused(database_settings: DatabaseSettings) -> None:
    """NUL, lone surrogates and other letters than ASCII are no fault of the gateway's."""
    async with company(database_settings) as made, browsing() as browser:
        client = (await made.register())["client_id"]
        grant = {"grant_type": "refresh_token", "refresh_token": "x"}
        for user in ("%00", "%ff", "\u0430", "a b", "x" * 5000):
            basic = base64.b64encode(f"{user}:x".encode()).decode()
            headers = {"Authorization": f"Basic {basic}"}
            assert await post(made, "/token", data=grant, headers=headers) == 401, user
        for subject in ("\ud800", "\0", "\u0430"):
            claims = msgspec.json.encode({"sub": "SUBJECT"}).decode()
            claims = claims.replace("SUBJECT", f"\\u{ord(subject):04x}")
            parts = (base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
                     for text in ('{"alg":"ES256"}', claims, "x"))  # fmt: skip
            form = {"client_assertion": ".".join(parts), "client_assertion_type": ASSERTION}
            assert await post(made, "/token", data={**grant, **form}) == 401, subject
        good = {"redirect_uris": [REDIRECT]}
        for change in ({"client_name": "a\0"}, {"client_uri": "\0"}, {"scope": "\0"},
                       {"jwks": {"keys": ["\0"]}}, {"application_type": "\0"}):  # fmt: skip
            assert await post(made, "/register", json={**good, **change}) == 400, change
        assert await post(made, "/register", json={**good, "scope": None, "jwks": None}) == 201
        url = made.authorize(client)
        page = await browser.get(url)
        answer = await browser.post(url, {**fields(page.text), "_csrf": "\u0430"})
        assert answer.status == 200  # asked again
        page = await browser.get(f"{made.url}/login")
        form = {**fields(page.text), "choice": "at:corp", "next": "/\0"}
        assert (await browser.post(f"{made.url}/login", form)).status == 303


async def test_keys_of_strangers_are_at_public_addresses(
    database_settings: DatabaseSettings, published_documents: Published
) -> None:
    """`jwks_uri` is neither a file of the gateway's nor an address of its network."""
    async with company(database_settings) as made, browsing() as browser:
        for uri in ("/etc/passwd", "file:///etc/passwd", "http://program.example/keys", "~/x"):
            keys = {"token_endpoint_auth_method": "private_key_jwt", "jwks_uri": uri}
            body = {"redirect_uris": [REDIRECT], **keys}
            assert await post(made, "/register", json=body) == 400, uri
            published_documents.documents[f"{DOCUMENT}?{uri}"] = {
                **published_documents.documents[DOCUMENT], **keys, "client_id": f"{DOCUMENT}?{uri}",
            }  # fmt: skip
            assert (await browser.get(made.authorize(f"{DOCUMENT}?{uri}"))).status == 400, uri


@pytest.mark.parametrize(
    "url",
    [
        *("/etc/passwd", "file:///etc/passwd", "http://127.0.0.1:1/c", "https://127.0.0.1:1/c"),
        *("https://localhost:1/c", "https://10.1.2.3/c", "https://169.254.169.254/latest/c"),
        *("https://[::1]:1/c", "https://[::ffff:10.0.0.1]/c", "https://2130706433:1/c"),
        *("https://0x7f.1:1/c", "https://127.1:1/c", "https://0:1/c", "https://[fd00::1]/c"),
    ],
)
async def test_strangers_have_nothing_fetched_inside(url: str) -> None:
    """Not even where operators let descriptions refer to private networks."""
    settings = settings_of("http://localhost", "http://localhost:1", NO_DATABASE, {})
    settings = replace(settings, imports=replace(settings.imports, private_networks=True))
    clients = LoginClients(settings, lambda: pytest.fail("it asks the database"))
    with pytest.raises(ImportRejected) as refused:
        await clients._fetch(url, 100)
    text = str(refused.value)
    assert "expected an https:// URL" in text or "refused unless imports.private" in text, text


@pytest.mark.parametrize(
    "url",
    [
        *("https://claude.ai\\.evil.example/c", "https://evil.example/a/%2e%2E/c"),
        *(
            "https://evil.example%2f/c",
            "https://[::1]/c",
            "https://a b/c",
            "https://evil.example/\t",
        ),
        *("https://evil.example/c\\..", "https://u:p@claude.ai/c", "https:// claude.ai/c"),
    ],
)
def test_urls_that_two_parsers_read_differently_are_no_client_ids(url: str) -> None:
    assert not is_document_url(url)


async def test_fetches_of_one_host_are_bounded(published_documents: Published) -> None:
    """A gateway is no means to flood a site with requests."""
    settings = settings_of("http://localhost", "http://localhost:1", NO_DATABASE, {}, requests=3)
    clients = LoginClients(settings, lambda: pytest.fail("it asks the database"))
    published_documents.documents = {f"https://victim.example/{n}": {} for n in range(5)}
    answers = []
    for url in published_documents.documents:
        try:
            answers.append((await clients._fetch(url, 100)).data.decode())
        except ImportRejected as error:
            answers.append(str(error))
    assert answers[:3] == ["{}"] * 3
    assert all("too often" in answer for answer in answers[3:])
    assert published_documents.fetched == 3


async def test_documents_that_nobody_uses_are_few(
    database_settings: DatabaseSettings, published_documents: Published
) -> None:
    async with company(database_settings, registrations=3) as made, browsing() as browser:
        back = await browser.log_in(made.authorize(DOCUMENT))
        assert (await made.take_code(DOCUMENT, back.query["code"]))[0] == 200
        for number in range(6):
            url = f"{DOCUMENT}?{number}"
            published_documents.documents[url] = {
                **published_documents.documents[DOCUMENT],
                "client_id": url,
            }
            assert (await browser.get(made.authorize(url))).status == 200
        rows = await sql(database_settings, "SELECT client_id FROM login_client_t")
        assert len(rows) == 4
        assert (DOCUMENT,) in rows  # it is used


async def test_wrong_requests_keep_no_registration(database_settings: DatabaseSettings) -> None:
    """A flood of registrations cannot make itself last by wrong requests, and keeps nobody out for
    long."""
    async with company(database_settings, registrations=1) as made, browsing() as browser:
        body = {"redirect_uris": [REDIRECT]}
        client = (await made.register())["client_id"]
        assert (await made.take_code(client, "wrong"))[0] == 400
        assert await post(made, "/revoke", data={"client_id": client, "token": "x"}) == 200
        assert await post(made, "/register", json=body) == 503
        await sql(
            database_settings,
            "UPDATE login_client_t SET created_ts = created_ts - interval '11 minutes'",
        )
        client = (await made.register())["client_id"]  # the older one has made room
        back = await browser.log_in(made.authorize(client))
        assert (await made.take_code(client, back.query["code"]))[0] == 200
        await made.register()


async def test_one_address_registers_so_many_clients(database_settings: DatabaseSettings) -> None:
    async with company(database_settings, registrations_per_hour=2) as made:
        for _ in range(2):
            await made.register()
        body = {"redirect_uris": [REDIRECT]}
        async with made.http.post(f"{made.url}/register", json=body) as answer:
            assert answer.status == 429
            assert int(answer.headers["retry-after"]) > 0


@pytest.mark.parametrize(
    ("uri", "pattern", "fits"),
    [
        ("https://a.corp.example/cb", "https://*.corp.example/*", True),
        ("https://evil.example/.corp.example/cb", "https://*.corp.example/*", False),
        ("https://evil.example?.corp.example/cb", "https://*.corp.example/*", False),
        ("https://claude.ai/api/mcp/auth_callback", "https://claude.ai/*", True),
        ("https://claude.ai.evil.example/", "https://claude.ai/*", False),
        ("http://localhost:7777/callback", "http://localhost:*", True),
        ("http://[::1]:5/cb", "http://[::1]:*", True),
        ("https://evil.example/x", "https://claude.ai", False),
        ("https://claude.ai/x?y", "https://claude.ai", True),
        ("cursor://anysphere.cursor-mcp/oauth/callback", "cursor://*", True),
        ("com.example.app:/cb", "com.example.app:*", True),
    ],
)
def test_patterns_of_redirects_end_at_the_host(uri: str, pattern: str, fits: bool) -> None:
    assert (redirect_problem(uri, (pattern,)) is None) is fits


@pytest.mark.parametrize(
    "uri",
    [
        *("ms-msdt:/id", "search-ms:query", "microsoft-edge:https://evil.example", "shell:x"),
        *("http://[::1].evil.example/cb", "http://127.0.0.1.evil.example/cb", "http:localhost/cb"),
        *("https:evil.example", "https:/evil.example", "https://app.example\\@evil.example/"),
        *("https://app.example/\r\nSet-Cookie:x", "http://127.1/cb", "http://localhost./cb"),
    ],
)
def test_redirects_that_lead_elsewhere_cannot_be_registered(uri: str) -> None:
    assert redirect_problem(uri)


def test_a_fragment_is_no_part_of_a_redirect() -> None:
    assert not matches("http://127.0.0.1:5/cb#x", "http://127.0.0.1/cb")
    assert not matches("http://127.0.0.1:5/cb#", "http://127.0.0.1/cb")


async def test_redirects_that_are_narrowed_later_hold_for_older_clients(
    database_settings: DatabaseSettings,
) -> None:
    async with company(database_settings) as made:
        client = (await made.register(REDIRECT, WEB))["client_id"]
    narrow = ("https://app.example/*",)
    async with company(database_settings, redirects=narrow) as made, browsing() as browser:
        assert (await browser.get(made.authorize(client))).status == 400
        assert (await browser.get(made.authorize(client, redirect_uri=WEB))).status == 200


async def test_the_guard_of_origins_lets_only_paths_of_the_login_through() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    guard = OriginGuard(app, [], [], (*LOGIN_PATHS, "/.well-known"))
    for path, status in (
        ("/token", 200), ("/login/callback/corp", 200), ("/.well-known/jwks.json", 200),
        ("/tokens/mcp", 403), ("/login-mcp", 403), ("/mcp", 403),
    ):  # fmt: skip
        sent: list[Any] = []

        async def send(message: Any, sent: list[Any] = sent) -> None:
            sent.append(message)

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        headers = [(b"host", b"localhost"), (b"origin", b"https://evil.example")]
        scope = {"type": "http", "method": "POST", "path": path, "headers": headers,
                 "http_version": "1.1", "query_string": b""}  # fmt: skip
        await guard(scope, receive, send)
        assert sent[0]["status"] == status, path


async def test_no_consent_is_silent_for_programs_that_anything_could_be(
    database_settings: DatabaseSettings, published_documents: Published
) -> None:
    """A document on the web proves nothing of a program that listens on the visitor's computer,
    and a consent is for one resource."""
    async with company(database_settings) as made, browsing() as browser:
        await browser.log_in(made.authorize(DOCUMENT))
        assert (await browser.get(made.authorize(DOCUMENT))).status == 200
        rows = await sql(database_settings, "SELECT 1 FROM login_consent_t")
        assert not rows  # nothing that would never be asked
        url = made.authorize(DOCUMENT, redirect_uri=WEB)
        await browser.log_in(url)
        assert (await browser.get(url)).query["code"]
        url = made.authorize(DOCUMENT, redirect_uri=WEB, resource=f"{made.url}/rpc")
        assert (await browser.get(url)).status == 200
        url = made.authorize(DOCUMENT, redirect_uri=WEB, scope="tools:read", prompt="none")
        assert (await browser.get(url)).query["code"]
        assert (await browser.get(url, site="cross-site")).query["error"] == "consent_required"


async def test_a_document_that_changed_meanwhile_gets_no_code(
    database_settings: DatabaseSettings, published_documents: Published
) -> None:
    async with company(database_settings, document_s=1e-6) as made, browsing() as browser:
        sent = await browser.press(made.authorize(DOCUMENT, redirect_uri=WEB), "at:corp")
        back = await browser.get(sent.location)
        published_documents.documents[DOCUMENT]["redirect_uris"] = ["https://app.example/other"]
        answer = await browser.get(back.location, site="cross-site")
        assert (answer.status, answer.location) == (400, "")


async def test_an_announced_iss_of_a_provider_is_required(
    database_settings: DatabaseSettings,
) -> None:
    identity = Identity(announces_iss=True)
    async with company(database_settings, identity) as made, browsing() as browser:
        client = (await made.register())["client_id"]
        assert (await browser.log_in(made.authorize(client))).query["code"]
        identity.sends_iss = False
        answer = await browser.log_in(made.authorize(client, prompt="login"))
        assert answer.status == 403


def test_an_issuer_without_prefix_names_no_principal_of_another() -> None:
    issuer = "https://id.example"
    settings = settings_of("http://localhost", issuer, NO_DATABASE, {})
    settings = replace(settings, auth=replace(settings.auth, issuer=issuer))
    provider = Provider("corp", settings.login.providers["corp"], settings)
    assert provider.person_of({"sub": "ann"}).principal == "ann"
    assert provider.person_of({"sub": "urn:x"}).principal == "urn:x"
    for subject in ("key:root", "user:bob", "client:machine", "corp:ann"):
        with pytest.raises(ProviderRefused):
            provider.person_of({"sub": subject})


def test_no_provider_has_the_name_of_another_issuer() -> None:
    auth = settings_of("http://localhost", "https://x.example", NO_DATABASE, {}).auth
    issuers = {"corp": IssuerSettings(issuer="https://y.example", jwks_file="k.json")}
    auth = replace(auth, issuers=issuers)

    def provider(issuer: str) -> ProviderSettings:
        return ProviderSettings(issuer=issuer, client_id="x")

    assert [*shared_names(auth, {"corp": provider("https://y.example")})] == []
    assert [*shared_names(auth, {"corp": provider("https://x.example")})] == ["corp"]
    twins = {"one": provider("https://y.example"), "corp": provider("https://z.example")}
    assert [*shared_names(auth, twins)] == ["corp"]
    assert [*shared_names(auth, {"b": provider("https://x.example")})] == []


async def test_a_token_of_nobodys_login_is_revoked_too(database_settings: DatabaseSettings) -> None:
    secret = "a secret of a machine"
    machine = LoginClient(secret=secret, grants=("client_credentials",))
    async with company(database_settings, clients={"machine": machine}) as made:
        form = {"client_id": "machine", "client_secret": secret}
        _, answer = await made.token(grant_type="client_credentials", **form)
        token = answer["access_token"]
        assert await made.status(token) == 200
        forged = jwt.encode(
            {"iss": made.url, "client_id": "machine", "sid": str(uuid4())}, "x" * 40
        )
        for text in (forged, "x", ""):
            assert await post(made, "/revoke", data={**form, "token": text}) == 200
        assert await made.status(token) == 200
        for _ in range(2):
            assert await post(made, "/revoke", data={**form, "token": token}) == 200
        assert await made.status(token) == 401
        rows = await sql(database_settings, "SELECT 1 FROM revocation_t")
        assert len(rows) == 1


async def test_a_disabled_person_has_no_token_left(database_settings: DatabaseSettings) -> None:
    """Neither by a login nor by an assertion of their provider."""
    secret = "a secret of a machine"
    machine = LoginClient(secret=secret, grants=("id_jag",))
    identity = Identity()
    async with company(database_settings, identity, clients={"machine": machine}) as made:
        server = made.gateway.login._server  # type: ignore[union-attr]
        assert server is not None
        entry = server.parts.providers["corp"].entry
        server.parts.providers["corp"].entry = replace(entry, id_jag=True)

        async def ask(**changes: Any) -> tuple[int, Any]:
            claims = {"sub": "ann", "aud": made.url, "client_id": "machine",
                      "resource": f"{made.url}/mcp", "jti": str(uuid4()), **changes}  # fmt: skip
            return await made.token(
                grant_type="urn:ietf:params:oauth:grant-type:jwt-bearer",
                assertion=identity.sign(claims, "oauth-id-jag+jwt"),
                client_id="machine",
                client_secret=secret,
            )

        for resource in (None, {"a": 1}, [1], [None], [f"{made.url}/mcp", f"{made.url}/rpc"], 5):
            status, answer = await ask(resource=resource)
            assert (status, answer["error"]) == (400, "invalid_target"), resource
        status, answer = await ask()
        assert status == 200, answer
        assert await made.status(answer["access_token"]) == 200
        tenant = made.gateway.settings.tenant.host_id
        people = People(server._pool(), tenant)
        assert await people.set_disabled(tenant, "corp:ann", disabled=True)
        await server.revoke_at_once()
        assert await made.status(answer["access_token"]) == 401
        status, answer = await ask()
        assert (status, answer["error"]) == (400, "invalid_grant")


async def test_a_refresh_that_is_refused_uses_no_token_up(
    database_settings: DatabaseSettings,
) -> None:
    async with company(database_settings, refresh_grace_s=1e-6) as made, browsing() as browser:
        client, tokens = await made.grant_tokens(browser)
        refresh = tokens["refresh_token"]
        status, answer = await made.refresh(client, refresh, resource=f"{made.url}/rpc")
        assert (status, answer["error"]) == (400, "invalid_target")
        status, _ = await made.refresh(client, refresh)
        assert status == 200


async def test_clocks_of_nodes_end_no_login(
    database_settings: DatabaseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ahead(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return super().now(tz) + timedelta(hours=1)

    async with company(database_settings) as made, browsing() as browser:
        client, tokens = await made.grant_tokens(browser)
        status, first = await made.refresh(client, tokens["refresh_token"])
        assert status == 200
        monkeypatch.setattr("registry.login.logins_and_grants.datetime", Ahead)
        status, second = await made.refresh(client, tokens["refresh_token"])
        assert status == 200
        assert first["refresh_token"] == second["refresh_token"]


async def test_a_key_stays_as_long_as_the_longest_token(
    database_settings: DatabaseSettings,
) -> None:
    machine = LoginClient(secret="a secret of a machine", grants=("client_credentials",),
                          access_s=7200)  # fmt: skip
    form = {"grant_type": "client_credentials", "client_id": "machine",
            "client_secret": "a secret of a machine"}  # fmt: skip
    clients = {"machine": machine}
    async with company(database_settings, clients=clients) as made:
        _, answer = await made.token(**form)
        past = made.gateway.settings.login.key_s + 3600
        await sql(
            database_settings,
            f"UPDATE login_key_t SET created_ts = created_ts - interval '{past} s'",
        )
        async with company(
            database_settings, made.identity, url=made.url, clients=clients
        ) as second:
            _, another = await second.token(**form)
            for token in (answer["access_token"], another["access_token"]):
                assert await second.status(token) == 200
            kids = {jwt.get_unverified_header(each["access_token"])["kid"]
                    for each in (answer, another)}  # fmt: skip
            assert len(kids) == 2


async def test_no_other_token_is_an_access_token(database_settings: DatabaseSettings) -> None:
    async with company(database_settings) as made, browsing() as browser:
        client, tokens = await made.grant_tokens(browser)
        good = tokens["access_token"]
        claims = jwt.decode(good, options={"verify_signature": False})
        async with made.http.get(f"{made.url}/.well-known/jwks.json") as answer:
            (public,) = (await answer.json())["keys"]
        header = jwt.get_unverified_header(good)
        assert header["typ"] == "at+jwt"
        stranger = generate_private_key(SECP256R1())
        pem = ECAlgorithm.from_jwk(public)
        secret = f"{public['x']}{public['y']}"
        parts = good.split(".")

        def with_claims(**changes: Any) -> str:
            text = msgspec.json.encode({**claims, **changes})
            body = base64.urlsafe_b64encode(text).decode().rstrip("=")
            return f"{parts[0]}.{body}.{parts[2]}"

        assert pem is not None
        for name, token in (
            ("ID token", made.identity.sign({**claims, "iss": made.identity.url})),
            ("provider as us", made.identity.sign(claims)),
            ("stranger", jwt.encode(claims, stranger, "ES256", {"kid": header["kid"]})),
            ("none", jwt.encode(claims, "", "none", {"kid": header["kid"]})),
            ("HS256", jwt.encode(claims, secret, "HS256", {"kid": header["kid"]})),
            ("tenant", with_claims(tenant=str(uuid4()))),
            ("aud", with_claims(aud=f"{made.url}/rpc")),
            ("refresh", tokens["refresh_token"]),
        ):
            assert await made.status(token) == 401, name
        assert await made.status(good, "/rpc") == 401
        assert await made.status(good) == 200
        status, _ = await made.refresh(client, good)
        assert status == 400
        status, refused = await made.token(
            grant_type="urn:ietf:params:oauth:grant-type:jwt-bearer", assertion=good,
            client_id=client,
        )  # fmt: skip
        assert (status, refused["error"]) == (400, "unauthorized_client")


async def test_a_login_leads_to_a_page_of_the_gateway(made: Company) -> None:
    for below in (
        *("//evil.example", "/\\evil.example", "https://evil.example", "\\\\evil.example"),
        *("/\t/x", "javascript:alert(1)", "/\r\nSet-Cookie: a=b", "evil.example", ""),
        "/\u2028/",
    ):
        url = f"{made.url}/login?{urlencode({'next': below})}"
        async with browsing() as browser:
            page = await browser.get(url)
            sent = await browser.post(
                f"{made.url}/login", {**fields(page.text), "next": below, "choice": "at:corp"}
            )
            back = await browser.get(sent.location)
            answer = await browser.get(back.location, site="cross-site")
            assert answer.location == "/login/sessions", below
            answer = await browser.get(url)
            assert answer.location == "/login/sessions", below


async def test_names_and_states_break_no_page_and_no_header(made: Company) -> None:
    hostile = "\r\nSet-Cookie: a=b\r\n\r\n<script>x</script>\"'>"
    async with browsing() as browser:
        made.identity.person = {"sub": "ann", "name": hostile}
        client = (await made.register(WEB, client_name=hostile))["client_id"]
        url = made.authorize(client, redirect_uri=WEB, state=hostile, scope=hostile)
        back = await browser.log_in(url)
        assert back.query["state"] == hostile
        for path in (url, f"{url}&prompt=consent", f"{made.url}/login/sessions",
                     made.authorize(hostile), made.authorize(client, redirect_uri=hostile),
                     f"{made.url}/login?next={hostile.encode().hex()}"):  # fmt: skip
            answer = await browser.get(path)
            assert "<script" not in answer.text
            assert "a=b" not in str(answer.headers.get("set-cookie"))
        made.identity.refuses = hostile
        answer = await browser.log_in(f"{url}&prompt=login")
        assert answer.status == 403
        assert "<script" not in answer.text


async def test_codes_and_tokens_race_at_two_nodes(database_settings: DatabaseSettings) -> None:
    async with (
        company(database_settings) as made,
        browsing() as browser,
        company(database_settings, made.identity, url=made.url) as second,
    ):
        client = (await made.register())["client_id"]
        back = await browser.log_in(made.authorize(client))
        nodes = (made, second) * 6
        answers = await asyncio.gather(
            *(node.take_code(client, back.query["code"]) for node in nodes)
        )
        (winner,) = [answer for status, answer in answers if status == 200]
        assert await made.status(winner["access_token"]) == 401  # somebody has a copy
        _, tokens = await made.grant_tokens(browser)
        client = jwt.decode(tokens["access_token"], options={"verify_signature": False})[
            "client_id"
        ]
        answers = await asyncio.gather(
            *(node.refresh(client, tokens["refresh_token"]) for node in nodes)
        )
        assert {status for status, _ in answers} == {200}
        assert len({answer["refresh_token"] for _, answer in answers}) == 1


async def test_an_outage_of_the_database_loses_no_login(
    database_settings: DatabaseSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with company(database_settings) as made, browsing() as browser:
        server = made.gateway.login._server  # type: ignore[union-attr]
        assert server is not None
        client = (await made.register())["client_id"]
        sent = await browser.press(made.authorize(client), "at:corp")
        back = await browser.get(sent.location)
        with monkeypatch.context() as outage:
            outage.setattr(server, "_opened", lambda: None)
            assert (await browser.get(back.location, site="cross-site")).status == 503
            assert (await browser.get(made.authorize(client))).status == 503
            assert (await made.take_code(client, "x"))[0] == 503
        answer = await browser.get(back.location, site="cross-site")
        with monkeypatch.context() as outage:
            outage.setattr(server, "_opened", lambda: None)
            status, refused = await made.take_code(client, answer.query["code"])
            assert (status, refused["error"]) == (503, "temporarily_unavailable")
        assert (await made.take_code(client, answer.query["code"]))[0] == 200


async def test_rows_of_logins_that_nobody_uses_are_deleted(
    database_settings: DatabaseSettings,
) -> None:
    async with company(database_settings) as made, browsing() as browser:
        server = made.gateway.login._server  # type: ignore[union-attr]
        assert server is not None
        client, tokens = await made.grant_tokens(browser)
        await made.refresh(client, tokens["refresh_token"])
        for _ in range(3):  # one browser, logged in again and again
            await browser.press(made.authorize(client), "deny")
            await browser.log_in(made.authorize(client))
        for table, column in (("login_refresh_t", "replaced_ts"), ("login_grant_t", "used_ts"),
                              ("login_t", "used_ts")):  # fmt: skip
            await sql(database_settings,
                      f"UPDATE {table} SET {column} = {column} - interval '15 days'")  # fmt: skip
        await made.gateway.access.identities.settle(server._pool())
        for table in ("login_refresh_t", "login_grant_t", "login_t"):
            assert await sql(database_settings, f"SELECT count(*) FROM {table}") == [(0,)], table


async def test_logs_have_no_secret_of_a_login(
    database_settings: DatabaseSettings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with company(database_settings) as made, browsing() as browser:
        registered = await made.register(token_endpoint_auth_method="client_secret_post")
        client, secret = registered["client_id"], registered["client_secret"]
        url = made.authorize(client, state="a-secret-state")
        page = await browser.get(url)
        sent = await browser.post(url, {**fields(page.text), "choice": "at:corp"})
        back = await browser.get(sent.location)
        answer = await browser.get(back.location, site="cross-site")
        code = answer.query["code"]
        _, tokens = await made.take_code(client, code, client_secret=secret)
        _, following = await made.refresh(client, tokens["refresh_token"], client_secret=secret)
        await made.refresh(client, tokens["refresh_token"], client_secret=f"{secret}x")
        await made.take_code(client, code, client_secret=secret)
        cookies = [cookie.value for cookie in browser.http.cookie_jar]
        secrets = [
            *(secret, code, VERIFIER, back.query["code"], back.query["state"], *cookies),
            *(tokens["access_token"], tokens["refresh_token"], following["refresh_token"]),
            fields(page.text)["_csrf"],
        ]
        assert len(secrets) >= 10
        ours = (record for record in caplog.records
                if not record.name.startswith(("aiohttp", "asyncio", "psycopg")))  # fmt: skip
        text = "\n".join(f"{record.getMessage()} {vars(record)}" for record in ours)
        for each in secrets:
            assert each not in text
        rows = await sql(database_settings, "SELECT row_to_json(a)::text FROM audit_t AS a")
        for each in secrets:
            assert each not in str(rows)


@pytest.mark.parametrize(
    ("said", "expected"),
    [(None, 3600), (0.0, 300), (299.0, 300), (900.0, 900), (90_000.0, 86_400)],
)
async def test_the_age_of_a_document_is_bounded(
    database_settings: DatabaseSettings,
    published_documents: Published,
    said: float | None,
    expected: int,
) -> None:
    """LOG-4: five minutes to a day."""
    published_documents.fresh_s = said
    async with company(database_settings) as made, browsing() as browser:
        await browser.get(made.authorize(DOCUMENT))
        (row,) = await sql(
            database_settings,
            "SELECT extract(epoch FROM fresh_ts - now())::float8 FROM login_client_t",
        )
    assert expected - 60 < row[0] <= expected
