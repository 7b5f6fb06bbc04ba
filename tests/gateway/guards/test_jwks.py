"""Keys at a URL: fetched when needed, and no more often; what serves while they cannot be."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from msgspec.structs import replace
from starlette.types import Receive, Scope, Send

from config.access import Auth
from config.load import load
from gateway.guards.authentication import Authenticator
from gateway.guards.verification_keys import RemoteKeys
from schemas.errors import Unavailable
from schemas.hybrid import StatusFault
from tests.fixtures_servers import Serve
from tests.gateway.asgi import http
from tests.gateway.guards.signing import NOW, signer
from tests.polling import until
from tests.servers.rest import JSON, respond

pytestmark = pytest.mark.anyio

OLD, NEW = signer("ES256", "old", "2025"), signer("ES256", "new", "2026")
TENANT = "00000000-0000-0000-0000-000000000001"
INVALID = "ERR10000"


@dataclass
class Publisher:
    """Serves a JWKS, or whatever `body`, `status` and `location` say."""

    keys: list[dict[str, Any]]
    status: int = 200
    body: bytes | None = None
    location: str = ""
    asked: int = 0
    released: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked += 1
        await self.released.wait()
        headers = [("content-type", JSON)]
        if self.location:
            headers.append(("location", self.location))
        body = json.dumps({"keys": self.keys}).encode() if self.body is None else self.body
        await respond(send, self.status, body, headers)


@dataclass
class Trusting:
    """An authenticator that fetches keys, and the clock that its fetching goes by."""

    authenticator: Authenticator
    publisher: Publisher
    now: float = 1000.0

    @property
    def keys(self) -> RemoteKeys:
        found = self.authenticator._issuers[0].keys
        assert isinstance(found, RemoteKeys)
        return found

    async def outcome(self, token: str) -> str | None:
        """None for a good token, the code of a Status, or the HTTP status."""
        headers = [("Authorization", f"Bearer {token}")]
        refusal = (await self.authenticator.identify(http(headers=headers))).refusal
        if isinstance(refusal, StatusFault):
            return refusal.as_status.code
        assert refusal is None or isinstance(refusal, Unavailable)
        return None if refusal is None else str(refusal.status)


@pytest.fixture
async def trusting(serve: Serve) -> Trusting:
    publisher = Publisher([OLD.jwk()])
    publisher.released.set()
    return trusting_publisher(await serve(publisher) + "/jwks", publisher)


def trusting_publisher(url: str, publisher: Publisher, **changes: Any) -> Trusting:
    auth: Auth = replace(load(None, {}).auth, mode="jwt", jwks_url=url, **changes)
    made = Trusting(Authenticator(auth, TENANT, lambda: NOW), publisher)
    made.keys._clock = lambda: made.now
    return made


async def test_keys_are_fetched_once_and_tokens_are_good(trusting: Trusting) -> None:
    for _ in range(3):
        assert await trusting.outcome(OLD.token()) is None
    assert trusting.publisher.asked == 1


async def test_a_new_key_is_fetched_when_named_by_a_token(trusting: Trusting) -> None:
    await trusting.outcome(OLD.token())
    trusting.publisher.keys = [OLD.jwk(), NEW.jwk()]
    assert await trusting.outcome(NEW.token()) == INVALID  # jwks_cooldown_s
    trusting.now += 30
    assert await trusting.outcome(NEW.token()) is None
    assert await trusting.outcome(OLD.token()) is None
    assert trusting.publisher.asked == 2


async def test_a_key_without_a_name_is_replaced(trusting: Trusting) -> None:
    """Tokens may name no key where there is one (OpenID Connect Core 1.0, 10.1): a signature that
    is not of the former one has the key set fetched, now and then."""
    former, later, eve = (signer("ES256", name) for name in ("old", "new", "eve"))
    trusting.publisher.keys = [former.jwk()]
    assert await trusting.outcome(former.token()) is None
    trusting.publisher.keys = [later.jwk()]
    assert await trusting.outcome(later.token()) == INVALID  # jwks_cooldown_s
    trusting.now += 30
    assert await trusting.outcome(later.token()) is None
    assert await trusting.outcome(former.token()) == INVALID
    for number in range(5):
        assert await trusting.outcome(eve.token(n=number)) == INVALID
    assert trusting.publisher.asked == 2


async def test_tokens_with_keys_that_nobody_has_fetch_nothing_more(trusting: Trusting) -> None:
    await trusting.outcome(OLD.token())
    trusting.now += 30
    eve = [signer("ES256", "eve", f"kid {number}").token() for number in range(50)]
    outcomes: list[str | None] = []

    async def come(token: str) -> None:
        outcomes.append(await trusting.outcome(token))

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            for token in eve:
                tasks.start_soon(come, token)
    for token in eve:
        assert await trusting.outcome(token) == INVALID
    assert outcomes == [INVALID] * 50
    assert trusting.publisher.asked == 2


async def test_concurrent_refreshes_share_one_request(trusting: Trusting) -> None:
    trusting.publisher.released.clear()
    good: list[str | None] = []

    async def come() -> None:
        good.append(await trusting.outcome(OLD.token()))

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(come)
            await anyio.wait_all_tasks_blocked()
            trusting.publisher.released.set()
    assert good == [None] * 20
    assert trusting.publisher.asked == 1


async def test_a_token_that_comes_while_the_new_keys_are_fetched_is_good(
    trusting: Trusting,
) -> None:
    """Keys are rotated while calls run, and the publisher takes its time."""
    assert await trusting.outcome(OLD.token()) is None
    trusting.now += 30
    trusting.publisher.keys = [OLD.jwk(), NEW.jwk()]
    trusting.publisher.released.clear()
    eve = [signer("ES256", "eve", f"kid {number}").token() for number in range(200)]
    outcomes: dict[str, str | None] = {}

    async def come(token: str) -> None:
        outcomes[token] = await trusting.outcome(token)

    rotated = [NEW.token(sub=f"caller {number}") for number in range(10)]
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            for token in (*rotated, *eve):  # one after the other, all while the first one waits
                tasks.start_soon(come, token)
                await anyio.wait_all_tasks_blocked()
                trusting.now += 0.01
            await until(lambda: trusting.publisher.asked == 2)
            assert await trusting.outcome(OLD.token()) is None  # nobody with a known key waits
            assert outcomes == {}
            trusting.publisher.released.set()
    assert [outcomes[token] for token in rotated] == [None] * 10
    assert {outcomes[token] for token in eve} == {INVALID}
    assert trusting.publisher.asked == 2


async def test_a_key_that_was_taken_back_is_good_no_longer(trusting: Trusting) -> None:
    token = OLD.token()
    headers = [("Authorization", f"Bearer {token}")]
    still = (await trusting.authenticator.identify(http(headers=headers))).still
    assert still is not None
    trusting.publisher.keys = [NEW.jwk(), OLD.jwk()]
    assert await trusting.keys.check() is None
    assert still()  # the key is there, beside others
    assert await trusting.outcome(token) is None
    trusting.publisher.keys = [NEW.jwk()]
    assert await trusting.keys.check() is None
    assert not still()
    assert await trusting.outcome(token) == INVALID
    trusting.publisher.keys = [signer("ES256", "swapped", "2026").jwk()]  # another by the same name
    good = NEW.token()
    assert await trusting.outcome(good) is None
    await trusting.keys.check()
    assert await trusting.outcome(good) == INVALID


async def test_the_last_keys_serve_while_none_can_be_fetched(trusting: Trusting) -> None:
    token = OLD.token()
    assert await trusting.outcome(token) is None
    trusting.publisher.status = 500
    trusting.now += 86_400
    assert await trusting.keys.check() == "it answered HTTP 500"
    assert await trusting.outcome(token) is None
    trusting.now += 1  # jwks_stale_s
    await trusting.keys.check()
    assert await trusting.outcome(token) == "503"
    trusting.publisher.status = 200
    trusting.now += 30  # jwks_cooldown_s, at most
    assert await trusting.outcome(token) is None


async def test_a_key_may_be_new_while_keys_cannot_be_fetched(trusting: Trusting) -> None:
    """A client whose token is called bad asks its person to log in again."""
    assert await trusting.outcome(OLD.token()) is None
    trusting.publisher.keys, trusting.publisher.status = [NEW.jwk()], 500
    trusting.now += 30
    unnamed = signer("ES256", "new")
    for token in (NEW.token(), NEW.token(), unnamed.token()):
        assert await trusting.outcome(token) == "503"
    assert trusting.publisher.asked == 2
    assert await trusting.outcome(OLD.token()) is None
    trusting.publisher.status = 200
    trusting.now += 30
    assert await trusting.outcome(NEW.token()) is None
    assert await trusting.outcome(OLD.token()) == INVALID


async def test_a_gateway_without_keys_is_unavailable_and_recovers(serve: Serve) -> None:
    publisher = Publisher([OLD.jwk()], status=503)
    publisher.released.set()
    trusting = trusting_publisher(await serve(publisher), publisher)
    for _ in range(5):
        assert await trusting.outcome(OLD.token()) == "503"
    assert publisher.asked == 1  # not with every call
    publisher.status = 200
    trusting.now += 1
    assert await trusting.outcome(OLD.token()) is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"status": 302, "location": "/elsewhere"}, "it answered HTTP 302"),
        ({"status": 404}, "it answered HTTP 404"),
        ({"body": b"{"}, "found no JSON"),
        ({"body": b"[" * 100_000}, "found no JSON"),
        ({"body": b"\xff"}, "found no JSON"),
        ({"body": b" " * 1_048_577}, "it is longer than 1048576 bytes (auth.jwks_bytes)"),
        ({"keys": []}, "found no usable key"),
        ({"keys": [OLD.private_jwk()]}, "found a private key"),
        ({"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}, "found a symmetric key"),
        ({"keys": [OLD.jwk(kid=str(n)) for n in range(101)]}, "found 101 keys, expected at most"),
    ],
)
async def test_an_unusable_document_removes_no_key(
    trusting: Trusting, changes: dict[str, Any], reason: str
) -> None:
    assert await trusting.keys.check() is None
    for name, value in changes.items():
        setattr(trusting.publisher, name, value)
    said = await trusting.keys.check()
    assert said is not None
    assert said.startswith(reason)
    assert trusting.publisher.asked == 2  # nor is a redirect followed
    assert await trusting.outcome(OLD.token()) is None


async def test_a_publisher_that_does_not_answer_is_given_up(serve: Serve) -> None:
    publisher = Publisher([OLD.jwk()])
    trusting = trusting_publisher(await serve(publisher), publisher, jwks_timeout_s=0.05)
    assert await trusting.keys.check() == "no answer within 0.05 s (auth.jwks_timeout_s)"
    gone = trusting_publisher("http://127.0.0.1:9/", publisher)
    assert await gone.keys.check() == "it cannot be reached (ClientConnectorError)"


@asynccontextmanager
async def refreshing(keys: RemoteKeys) -> AsyncIterator[None]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keys.run)
        yield
        tasks.cancel_scope.cancel()


async def test_keys_are_fetched_behind_the_calls(serve: Serve) -> None:
    publisher = Publisher([OLD.jwk()])
    publisher.released.set()
    auth = replace(load(None, {}).auth, jwks_ttl_s=0.02, jwks_cooldown_s=0.02)
    keys = RemoteKeys(await serve(publisher), ("ES256",), auth)
    async with refreshing(keys):
        await until(lambda: publisher.asked >= 4)
        first = keys.ring  # the same for equal keys
        assert first is not None
        publisher.keys = [NEW.jwk()]
        await until(lambda: keys.ring is not first)
        asked = publisher.asked
        second = keys.ring
        await until(lambda: publisher.asked >= asked + 2)
        assert keys.ring is second
