"""Answers of every length, as clients of every revision get them."""

import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from mcp import ClientSession
from mcp.client.client import Client as McpClient
from mcp.client.sse import sse_client
from msgspec.structs import replace

from config.settings import Settings
from config.sources import SourceSettings
from schemas.mcp.revisions import STREAMABLE
from tests.fixtures_gateway import Client, running
from tests.fixtures_servers import serving
from tests.gateway.shared import anyio_backend
from tests.servers.library import BOOKS, LINES, Library, description, file_of

pytestmark = pytest.mark.anyio

__all__ = ["anyio_backend"]

REVISIONS = [*STREAMABLE, "2026-07-28"]
INLINE, DOWNLOAD, TOKENS = 1000, 3_000_000, 500


@pytest.fixture(scope="module")
async def shared_library(
    shared_settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Settings, Library]]:
    """Settings with the library as their only source, and small limits. Like the gateway with them,
    they are of all tests, which leave them as they were."""
    behind, path = Library(), tmp_path_factory.mktemp("library") / "library.json"
    path.write_text(json.dumps(description()))
    limits = {"inline_bytes": INLINE, "download_bytes": DOWNLOAD, "tokens": TOKENS}
    answers = replace(shared_settings.answers, **limits)
    async with serving(behind) as url:
        source = SourceSettings(openapi=str(path), base_url=url)
        yield replace(shared_settings, answers=answers, sources={"library": source}), behind


@pytest.fixture(scope="module")
async def client(shared_library: tuple[Settings, Library]) -> AsyncIterator[Client]:
    async with running(shared_library[0]) as client:
        yield client


@pytest.fixture
def library(shared_library: tuple[Settings, Library]) -> tuple[Settings, Library]:
    """The library remembers nothing of the test before."""
    shared_library[1].asked.clear()
    return shared_library


async def ask_gateway(client: Client, revision: str, method: str, params: dict[str, Any]) -> Any:
    """The whole reply to one request."""
    if revision == "2026-07-28":
        _, reply = await client.modern(method, params, **_routing(params))
        return reply
    session = await client.session(revision)
    return await session.call(method, params)


def _routing(params: dict[str, Any]) -> dict[str, str]:
    return {"Mcp-Name": params["uri"]} if "uri" in params else {}


async def call_tool(
    client: Client, tool: str, arguments: dict[str, Any], revision: str = "2025-11-25"
) -> Any:
    params = {"name": tool, "arguments": arguments}
    return (await ask_gateway(client, revision, "tools/call", params))["result"]


async def read(client: Client, uri: str, revision: str = "2025-11-25") -> Any:
    return await ask_gateway(client, revision, "resources/read", {"uri": uri})


def uri_in(content: dict[str, Any]) -> str:
    if content["type"] == "resource_link":
        return str(content["uri"])
    return str(content["text"]).split("read the resource ")[1].rstrip("]")


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_long_file_is_linked_to_and_read(client: Client, revision: str) -> None:
    result = await call_tool(client, "getFile", {"size": 500_000}, revision)
    [content] = result["content"]
    if revision == "2025-03-26":
        assert content["text"].startswith("[menu.zip, application/zip, 500,000 bytes: read")
    else:
        told = {key: content[key] for key in ("type", "name", "mimeType", "size")}
        assert told == {
            "type": "resource_link",
            "name": "menu.zip",
            "mimeType": "application/zip",
            "size": 500_000,
        }
    [contents] = (await read(client, uri_in(content), revision))["result"]["contents"]
    assert contents["mimeType"] == "application/zip"
    assert contents["uri"] == uri_in(content)
    assert base64.b64decode(contents["blob"]) == file_of(500_000)


async def test_a_short_file_is_in_the_result(client: Client) -> None:
    [content] = (await call_tool(client, "getFile", {"size": INLINE}))["content"]
    assert base64.b64decode(content["resource"]["blob"]) == file_of(INLINE)


async def test_attachments_of_text_become_files(client: Client) -> None:
    [content] = (await call_tool(client, "export", {}))["content"]
    assert (content["type"], content["name"]) == ("resource_link", "export")
    [contents] = (await read(client, content["uri"]))["result"]["contents"]
    assert contents["text"] == LINES


