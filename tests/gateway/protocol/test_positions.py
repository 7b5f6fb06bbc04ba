import pytest

from gateway.protocol.sse_writer import Position, read_position
from schemas.errors import InvalidRequest


@pytest.mark.parametrize(
    ("position", "id_"),
    [
        (Position("g", "0f2", "AAAABBBB_C-C", "e1-4"), "g.0f2.AAAABBBB_C-Ce1-4"),
        (Position("g", "0f2", "AAAABBBBCCCC"), "g.0f2.AAAABBBBCCCC"),
        (Position("g", "", "AAAABBBBCCCC"), "g.-.AAAABBBBCCCC"),
        (Position("g", "0f2"), "g.0f2"),
        (Position("p0a-17", "0f2"), "p0a-17.0f2"),
        (Position("p0a-17", ""), "p0a-17.-"),
        (Position("p0a-17", "0f2", ended=True), "p0a-17.0f2.end"),
    ],
)
def test_a_position_is_read_as_written(position, id_):
    assert position.id == id_
    assert all("!" <= char <= "~" for char in id_)
    assert read_position(id_) == position


def test_the_stream_of_a_post_names_its_node():
    assert read_position("p0a1b-17.0f2").node == "0a1b"


@pytest.mark.parametrize(
    "id_",
    ["", "x", "g", "g.", "g..", ".g", "h.1", "p.1", "p-1.1", "pz-1.1", "p1-x.1", "g.1.2.3", "g.1.",
     "g.a b", "g.\u00e9", "g.1\n", "G.1", "g." + "1" * 101, "p1-1.1/../../x.1.2", "42"],
)  # fmt: skip
def test_invalid_positions_are_refused(id_):
    with pytest.raises(InvalidRequest, match="Last-Event-ID is no id of an event") as caught:
        read_position(id_)
    assert caught.value.status == 400
