"""Prompts, resources and completion of a real server of both eras, through the gateway."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from config.settings import DatabaseSettings
from config.sources import SourceSettings
from schemas.mcp.revisions import STREAMABLE, V2026_07_28
from tests.fixtures_gateway import Client, running, wordless
from tests.fixtures_servers import serving
from tests.gateway.shared import anyio_backend
from tests.servers.everything import everything

pytestmark = pytest.mark.anyio

MODERN = V2026_07_28.name
by_revision = pytest.mark.parametrize("revision", [*STREAMABLE, MODERN])


__all__ = ["anyio_backend"]


@pytest.fixture(scope="module")
async def client(shared_database: DatabaseSettings) -> AsyncIterator[Client]:
    """One for all tests, which leave it as it was."""
    app, lifespan = everything()
    async with lifespan, serving(app) as url:
        sources = {"every": SourceSettings(mcp=f"{url}/mcp")}
        settings = replace(wordless(), database=shared_database, sources=sources)
        async with running(settings) as client:
            yield client


async def ask(client: Client, revision: str, method: str, **params: Any) -> Any:
    """The result of a request, or its error, in the revision's own way of asking."""
    if revision == MODERN:
        name = {"Mcp-Name": params["uri"]} if method == "resources/read" else {}
        _, answer = await client.modern(method, params, **name)
    else:
        answer = await (await client.session(revision)).call(method, params)
    return answer.get("result", answer.get("error"))


@by_revision
async def test_capabilities_and_items_of_a_server_are_offered(client, revision):
    if revision == MODERN:
        can = (await ask(client, revision, "server/discover"))["capabilities"]
    else:
        can = (await client.session(revision)).initialized["capabilities"]
    assert can.keys() >= {"tools", "prompts", "resources", "completions", "logging"}
    prompts = await ask(client, revision, "prompts/list")
    assert "test_simple_prompt" in [one["name"] for one in prompts["prompts"]]
    resources = await ask(client, revision, "resources/list")
    assert "test://static-text" in [one["uri"] for one in resources["resources"]]
    templates = await ask(client, revision, "resources/templates/list")
    (template,) = templates["resourceTemplates"]
    assert template["uriTemplate"] == "test://template/{id}/data"


@by_revision
async def test_a_resource_is_read_by_its_address_or_its_template(client, revision):
    text = await ask(client, revision, "resources/read", uri="test://static-text")
    assert text["contents"][0]["uri"] == "test://static-text"
    data = await ask(client, revision, "resources/read", uri="test://template/123/data")
    assert "123" in data["contents"][0]["text"]
    assert ("ttlMs" in data, "resultType" in data) == (revision == MODERN,) * 2


@by_revision
@pytest.mark.parametrize("uri", ["test://nope", "zz://nope"])
async def test_a_resource_that_is_not_there_is_an_error_of_the_revision(client, revision, uri):
    error = await ask(client, revision, "resources/read", uri=uri)
    assert error["code"] == (-32602 if revision == MODERN else -32002)
    assert error["data"]["uri"] == uri


@by_revision
async def test_a_prompt_is_got_with_its_arguments_filled_in(client, revision):
    arguments = {"arg1": "one", "arg2": "two"}
    got = await ask(
        client, revision, "prompts/get", name="test_prompt_with_arguments", arguments=arguments
    )
    assert "one" in str(got["messages"])
    assert (await ask(client, revision, "prompts/get", name="nope"))["code"] == -32602


@by_revision
async def test_an_argument_of_a_prompt_is_completed(client, revision):
    ref = {"type": "ref/prompt", "name": "test_prompt_with_arguments"}
    argument = {"name": "arg1", "value": "test"}
    result = await ask(client, revision, "completion/complete", ref=ref, argument=argument)
    assert "test" in result["completion"]["values"]


@by_revision
async def test_an_empty_cursor_is_none_of_ours(client, revision):
    for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list"):
        assert (await ask(client, revision, method, cursor=""))["code"] == -32602