async def test_a_file_beyond_the_limit_is_refused_and_not_kept(client: Client) -> None:
    answers: Any = client.gateway.shared.stores.answers
    before = len(answers)
    for tool, arguments in (("endless", {}), ("getFile", {"size": DOWNLOAD + 1})):
        result = await call_tool(client, tool, arguments)
        assert result["isError"] is True
        assert (
            f"more than {DOWNLOAD} bytes (answers.download_bytes)" in result["content"][0]["text"]
        )
    assert len(answers) == before


async def test_a_file_that_finds_no_room_is_refused(library: tuple[Settings, Library]) -> None:
    settings = library[0]
    answers = replace(settings.answers, caller_bytes=400_000)
    async with running(replace(settings, answers=answers)) as client:
        result = await call_tool(client, "getFile", {"size": 500_000})
        assert result["isError"] is True
        assert "answers.caller_bytes is reached" in result["content"][0]["text"]


async def test_json_rpc_callers_get_a_link_to_a_file_and_read_the_file(client: Client) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "getFile", "params": {"size": 5000}}
    [link] = (await client.rpc(call))["result"]
    ask = {"jsonrpc": "2.0", "id": 2, "method": "resources/read", "params": {"uri": link["uri"]}}
    [contents] = (await client.rpc(ask))["result"]["contents"]
    assert base64.b64decode(contents["blob"]) == file_of(5000)


@pytest.mark.parametrize("revision", REVISIONS)
async def test_a_handle_that_nobody_has_is_a_resource_that_is_not_there(
    client: Client, revision: str
) -> None:
    error = (await read(client, "toolgate-answer:" + "0" * 40, revision))["error"]
    assert error["code"] == (-32602 if revision == "2026-07-28" else -32002)
    assert error["data"]["uri"] == "toolgate-answer:" + "0" * 40


@pytest.mark.parametrize("revision", STREAMABLE)
async def test_resources_are_announced_where_answers_may_be_some(
    client: Client, revision: str
) -> None:
    session = await client.session(revision)
    assert session.initialized["capabilities"]["resources"] == {}
    assert (await session.call("resources/list"))["result"]["resources"] == []


def continuation_of(result: dict[str, Any]) -> dict[str, Any] | None:
    following = result.get("_meta", {}).get("toolgate/continue")
    return following and following["arguments"]


async def all_parts(client: Client, tool: str, revision: str) -> list[str]:
    result = await call_tool(client, tool, {}, revision)
    parts = [result["content"][0]["text"]]
    while arguments := continuation_of(result):
        assert "structuredContent" not in result
        assert len(parts[-1]) <= TOKENS * 4
        assert json.dumps(arguments, separators=(",", ":")) in result["content"][1]["text"]
        result = await call_tool(client, tool, arguments, revision)
        parts.append(result["content"][0]["text"])
    assert len(result["content"]) == 1
    return parts


@pytest.mark.parametrize("revision", REVISIONS)
async def test_the_parts_of_a_long_answer_are_the_whole(
    library: tuple[Settings, Library], client: Client, revision: str
) -> None:
    parts = await all_parts(client, "listBooks", revision)
    assert len(parts) > 5
    assert json.loads("".join(parts)) == BOOKS
    assert all(part.endswith("},") for part in parts[:-1])
    assert "".join(await all_parts(client, "getText", revision)) == LINES
    assert len(library[1].asked) == 2  # nothing was asked of the service again


async def test_a_long_answer_of_json_comes_with_how_to_ask_for_less(client: Client) -> None:
    advice = 'The argument _fields gives the members that it names alone, as in {"_fields":['
    [_, notice] = (await call_tool(client, "listBooks", {}))["content"][:2]
    assert advice in notice["text"]
    [_, notice] = (await call_tool(client, "getText", {}))["content"][:2]
    assert notice["text"].startswith("[Cut here")
    assert "_fields" not in notice["text"]


async def test_all_of_a_long_answer_is_a_resource(client: Client) -> None:
    result = await call_tool(client, "listBooks", {})
    uri = "toolgate-answer:" + continuation_of(result)["_continue"].partition(".")[0]  # type: ignore[index]
    assert uri in result["content"][1]["text"]
    [contents] = (await read(client, uri))["result"]["contents"]
    assert contents["mimeType"] == "application/json"
    assert json.loads(contents["text"]) == BOOKS


async def test_a_long_error_is_cut_as_well(client: Client) -> None:
    result = await call_tool(client, "fails", {})
    assert result["isError"] is True
    assert continuation_of(result)
    assert "structuredContent" not in result


