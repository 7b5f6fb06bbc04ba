"""JSON arrays, as far as they are read."""

import json

import msgspec
import pytest

from gateway.upstreams.mcp.message_parsers import DECODER_LIMIT, first_members


@pytest.mark.parametrize("limit", [0, 2, 3, DECODER_LIMIT + 1])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4])
def test_one_more_than_wanted_is_read_and_no_further(limit, count):
    members = [{"a": number} for number in range(count)]
    found = first_members(json.dumps(members).encode(), limit)
    assert [json.loads(bytes(member)) for member in found] == members[: limit + 1]


@pytest.mark.parametrize("text", [b"{}", b"null", b"[", b"[1,]", b"[1,2,3,4,,]", b"[1]x", b""])
def test_invalid_arrays_are_refused(text):
    with pytest.raises(msgspec.DecodeError):
        first_members(text, 2)
