import pytest
from msgspec import Raw
from msgspec.json import decode, encode

from schemas.tool import (
    Annotations,
    AudioContent,
    BlobResource,
    EmbeddedResource,
    ImageContent,
    TextContent,
    ToolResult,
)


@pytest.mark.parametrize(
    ("content", "wire"),
    [
        (TextContent("x"), {"type": "text", "text": "x"}),
        (ImageContent("AA==", "image/png"), ("image", "AA==", "image/png")),
        (AudioContent("AA==", "audio/wav"), ("audio", "AA==", "audio/wav")),
        (
            EmbeddedResource(BlobResource("toolgate://results/1", "application/zip", "AA==")),
            {
                "type": "resource",
                "resource": {
                    "uri": "toolgate://results/1",
                    "mimeType": "application/zip",
                    "blob": "AA==",
                },
            },
        ),
    ],
)
def test_content_has_the_shape_of_mcp(content, wire):
    if isinstance(wire, tuple):
        kind, data, mime_type = wire
        wire = {"type": kind, "data": data, "mimeType": mime_type}
    assert decode(encode(content)) == wire


def test_hints_that_nobody_gave_are_not_sent():
    assert encode(Annotations()) == b"{}"
    hints = Annotations(read_only_hint=False, open_world_hint=True)
    assert decode(encode(hints)) == {"readOnlyHint": False, "openWorldHint": True}


def test_a_result_carries_its_structure_unread():
    result = ToolResult((TextContent("x"),), Raw(b'{"a": 1.00}'))
    wire = b'{"content":[{"type":"text","text":"x"}],"structuredContent":{"a": 1.00}}'
    assert encode(result) == wire
    assert decode(encode(ToolResult((), is_error=True))) == {"content": [], "isError": True}