async def test_plain_json_rpc_is_never_cut(client: Client) -> None:
    reply = await client.rpc({"jsonrpc": "2.0", "id": 1, "method": "listBooks"})
    assert reply["result"] == BOOKS


@pytest.mark.parametrize(
    "handle", ["x", "0" * 40 + ".0", "0" * 40, "ab" * 20 + ".-1", "ab" * 20 + ".9" * 20]
)
async def test_an_unknown_continuation_asks_for_a_new_call(client: Client, handle: str) -> None:
    result = await call_tool(client, "listBooks", {"_continue": handle})
    assert result["isError"] is True
    assert "call listBooks again without _continue" in result["content"][0]["text"]


async def test_a_continuation_is_of_its_tool_alone(client: Client) -> None:
    arguments = continuation_of(await call_tool(client, "listBooks", {}))
    assert arguments is not None
    assert (await call_tool(client, "getText", arguments))["isError"] is True


async def test_a_cut_without_room_for_the_rest_says_so(library: tuple[Settings, Library]) -> None:
    settings = library[0]
    answers = replace(settings.answers, caller_bytes=1)
    async with running(replace(settings, answers=answers)) as client:
        await call_tool(client, "getText", {})  # takes the room
        result = await call_tool(client, "listBooks", {})
        assert continuation_of(result) is None
        assert "The rest could not be kept" in result["content"][1]["text"]
        assert not result.get("isError")


async def test_nothing_is_cut_without_a_budget(library: tuple[Settings, Library]) -> None:
    settings = library[0]
    async with running(replace(settings, answers=replace(settings.answers, tokens=0))) as client:
        result = await call_tool(client, "listBooks", {}, "2026-07-28")
        assert json.loads(result["content"][0]["text"]) == result["structuredContent"] == BOOKS


@pytest.mark.parametrize(
    ("tool", "pages"), [("getShelf", [{"n": 1}, {"n": 2}, {"n": 3}]), ("links", [1, 2, 3])]
)
@pytest.mark.parametrize("revision", REVISIONS)
async def test_pages_are_followed_to_the_last(
    client: Client, tool: str, pages: list[Any], revision: str
) -> None:
    found: list[Any] = []
    arguments: dict[str, Any] | None = {}
    while arguments is not None:
        result = await call_tool(client, tool, arguments, revision)
        page = json.loads(result["content"][0]["text"])
        found += page["results"] if tool == "getShelf" else [one["id"] for one in page]
        following = result.get("_meta", {}).get("toolgate/next")
        arguments = following and following["arguments"]
        words = [one["text"] for one in result["content"][1:]]
        assert words == (
            [f"More follows: call {tool} again with {json.dumps(arguments).replace(' ', '')}"]
            if arguments
            else []
        )
        assert "10.0.0.1" not in json.dumps(result)
    assert found == pages


async def test_json_rpc_callers_get_pages_unchanged(client: Client) -> None:
    reply = await client.rpc({"jsonrpc": "2.0", "id": 1, "method": "links", "params": {}})
    assert reply["result"] == [{"id": 1}]


async def test_only_the_members_that_are_wanted_come(client: Client) -> None:
    result = await call_tool(client, "getShelf", {"_fields": ["results.n"]}, "2026-07-28")
    assert result["structuredContent"] == {"results": [{"n": 1}]}
    assert json.loads(result["content"][0]["text"]) == {"results": [{"n": 1}]}
    following = result["_meta"]["toolgate/next"]["arguments"]
    assert following == {"page": 2, "_fields": ["results.n"]}


async def test_members_are_chosen_before_the_answer_is_cut(client: Client) -> None:
    result = await call_tool(client, "listBooks", {"_fields": "id"}, "2026-07-28")
    assert json.loads("".join(await _parts_from(client, "listBooks", result))) == [
        {"id": book["id"]} for book in BOOKS
    ]


async def _parts_from(client: Client, tool: str, result: dict[str, Any]) -> list[str]:
    parts = [result["content"][0]["text"]]
    while arguments := continuation_of(result):
        result = await call_tool(client, tool, arguments, "2026-07-28")
        parts.append(result["content"][0]["text"])
    return parts


async def test_members_that_are_not_there_are_named(client: Client) -> None:
    result = await call_tool(client, "getShelf", {"_fields": "nope,results.n"})
    assert result["content"][1]["text"] == "[_fields: not in this answer: nope]"


