"""What takes more than one call: answers that are kept, and what marks mean elsewhere."""

import base64
import json
from typing import Any

import pytest

from tests.registry.importers.features.case import VERSIONS, Answer
from tests.registry.importers.features.conftest import INLINE_BYTES, TOKENS, TOOLSET, Rig

EVERY = pytest.mark.parametrize("rig", VERSIONS, indirect=True, scope="package")
pytestmark = [pytest.mark.anyio, EVERY]

FILE = bytes(range(256)) * 20
DISPOSITION = {"content-disposition": 'attachment; filename="all bytes.zip"'}
MEMBERS = [{"id": number, "text": f"é, [{number}] {{}}"} for number in range(400)]


async def download_link(rig: Rig) -> dict[str, Any]:
    """The one content of a result whose answer is too large to be in it."""
    rig.service.answer = Answer(FILE, "application/zip", headers=DISPOSITION)
    result = await rig.result("answer_media", {})
    assert not result.get("isError"), result
    [content] = result["content"]
    return dict(content)


async def read(rig: Rig, uri: str) -> list[dict[str, Any]]:
    _, answer = await rig.client.modern("resources/read", {"uri": uri}, **{"Mcp-Name": uri})
    contents: list[dict[str, Any]] = answer["result"]["contents"]
    return contents


async def test_a_large_answer_is_a_link_that_can_be_read(rig: Rig) -> None:
    assert len(FILE) > INLINE_BYTES
    link = await download_link(rig)
    assert {**link, "uri": ""} == {
        "type": "resource_link",
        "uri": "",
        "name": "all bytes.zip",
        "mimeType": "application/zip",
        "size": len(FILE),
    }
    [content] = await read(rig, link["uri"])
    assert content["mimeType"] == "application/zip"
    assert base64.b64decode(content["blob"]) == FILE


async def test_a_file_downloaded_by_one_call_is_uploaded_by_another(rig: Rig) -> None:
    link = await download_link(rig)
    rig.service.heard.clear()
    rig.service.answer = Answer()
    result = await rig.result("multipart_by_url", {"file": link["uri"]})
    assert not result.get("isError"), result
    [heard] = rig.service.heard
    head, _, rest = heard.body.partition(b"\r\n\r\n")
    assert b"Content-Type: application/zip" in head
    assert rest == FILE + b"\r\n--BOUNDARY--\r\n"


async def test_an_answer_that_is_too_long_comes_in_parts_and_none_is_lost(rig: Rig) -> None:
    whole = json.dumps(MEMBERS, ensure_ascii=False)
    assert len(whole) > 5 * TOKENS * 4
    rig.service.heard.clear()
    rig.service.answer = Answer(whole.encode())
    arguments: dict[str, Any] = {}
    parts = []
    while True:
        result = await rig.result("answer_json", arguments)
        assert not result.get("isError"), result
        assert "structuredContent" not in result
        first, *others = result["content"]
        assert len(first["text"]) <= TOKENS * 4
        parts.append(first["text"])
        more = result["_meta"].get("toolgate/continue")
        if more is None:
            break
        arguments = more["arguments"]
        assert arguments["_continue"] in others[0]["text"]
    assert "".join(parts) == whole
    assert len(rig.service.heard) == 1  # the rest did not come from the service again


async def test_programs_get_a_long_answer_whole(rig: Rig) -> None:
    rig.service.answer = Answer(json.dumps(MEMBERS).encode())
    request = {"jsonrpc": "2.0", "id": 1, "method": "answer_json", "params": {}}
    answer = await rig.client.rpc(request)
    assert answer["result"] == MEMBERS


async def test_an_answer_that_does_not_fit_its_schema_is_given_and_says_so(rig: Rig) -> None:
    rig.service.answer = Answer(b'{"id":"1"}')
    result = await rig.result("answer_unfit", {})
    assert result["structuredContent"] == {"id": "1"}
    assert "id" in json.dumps(result["_meta"]["toolgate/mismatch"])
    rig.service.answer = Answer(b'{"id":1}')
    assert "toolgate/mismatch" not in (await rig.result("answer_unfit", {}))["_meta"]


async def test_a_description_puts_its_tools_into_toolsets(rig: Rig) -> None:
    request = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }}  # fmt: skip
    path = f"/mcp/{TOOLSET}"
    _, _, headers = await rig.client.post(path, request)
    sent = {
        "Mcp-Session-Id": headers["mcp-session-id"],
        "MCP-Protocol-Version": "2025-06-18",
    }
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    _, answer, _ = await rig.client.post(path, request, sent)
    assert [tool["name"] for tool in answer["result"]["tools"]] == ["marked_for_a_toolset"]
