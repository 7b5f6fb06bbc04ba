"""Bodies that come in pieces: server-sent events, and JSON on lines."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http_client.http1 import TooLarge
from gateway.http_client.sse_parser import ServerEvent, SseParser
from gateway.upstreams.mcp.message_parsers import JsonTextParser, LineSplitter

LIMIT = 1000


def feed_on(body: SseParser | JsonTextParser, piece: bytes) -> None:
    for _ in range(LIMIT):
        body.feed(piece)


def read(*chunks: bytes) -> list[bytes]:
    stream = SseParser(LIMIT)
    return [event.data for chunk in chunks for event in stream.feed(chunk)]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"data: 1\n\n", [b"1"]),
        (b"data:1\n\n", [b"1"]),
        (b"data:  1\n\n", [b" 1"]),  # one space belongs to the syntax, no more
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"data: a\r\ndata: b\r\n\r\n", [b"a\nb"]),
        (b"data: a\rdata: b\r\r", [b"a\nb"]),
        (b": a comment\ndata: 1\n\n:\n\n", [b"1"]),
        (b"\xef\xbb\xbfdata: 1\n\n", [b"1"]),
        (b"id: 7\ndata:\n\n", []),  # priming: an id, and no data
        (b"id: 7\n\n", []),
        (b"data\n\n", []),
        (b"unknown: x\ndata: 1\n\n", [b"1"]),
        (b"data: 1\n", []),  # half an event is none
        (b"\n\n\ndata: 1\n\n\n\n", [b"1"]),
    ],
)
def test_events_are_read_as_the_standard_says(body, expected):
    assert read(body) == expected


@given(st.data())
def test_where_a_body_is_cut_does_not_matter(data):
    body = (
        'id: 1\r\ndata:\r\n\r\n: c\rdata: {"a":\rdata: "ü€😀"}\r\r'
        "event: endpoint\ndata: /x\n\nretry: 5\nid: 2\ndata: z\n\n"
    ).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=12)))
    stream = SseParser(LIMIT)
    edges = [0, *cuts, len(body)]
    pieces = [body[a:b] for a, b in pairwise(edges)]
    events = [event for piece in pieces for event in stream.feed(piece)]
    assert events == [
        ServerEvent('{"a":\n"ü€😀"}'.encode()),
        ServerEvent(b"/x", "endpoint"),
        ServerEvent(b"z"),
    ]
    assert (stream.last_id, stream.retry_s) == ("2", 0.005)


def test_the_id_of_an_event_counts_once_the_event_is_whole():
    stream = SseParser(LIMIT)
    stream.feed(b"id: 1\ndata: x\n\nid: 2\ndata: y\n")
    assert stream.last_id == "1"
    stream.end()
    stream.feed(b"data: z\n\n")
    assert stream.last_id == "1"


@pytest.mark.parametrize(
    "line", [b"retry: soon", b"retry: -1", b"retry: 1e3", b"retry: " + b"9" * 30]
)
def test_a_retry_that_is_no_time_is_passed_over(line):
    stream = SseParser(LIMIT)
    stream.feed(line + b"\n\n")
    assert stream.retry_s is None


@pytest.mark.parametrize("id_", [b"a\0b", b"x" * 5000])
def test_an_id_that_cannot_be_sent_back_is_passed_over(id_):
    stream = SseParser(10_000)
    stream.feed(b"id: " + id_ + b"\ndata: 1\n\n")
    assert stream.last_id == ""


@pytest.mark.parametrize("piece", [b"x" * 100, b"data: x\n" * 12, b"data: x\ndata: y"])
def test_an_event_without_an_end_is_too_large_at_some_time(piece):
    stream = SseParser(LIMIT)
    with pytest.raises(TooLarge):
        feed_on(stream, piece)


def test_many_small_events_are_not_too_large():
    stream = SseParser(LIMIT)
    assert sum(len(stream.feed(b"data: x\n\n" * 50)) for _ in range(100)) == 5000


def texts(*chunks: bytes) -> list[bytes]:
    body = JsonTextParser(LIMIT)
    events = [event for chunk in chunks for event in body.feed(chunk)] + body.end()
    return [event.data for event in events]


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ((b'{"a": 1}',), [b'{"a": 1}']),
        ((b'{"a":\n 1}\n',), [b'{"a":\n 1}\n']),  # one text, on two lines
        ((b'{"a":1}\n{"b":2}\n',), [b'{"a":1}', b'{"b":2}']),
        ((b'{"a":1}\r\n{"b"', b":2}"), [b'{"a":1}\r', b'{"b":2}']),
        ((b'\n\n{"a":1}\n\n{"b":2}',), [b'{"a":1}', b'{"b":2}']),
        ((b"",), []),
        ((b" \n ",), []),
    ],
)
def test_json_is_a_single_text_or_json_lines(chunks, expected):
    assert texts(*chunks) == expected


def test_a_line_is_parsed_before_the_next_line_arrives():
    body = JsonTextParser(LIMIT)
    assert [event.data for event in body.feed(b'{"a":1}\n{"b"')] == [b'{"a":1}']


def test_json_that_does_not_end_is_too_large_at_some_time():
    body = JsonTextParser(LIMIT)
    with pytest.raises(TooLarge):
        feed_on(body, b'{"a":\n')


def test_long_lines_are_cut_or_refused():
    cut = LineSplitter(4, cut=True)
    assert cut.feed(b"abc") == []
    assert cut.feed(b"defg\nhi\n\n  \njk") == [b"abcd", b"hi"]
    assert cut.feed(b"\n") == [b"jk"]
    strict = LineSplitter(4)
    assert strict.feed(b"abcd\n") == [b"abcd"]
    with pytest.raises(TooLarge):
        strict.feed(b"abcde")


def test_blank_lines_do_not_count_however_many_come():
    stream, text = SseParser(LIMIT), JsonTextParser(LIMIT)
    for body in (stream, text):
        for _ in range(3):
            assert body.feed(b"\r\n" * (LIMIT // 4)) == []
        feed_on(body, b"\n\n")
    assert stream.feed(b"data: 1\n\n") == [ServerEvent(b"1")]
    assert text.feed(b'{"a":1}\n') == [ServerEvent(b'{"a":1}')]
