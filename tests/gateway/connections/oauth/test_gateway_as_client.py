"""The gateway as a client: given, by its document, registered."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from msgspec.structs import replace

from config.settings import DatabaseSettings
from gateway.connections.oauth.gateway_as_client import (
    AssertionKey,
    ClientDocuments,
    ClientMissing,
    OAuthClient,
    OAuthClients,
    given_client,
)
from gateway.connections.oauth.guarded_requests import Reach, RequestFailed
from gateway.connections.oauth.server_metadata import AuthorizationServer
from registry.access.column_encryption import Vault
from registry.access.secrets import Keys
from registry.connections import CONNECTIONS
from registry.connections.gateway_registrations import RegisteredClients, Registration
from registry.database.postgres import Database, borrow
from registry.login import LOGIN
from tests.fixtures_servers import Serve
from tests.gateway.connections.oauth.limits import limits
from tests.servers.documents import DocumentServer

pytestmark = pytest.mark.anyio

HOST = "01964b05-0000-7000-8000-000000000003"
PUBLIC = "https://gateway.example"
CALLBACK = f"{PUBLIC}/connect/pets/callback"
KEY = AssertionKey("k1", generate_private_key(SECP256R1()))
REACH = Reach(limits(private_networks=True))
SERVER = AuthorizationServer(
    issuer="https://auth.example",
    authorization_endpoint="https://auth.example/authorize",
    token_endpoint="https://auth.example/token",
)


def documents(public: str = PUBLIC) -> ClientDocuments:
    return ClientDocuments(public, (CALLBACK, f"{PUBLIC}/connect/birds/callback"))


@asynccontextmanager
async def open_clients(settings: DatabaseSettings) -> AsyncIterator[RegisteredClients]:
    async with Database.open(settings, wait=False, components=(LOGIN, CONNECTIONS)) as database:
        yield RegisteredClients(database.pool, HOST, Vault(Keys(bytes(32)), HOST))


class NoRows:
    host_id = HOST


async def find(server: AuthorizationServer, clients: OAuthClients, **more: Any) -> OAuthClient:
    rows = more.pop("rows", NoRows())
    return await clients.find(server, CALLBACK, REACH, rows, **more)


@pytest.mark.parametrize(
    ("methods", "secret", "wanted", "method"),
    [
        ((), "s", None, "basic"),
        (("client_secret_basic", "client_secret_post"), "s", None, "basic"),
        (("none", "client_secret_post"), "s", None, "post"),
        (("client_secret_jwt",), "s", None, "basic"),
        (("client_secret_basic",), "s", "post", "post"),
        ((), "", None, "none"),
        (("client_secret_basic",), "", "private_key_jwt", "private_key_jwt"),
    ],
)
async def test_a_given_client_comes_first(
    methods: tuple[str, ...], secret: str, wanted: Any, method: str
) -> None:
    """A4: even where the server reads documents."""
    server = replace(SERVER, token_endpoint_auth_methods_supported=methods, accepts_documents=True)
    given = given_client(server, "id", secret, wanted)
    client = await find(server, OAuthClients(documents()), configured_client=given)
    assert (client.id, client.secret, client.method, client.kind) == ("id", secret, method, "given")


@pytest.mark.parametrize(
    ("methods", "name", "method"),
    [
        (("none", "private_key_jwt"), "client.json", "private_key_jwt"),
        (("none",), "public-client.json", "none"),
        ((), "public-client.json", "none"),
    ],
)
async def test_a_document_identifies_the_gateway_where_documents_are_read(
    methods: tuple[str, ...], name: str, method: Any
) -> None:
    server = replace(SERVER, token_endpoint_auth_methods_supported=methods, accepts_documents=True)
    own = documents()
    client = await find(server, OAuthClients(own))
    assert (client.id, client.method) == (f"{PUBLIC}/oauth/{name}", method)
    document = json.loads(own.body(method))
    assert document["client_id"] == client.id
    assert document["token_endpoint_auth_method"] == method
    assert document["redirect_uris"] == [*own.callbacks]
    signed = method == "private_key_jwt"
    assert document.get("jwks_uri") == (f"{PUBLIC}/.well-known/jwks.json" if signed else None)
    assert "client_secret" not in document


async def test_a_missing_client_names_callback_and_setting() -> None:
    for public, accepts in ((PUBLIC, False), ("http://gateway.example", True)):
        server = replace(SERVER, accepts_documents=accepts)
        with pytest.raises(ClientMissing) as missing:
            await find(server, OAuthClients(documents(public=public)), setting="sources.x.client")
        assert CALLBACK in str(missing.value)
        assert "sources.x.client" in str(missing.value)


@pytest.mark.parametrize(
    ("supported", "answered", "asked", "used"),
    [
        (None, {"client_secret": "s"}, "client_secret_basic", "basic"),
        (["none"], {}, "none", "none"),
        (
            ["client_secret_post"],
            {"client_secret": "s", "token_endpoint_auth_method": "client_secret_post"},
            *("client_secret_post", "post"),
        ),
        (
            None,
            {"client_secret": "s", "token_endpoint_auth_method": "client_secret_post"},
            *("client_secret_basic", "post"),
        ),
        (None, {"token_endpoint_auth_method": "none"}, "client_secret_basic", "none"),
        (None, {"client_secret": None}, "client_secret_basic", "none"),
        (["private_key_jwt", "none"], {}, "private_key_jwt", "private_key_jwt"),
        (
            ["none"],
            {"client_secret": "s", "token_endpoint_auth_method": "none"},
            *("none", "none"),
        ),
    ],
)
async def test_the_method_is_negotiated(
    serve: Serve,
    database_settings: DatabaseSettings,
    supported: list[str] | None,
    answered: dict[str, Any],
    asked: str,
    used: str,
) -> None:
    """CON-6: a method that the server knows is asked for, and that of its answer is used."""
    registry = DocumentServer({"/register": {"client_id": "c", **answered}})
    url = await serve(registry)
    server = replace(
        SERVER,
        registration_endpoint=f"{url}/register",
        token_endpoint_auth_methods_supported=tuple(supported or ()),
    )
    async with open_clients(database_settings) as rows:
        client = await find(server, OAuthClients(documents()), rows=rows)
        again = await find(server, OAuthClients(documents()), rows=rows)
    assert (client.id, client.method, client.kind) == ("c", used, "registered")
    assert again == client
    [body] = map(json.loads, registry.posted)
    assert body["token_endpoint_auth_method"] == asked
    assert body["redirect_uris"] == [CALLBACK]
    assert body["grant_types"] == ["authorization_code", "refresh_token"]
    assert body["application_type"] == "web"
    assert ("jwks_uri" in body) is (asked == "private_key_jwt")


@pytest.mark.parametrize(
    "answered",
    [
        {"client_id": ""},
        {"client_id": "a\r\nb"},
        {"client_id": "c", "client_secret": "s" * 5000},
        {"client_id": "c", "token_endpoint_auth_method": "client_secret_jwt"},
        {"client_id": 7},
        [],
        b"<html>",
    ],
)
async def test_registrations_of_no_use_are_not_stored(
    serve: Serve, database_settings: DatabaseSettings, answered: Any
) -> None:
    url = await serve(DocumentServer({"/register": answered}))
    server = replace(SERVER, registration_endpoint=f"{url}/register")
    async with open_clients(database_settings) as rows:
        with pytest.raises(ClientMissing):
            await find(server, OAuthClients(documents()), rows=rows)
        assert await rows.find(SERVER.issuer, CALLBACK) is None


async def test_all_nodes_register_once(serve: Serve, database_settings: DatabaseSettings) -> None:
    registry = DocumentServer({"/register": {"client_id": "c", "client_secret": "s"}})
    server = replace(SERVER, registration_endpoint=f"{await serve(registry)}/register")
    nodes = [OAuthClients(documents()) for _ in range(3)]
    clients = []

    async def take(node: OAuthClients) -> None:
        clients.append(await find(server, node, rows=rows))

    async with open_clients(database_settings) as rows:
        with anyio.fail_after(20):
            async with anyio.create_task_group() as group:
                for node in nodes * 8:
                    group.start_soon(take, node)
    assert len(registry.posted) == 1
    assert len(set(map(repr, clients))) == 1


async def test_a_registration_holds_no_connection_to_the_database(
    database_settings: DatabaseSettings,
) -> None:
    """Nor do those who wait for it; one that fails makes way for the next."""
    async with Database.open(
        replace(database_settings, pool_max=1),
        wait=False,
        components=(LOGIN, CONNECTIONS),
    ) as database:
        rows = RegisteredClients(database.pool, HOST, Vault(Keys(bytes(32)), HOST))
        begun = anyio.Event()
        given: list[Registration] = []

        async def refuse() -> Registration:
            raise ClientMissing("no")

        async def register() -> Registration:
            begun.set()
            async with borrow(database.pool) as connection:
                await connection.execute("SELECT 1")
            return Registration("c")

        async def wait() -> None:
            await begun.wait()
            given.append(await rows.find_or_add("https://a.example", CALLBACK, refuse))

        with pytest.raises(ClientMissing):
            await rows.find_or_add("https://a.example", CALLBACK, refuse)
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait)
                given.append(await rows.find_or_add("https://a.example", CALLBACK, register))
        assert given == [Registration("c")] * 2


async def test_another_issuer_or_callback_is_another_registration(
    serve: Serve, database_settings: DatabaseSettings
) -> None:
    """A4: registrations belong to an issuer."""
    registry = DocumentServer({"/register": {"client_id": "c"}})
    server = replace(SERVER, registration_endpoint=f"{await serve(registry)}/register")
    clients = OAuthClients(documents())
    async with open_clients(database_settings) as rows:
        await find(server, clients, rows=rows)
        await find(replace(server, issuer="https://other.example"), clients, rows=rows)
        await clients.find(server, f"{PUBLIC}/connect/birds/callback", REACH, rows)
    assert len(registry.posted) == 3


async def test_an_ended_secret_is_replaced(
    serve: Serve, database_settings: DatabaseSettings
) -> None:
    registry = DocumentServer(
        {"/register": {"client_id": "old", "client_secret": "s", "client_secret_expires_at": 1}}
    )
    server = replace(SERVER, registration_endpoint=f"{await serve(registry)}/register")
    clients = OAuthClients(documents())
    async with open_clients(database_settings) as rows:
        await find(server, clients, rows=rows)
        registry.documents["/register"] = {"client_id": "new", "client_secret": "s"}
        assert (await find(server, clients, rows=rows)).id == "new"
        assert (await find(server, clients, rows=rows)).id == "new"


async def test_an_unknown_client_is_registered_anew_once(
    serve: Serve, database_settings: DatabaseSettings
) -> None:
    """CON-6: a server that forgets each client is not asked again within an hour."""
    registry = DocumentServer({"/register": {"client_id": "first"}})
    server = replace(SERVER, registration_endpoint=f"{await serve(registry)}/register")
    clients = OAuthClients(documents())
    async with Database.open(
        database_settings, wait=False, components=(LOGIN, CONNECTIONS)
    ) as database:
        rows = RegisteredClients(database.pool, HOST, Vault(Keys(bytes(32)), HOST))
        dead = await find(server, clients, rows=rows)
        registry.documents["/register"] = {"client_id": "second"}
        assert await clients.replace(dead, server, CALLBACK, REACH, rows=rows) == dead
        async with database.pool.connection() as connection:
            await connection.execute(
                "UPDATE upstream_client_t SET created_ts = created_ts - interval '2 hours'"
            )
        new = await clients.replace(dead, server, CALLBACK, REACH, rows=rows)
        assert new is not None
        assert new.id == "second"
        assert await clients.replace(dead, server, CALLBACK, REACH, rows=rows) == new
        assert len(registry.posted) == 2
        given = OAuthClient(id="given")
        assert await clients.replace(given, server, CALLBACK, REACH, rows=rows) is None


async def test_a_registration_is_sealed_to_its_row(
    serve: Serve, database_settings: DatabaseSettings
) -> None:
    registry = DocumentServer({"/register": {"client_id": "c", "client_secret": "s3cr3t-planted"}})
    server = replace(SERVER, registration_endpoint=f"{await serve(registry)}/register")
    async with Database.open(
        database_settings, wait=False, components=(LOGIN, CONNECTIONS)
    ) as database:
        rows = RegisteredClients(database.pool, HOST, Vault(Keys(bytes(32)), HOST))
        await find(server, OAuthClients(documents()), rows=rows)
        async with database.pool.connection() as connection:
            result = await connection.execute("SELECT upstream_client_t::text, sealed FROM"
                                              " upstream_client_t")  # fmt: skip
            [(text, sealed)] = await result.fetchall()
            assert "planted" not in text
            assert b"planted" not in bytes(sealed)
            await connection.execute("UPDATE upstream_client_t SET issuer = 'https://evil.example'")
        assert await rows.find("https://evil.example", CALLBACK) is None


async def test_a_registration_endpoint_inside_is_not_asked(
    serve: Serve, database_settings: DatabaseSettings
) -> None:
    registry = DocumentServer({"/register": {"client_id": "c"}})
    server = replace(SERVER, registration_endpoint=f"{await serve(registry)}/register")
    async with open_clients(database_settings) as rows:
        with pytest.raises(RequestFailed, match="expected an https"):
            await OAuthClients(documents()).find(server, CALLBACK, Reach(limits()), rows)
    assert registry.asked == []


def test_an_assertion_is_of_the_client_for_one_audience() -> None:
    public = KEY.private.public_key()
    read = [
        jwt.decode(
            KEY.sign("the client", "https://auth.example")["client_assertion"],
            public,
            algorithms=["ES256"],
            audience="https://auth.example",
            issuer="the client",
            options={"require": ["exp", "iat", "jti", "sub"]},
        )
        for _ in range(2)
    ]
    assert read[0]["sub"] == "the client"
    assert read[0]["exp"] - read[0]["iat"] <= 300
    assert read[0]["jti"] != read[1]["jti"]
