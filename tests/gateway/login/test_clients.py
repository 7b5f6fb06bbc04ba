"""Clients: registered ones, those with a document about themselves, those of the settings."""

import base64
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import jwt
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from jwt.algorithms import ECAlgorithm

from config.login import LoginClient
from config.settings import DatabaseSettings
from gateway.login.clients import ASSERTION, LoginClients, is_document_url
from registry.documents.fetch import FetchedDocument
from schemas.errors import ImportRejected
from tests.gateway.login.company import REDIRECT, VERIFIER, Company, browsing, company, settings_of
from tests.servers.identity import Identity

pytestmark = pytest.mark.anyio

DOCUMENT = "https://program.example/oauth/client.json"


class Published:
    """Documents of clients. They are at public https addresses, which no test can reach: the
    guard of the addresses has tests of its own (tests/registry/documents)."""

    def __init__(self) -> None:
        self.documents: dict[str, Any] = {}
        self.fresh_s: float | None = None
        self.fetched = 0

    async def fetch(self, url: str, **asked: Any) -> FetchedDocument:
        assert not asked["by_operator"]
        assert not asked["private_networks"]
        assert asked["redirects"] == 0
        assert asked["limit_bytes"] <= 65_536
        self.fetched += 1
        if url not in self.documents:
            raise ImportRejected(f"{url} answered 404.")
        body = msgspec.json.encode(self.documents[url])
        return FetchedDocument(body, url, fresh_s=self.fresh_s)


@pytest.fixture
def published_documents(monkeypatch: pytest.MonkeyPatch) -> Published:
    made = Published()
    monkeypatch.setattr("gateway.login.clients.fetch", made.fetch)
    made.documents[DOCUMENT] = {
        "client_id": DOCUMENT,
        "client_name": "Program",
        "redirect_uris": [REDIRECT],
        "grant_types": ["authorization_code", "refresh_token"],
        "unknown": {"members": "stay out"},
    }
    return made


async def test_a_client_publishes_a_document_about_itself(
    database_settings: DatabaseSettings, published_documents: Published
) -> None:
    async with company(database_settings) as made, browsing() as browser:
        page = await browser.get(made.authorize(DOCUMENT))
        assert "published by program.example" in page.text
        back = await browser.log_in(made.authorize(DOCUMENT))
        status, tokens = await made.take_code(DOCUMENT, back.query["code"])
        assert status == 200, tokens
        assert published_documents.fetched == 1
        published_documents.documents.clear()  # an outage of the program's site logs nobody out
        status, tokens = await made.refresh(DOCUMENT, tokens["refresh_token"])
        assert status == 200, tokens


@pytest.mark.parametrize(
    "change",
    [
        {"client_id": "https://program.example/other.json"},
        {"client_name": ""},
        {"redirect_uris": []},
        {"redirect_uris": ["javascript:alert(1)"]},
        {"redirect_uris": "https://app.example/cb"},
        {"token_endpoint_auth_method": "client_secret_post"},
        {"client_secret": "shared"},
        {"token_endpoint_auth_method": "private_key_jwt"},
    ],
    ids=str,
)
async def test_a_document_that_is_not_as_expected_makes_no_client(
    database_settings: DatabaseSettings, published_documents: Published, change: dict[str, Any]
) -> None:
    published_documents.documents[DOCUMENT] |= change
    async with company(database_settings) as made, browsing() as browser:
        for _ in range(2):
            assert (await browser.get(made.authorize(DOCUMENT))).status == 400
        assert published_documents.fetched == 1  # not at every visit
        status, answer = await made.refresh(DOCUMENT, "tgr_x")
        assert (status, answer["error"]) == (401, "invalid_client")


@pytest.mark.parametrize(
    "url",
    [
        *("http://program.example/c.json", "https://program.example", "https://program.example/"),
        *("https://u@program.example/c", "https://program.example/a/../c", "https:///c"),
        *("https://program.example/c#x", "https://program.example/\u0430", "https://x:y/c"),
    ],
)
def test_some_urls_are_no_client_ids(url: str) -> None:
    assert not is_document_url(url)
    assert is_document_url(DOCUMENT)


