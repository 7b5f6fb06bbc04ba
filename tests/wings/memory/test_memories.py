"""Memories of sessions, users, agents and the organisation: written, found, changed."""

import pytest

from gateway.operations.problems import ProblemDetails
from tests.wings.memory.rig import Rig

pytestmark = pytest.mark.anyio


async def test_a_user_finds_its_memories_from_any_session(rig: Rig) -> None:
    """A user finds its memories from any session (M04)."""
    ann = rig.caller("ann")
    await ann.add("Ann lives in Bern", slot="home.city")
    await ann.add("Ann prefers tea")
    assert await ann.find_contents("where does she live?") == ["Ann lives in Bern"]
    assert await rig.caller("bob").find_contents("where does she live?") == []


async def test_equal_content_is_one_memory(rig: Rig) -> None:
    """Equal content is one memory (M20)."""
    ann = rig.caller("ann")
    first = await ann("add", content="Ann prefers tea", scope="user")
    again = await ann("add", content=" ann  prefers TEA", scope="user")
    assert [one.created for one in first.items + again.items] == [True, False]
    assert again.items[0].id == first.items[0].id


async def test_a_new_value_of_a_slot_retires_the_old_value(rig: Rig) -> None:
    """A new value of a slot retires the old one (M21)."""
    ann = rig.caller("ann")
    old = await ann.add("Ann lives in Bern", slot="home.city")
    added = await ann("add", content="Ann lives in Basel", scope="user", slot="home.city")
    assert added.items[0].superseded == old
    assert await ann.find_contents("where does Ann live") == ["Ann lives in Basel"]
    history = await ann("history", memory=added.items[0].id)
    assert [one.content for one in history.items] == ["Ann lives in Bern", "Ann lives in Basel"]


async def test_an_update_requires_the_current_version(rig: Rig) -> None:
    """An update requires the current version (M23)."""
    ann = rig.caller("ann")
    id_ = await ann.add("Ann has a cat")
    changed = await ann("update", memory=id_, version=1, content="Ann has two cats")
    assert (changed.id, changed.version) == (id_, 2)
    with pytest.raises(ProblemDetails, match="version 2"):
        await ann("update", memory=id_, version=1, content="Ann has a dog")
    assert await ann.find_contents("cats of Ann") == ["Ann has two cats"]
    history = await ann("history", memory=id_)
    assert [one.content for one in history.items] == ["Ann has a cat", "Ann has two cats"]


async def test_expired_memories_make_room_for_content_and_slot(rig: Rig) -> None:
    """Expired memories make room for content and slot (M20)."""
    ann = rig.caller("ann")
    for _ in range(2):
        id_ = await ann.add("Ann is in Bern", slot="place", expires_s=5)
        await rig.run("UPDATE memory_t SET expires_ts = now() WHERE retired_ts IS NULL")
    assert await ann.find_contents("Bern") == []
    await ann.add("Ann is in Basel", slot="place", replaces=None)
    assert await ann.find_contents("where is she?") == ["Ann is in Basel"]
    assert await rig.rows("SELECT rows FROM memory_owner_t") == [(1,)]
    assert (await ann("list")).items[0].id != id_


async def test_an_update_to_the_content_of_another_memory_conflicts(rig: Rig) -> None:
    """An update to the content of another memory conflicts (M23)."""
    ann = rig.caller("ann")
    await ann.add("Ann has a dog")
    id_ = await ann.add("Ann has a cat")
    with pytest.raises(ProblemDetails, match="says exactly this") as caught:
        await ann("update", memory=id_, version=1, content="Ann has a DOG")
    assert caught.value.status == 409
    assert (await ann("get", memory=id_)).content == "Ann has a cat"


async def test_a_slot_reveals_no_unreadable_value(rig: Rig) -> None:
    """A slot reveals no unreadable value (M26)."""
    await rig.caller("ann", agent="tutor").add("in Bern", slot="place", audience=["tutor"])
    added = await rig.caller("ann", agent="clerk")(
        "add", scope="user", content="in Basel", slot="place"
    )
    assert added.items[0].superseded is None
