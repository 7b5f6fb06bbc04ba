"""A gateway in front of a GraphQL service: imported, listed, called, on each front."""

from typing import Any

import pytest
from msgspec.structs import replace

from config.settings import Settings
from config.sources import SourceSettings
from tests.fixtures_gateway import running
from tests.servers.graphql import PetShop

pytestmark = pytest.mark.anyio


@pytest.fixture
def shop() -> PetShop:
    return PetShop()


@pytest.fixture
async def settings(settings: Settings, serve, shop) -> Settings:
    """With one source, `shop`, whose endpoint says itself what it can do."""
    source = SourceSettings(
        graphql=f"{await serve(shop)}/graphql", headers={"X-Key": "k"}, exclude=("older",)
    )
    return replace(settings, sources={"shop": source})


def content(answer: Any) -> list[str]:
    return [item["text"] for item in answer["content"]]


async def test_the_fields_of_an_endpoint_are_tools(settings, shop):
    async with running(settings) as client:
        session = await client.session()
        listed = (await session.call("tools/list"))["result"]["tools"]
        assert [tool["name"] for tool in listed] == sorted(
            ("pets", "pet", "petBy", "things", "named", "count", "echo", "addPet", "count_mutation")
        )
        called = await session.call("tools/call", {"name": "pet", "arguments": {"id": "1"}})
        assert called["result"]["structuredContent"]["owner"]["name"] == "Ada"
        assert (await client.rpc(request("count", kind="DOG")))["result"] == 5
    assert {headers["x-key"] for headers in shop.headers} == {"k"}


def request(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


async def test_a_caller_chooses_fields_and_pages_on(settings):
    async with running(settings) as client:
        session = await client.session("2025-11-25")
        arguments = {"first": 2, "_fields": ["nodes.name"]}
        result = (await session.call("tools/call", {"name": "pets", "arguments": arguments}))[
            "result"
        ]
        pets = [{"name": "Pet 1"}, {"name": "Pet 2"}]
        assert result["structuredContent"]["nodes"] == pets
        following = result["_meta"]["toolgate/next"]["arguments"]
        assert following == {"first": 2, "after": "2", "_fields": ["nodes.name"]}
        assert content(result)[1].startswith("More follows: call pets again with ")
        last = {**following, "after": "4"}
        ended = (await session.call("tools/call", {"name": "pets", "arguments": last}))["result"]
        assert "toolgate/next" not in ended.get("_meta", {})


async def test_errors_and_missing_parts_reach_the_client(settings):
    async with running(settings) as client:
        session = await client.session()
        call = {"name": "pet", "arguments": {"id": "bad"}}
        failed = (await session.call("tools/call", call))["result"]
        assert failed["isError"]
        assert content(failed) == ["It ran away (at pet; GONE)"]
        call = {"name": "pet", "arguments": {"id": "half"}}
        partial = (await session.call("tools/call", call))["result"]
        assert not partial.get("isError", False)
        assert partial["_meta"]["toolgate/errors"][0]["code"] == "FORBIDDEN"
        assert content(partial)[1].startswith("Parts of this answer are missing: Nobody knows")


async def test_arguments_are_checked_before_anybody_is_asked(settings, shop):
    async with running(settings) as client:
        session = await client.session("2025-11-25")
        asked = len(shop.requests)
        call = {"name": "petBy", "arguments": {"by": {"id": "1", "name": "x"}}}
        result = (await session.call("tools/call", call))["result"]
        assert result["isError"]
        assert len(shop.requests) == asked


async def test_answers_match_their_schemas(settings):
    sources = {"shop": replace(settings.sources["shop"], validate_answers="report")}
    async with running(replace(settings, sources=sources)) as client:
        session = await client.session()
        for name, arguments in (
            ("pets", {}),
            ("pet", {"id": "1"}),
            ("pet", {"id": "99"}),
            ("pet", {"id": "half"}),
            ("things", {}),
            ("named", {"name": "Ada"}),
            ("count", {}),
            ("addPet", {"input": {"name": "Rex"}}),
        ):
            call = {"name": name, "arguments": arguments}
            result = (await session.call("tools/call", call))["result"]
            assert not result.get("isError"), result
            assert "toolgate/mismatch" not in result.get("_meta", {}), name