async def test_registrations_are_closed_or_for_documents_alone(
    database_settings: DatabaseSettings, published_documents: Published
) -> None:
    for registration, documented in (("cimd", True), ("closed", False)):
        async with (
            company(database_settings, registration=registration) as made,
            browsing() as browser,
        ):
            body = {"redirect_uris": [REDIRECT]}
            async with made.http.post(f"{made.url}/register", json=body) as answer:
                assert answer.status == 403
            async with made.http.get(
                f"{made.url}/.well-known/oauth-authorization-server"
            ) as answer:
                metadata = await answer.json()
            assert "registration_endpoint" not in metadata
            page = await browser.get(made.authorize(DOCUMENT))
            assert (page.status == 200) is documented


async def test_registered_clients_get_the_method_of_their_request(made: Company) -> None:
    async with browsing() as browser:
        registered = await made.register()
        assert registered["token_endpoint_auth_method"] == "none"
        assert "client_secret" not in registered
        for method in ("client_secret_basic", "client_secret_post"):
            registered = await made.register(token_endpoint_auth_method=method)
            assert registered["token_endpoint_auth_method"] == method
            client, secret = registered["client_id"], registered["client_secret"]
            back = await browser.log_in(made.authorize(client))
            code = back.query["code"]
            status, answer = await made.take_code(client, code)
            assert (status, answer["error"]) == (401, "invalid_client")
            status, answer = await made.take_code(client, code, client_secret="wrong")
            assert status == 401
            status, answer = await made.take_code(client, code, client_secret=secret)
            assert status == 200
            basic = base64.b64encode(f"{client}:{secret}".encode()).decode()
            form = {"grant_type": "refresh_token", "refresh_token": answer["refresh_token"]}
            async with made.http.post(
                f"{made.url}/token", data=form, headers={"Authorization": f"Basic {basic}"}
            ) as response:
                assert response.status == 200
                assert response.headers["cache-control"] == "no-store"


async def test_a_registration_that_is_not_as_expected_is_refused(made: Company) -> None:
    for body, error in (
        ({"redirect_uris": ["http://app.example/cb"]}, "invalid_redirect_uri"),
        ({"redirect_uris": []}, "invalid_redirect_uri"),
        ({"redirect_uris": [REDIRECT] * 21}, "invalid_redirect_uri"),
        ({"redirect_uris": [1]}, "invalid_client_metadata"),
        (
            {"redirect_uris": [REDIRECT], "token_endpoint_auth_method": "tls"},
            "invalid_client_metadata",
        ),
        ({"redirect_uris": [REDIRECT], "grant_types": ["implicit"]}, "invalid_client_metadata"),
        ([], "invalid_client_metadata"),
    ):
        async with made.http.post(f"{made.url}/register", json=body) as answer:
            assert answer.status == 400, body
            assert (await answer.json())["error"] == error, body


async def test_registrations_that_nobody_uses_are_bounded(
    database_settings: DatabaseSettings,
) -> None:
    async with company(database_settings, registrations=3) as made:
        for _ in range(3):
            await made.register()
        body = {"redirect_uris": [REDIRECT]}
        async with made.http.post(f"{made.url}/register", json=body) as answer:
            assert answer.status == 503


Sign = Callable[..., str]


