import json

import pytest

from gateway.protocol.sse_writer import KEEP_ALIVE, event, priming


def parse_events(stream):
    """The events of a stream, as a browser reads them (WHATWG HTML, section 9.2.6)."""
    events, name, data = [], "", []
    for line in stream.decode().replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if data:
                events.append((name or "message", "\n".join(data)))
            name, data = "", []
        elif field == "event":
            name = value
        elif field == "data":
            data.append(value)
    return events


def test_a_message_is_one_event():
    stream = event(b'{"a":1}')
    assert parse_events(stream) == [("message", '{"a":1}')]
    assert parse_events(event(b"/mcp/message?session_id=1", b"endpoint"))[0][0] == "endpoint"


def test_events_follow_each_other_and_keep_alives_are_none():
    assert len(parse_events(KEEP_ALIVE + event(b"1") + KEEP_ALIVE + event(b"2") + KEEP_ALIVE)) == 2


@pytest.mark.parametrize("line_break", [b"\n", b"\r", b"\r\n", b"\n\n"])
def test_json_that_a_service_wrote_over_several_lines_stays_one_event(line_break):
    written = line_break.join([b'{"a":', b' "x\\ny",', b'"event": 2', b"}"])
    [(name, text)] = parse_events(event(b'{"result":' + written + b"}"))
    assert name == "message"
    assert json.loads(text) == {"result": {"a": "x\ny", "event": 2}}


def test_an_event_may_have_an_id_to_come_back_to():
    assert event(b"1", id_="g.1") == b"id: g.1\nevent: message\ndata: 1\n\n"
    assert b"id:" not in event(b"1")


def test_a_priming_event_says_where_and_when_to_come_back_and_nothing_else():
    assert priming("g.1", 500) == b"id: g.1\nretry: 500\ndata: \n\n"
