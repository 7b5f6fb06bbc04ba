"""The client of registries: what it sends where, and which answers it refuses."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from config.registries import RegistrySettings
from gateway.upstreams.mcp.registries.registry_reader import EntryMissing, RegistryReader
from schemas.errors import ImportRejected
from schemas.mcp.registry_entries import SCHEMA
from tests.gateway.upstreams.mcp.registries.entries import settings
from tests.servers.mcp_registry import PublishedServers, server_json, serving_registry

pytestmark = pytest.mark.anyio

NAME = "io.github.ada/weather"


@pytest.fixture(name="published")
def make_published() -> PublishedServers:
    return PublishedServers([server_json()])


@pytest.fixture
def url(published: PublishedServers) -> Iterator[str]:
    with serving_registry(published) as url:
        yield url


def _reader(limit_bytes: int = 10_000, **urls: str) -> RegistryReader:
    registries = {name: RegistrySettings(url, token=f"of-{name}") for name, url in urls.items()}
    return RegistryReader(registries, replace(settings().imports, document_limit_bytes=limit_bytes))


async def test_name_is_asked_for_exactly_and_encoded(published: PublishedServers, url: str) -> None:
    """REG-2."""
    entry = await _reader(own=url).find(NAME)
    assert (entry.registry, entry.server.version) == ("own", "1.0.0")
    target, _ = published.asked[0]
    assert target == "/v0.1/servers/io.github.ada%2Fweather/versions/latest"
    with pytest.raises(EntryMissing, match="compared exactly"):
        await _reader(own=url).find("io.github.ada/Weather")


async def test_token_goes_to_the_origin_of_its_registry_alone(
    published: PublishedServers, url: str
) -> None:
    """REG-9, RT3: with another registry beside it, and by no redirect."""
    elsewhere = PublishedServers()
    with serving_registry(elsewhere) as target:
        with pytest.raises(EntryMissing):
            await _reader(own=url, next=target).find("a/b")
        tokens = [headers["authorization"] for _, headers in published.asked + elsewhere.asked]
        assert tokens == ["Bearer of-own", "Bearer of-next"]
        published.redirect = target
        with pytest.raises(ImportRejected, match="redirects to another origin"):
            await _reader(own=url).find(NAME)
        assert len(elsewhere.asked) == 1


async def test_name_in_two_registries_needs_the_name_of_a_registry(url: str) -> None:
    """REG-1."""
    with serving_registry(PublishedServers([server_json()])) as second:
        reader = _reader(own=url, next=second)
        with pytest.raises(ImportRejected, match=r"is in own and next: .* --registry own"):
            await reader.find(NAME)
        assert (await reader.find(NAME, registry="next")).registry == "next"
        with pytest.raises(
            ImportRejected, match="no registry other in the settings, but own, next"
        ):
            await reader.find(NAME, registry="other")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"$schema": SCHEMA.replace("2025-12-11", "2027-01-01")}, "of the version 2027-01-01"),
        ({"$schema": "https://evil.example/x"}, "of the version https://evil.example/x"),
        ({"name": "io.github.eve/weather"}, "was asked for"),
        ({"version": "^1"}, "found the range"),
        ({"packages": [{"registryType": "npm"}]}, "is invalid"),
        ({"description": "x" * 20_000}, "larger than 10,000 bytes"),
    ],
)
async def test_answer_outside_the_schema_is_refused(
    published: PublishedServers, url: str, change: dict[str, Any], text: str
) -> None:
    """REG-2: unknown versions of the schema with their version."""
    published.files[f"/v0.1/servers/{NAME.replace('/', '%2F')}/versions/latest"] = (
        200,
        _response(server_json() | change),
        {},
    )
    with pytest.raises(ImportRejected, match=text):
        await _reader(own=url).find(NAME)


async def test_texts_lose_characters_that_control_a_terminal(
    published: PublishedServers, url: str
) -> None:
    """REG-10."""
    published.versions = [server_json(title="Sun\u001b]0;x\u0007\u202e", description="a\u009bb")]
    server = (await _reader(own=url).find(NAME)).server
    assert (server.title, server.description) == ("Sun]0;x", "ab")


async def test_unreadable_entry_does_not_hide_the_rest_of_a_list(
    published: PublishedServers, url: str
) -> None:
    published.versions += [server_json("a/b", description="")]
    page = await _reader(own=url).search("own", "", "", 30)
    assert ([entry.server.name for entry in page.entries], page.unreadable) == ([NAME], 1)


def _response(server: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"server": server})
