"""The measurement of many streams: how many there can be, when all have heard, what is printed."""

import socket
import threading
from collections.abc import Iterator

import pytest

from benchmarks import streams
from benchmarks.crowd import Crowd
from benchmarks.request import Unavailable
from benchmarks.streams import FEW, STREAMS, Found, count_streams
from benchmarks.table import missed

HEAD = b"HTTP/1.1 200 OK\r\n\r\n"
NEWS = b"list_changed"


class Speaker:
    """A server that takes connections, answers each request with HEAD and then speaks when told."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.streams: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        for stream in (self._listener, *self.streams):
            stream.close()

    def _accept(self) -> None:
        while True:
            try:
                stream, _ = self._listener.accept()
            except OSError:  # closed
                return
            self.streams.append(stream)
            stream.recv(100)
            stream.sendall(HEAD)


@pytest.fixture
def speaker() -> Iterator[Speaker]:
    one = Speaker()
    yield one
    one.close()


def test_await_all_returns_when_the_last_stream_has_heard(speaker: Speaker) -> None:
    with Crowd(speaker.port) as crowd:
        crowd.open([b"GET"] * 3, b"200 OK", 5)
        for stream in speaker.streams:
            stream.sendall(NEWS)
        assert crowd.await_all(NEWS, 5) > 0
        assert len(crowd) == 3


def test_news_that_comes_in_pieces_is_heard(
    speaker: Speaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Crowd(speaker.port) as crowd:
        crowd.open([b"GET"], b"200 OK", 5)
        monkeypatch.setattr("benchmarks.crowd.READ_BYTES", 5)
        speaker.streams[0].sendall(NEWS)
        assert crowd.await_all(NEWS, 5) > 0


def test_a_stream_that_heard_nothing_is_counted(speaker: Speaker) -> None:
    with Crowd(speaker.port) as crowd:
        crowd.open([b"GET"] * 3, b"200 OK", 5)
        speaker.streams[0].sendall(NEWS)
        with pytest.raises(Unavailable, match="2 of 3 streams got nothing"):
            crowd.await_all(NEWS, 0.3)


def test_a_stream_that_the_server_closes_ends_the_measurement(speaker: Speaker) -> None:
    with Crowd(speaker.port) as crowd:
        crowd.open([b"GET"] * 2, b"200 OK", 5)
        speaker.streams[0].shutdown(socket.SHUT_WR)
        with pytest.raises(Unavailable, match="closed"):
            crowd.await_all(NEWS, 5)


def test_news_of_an_earlier_change_does_not_count_for_the_next(speaker: Speaker) -> None:
    with Crowd(speaker.port) as crowd:
        crowd.open([b"GET"], b"200 OK", 5)
        speaker.streams[0].sendall(NEWS)
        crowd.settle(NEWS)
        with pytest.raises(Unavailable):
            crowd.await_all(NEWS, 0.3)


def test_full_runs_have_all_streams_and_quick_runs_note_fewer() -> None:
    assert count_streams(10.0, files=20_000) == (STREAMS, "")
    number, note = count_streams(2.0, files=20_000)
    assert number == FEW
    assert "9,000" in note


def test_a_low_limit_of_open_files_means_fewer_streams_and_is_said() -> None:
    number, note = count_streams(10.0, files=4096)
    assert 3000 < number < 4096
    assert "4,096 open files" in note


def test_no_streams_can_be_had_with_a_very_low_limit() -> None:
    with pytest.raises(Unavailable, match="256"):
        count_streams(10.0, files=256)


@pytest.mark.parametrize(
    ("found", "shortfalls"),
    [
        (Found(9000, 19.9, 2.0, (1.5, 1.9, 1.7), (0.4,)), 0),
        (Found(9000, 20.1, 2.0, (1.5,), (0.4,)), 1),
        (Found(9000, 30.0, 0.0, (2.5, 1.0, 2.1), (1.1,)), 3),
    ],
)
def test_each_promise_has_a_row(found: Found, shortfalls: int) -> None:
    rows = streams.rows(streams.KINDS[0], found, "")
    assert len(rows) == 3
    assert sum(bool(missed(row)) for row in rows) == shortfalls
    assert all("9,000" in row.scenario for row in rows[:2])


def test_the_memory_of_a_session_is_noted_for_sessions_only() -> None:
    memory = streams.rows(streams.KINDS[0], Found(9000, 15.0, 1.7, (1.0,), (0.1,)), "")[0]
    assert "1.7 kB" in memory.note
    assert streams.rows(streams.KINDS[1], Found(9000, 15.0, 0.0, (1.0,), (0.1,)), "")[0].note == ""
