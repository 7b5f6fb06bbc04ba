import asyncio
import dataclasses
import re

import anyio
import msgspec
import pytest

from gateway import context
from gateway.context import OUTBOX_BYTES, OUTBOX_LIMIT, Outbox, Principal, Session, new_request_id
from schemas.mcp.revisions import V2025_06_18

pytestmark = pytest.mark.anyio


async def test_messages_are_taken_in_order_and_once():
    box = Outbox()
    for message in (b"1", b"2", b"1"):
        box.put(message)
    assert await box.take(5) == [b"1", b"2", b"1"]
    assert await box.take(0) == []


async def test_equal_news_wait_once():
    box = Outbox()
    for message in (b"1", b"2", b"1"):
        box.put_once(message)
    assert await box.take(5) == [b"1", b"2"]


async def test_a_reader_waits_for_a_message():
    box = Outbox()
    with anyio.fail_after(30):
        reading = asyncio.create_task(box.take(60))
        await anyio.wait_all_tasks_blocked()
        box.put(b"1")
        assert await reading == [b"1"]


async def test_a_reader_that_waited_in_vain_can_come_back():
    box = Outbox()
    assert await box.take(0.001) == []
    box.put(b"1")
    assert await box.take(0.001) == [b"1"]


async def test_a_reader_that_is_cancelled_loses_nothing():
    box = Outbox()
    reading = asyncio.create_task(box.take(60))
    await anyio.wait_all_tasks_blocked()
    box.put(b"1")
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert await box.take(0) == [b"1"]


async def test_closing_wakes_the_reader():
    box = Outbox()
    with anyio.fail_after(30):
        reading = asyncio.create_task(box.take(60))
        await anyio.wait_all_tasks_blocked()
        box.close()
        assert await reading == []
        assert await box.take(60) == []  # and nobody waits on it any more


async def test_a_client_that_does_not_read_loses_its_stream():
    box = Outbox()
    for number in range(OUTBOX_LIMIT):
        box.put(b"%d" % number)
    assert not box.closed
    box.put(b"one too many")
    assert box.closed
    assert len(await box.take(0)) == OUTBOX_LIMIT


async def test_a_client_that_leaves_too_many_bytes_loses_its_stream():
    box, overflowed = Outbox(), []
    box.on_overflow = lambda: overflowed.append(True)
    box.put(b"x" * OUTBOX_BYTES)
    assert not box.closed
    box.put(b"y")
    assert box.closed
    assert overflowed == [True]
    assert await box.take(0) == [b"x" * OUTBOX_BYTES]


async def test_a_single_message_of_any_length_is_sent():
    box = Outbox()
    for _ in range(2):  # taking makes room
        box.put(b"x" * (OUTBOX_BYTES + 1))
        assert len(await box.take(0)) == 1
    assert not box.closed


async def test_bytes_that_are_handed_over_count():
    box = Outbox()
    box.put(b"x" * OUTBOX_BYTES)
    successor = box.hand_over()
    successor.put(b"y")
    assert successor.closed
    successor.clear()
    assert await successor.take(0) == []


def test_request_ids_differ_and_are_short():
    ids = {new_request_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]+", id_) for id_ in ids)


def test_a_touched_session_was_used_now(monkeypatch):
    session = Session("s", V2025_06_18, Principal("p", "t"), {}, {})
    session.last_used = 0.0
    session.touch()
    assert 0 < session.last_used <= context.time.monotonic()


async def test_pending_messages_move_to_the_next_stream_and_the_old_stream_ends():
    box = Outbox()
    with anyio.fail_after(30):
        reading = asyncio.create_task(box.take(60))
        await anyio.wait_all_tasks_blocked()
        box.put(b"1")
        successor = box.hand_over()
        assert await reading == []
        assert await successor.take(60) == [b"1"]
    assert (box.closed, successor.closed) == (True, False)


async def test_pending_messages_follow_messages_queued_at_the_next_stream():
    box, successor = Outbox("v1"), Outbox()
    box.put(b"2")
    successor.put(b"1")
    assert box.hand_over(successor) is successor
    assert await successor.take(0) == [b"1", b"2"]
    assert (box.closed, successor.lists_version) == (True, "v1")


async def test_a_reader_is_sent_to_look_at_the_log():
    box = Outbox()
    with anyio.fail_after(30):
        reading = asyncio.create_task(box.take(None))
        await anyio.wait_all_tasks_blocked()
        box.stir()
        assert await reading == []
        assert box.stale
        assert await box.take(60) == []  # until it has looked
        box.put(b"1")
        assert await box.take(60) == [b"1"]


def test_prepared_values_belong_to_one_principal_object():
    principal = Principal("ada", "t")
    principal.prepared["policy"] = (object(), "kept")
    assert principal == Principal("ada", "t")
    assert dataclasses.replace(principal, id="bob").prepared == {}
    encoded = msgspec.json.encode(principal)
    assert b"prepared" not in encoded
    said = encoded[:-1] + b',"prepared":{"policy":[1,2]}}'
    assert msgspec.json.decode(said, type=Principal).prepared == {}
