"""Files that a call sends: from one service to another, through the gateway only."""

import json

import pytest
from msgspec.structs import replace

from config.sources import SourceSettings
from tests.fixtures_gateway import running
from tests.servers.rest import read_seen, respond

pytestmark = pytest.mark.anyio

PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8000
BINARY = {"type": "string", "format": "binary"}
DESCRIPTION = {
    "openapi": "3.0.3",
    "info": {"title": "Files", "version": "1"},
    "paths": {
        "/picture": {
            "get": {
                "operationId": "picture",
                "responses": {"200": {"content": {"image/png": {"schema": BINARY}}}},
            }
        },
        "/files": {
            "post": {
                "operationId": "upload",
                "requestBody": {
                    "required": True,
                    "content": {"application/octet-stream": {"schema": BINARY}},
                },
            }
        },
    },
}


class Files:
    """Gives a picture that is too long for an answer, and takes files."""

    def __init__(self):
        self.taken = []

    async def __call__(self, scope, receive, send):
        seen = await read_seen(scope, receive)
        if seen.method == "GET":
            await respond(send, 200, PICTURE, [("content-type", "image/png")])
        else:
            self.taken.append(seen.body)
            await respond(send, 200, b"{}", [("content-type", "application/json")])


@pytest.fixture
async def files(serve):
    service = Files()
    service.url = await serve(service)
    return service


@pytest.fixture
async def client(settings, files, tmp_path):
    description = tmp_path / "files.json"
    description.write_text(json.dumps(DESCRIPTION))
    source = SourceSettings(openapi=str(description), base_url=files.url)
    upstream = replace(settings.upstream, upload_private_networks=True)
    async with running(replace(settings, sources={"files": source}, upstream=upstream)) as client:
        yield client


async def call_tool(client, name, **arguments):
    status, answer = await client.modern("tools/call", {"name": name, "arguments": arguments})
    assert status == 200, answer
    return answer["result"]


async def test_files_pass_between_tools_by_reference(client, files):
    given = await call_tool(client, "picture")
    [link] = [item for item in given["content"] if item["type"] == "resource_link"]
    taken = await call_tool(client, "upload", body=link["uri"])
    assert taken["structuredContent"] == {}
    assert files.taken == [PICTURE]


async def test_a_url_is_fetched_and_sent_on(client, files):
    await call_tool(client, "upload", body=f"{files.url}/picture")
    assert files.taken == [PICTURE]


async def test_callers_of_rpc_name_resources_too(client, files):
    given = await call_tool(client, "picture")
    [link] = [item for item in given["content"] if item["type"] == "resource_link"]
    request = {"jsonrpc": "2.0", "id": 1, "method": "upload", "params": {"body": link["uri"]}}
    assert "error" not in await client.rpc(request)
    assert files.taken == [PICTURE]


async def test_a_resource_that_is_not_there_is_told_and_nothing_sent(client, files):
    result = await call_tool(client, "upload", body="toolgate://results/none")
    assert (result["isError"], files.taken) == (True, [])
    assert result["content"][0]["text"] == "body: there is no such resource"
