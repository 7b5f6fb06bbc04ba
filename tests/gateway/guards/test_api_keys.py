"""API keys and revocations, as a gateway judges them."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from config.access import Auth
from config.load import load
from gateway.context import Identity
from gateway.guards.authentication import Authenticator
from registry.access.api_keys import ApiKeys, KnownKey
from registry.access.revocations import Revocation, RevocationCache, Revocations
from registry.access.secret_digests import secret_digest
from registry.database.postgres import Database
from schemas.errors import Unavailable
from schemas.hybrid import StatusFault
from tests.fixtures_database import HOST
from tests.fixtures_gateway import DEADLINE_S
from tests.gateway.asgi import http
from tests.gateway.guards.signing import NOW, by_key, signer

pytestmark = pytest.mark.anyio

ES = signer("ES256")
OTHER = "00000000-0000-0000-0000-000000000002"
KEYS: Auth = replace(load(None, {}).auth, mode="keys")


async def identify_caller(authenticator: Authenticator, *headers: tuple[str, str]) -> Identity:
    return await authenticator.identify(http(headers=headers))


def bearer(text: str) -> tuple[str, str]:
    return "Authorization", f"Bearer {text}"


def refusal_of(identity: Identity) -> tuple[str, str] | None:
    """Code and text of the refusal."""
    if identity.refusal is None:
        return None
    assert isinstance(identity.refusal, StatusFault)
    return identity.refusal.as_status.code, identity.refusal.message


async def test_a_key_has_its_scopes_roles_and_tenant(database: Database) -> None:
    key, text = await ApiKeys(database.pool, OTHER).create(
        "deploy", None, ["a.r"], ["ops"], makers=["ada"]
    )
    authenticator = Authenticator(KEYS, HOST)
    assert authenticator.keys is not None
    for unread in (bearer(text), ("X-API-Key", text)):  # 503, so that clients ask again
        refusal = (await identify_caller(authenticator, unread)).refusal
        assert isinstance(refusal, Unavailable)
    await authenticator.keys.load(database.pool)
    for headers in [(bearer(text),), (("X-API-Key", text),), (("X-API-Key", f" {text} "),)]:
        identity = await identify_caller(authenticator, *headers)
        assert (identity.refusal, identity.verified) == (None, True)
        who = identity.principal
        assert (who.id, who.tenant, who.mark) == ("key:deploy", OTHER, f"key:{key.id}")
        assert (who.scopes, who.roles) == ({"a.r"}, {"ops"})
        assert (who.makers, who.people) == ({"ada"}, {"ada", "key:deploy"})
    await authenticator.tidy(database.pool)
    used = await ApiKeys(database.pool, OTHER).get(key.id)
    assert used is not None
    assert used.last_used is not None
    still = identity.still
    assert still is not None
    assert still()
    await ApiKeys(database.pool, OTHER).revoke(key.id)
    await authenticator.keys.load(database.pool)
    assert not still()
    assert refusal_of(await identify_caller(authenticator, bearer(text))) is not None


async def test_refusals_of_keys_do_not_name_the_reason(database: Database) -> None:
    keys = ApiKeys(database.pool, HOST)
    _, good = await keys.create("good")
    gone, revoked = await keys.create("revoked")
    soon = datetime.fromtimestamp(NOW, UTC) + timedelta(hours=1)
    _, ending = await keys.create("ending", None, (), (), expires=soon)
    await keys.revoke(gone.id)
    now = [float(NOW)]
    authenticator = Authenticator(KEYS, HOST, lambda: now[0])
    assert authenticator.keys is not None
    await authenticator.keys.load(database.pool)
    still = (await identify_caller(authenticator, bearer(ending))).still
    assert still is not None
    assert still()
    now[0] += 3600
    assert not still()
    _, id_, secret = good.split("_", 2)
    wrong = [
        revoked,
        ending,
        "tgk_",
        "tgk__",
        f"tgk_{id_}",
        f"tgk_{id_}_",
        f"tgk_{id_}_{secret}x",
        f"tgk_{id_}_{secret[:-1]}",
        f"tgk_{'A' * 12}_{secret}",
        f"tgk_{gone.id}_{secret}",
        f"tgk_{id_}_{secret_digest(secret).hex()}",
        f"xyz_{id_}_{secret}",
        f"tgk_{id_}_\xe9\xff",
    ]
    refused = [await identify_caller(authenticator, bearer(text)) for text in wrong]
    refused += [await identify_caller(authenticator, ("X-API-Key", text)) for text in wrong]
    refused += [
        await identify_caller(authenticator, *headers)
        for headers in (
            (bearer(good), ("X-API-Key", good)),
            (("X-API-Key", good), ("X-API-Key", good)),
            (bearer(good), bearer(good)),
            (("Authorization", "Basic YTpi"), ("X-API-Key", good)),
        )
    ]
    (only,) = {refusal_of(identity) for identity in refused}
    assert only is not None
    assert only[0] == "ERR10000"
    assert refusal_of(await identify_caller(authenticator, bearer(good))) is None


async def test_a_new_key_is_accepted_once_loaded(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.guards.api_keys.NEW_KEY_WAIT_S", 1e6)
    authenticator = Authenticator(KEYS, HOST)
    assert authenticator.keys is not None
    await authenticator.keys.load(database.pool)
    _, text = await ApiKeys(database.pool, HOST).create("new")
    identities = []

    async def ask() -> None:
        identities.append(await identify_caller(authenticator, bearer(text)))

    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            assert not identities
            await authenticator.keys.load(database.pool)
    assert [identity.refusal for identity in identities] == [None] * 3


async def test_requests_that_wait_for_a_key_are_bounded(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.guards.api_keys.NEW_KEY_WAIT_S", 1e6)
    monkeypatch.setattr("gateway.guards.api_keys.MAX_WAITING", 2)
    authenticator = Authenticator(KEYS, HOST)
    assert authenticator.keys is not None
    await authenticator.keys.load(database.pool)
    unknown = f"tgk_{'A' * 12}_{'b' * 43}"
    malformed = ["tgk_", f"{unknown}b", unknown[:-1], f"{unknown[:-1]}.", f"{unknown}_{'b' * 43}"]
    with anyio.fail_after(DEADLINE_S):
        for text in malformed:
            assert refusal_of(await identify_caller(authenticator, bearer(text))) is not None
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(identify_caller, authenticator, bearer(unknown))
            await anyio.wait_all_tasks_blocked()
            assert refusal_of(await identify_caller(authenticator, bearer(unknown))) is not None
            tasks.cancel_scope.cancel()
        assert authenticator.keys._waiting == 0
        monkeypatch.setattr("gateway.guards.api_keys.NEW_KEY_WAIT_S", 0.0)
        assert refusal_of(await identify_caller(authenticator, bearer(unknown))) is not None


async def test_keys_can_be_switched_off_and_exclude_tokens(
    database: Database, tmp_path: Path
) -> None:
    _, text = await ApiKeys(database.pool, HOST).create("deploy")
    both = Authenticator(by_key(tmp_path, ES.pem), HOST, lambda: NOW)
    assert both.keys is not None
    await both.keys.load(database.pool)
    assert refusal_of(await identify_caller(both, bearer(text))) is None
    assert refusal_of(await identify_caller(both, bearer(ES.token()))) is None
    off = Authenticator(by_key(tmp_path, ES.pem, api_keys=False), HOST, lambda: NOW)
    assert off.keys is None
    for headers, code in [((bearer(text),), "ERR10000"), ((("X-API-Key", text),), "ERR10002")]:
        refusal = refusal_of(await identify_caller(off, *headers))
        assert refusal is not None
        assert refusal[0] == code
    alone = Authenticator(KEYS, HOST)
    refusal = refusal_of(await identify_caller(alone, bearer(ES.token())))
    assert refusal is not None
    assert refusal[0] == "ERR10000"


def test_a_key_that_somebody_prints_shows_no_secret() -> None:
    fields = KnownKey.__dataclass_fields__
    assert set(fields) == {"tenant", "key", "digest"}


async def test_revoked_credentials_are_refused_even_if_cached(tmp_path: Path) -> None:
    authenticator = Authenticator(by_key(tmp_path, ES.pem), HOST, lambda: NOW)
    tokens = {
        name: bearer(ES.token(**claims))
        for name, claims in {
            "stolen": {"jti": "abc", "iat": NOW},
            "kept": {"jti": "def", "iat": NOW},
            "old": {"sub": "bob", "iat": NOW - 10},
            "now": {"sub": "bob", "iat": NOW},
            "new": {"sub": "bob", "iat": NOW + 1},
            "undated": {"sub": "bob"},
            "odd": {"sub": "bob", "iat": "yesterday"},
            "nobody": {"jti": ["abc"]},
        }.items()
    }
    still = {
        name: (await identify_caller(authenticator, token)).still for name, token in tokens.items()
    }
    lost = {"stolen", "old", "now", "undated", "odd"}
    subjects = {(HOST, "bob"): float(NOW), (OTHER, "ada"): NOW + 99.0}
    revoked = RevocationCache(frozenset({(HOST, "abc"), (OTHER, "def")}), subjects)
    fresh = Authenticator(by_key(tmp_path, ES.pem), HOST, lambda: NOW)  # which has seen none
    for judge in (authenticator, fresh):
        judge._tokens.revoke(revoked)
        for name, token in tokens.items():
            refusal = refusal_of(await identify_caller(judge, token))
            assert (refusal is not None) == (name in lost), name
            check = still[name]
            assert check is not None
            assert check() == (name not in lost), name
    authenticator._tokens.revoke(RevocationCache())
    for token in tokens.values():
        assert refusal_of(await identify_caller(authenticator, token)) is None


async def test_a_revocation_in_the_registry_is_read(database: Database, tmp_path: Path) -> None:
    authenticator = Authenticator(by_key(tmp_path, ES.pem), HOST, lambda: NOW)
    token = bearer(ES.token(jti="abc"))
    assert refusal_of(await identify_caller(authenticator, token)) is None
    until = datetime.now(UTC) + timedelta(hours=1)
    store = Revocations(database.pool, HOST)
    await store.add(Revocation("abc", None, issued_before=None, expires=until))
    await authenticator.load_revocations(database.pool)
    assert refusal_of(await identify_caller(authenticator, token)) is not None


async def test_scope_tokens_are_revoked_too(tmp_path: Path) -> None:
    authenticator = Authenticator(by_key(tmp_path, ES.pem), HOST, lambda: NOW)
    beside = ("X-Scope-Token", ES.token(jti="abc", scope="x"))
    assert (await identify_caller(authenticator, bearer(ES.token()), beside)).scope_token == {"x"}
    authenticator._tokens.revoke(RevocationCache(frozenset({(HOST, "abc")})))
    found = (await identify_caller(authenticator, bearer(ES.token()), beside)).scope_token
    assert isinstance(found, StatusFault)
