"""Credentials in the registry: encrypted, each for its own place, and told to nobody."""

import base64
import os

import pytest

from config.access import SecretsSettings
from config.sources import SchemeSettings
from registry.access.secrets import Keys, SecretRefused, Secrets, key_id
from registry.database.postgres import Database
from tests.fixtures_database import HOST

pytestmark = pytest.mark.anyio

OTHER = "00000000-0000-0000-0000-000000000002"
OLD, NEW, WRONG = (bytes([n]) * 32 for n in range(3))
CANARY = "hunter2-canary"
KEY = SchemeSettings(value=CANARY)
LOGIN = SchemeSettings(client_id="me", client_secret=CANARY, token_url="https://id.example/t")


def of(database: Database, *keys: bytes, host: str = HOST) -> Secrets:
    return Secrets(database.pool, host, Keys(*keys))


async def test_stored_secrets_are_read_again_and_never_listed(database: Database) -> None:
    secrets = of(database, NEW)
    assert await secrets.put("pets", "key", KEY)
    assert await secrets.put("pets", "oauth-2.0 login", LOGIN)
    assert not await secrets.put("pets", "key", SchemeSettings(value="second"))
    entries, refused = await secrets.read()
    assert (entries, refused) == (
        {"pets": {"key": SchemeSettings(value="second"), "oauth-2.0 login": LOGIN}},
        [],
    )
    told = await secrets.all()
    assert [(one.source, one.scheme, one.kind, one.readable) for one in told] == [
        ("pets", "key", "value", True),
        ("pets", "oauth-2.0 login", "client_id", True),
    ]
    async with database.pool.connection() as connection:
        rows = await connection.execute("SELECT secret_t::text, sealed, nonce FROM secret_t")
        kept = [row async for row in rows]
    assert CANARY not in str((told, kept))
    assert CANARY.encode() not in b"".join(bytes(sealed) for _, sealed, _ in kept)
    assert len({bytes(nonce) for _, _, nonce in kept}) == 2
    assert await of(database, NEW, host=OTHER).all() == []
    assert await secrets.delete("pets", "key")
    assert not await secrets.delete("pets", "key")
    assert list((await secrets.read())[0]["pets"]) == ["oauth-2.0 login"]


@pytest.mark.parametrize("column", ["source", "scheme", "host_id"])
async def test_a_row_that_is_moved_opens_nothing(database: Database, column: str) -> None:
    await of(database, NEW).put("pets", "key", KEY)
    await of(database, NEW, host=OTHER).put("theirs", "key", KEY)
    moved = {"source": "crm", "scheme": "other", "host_id": OTHER}
    async with database.pool.connection() as connection:
        await connection.execute(
            f"UPDATE secret_t SET {column} = %s WHERE host_id = %s",  # type: ignore[arg-type]
            [moved[column], HOST],
        )
    host = OTHER if column == "host_id" else HOST
    entries, [refused] = await of(database, NEW, host=host).read()
    assert "pets" not in entries
    assert str(refused).endswith("cannot be read: it is not what was stored there")
    assert CANARY not in str(refused)


async def test_a_wrong_key_reads_nothing_and_overwrites_nothing(database: Database) -> None:
    await of(database, NEW).put("pets", "key", KEY)
    wrong = of(database, WRONG)
    entries, [refused] = await wrong.read()
    assert entries == {}
    assert str(refused) == (
        "the secret key of pets cannot be read: it is encrypted with the key "
        f"{key_id(NEW)}, which is neither secrets.key nor one of secrets.old_keys"
    )
    for change in (wrong.put("pets", "key", SchemeSettings(value="x")), wrong.rotate()):
        with pytest.raises(SecretRefused):
            await change
    assert [one.readable for one in await wrong.all()] == [False]
    assert (await of(database, NEW).read())[0] == {"pets": {"key": KEY}}


async def test_without_a_key_nothing_is_stored(database: Database) -> None:
    with pytest.raises(SecretRefused, match="TOOLGATE_SECRETS__KEY"):
        await of(database).put("pets", "key", KEY)
    assert await of(database).all() == []


async def test_keys_are_changed_without_a_secret_being_told_again(database: Database) -> None:
    await of(database, OLD).put("pets", "key", KEY)
    await of(database, NEW, OLD).put("pets", "oauth", LOGIN)
    assert await of(database, NEW, OLD).rotate() == 1
    assert await of(database, NEW, OLD).rotate() == 0
    assert (await of(database, NEW).read())[0] == {"pets": {"key": KEY, "oauth": LOGIN}}


@pytest.mark.parametrize(
    ("source", "scheme", "entry", "expected"),
    [
        ("Pets!", "key", KEY, "expected the name of a source"),
        ("pets", "a:b", KEY, "expected the name of a security scheme"),
        ("pets", "key", SchemeSettings(), "expected a secret, found nothing"),
        ("pets", "key", SchemeSettings(value=f"{CANARY}\r\nX: y"), "expected text on one line"),
        ("pets", "key", SchemeSettings(token=CANARY, value=CANARY), "expected one of value"),
        ("pets", "key", SchemeSettings(client_id=CANARY), "expected client_secret and token_url"),
        (
            "pets",
            "key",
            SchemeSettings(client_id="a", client_secret=CANARY, token_url="file:///x"),
            "http:// or https:// URL as token_url",
        ),
    ],
)
async def test_invalid_secrets_are_refused(
    source: str, scheme: str, entry: SchemeSettings, expected: str
) -> None:
    nowhere = Secrets(None, HOST, Keys(NEW))  # type: ignore[arg-type]  # it gets no further
    with pytest.raises(SecretRefused) as caught:
        await nowhere.put(source, scheme, entry)
    assert expected in str(caught.value)
    assert CANARY not in str(caught.value)


def test_keys_are_taken_in_either_alphabet_of_base64() -> None:
    key = b"\xfb\xff" * 16
    plain, safe = base64.b64encode(key).decode(), base64.urlsafe_b64encode(key).decode()
    assert plain != safe
    for text in (plain, safe):
        keys = Keys.of(SecretsSettings(text, ("", base64.b64encode(os.urandom(32)).decode())))
        assert keys.current == key_id(key)
        assert len(keys.key_ids) == 2
    assert Keys.of(SecretsSettings("", ())).current is None