@pytest.fixture
def sign(published_documents: Published) -> Sign:
    """Signs the authentication of the client of DOCUMENT, whose keys are published."""
    key = generate_private_key(SECP256R1())
    public = {**ECAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": "1", "use": "sig"}
    published_documents.documents["https://program.example/keys"] = {"keys": [public]}
    published_documents.documents[DOCUMENT] |= {
        "token_endpoint_auth_method": "private_key_jwt",
        "jwks_uri": "https://program.example/keys",
    }

    def sign(audience: str, **changes: Any) -> str:
        claims = {
            "iss": DOCUMENT,
            "sub": DOCUMENT,
            "aud": audience,
            "exp": int(time.time()) + 60,
            "jti": str(uuid4()),
            **changes,
        }
        claims = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode(claims, key, "ES256", {"kid": "1"})

    return sign


async def test_a_client_signs_its_authentication(made: Company, sign: Sign) -> None:
    async with browsing() as browser:
        back = await browser.log_in(made.authorize(DOCUMENT))
        code = back.query["code"]
        kind = {"client_assertion_type": ASSERTION}
        late = int(time.time()) + 7200
        for audience, changes in (
            ("https://elsewhere.example", {}),
            (made.url, {"sub": "https://other.example/c"}),
            (made.url, {"iss": "https://other.example/c"}),
            (made.url, {"jti": None}),
            (made.url, {"exp": 1}),
            (made.url, {"exp": late}),
        ):
            assertion = sign(audience, **changes)
            status, answer = await made.take_code(
                DOCUMENT, code, client_assertion=assertion, **kind
            )
            assert (status, answer["error"]) == (401, "invalid_client"), changes
        status, _ = await made.take_code(DOCUMENT, code)
        assert status == 401
        assertion = sign(f"{made.url}/token")
        status, tokens = await made.take_code(DOCUMENT, code, client_assertion=assertion, **kind)
        assert status == 200, tokens
        status, answer = await made.refresh(
            DOCUMENT, tokens["refresh_token"], client_assertion=assertion, **kind
        )
        assert (status, answer["error"]) == (401, "invalid_client")  # it is good once


async def test_a_client_acts_for_itself(database_settings: DatabaseSettings) -> None:
    machine = LoginClient(
        secret="a secret of a machine", grants=("client_credentials",), roles=("clerk",)
    )
    async with company(database_settings, clients={"machine": machine}) as made:
        form = {"grant_type": "client_credentials", "client_id": "machine"}
        status, answer = await made.token(**form)
        assert (status, answer["error"]) == (401, "invalid_client")
        status, answer = await made.token(**form, client_secret="a secret of a machine")
        assert status == 200, answer
        assert answer["scope"] == "tools:read tools:write"
        assert "refresh_token" not in answer
        claims = jwt.decode(answer["access_token"], options={"verify_signature": False})
        assert claims["sub"] == "client:machine"
        assert await made.status(answer["access_token"]) == 200
        status, answer = await made.token(
            **form, client_secret="a secret of a machine", resource="https://elsewhere.example"
        )
        assert (status, answer["error"]) == (400, "invalid_target")
        status, answer = await made.token(
            **form, client_secret="a secret of a machine", scope="tools:read admin"
        )
        assert (status, answer["scope"]) == (200, "tools:read")
        status, answer = await made.token(grant_type="password", client_id="machine",
                                          client_secret="a secret of a machine")  # fmt: skip
        assert answer["error"] == "unsupported_grant_type"


async def test_a_client_that_is_no_longer_configured_has_no_tokens(
    database_settings: DatabaseSettings,
) -> None:
    """LOG-13: as a person who has left, as soon as a node has the new settings."""
    secret = "a secret of a machine"
    machine = LoginClient(secret=secret, grants=("client_credentials",))
    browsers = LoginClient(secret=secret, redirect_uris=(REDIRECT,))
    async with company(database_settings, clients={"machine": machine}) as made:
        form = {"grant_type": "client_credentials", "client_id": "machine"}
        status, answer = await made.token(**form, client_secret=secret)
        assert status == 200
        for clients, good in (({"machine": machine}, 200), ({"machine": browsers}, 401), ({}, 401)):
            async with company(
                database_settings, made.identity, url=made.url, clients=clients
            ) as node:
                assert await node.status(answer["access_token"]) == good


async def test_an_assertion_of_a_provider_gives_a_token_without_a_page(
    database_settings: DatabaseSettings,
) -> None:
    machine = LoginClient(secret="a secret of a machine", grants=("id_jag",))
    identity = Identity()
    async with company(database_settings, identity, clients={"machine": machine}) as made:
        provider = msgspec.structs.replace(made.gateway.settings.login.providers["corp"],
                                           id_jag=True)  # fmt: skip
        server = made.gateway.login._server  # type: ignore[union-attr]
        assert server is not None
        server.parts.providers["corp"].entry = provider
        good = {
            "sub": "ann",
            "aud": made.url,
            "client_id": "machine",
            "resource": f"{made.url}/mcp",
            "scope": "tools:read tools:write",
        }

        async def ask(typ: str = "oauth-id-jag+jwt", **changes: Any) -> tuple[int, Any]:
            claims = {**good, "jti": str(uuid4()), **changes}
            assertion = identity.sign({k: v for k, v in claims.items() if v is not None}, typ)
            return await made.token(
                grant_type="urn:ietf:params:oauth:grant-type:jwt-bearer",
                assertion=assertion,
                client_id="machine",
                client_secret="a secret of a machine",
            )

        for typ, changes in (
            ("JWT", {}),
            ("oauth-id-jag+jwt", {"aud": "https://elsewhere.example"}),
            ("oauth-id-jag+jwt", {"client_id": "another"}),
            ("oauth-id-jag+jwt", {"resource": "https://elsewhere.example/mcp"}),
            ("oauth-id-jag+jwt", {"exp": int(time.time()) + 3600}),
            ("oauth-id-jag+jwt", {"exp": int(time.time()) - 3600}),
            ("oauth-id-jag+jwt", {"jti": None}),
            ("oauth-id-jag+jwt", {"iss": "https://elsewhere.example"}),
            ("oauth-id-jag+jwt", {"sub": None}),
        ):
            status, answer = await ask(typ, **changes)
            assert status == 400, (typ, changes, answer)
        status, answer = await ask(jti="once")
        assert status == 200, answer
        assert answer["scope"] == "tools:read"  # what the person has
        assert "refresh_token" not in answer
        assert await made.status(answer["access_token"]) == 200
        status, answer = await ask(jti="once")
        assert (status, answer["error"]) == (400, "invalid_grant")


def test_documents_are_fetched_by_the_guarded_fetcher() -> None:
    assert LoginClients._fetch.__globals__["fetch"].__module__ == "registry.documents.fetch"


KEYS = "https://program.example/keys"
KIND = {"client_assertion_type": ASSERTION}


async def test_key_sets_of_clients_are_fetched_now_and_then(
    database_settings: DatabaseSettings, published_documents: Published, sign: Sign
) -> None:
    """An authentication costs no fetch, and a stranger who claims to be the client no more than
    one for a while."""
    async with company(database_settings) as made, browsing() as browser:
        back = await browser.log_in(made.authorize(DOCUMENT))
        status, tokens = await made.take_code(
            DOCUMENT, back.query["code"], client_assertion=sign(made.url), **KIND
        )
        assert status == 200, tokens
        fetched = published_documents.fetched
        for _ in range(5):
            status, tokens = await made.refresh(
                DOCUMENT, tokens["refresh_token"], client_assertion=sign(made.url), **KIND
            )
            assert status == 200, tokens
        assert published_documents.fetched == fetched
        forged = jwt.encode(
            {"sub": DOCUMENT, "iss": DOCUMENT}, generate_private_key(SECP256R1()), "ES256",
            {"kid": "unknown"},
        )  # fmt: skip
        for _ in range(5):
            status, answer = await made.refresh(
                DOCUMENT, tokens["refresh_token"], client_assertion=forged, **KIND
            )
            assert (status, answer["error"]) == (401, "invalid_client")
        assert published_documents.fetched <= fetched + 1
        published_documents.documents.pop(KEYS)  # an outage of the program's site logs nobody out
        status, _ = await made.refresh(
            DOCUMENT, tokens["refresh_token"], client_assertion=sign(made.url), **KIND
        )
        assert status == 200


async def test_a_client_whose_keys_cannot_be_had_is_asked_to_try_again(
    database_settings: DatabaseSettings,
    published_documents: Published,
    sign: Sign,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """`invalid_client` would have it register again."""
    keys = published_documents.documents.pop(KEYS)
    async with company(database_settings) as made, browsing() as browser:
        code = (await browser.log_in(made.authorize(DOCUMENT))).query["code"]
        form = {
            "grant_type": "authorization_code",
            "client_id": DOCUMENT,
            "code": code,
            "redirect_uri": REDIRECT,
            "code_verifier": VERIFIER,
            "client_assertion": sign(made.url),
            **KIND,
        }
        with caplog.at_level("WARNING", "toolgate.login"):
            async with made.http.post(f"{made.url}/token", data=form) as answer:
                assert answer.status == 503
                assert (await answer.json())["error"] == "temporarily_unavailable"
                assert int(answer.headers["retry-after"]) > 0
                number = answer.headers["x-request-id"]
        assert number in [getattr(record, "request_id", "") for record in caplog.records]
        published_documents.documents[KEYS] = keys
        server = made.gateway.login._server  # type: ignore[union-attr]
        assert server is not None
        server.parts.clients._keys._sets.clear()  # as after the pause
        status, tokens = await made.take_code(
            DOCUMENT, code, client_assertion=sign(made.url), **KIND
        )
        assert status == 200, tokens


async def test_a_client_signs_with_keys_of_its_registration(
    database_settings: DatabaseSettings, sign: Sign
) -> None:
    own, eve = generate_private_key(SECP256R1()), generate_private_key(SECP256R1())
    public = {**ECAlgorithm.to_jwk(own.public_key(), as_dict=True), "kid": "own"}
    unusable = {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}
    async with company(database_settings) as made, browsing() as browser:
        for keys, signer, expected in (
            ([public], own, 200),
            ([public], eve, 401),
            ([unusable], own, 401),
        ):
            more = {"token_endpoint_auth_method": "private_key_jwt", "jwks": {"keys": keys}}
            client = (await made.register(**more))["client_id"]
            code = (await browser.log_in(made.authorize(client))).query["code"]
            claims = jwt.decode(
                sign(made.url, iss=client, sub=client), options={"verify_signature": False}
            )
            assertion = jwt.encode(claims, signer, "ES256", {"kid": "own"})
            status, answer = await made.take_code(client, code, client_assertion=assertion, **KIND)
            assert status == expected, answer


async def test_a_client_replaces_a_key_without_a_name(
    database_settings: DatabaseSettings, published_documents: Published, sign: Sign
) -> None:
    """RFC 7517, 4.5: `kid` is optional. A signature that is not of the former key has the key set
    fetched, now and then."""
    env = {"TOOLGATE_AUTH__JWKS_COOLDOWN_S": "0.001"}
    async with company(database_settings, env=env) as made, browsing() as browser:
        tokens = {}
        for _ in range(2):
            key = generate_private_key(SECP256R1())
            public = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
            published_documents.documents[KEYS] = {"keys": [public]}
            claims = jwt.decode(sign(made.url), options={"verify_signature": False})
            proof = {"client_assertion": jwt.encode(claims, key, "ES256"), **KIND}
            if tokens:
                status, tokens = await made.refresh(DOCUMENT, tokens["refresh_token"], **proof)
            else:
                back = await browser.log_in(made.authorize(DOCUMENT))
                status, tokens = await made.take_code(DOCUMENT, back.query["code"], **proof)
            assert status == 200, tokens


async def test_a_stranger_does_not_use_up_fetches_of_keys(
    database_settings: DatabaseSettings, published_documents: Published, sign: Sign
) -> None:
    """Documents at the host of a client's keys are counted apart."""
    async with company(database_settings) as made, browsing() as browser:
        code = (await browser.log_in(made.authorize(DOCUMENT))).query["code"]
        server = made.gateway.login._server  # type: ignore[union-attr]
        assert server is not None
        for number in range(made.gateway.settings.login.requests + 1):
            assert await server.parts.clients.find(f"{DOCUMENT}/{number}") is None
        status, tokens = await made.take_code(
            DOCUMENT, code, client_assertion=sign(made.url), **KIND
        )
        assert status == 200, tokens


async def test_key_sets_of_clients_are_bounded(
    database_settings: DatabaseSettings, published_documents: Published, sign: Sign
) -> None:
    settings = settings_of(
        "http://localhost", "http://localhost:1", database_settings, {}, key_sets=3
    )
    clients = LoginClients(settings, lambda: pytest.fail("it asks the database"))
    for number in (0, 1, 2, 0, 3):
        published_documents.documents[f"{KEYS}?{number}"] = published_documents.documents[KEYS]
        assert (await clients._keys.of(f"{KEYS}?{number}", by_operator=False)).ring is not None
    assert [url for url, _ in clients._keys._sets] == [f"{KEYS}?{n}" for n in (2, 0, 3)]
