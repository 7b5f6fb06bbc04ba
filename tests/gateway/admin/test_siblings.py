"""Workers of one machine ask each other, whatever else arrives at their sockets."""

from pathlib import Path

import anyio
import pytest

from gateway.admin.siblings import LINE_BYTES, Siblings

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("line", [b"\xff\n", b"x" * (LINE_BYTES + 1), b"unknown\n"])
async def test_a_line_that_is_no_question_ends_its_connection_alone(
    tmp_path_factory: pytest.TempPathFactory, line: bytes
) -> None:
    directory: Path = tmp_path_factory.mktemp("workers")
    one, other = (Siblings(directory, slot, 2) for slot in range(2))
    with anyio.fail_after(30):
        async with one.answering({"status": lambda _: b"ok"}):
            async with await anyio.connect_unix(directory / "worker-0.sock") as stream:
                await stream.send(line)
                with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                    await stream.receive()
            assert await other.ask("status") == {0: b"ok"}


async def test_the_workers_of_new_settings_are_asked(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    directory: Path = tmp_path_factory.mktemp("workers")
    one, other, third = (Siblings(directory, slot, 2) for slot in range(3))
    async with other.answering({"status": lambda _: b"ok"}):
        assert await one.ask("status") == {1: b"ok"}
        one.resize(3)
        assert await one.ask("status") == {1: b"ok", 2: None}
        async with third.answering({"status": lambda _: b"starting"}):
            assert await one.ask("status") == {1: b"ok", 2: b"starting"}
