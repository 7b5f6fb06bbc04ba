"""The registry of a gateway, as clients read it. REG-11 to REG-14, RT4."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from config.settings import Settings, Toolset
from config.subregistry import ApprovedServer
from gateway.wings.subregistry.entries import read_approved, toolset_document
from registry.access.api_keys import ApiKeys
from schemas.errors import ToolgateError
from schemas.mcp.registry_entries import OFFICIAL, SCHEMA, ServerList, ServerResponse
from tests.fixtures_database import HOST, TEMPLATE, Cluster, own_database
from tests.fixtures_gateway import Recorder, settings_of_pets
from tests.polling import until
from tests.wings.subregistry.rig import PUBLIC, Reader, reading, with_registry, write_entry

pytestmark = pytest.mark.anyio
EDITOR = {"Origin": "vscode-file://vscode-app"}
KEEPERS = "com.example%2Fkeepers"
ALL = [
    ("com.example/breeders", "1.0.0"),
    ("com.example/keepers", "1.0.0"),
    ("io.github.others/weather", "1.9.0"),
    ("io.github.others/weather", "1.10.0"),
]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"  # with one event loop for the module


@pytest.fixture(scope="module")
async def registry(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Reader]:
    folder = tmp_path_factory.mktemp("registry")
    for database in own_database(cluster, TEMPLATE):
        settings = settings_of_pets(database, Recorder(), folder)
        async with reading(with_registry(settings, folder)) as reader:
            await until_listed(reader, "", [version for _, version in ALL])
            yield reader


async def until_listed(reader: Reader, path: str, versions: list[str]) -> None:
    """Toolsets follow the loaded catalog."""

    async def is_listed() -> bool:
        _, answer, _ = await reader.get(f"/v0.1/servers{path}")
        return [item["server"]["version"] for item in answer.get("servers", ())] == versions

    await until(is_listed)


def pairs(servers: list[Any]) -> list[tuple[str, str]]:
    return [(server["name"], server["version"]) for server in servers]


async def test_requests_of_an_editor_are_answered(registry: Reader) -> None:
    """Those of VS Code: a probe, its list, the latest version of one server; and preflights."""
    for path in ("?limit=1", "?limit=50&version=latest"):
        status, answer, headers = await registry.get(f"/v0.1/servers{path}", **EDITOR)
        assert (status, headers["access-control-allow-origin"]) == (200, "*")
        msgspec.convert(answer, ServerList)
    latest = [pair for pair in ALL if pair[1] != "1.9.0"]
    assert pairs([item["server"] for item in answer["servers"]]) == latest
    assert all(item["_meta"][OFFICIAL]["isLatest"] for item in answer["servers"])
    status, one, _ = await registry.get(f"/v0.1/servers/{KEEPERS}/versions/latest", **EDITOR)
    assert status == 200
    assert one["server"] == {
        "$schema": SCHEMA,
        "name": "com.example/keepers",
        "title": "keepers",
        "description": "Looks at pets.",
        "version": "1.0.0",
        "remotes": [{"type": "streamable-http", "url": f"{PUBLIC}/mcp/keepers"}],
    }
    asked = {"Access_Control_Request_Method": "GET", **EDITOR}
    status, _, headers = await registry.get("/v0.1/servers", "OPTIONS", **asked)
    assert status == 204
    assert "Authorization" in headers["access-control-allow-headers"]


async def test_the_list_has_listed_toolsets_without_their_tools(registry: Reader) -> None:
    assert pairs(await registry.servers()) == ALL
    _, answer, _ = await registry.get("/v0.1/servers")
    text = str(answer)
    for inner in ("secret", "empty", "getPet", "createPet", "Be kind", "127.0.0.1", "pets.json"):
        assert inner not in text
    provenance = answer["servers"][-1]["_meta"]["toolgate/provenance"]
    assert provenance["registry"] == "https://registry.example.org"
    assert re.fullmatch("[0-9a-f]{64}", provenance["sha256"])
    assert [*registry.client.gateway.catalogs.of(HOST).sources] == ["pets"]  # none without tools


async def test_no_header_of_a_request_moves_an_address(registry: Reader) -> None:
    """RT4: addresses come from server.public_url."""
    path = f"/v0.1/servers/{KEEPERS}/versions/latest"
    evil = {"X_Forwarded_Host": "evil.example", "X_Forwarded_Proto": "http"}
    _, answer, _ = await registry.get(
        path, Host="localhost:1", Forwarded="host=evil.example", **evil
    )
    assert answer["server"]["remotes"][0]["url"] == f"{PUBLIC}/mcp/keepers"
    status, _, _ = await registry.get(path, Host="evil.example")
    assert status == 403


@pytest.mark.parametrize(
    "path",
    [
        f"{KEEPERS}/versions/1.0.0",
        f"{KEEPERS}/versions/latest/",
        "com.example/keepers/versions/1.0.0",
        "com.example/keepers/versions/latest/",
        "com.example%2fkeepers/versions/1.0.0?include_deleted=false",
    ],
)
async def test_a_name_may_be_encoded_or_not(registry: Reader, path: str) -> None:
    status, answer, _ = await registry.get(f"/v0.1/servers/{path}")
    assert (status, answer["server"]["name"]) == (200, "com.example/keepers")
    msgspec.convert(answer, ServerResponse)


async def test_versions_of_a_server_begin_with_the_newest(registry: Reader) -> None:
    for path in ("io.github.others%2Fweather/versions", "io.github.others/weather/versions/"):
        _, answer, _ = await registry.get(f"/v0.1/servers/{path}")
        versions = [item["server"]["version"] for item in answer["servers"]]
        newest = [item["_meta"][OFFICIAL]["isLatest"] for item in answer["servers"]]
        assert (versions, newest) == (["1.10.0", "1.9.0"], [True, False])


async def test_pages_follow_each_other_without_gaps(registry: Reader) -> None:
    seen, cursor = [], ""
    for _ in range(len(ALL) + 1):
        _, answer, _ = await registry.get(f"/v0.1/servers?limit=1{cursor}")
        seen += pairs([item["server"] for item in answer["servers"]])
        if "nextCursor" not in answer["metadata"]:
            break
        cursor = f"&cursor={answer['metadata']['nextCursor']}"
    assert seen == ALL


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("?search=KEEP", [ALL[1]]),
        ("?search=%2F", ALL),
        ("?version=1.10.0", [ALL[3]]),
        ("?search=others&version=latest", [ALL[3]]),
        ("?updated_since=2020-01-01T00:00:00Z", ALL),
        ("?updated_since=2099-01-01T00:00:00.000%2B01:00", []),
        ("?other=1&limit=100", ALL),
    ],
)
async def test_a_list_is_filtered(
    registry: Reader, query: str, expected: list[tuple[str, str]]
) -> None:
    assert pairs(await registry.servers(query)) == expected


@pytest.mark.parametrize(
    ("path", "method", "status", "text"),
    [
        ("/v0.1/servers?limit=0", "GET", 400, "limit: expected 1 to 100"),
        ("/v0.1/servers?limit=101", "GET", 400, "limit: expected 1 to 100"),
        ("/v0.1/servers?limit=0000000010000", "GET", 400, "limit: expected 1 to 100"),
        (f"/v0.1/servers?limit=1{'0' * 5000}", "GET", 400, "limit: expected 1 to 100"),
        ("/v0.1/servers?limit=many", "GET", 400, "limit: expected 1 to 100, found 'many'"),
        ("/v0.1/servers?cursor=%C3%A9", "GET", 400, "cursor: expected"),
        ("/v0.1/servers?cursor=WzFd", "GET", 400, "cursor: expected"),
        ("/v0.1/servers?include_deleted=1", "GET", 400, "include_deleted: expected true or false"),
        ("/v0.1/servers", "TRACE", 405, "Expected GET"),
        ("/v0.1/servers?updated_since=soon", "GET", 400, "updated_since: expected"),
        ("/v0.1/servers/com.example%2Fsecret/versions", "GET", 404, "Server not found"),
        (f"/v0.1/servers/{KEEPERS}/versions/9.9.9", "GET", 404, "Server not found"),
        ("/v0/servers", "GET", 404, "Expected /v0.1/servers"),
        (f"/v0.1/servers/{KEEPERS}/versions/1.0.0", "PUT", 501, "read-only"),
        (f"/v0.1/servers/{KEEPERS}/versions/1.0.0", "DELETE", 501, "read-only"),
        (f"/v0.1/servers/{KEEPERS}/status", "PATCH", 501, "read-only"),
        ("/v0.1/publish", "POST", 501, "read-only"),
    ],
)
async def test_other_requests_are_refused_with_a_reason(
    registry: Reader, path: str, method: str, status: int, text: str
) -> None:
    found, answer, headers = await registry.get(path, method, **EDITOR)
    assert (found, headers["access-control-allow-origin"]) == (status, "*")
    assert text in answer["error"]


async def test_an_unchanged_answer_is_not_sent_again(registry: Reader) -> None:
    _, _, headers = await registry.get("/v0.1/servers")
    assert headers["cache-control"] == "public, max-age=60"
    status, body, again = await registry.get("/v0.1/servers", If_None_Match=headers["etag"])
    assert (status, body, again["etag"]) == (304, None, headers["etag"])


async def test_a_changed_toolset_gets_a_new_version(settings: Settings, tmp_path: Path) -> None:
    first = with_registry(settings, tmp_path, entries=(), versions=2)
    more = Toolset(include=("getPet", "createPet"), listed=True)
    for toolset, expected in (
        (first.toolsets["keepers"], ["1.0.0"]),
        (first.toolsets["keepers"], ["1.0.0"]),
        (more, ["1.0.1", "1.0.0"]),
        (first.toolsets["keepers"], ["1.0.2", "1.0.1"]),
    ):
        changed = replace(first, toolsets={"keepers": toolset})
        async with reading(changed) as reader:
            await until_listed(reader, f"/{KEEPERS}/versions", expected)
    async with reading(replace(first, toolsets={})) as reader:
        assert await reader.servers() == []


async def test_a_registry_with_tokens_knows_its_readers(settings: Settings, tmp_path: Path) -> None:
    secured = replace(
        with_registry(settings, tmp_path, access="token"), auth=replace(settings.auth, mode="keys")
    )
    async with reading(secured) as reader:
        status, answer, headers = await reader.get("/v0.1/servers")
        assert (status, headers["www-authenticate"]) == (401, 'Bearer realm="toolgate"')
        assert "Expected a token" in answer["error"]
        pool = reader.client.gateway._handle.pool()
        assert pool is not None
        _, key = await ApiKeys(pool, HOST).create("reader", None, ("mcp",), [])
        with_key = {"Authorization": f"Bearer {key}"}

        async def read() -> Any:
            status, answer, headers = await reader.get("/v0.1/servers?search=com.", **with_key)
            assert status != 200 or headers["cache-control"] == "private, max-age=60"
            return answer.get("servers")

        servers = await until(read)
        [remote] = servers[0]["server"]["remotes"]
        assert [header["isSecret"] for header in remote["headers"]] == [True]


def test_clients_find_the_login_before_the_key() -> None:
    """Clients take the first remote of a server."""

    parts = SimpleNamespace(
        settings=SimpleNamespace(namespace="com.example"),
        mcp_url=f"{PUBLIC}/mcp",
        callers=SimpleNamespace(credentials=("login", "key")),
    )
    server = toolset_document(parts, "some", Toolset())  # type: ignore[arg-type]
    login, key = server.remotes
    assert login.headers == ()
    [header] = key.headers
    assert (header.name, header.value, header.is_secret) == (
        "Authorization",
        "Bearer {api_key}",
        True,
    )


@pytest.mark.parametrize(
    ("members", "sha256", "text"),
    [
        ({}, "0" * 64, "expected SHA-256 000"),
        ({"name": "com.example/weather"}, "", "expected a server of others"),
        ({"$schema": SCHEMA.replace("2025-12-11", "2099-01-01")}, "", "found '2099-01-01'"),
        ({"version": "^1.0"}, "", "Expected one version"),
        ({"name": "weather"}, "", "expected a server.json"),
    ],
)
def test_an_entry_that_may_not_be_listed_closes_the_registry(
    tmp_path: Path, members: dict[str, Any], sha256: str, text: str
) -> None:
    entry = write_entry(tmp_path, "1.0.0", **members)
    with pytest.raises(ToolgateError, match=re.escape(text)):
        read_approved([replace(entry, sha256=sha256)], "com.example")
    with pytest.raises(ToolgateError, match=r"expected a server\.json"):
        read_approved([ApprovedServer(str(tmp_path / "none.json"))], "com.example")
