"""The caller's token exchanged by the on-behalf-of flow of Entra ID."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from config.sources import SourceSettings, TokenExchange
from gateway.context import Context
from schemas.binding import Credential
from schemas.errors import ClaimsRequired
from tests.fixtures_servers import serving
from tests.gateway.upstreams.callers import Calling, caller
from tests.gateway.upstreams.conftest import open_client
from tests.servers.authorization import Late
from tests.servers.entra import CLAIMS, CONSENT, FACTOR, Entra
from tests.servers.identity import CLIENT, SECRET
from tests.servers.rest import Recorder

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def act_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """People of tests are faster than those for whom a refusal is remembered some seconds."""
    monkeypatch.setattr("gateway.upstreams.auth.service_tokens.INTERACTION_TTL_S", 0.0)


ORDERS = Credential("entra", "oauth2", scopes=("api://orders/Orders.Read",))


def person(entra: Entra, who: str, **changes: Any) -> Context:
    """A person with a token of theirs for the gateway, as it was verified."""
    token = entra.user_token(who, **changes)
    return caller(token, **jwt.decode(token, options={"verify_signature": False}))


@asynccontextmanager
async def orders(entra: Entra, **changes: Any) -> AsyncIterator[tuple[Calling, Recorder]]:
    issuer, service = Late(), Recorder()
    async with serving(issuer) as entra.url, serving(service) as url:
        issuer.app = entra.app
        kept = {"client_secret": SECRET, "audience": "api://orders", **changes}
        settings = TokenExchange(f"{entra.url}/token", CLIENT, profile="entra_obo", **kept)
        async with open_client(SourceSettings(exchange=settings)) as client:
            yield Calling(client, url, (ORDERS,)), service


def sent_tokens(service: Recorder) -> list[str]:
    return [token for seen in service.seen for token in seen.all("authorization")]


async def test_people_get_tokens_of_the_api_on_their_behalf() -> None:
    entra = Entra()
    async with orders(entra) as (call, service):
        tokens = {who: person(entra, who) for who in ("ann", "bob")}
        for who in ("ann", "bob", "ann"):
            assert not (await call(tokens[who])).is_error
    expected = ["Bearer 1:ann@api://orders", "Bearer 2:bob@api://orders"]
    assert sent_tokens(service) == [*expected, expected[0]]
    assert [form["scope"] for form in entra.forms] == ["api://orders/.default"] * 2


async def test_a_certificate_proves_the_gateway_instead_of_a_secret() -> None:
    key = generate_private_key(65537, 2048)
    name, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gateway")]), datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .sign(key, SHA256())
    ).public_bytes(Encoding.PEM)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    entra, pem = Entra(certificate=certificate), (private + certificate).decode()
    async with orders(entra, client_secret="", certificate=pem) as (call, service):
        assert not (await call(person(entra, "ann"))).is_error
    assert sent_tokens(service) == ["Bearer 1:ann@api://orders"]
    assert "client_secret" not in entra.forms[0]


@pytest.mark.parametrize("changes", [{"idtyp": "app"}, {"scp": None}, {"oid": None}])
async def test_tokens_of_applications_are_refused(changes: dict[str, Any]) -> None:
    entra = Entra()
    async with orders(entra) as (call, service):
        result = await call(person(entra, "robot", **changes))
    assert result.is_error
    assert "this one is an application's" in result.content[0].text
    assert (service.seen, entra.forms) == ([], [])


async def test_a_second_factor_is_asked_of_the_persons_client() -> None:
    entra = Entra(refusal=FACTOR)
    async with orders(entra) as (call, service):
        with pytest.raises(ClaimsRequired) as caught:
            await call(person(entra, "ann"))
        assert caught.value.claims == CLAIMS
        entra.refusal = {}
        assert not (await call(person(entra, "ann", amr=["mfa"]))).is_error
    assert len(service.seen) == 1


async def test_a_missing_consent_is_the_administrator_s_to_give() -> None:
    entra = Entra(refusal=CONSENT)
    async with orders(entra) as (call, service):
        ann = person(entra, "ann")
        result = await call(ann)
        assert "an administrator has to allow the gateway the permissions" in result.content[0].text
        entra.refusal = {}
        assert not (await call(ann)).is_error
    assert len(service.seen) == 1


@pytest.mark.parametrize("refusal", [CONSENT, FACTOR])
async def test_calls_before_a_person_acts_ask_the_server_once(
    monkeypatch: pytest.MonkeyPatch, refusal: dict[str, Any]
) -> None:
    """CT10: for a few seconds, so that a model that calls on and on is no storm."""
    monkeypatch.setattr("gateway.upstreams.auth.service_tokens.INTERACTION_TTL_S", 60.0)
    entra = Entra(refusal=refusal)
    async with orders(entra) as (call, _):
        ann = person(entra, "ann")
        for _ in range(5):
            with suppress(ClaimsRequired):
                assert (await call(ann)).is_error
    assert len(entra.forms) == 1
