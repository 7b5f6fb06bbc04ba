"""One result of a tool, as each kind of client gets it."""

import json

import pytest
from msgspec import UNSET, Raw
from msgspec.json import encode

from gateway.context import Context, Identity, Principal
from gateway.methods.results_by_revision import call_result, payload_of, plain_result
from gateway.protocol.dialects import Payload
from schemas.errors import ToolFailed
from schemas.mcp.revisions import (
    HANDSHAKE,
    V2024_11_05,
    V2025_03_26,
    V2025_06_18,
    V2025_11_25,
    V2026_07_28,
)
from schemas.tool import (
    AudioContent,
    BlobResource,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    ToolResult,
)

TEXT = (TextContent("x"),)
SOUND = AudioContent("AA==", "audio/wav")


def decode_result(result, revision):
    """The decoded `result` of tools/call."""
    context = Context(Identity(Principal("p", "t")), revision, "r-1")
    return json.loads(encode(call_result(result, context)))


@pytest.mark.parametrize("revision", HANDSHAKE.values(), ids=HANDSHAKE)
def test_a_plain_result_is_its_content(revision):
    assert decode_result(ToolResult(TEXT), revision) == {"content": [{"type": "text", "text": "x"}]}


def test_a_stateless_result_names_its_type_and_server():
    wire = decode_result(ToolResult(TEXT), V2026_07_28)
    assert wire["resultType"] == "complete"
    assert wire["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "toolgate"


@pytest.mark.parametrize("revision", [*HANDSHAKE.values(), V2026_07_28], ids=lambda r: r.name)
def test_an_error_says_so_and_names_the_request(revision):
    wire = decode_result(ToolResult(TEXT, is_error=True), revision)
    assert wire["isError"] is True
    assert wire["_meta"]["toolgate/requestId"] == "r-1"
    assert ("io.modelcontextprotocol/serverInfo" in wire["_meta"]) is revision.result_type


@pytest.mark.parametrize(
    ("raw", "wrapped"),
    [
        (b'{"a": 1.00}', b'{"a": 1.00}'),
        (b' \r\n\t{"a": 1}', b' \r\n\t{"a": 1}'),
        (b"[1, 2]", b'{"result":[1, 2]}'),
        (b'"text"', b'{"result":"text"}'),
        (b"null", b'{"result":null}'),
        (b" 7", b'{"result": 7}'),
        (b"", b'{"result":}'),  # never made; must not crash
    ],
)
def test_structure_is_carried_unread_and_wrapped_where_only_objects_are_known(raw, wrapped):
    result = ToolResult(TEXT, Raw(raw))
    context = Context(Identity(Principal("p", "t")), V2025_06_18, "r-1")
    for revision in (V2025_06_18, V2025_11_25):
        context.revision = revision
        assert bytes(call_result(result, context).structured_content) == wrapped
    context.revision = V2026_07_28
    assert bytes(call_result(result, context).structured_content) == raw


@pytest.mark.parametrize("revision", [V2024_11_05, V2025_03_26], ids=lambda r: r.name)
def test_revisions_without_structure_get_none(revision):
    assert "structuredContent" not in decode_result(ToolResult(TEXT, Raw(b"{}")), revision)


def test_audio_is_described_to_2024_11_05_clients():
    result = ToolResult((TextContent("x"), SOUND))
    assert decode_result(result, V2024_11_05)["content"] == [
        {"type": "text", "text": "x"},
        {"type": "text", "text": "[audio, audio/wav: 2024-11-05 cannot carry it]"},
    ]
    for revision in (V2025_03_26, V2025_06_18, V2025_11_25, V2026_07_28):
        assert decode_result(result, revision)["content"][1]["type"] == "audio"


@pytest.mark.parametrize("revision", HANDSHAKE.values(), ids=HANDSHAKE)
def test_images_and_files_are_known_to_all(revision):
    file = EmbeddedResource(BlobResource("toolgate://results/1", "application/zip", "AA=="))
    wire = decode_result(ToolResult((ImageContent("AA==", "image/png"), file)), revision)
    assert [item["type"] for item in wire["content"]] == ["image", "resource"]


@pytest.mark.parametrize(
    ("result", "plain"),
    [
        (ToolResult(TEXT, Raw(b'{"a": 1.00}')), b'{"a": 1.00}'),
        (ToolResult(TEXT, Raw(b"null")), b"null"),
        (ToolResult(TEXT), b'"x"'),
        (ToolResult(()), b"null"),
        (ToolResult((SOUND,)), b'[{"type":"audio","data":"AA==","mimeType":"audio/wav"}]'),
        (
            ToolResult((TextContent("a"), TextContent("b"))),
            b'[{"type":"text","text":"a"},{"type":"text","text":"b"}]',
        ),
    ],
)
def test_a_json_rpc_client_gets_the_data(result, plain):
    assert plain_result(result) == Raw(plain)


@pytest.mark.parametrize(
    ("content", "structure", "message", "data"),
    [
        ("HTTP 404 Not Found\n{}", b'{"status":404}', "HTTP 404 Not Found", {"status": 404}),
        ("boom", b'["a"]', "boom", {"content": ["a"]}),
        ("x" * 1000, b"null", "x" * 300, {"content": None}),
    ],
)
def test_a_json_rpc_client_gets_a_failed_tool_as_an_error(content, structure, message, data):
    with pytest.raises(ToolFailed) as caught:
        plain_result(ToolResult((TextContent(content),), Raw(structure), is_error=True))
    assert (caught.value.message, json.loads(encode(caught.value.data))) == (message, data)
    assert caught.value.code == 1500


def test_structured_errors_of_tools_are_carried_verbatim():
    result = ToolResult(TEXT, Raw(b'{"status": 400, "body": {"a": 1.00, "b": 1e400}}'), True)
    with pytest.raises(ToolFailed) as caught:
        plain_result(result)
    assert encode(caught.value.data) == b'{"status":400,"body":{"a": 1.00, "b": 1e400}}'


@pytest.mark.parametrize(
    ("content", "message"), [((), "The tool failed"), ((SOUND,), "The tool failed"), (TEXT, "x")]
)
def test_a_failed_tool_without_structure_gives_its_content(content, message):
    with pytest.raises(ToolFailed) as caught:
        plain_result(ToolResult(content, UNSET, is_error=True))
    assert (caught.value.message, caught.value.data) == (message, {"content": content})


@pytest.mark.parametrize(
    ("result", "payload"),
    [
        (ToolResult(()), Payload(None)),
        (ToolResult(TEXT), Payload(b"x", is_text=True)),
        (ToolResult((TextContent("é"),)), Payload("é".encode(), is_text=True)),
        (ToolResult(TEXT, Raw(b'{"a": 1.00}')), Payload(b'{"a": 1.00}')),
        (ToolResult((), Raw(b"null")), Payload(b"null")),
        (
            ToolResult((TextContent("a"), TextContent("b"))),
            Payload(b'[{"type":"text","text":"a"},{"type":"text","text":"b"}]'),
        ),
    ],
)
def test_a_client_of_the_legacy_payload_gets_no_envelope(result, payload):
    assert payload_of(result) == payload


LINK = ResourceLink("toolgate-answer:x", "a.zip", mime_type="application/zip", size=5_000_000)


@pytest.mark.parametrize("revision", [*HANDSHAKE.values(), V2026_07_28], ids=lambda r: r.name)
def test_links_are_described_to_revisions_without_links(revision):
    [content] = decode_result(ToolResult((LINK,)), revision)["content"]
    if revision in (V2024_11_05, V2025_03_26):
        words = "[a.zip, application/zip, 5,000,000 bytes: read the resource toolgate-answer:x]"
        assert content == {"type": "text", "text": words}
    else:
        assert content == {
            "type": "resource_link",
            "uri": "toolgate-answer:x",
            "name": "a.zip",
            "mimeType": "application/zip",
            "size": 5_000_000,
        }


@pytest.mark.parametrize("revision", [V2025_06_18, V2026_07_28], ids=lambda r: r.name)
def test_meta_of_a_result_is_forwarded(revision):
    wire = decode_result(
        ToolResult(TEXT, meta={"toolgate/next": {"arguments": {"page": 2}}}), revision
    )
    assert wire["_meta"]["toolgate/next"] == {"arguments": {"page": 2}}
    assert ("io.modelcontextprotocol/serverInfo" in wire["_meta"]) is revision.result_type