async def test_paths_that_are_none_are_refused(client: Client) -> None:
    result = await call_tool(client, "getShelf", {"_fields": 7})
    assert result["isError"] is True
    assert "_fields: expected paths" in result["content"][0]["text"]


async def test_plain_json_rpc_chooses_members_too(client: Client) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "getShelf", "params": {"_fields": ["results"]}}
    assert (await client.rpc(call))["result"] == {"results": [{"n": 1}]}


async def test_an_answer_that_breaks_its_schema_is_given_and_counted(
    library: tuple[Settings, Library],
) -> None:
    settings = library[0]
    source = replace(settings.sources["library"], validate_answers="report")
    async with running(replace(settings, sources={"library": source})) as client:
        result = await call_tool(client, "wrong", {})
        assert result["structuredContent"] == {"id": "seven"}
        assert result["_meta"]["toolgate/mismatch"] == ['id: expected integer, got "seven"']
        assert "toolgate/mismatch" not in (await call_tool(client, "listBooks", {}))["_meta"]
        async with client.http.get(client.url + "/metrics") as metrics:
            told = await metrics.text()
        assert 'toolgate_answer_mismatches_total{source="library"} 1.0' in told


async def test_answers_are_not_compared_unless_asked_for(client: Client) -> None:
    assert "_meta" not in await call_tool(client, "wrong", {})


async def test_the_accept_header_follows_the_description(
    library: tuple[Settings, Library], client: Client
) -> None:
    for tool in ("getFile", "listBooks"):
        await call_tool(client, tool, {})
    accepted = [headers["accept"] for _, _, headers in library[1].asked]
    assert accepted == ["application/zip, */*;q=0.1", "application/json, */*;q=0.8"]


async def test_an_answer_without_a_body_has_status_and_headers(client: Client) -> None:
    assert (await call_tool(client, "removeAll", {}))["content"][0]["text"] == "204 No Content"
    told = (await call_tool(client, "headFile", {"size": 5000}))["content"][0]["text"]
    assert told.split("\n") == [
        "200 OK",
        "Content-Type: application/zip",
        "Content-Length: 5000",
        'ETag: "1"',
    ]


@pytest.mark.parametrize("backend", ["redis", "postgres"])
async def test_another_node_reads_a_stored_answer(
    library: tuple[Settings, Library], request: pytest.FixtureRequest, backend: str
) -> None:
    settings = library[0]
    url = request.getfixturevalue("redis_server").url if backend == "redis" else ""
    state = replace(settings.state, backend=backend, redis_url=url)
    shared = replace(settings, state=state)
    async with running(shared) as a, running(shared) as b:
        [link] = (await call_tool(a, "getFile", {"size": 500_000}))["content"]
        [contents] = (await read(b, link["uri"]))["result"]["contents"]
        assert base64.b64decode(contents["blob"]) == file_of(500_000)
        result = await call_tool(a, "getText", {})
        parts = [result["content"][0]["text"]]
        while arguments := continuation_of(result):
            result = await call_tool(b, "getText", arguments)
            parts.append(result["content"][0]["text"])
        assert "".join(parts) == LINES


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_official_client_follows_links_and_continuations(
    client: Client, mode: Any
) -> None:
    async with McpClient(client.url + "/mcp", mode=mode) as mcp:
        [link] = (await mcp.call_tool("getFile", {"size": 5000})).content
        assert (link.type, link.size) == ("resource_link", 5000)
        [contents] = (await mcp.read_resource(link.uri)).contents
        assert base64.b64decode(contents.blob) == file_of(5000)
        result = await mcp.call_tool("getText", {})
        parts = [result.content[0].text]
        while result.meta and (following := result.meta.get("toolgate/continue")):
            result = await mcp.call_tool("getText", following["arguments"])
            parts.append(result.content[0].text)
        assert "".join(parts) == LINES


async def test_a_2024_11_05_client_reads_a_linked_file(client: Client) -> None:
    async with (
        sse_client(client.url + "/mcp/sse") as (receive, send),
        ClientSession(receive, send) as session,
    ):
        await session.initialize()
        [told] = (await session.call_tool("getFile", {"size": 5000})).content
        uri = told.text.split("read the resource ")[1].rstrip("]")
        [contents] = (await session.read_resource(uri)).contents
        assert base64.b64decode(contents.blob) == file_of(5000)
