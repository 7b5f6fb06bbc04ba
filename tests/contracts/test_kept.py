"""Answers that are kept by one node and read at another."""

from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.context import Principal
from gateway.state.stored_answers import (
    PIECE_BYTES,
    AnswerInfo,
    StorageFull,
    StoredAnswerLimits,
    StoredAnswers,
    handle_of,
    uri_of,
)
from gateway.state.stores import Retention
from tests.contracts.backends import DEADLINE_S, Backend
from tests.gateway.keeping import ROOMY, keeping
from tests.properties import examples

pytestmark = pytest.mark.anyio

ANN, BOB = Principal("ann", "t"), Principal("bob", "t")
ABOUT = AnswerInfo("application/zip", tool="tool-1")
DATA = bytes(range(256)) * 1024 * 2 + b"end"  # two pieces and a half


def at_both(nodes, limits: StoredAnswerLimits = ROOMY) -> tuple[StoredAnswers, StoredAnswers]:
    return (
        StoredAnswers(nodes.a.answers, nodes.a.counter, limits),
        StoredAnswers(nodes.b.answers, nodes.b.counter, limits),
    )


async def read(kept: StoredAnswers, who: Principal, handle: str) -> bytes | None:
    whole = await kept.whole(who, handle)
    return None if whole is None else b"".join(whole.pieces)


async def test_an_answer_is_read_at_another_node(backend: Backend) -> None:
    async with backend.nodes() as nodes:
        here, there = at_both(nodes)
        handle = await here.store(ANN, ABOUT, DATA)
        whole = await there.whole(ANN, handle)
        assert whole is not None
        assert (whole.info, b"".join(whole.pieces)) == (ABOUT, DATA)
        assert await read(here, ANN, handle) == DATA  # as often as one likes


async def test_an_answer_is_for_its_caller_alone(backend: Backend) -> None:
    async with backend.nodes() as nodes:
        here, there = at_both(nodes)
        handle = await here.store(ANN, ABOUT, b"x")
        for stranger in (BOB, Principal("ann", "another tenant")):
            assert await read(there, stranger, handle) is None
        for other in ("", handle[:-1], handle.upper(), "0" * 40, f"{handle}/x", "../" + handle):
            assert await read(there, ANN, other) is None


async def test_an_answer_is_readable_once_complete(backend: Backend) -> None:
    async with backend.nodes() as nodes:
        here, there = at_both(nodes)
        writing = await here.begin(ANN, ABOUT)
        await writing.add(DATA)
        assert await read(there, ANN, writing.handle) is None
        await writing.end()
        assert await read(there, ANN, writing.handle) == DATA
        await writing.drop()
        assert await read(there, ANN, writing.handle) is None


async def test_stored_bytes_are_limited_per_caller_and_in_total(backend: Backend) -> None:
    limits = StoredAnswerLimits(
        keep_s=900, caller_bytes=2 * PIECE_BYTES, kept_bytes=3 * PIECE_BYTES
    )
    async with backend.nodes() as nodes:
        here, there = at_both(nodes, limits)
        handle = await here.store(ANN, ABOUT, b"x" * PIECE_BYTES)
        await there.store(ANN, ABOUT, b"y")
        with pytest.raises(StorageFull, match=r"answers\.caller_bytes is reached; again in \d+ s"):
            await here.store(ANN, ABOUT, b"z")
        await there.store(BOB, ABOUT, b"x")
        with pytest.raises(StorageFull, match=r"answers\.stored_bytes"):
            await there.store(BOB, ABOUT, b"x")
        assert await read(there, ANN, handle) == b"x" * PIECE_BYTES  # what is there stays


async def test_a_tenant_leaves_room_for_other_tenants(backend: Backend) -> None:
    most = 4 * PIECE_BYTES
    limits = StoredAnswerLimits(
        keep_s=900, caller_bytes=most, kept_bytes=most, tenant_bytes=2 * PIECE_BYTES
    )
    async with backend.nodes() as nodes:
        here, there = at_both(nodes, limits)
        await here.store(ANN, ABOUT, b"x")
        await there.store(BOB, ABOUT, b"x")
        with pytest.raises(StorageFull, match=r"answers\.tenant_share is reached"):
            await here.store(ANN, ABOUT, b"x")
        for _ in range(2):
            await there.store(Principal("eve", "another tenant"), ABOUT, b"x")


async def test_an_answer_is_forgotten_in_the_end(backend: Backend) -> None:
    async with backend.nodes(Retention(1000, 300, answers_s=0.001)) as nodes:
        here, there = at_both(nodes)
        await nodes.a.log.append("s/session/g", b"stays")
        handle = await here.store(ANN, ABOUT, b"x")
        with anyio.fail_after(DEADLINE_S):
            while await read(there, ANN, handle) is not None:
                await nodes.b.purge()
        assert [event.data for event in await nodes.b.log.read("s/session/g", "")] == [b"stays"]


async def test_an_answer_outlives_the_streams_of_sessions(backend: Backend) -> None:
    async with backend.nodes(Retention(1000, 0.001)) as nodes:
        here, there = at_both(nodes)
        handle = await here.store(ANN, ABOUT, b"x")
        await nodes.a.log.append("s/session/g", b"goes")
        with anyio.fail_after(DEADLINE_S):
            while await nodes.b.log.last("s/session/g"):
                await nodes.b.purge()
        assert await read(there, ANN, handle) == b"x"


async def test_slices_join_to_the_whole(backend: Backend) -> None:
    async with backend.nodes() as nodes:
        here, there = at_both(nodes)
        handle = await here.store(ANN, ABOUT, DATA)
        found, ended = b"", False
        while not ended:
            part = await there.slice(ANN, handle, len(found), 100_000)
            assert part is not None
            assert len(part.data) == 100_000 or part.ended
            found, ended = found + part.data, part.ended
        assert found == DATA


@given(
    size=st.sampled_from([0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 2 * PIECE_BYTES]),
    start=st.integers(0, 2 * PIECE_BYTES + 2),
    length=st.integers(1, 2 * PIECE_BYTES + 2),
)
@settings(max_examples=examples(60), deadline=None)
async def test_a_slice_equals_the_stored_bytes(size: int, start: int, length: int) -> None:
    kept, data = keeping(), (b"0123456789" * (size // 10 + 1))[:size]
    handle = await kept.store(ANN, ABOUT, data)
    part = await kept.slice(ANN, handle, start, length)
    assert part is not None
    assert part.data == data[start : start + length]
    assert part.ended == (start + length >= size)


def test_a_handle_stands_in_a_uri() -> None:
    assert handle_of(uri_of("ab" * 20)) == "ab" * 20
    assert handle_of("toolgate://answers/x") is None
    assert handle_of(str(Path("/etc/passwd"))) is None
