"""Forgetting, erasing, exporting and importing."""

import json
from dataclasses import replace as replaced
from typing import Any

import anyio
import pytest
from msgspec import to_builtins

from gateway.operations.problems import ProblemDetails
from gateway.wings.memory.caller_owners import ERASE, WRITE_ORG, Reader
from gateway.wings.memory.memory_rows import NewMemory
from gateway.wings.memory.memory_store import Target
from tests.fixtures_database import HOST
from tests.fixtures_gateway import DEADLINE_S
from tests.wings.holding import holding
from tests.wings.memory.rig import Rig

pytestmark = pytest.mark.anyio

ONE = {"session": "talk-1"}
CANARY = "xylophonequartz"


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"filter": {}},
        {"ids": []},
        {"ids": [], "filter": {}},
        {"filter": {"kind": "x"}, "subject": "ann"},
    ],
)
async def test_forget_without_a_selection_is_refused(rig: Rig, given: dict[str, Any]) -> None:
    """Forget without a selection is refused (M28)."""
    ann = rig.caller("ann")
    await ann.add("Ann prefers tea")
    with pytest.raises(ProblemDetails, match="exactly one"):
        await ann("forget", **given)
    assert await rig.rows("SELECT count(*) FROM memory_t") == [(1,)]


async def test_forget_by_filter_counts_first_and_refuses_a_changed_count(rig: Rig) -> None:
    """Forget by filter counts first and refuses a changed count (M28)."""
    ann = rig.caller("ann")
    for name in ("tea", "milk", "bread"):
        await ann.add(f"Buy {name}", metadata={"list": "shopping"})
    await ann.add("Ann prefers tea")
    wanted = {"filter": {"metadata.list": "shopping"}}
    assert (await ann("forget", dry_run=True, **wanted)).memories == 3
    with pytest.raises(ProblemDetails, match="3 memories match, not 2"):
        await ann("forget", expect=2, **wanted)
    assert (await ann("forget", expect=3, **wanted)).rows == 3
    assert await ann.find_contents("buy tea") == ["Ann prefers tea"]
    assert await rig.rows("SELECT rows FROM memory_owner_t") == [(1,)]


async def test_forgetting_removes_history_and_session_copies(rig: Rig) -> None:
    """Forgetting removes history and session copies (M28)."""
    ann = rig.caller("ann")
    await ann.add(f"Lives in {CANARY}", "session", keep=True, slot="home.city", **ONE)
    await ann("promote", **ONE)
    id_ = await ann.add("Lives in Basel", slot="home.city")
    assert "memory_lasting_t" in await holding(rig.database.pool, CANARY)
    assert (await ann("forget", ids=[id_])).scopes == {"session": 1, "user": 2}
    assert await holding(rig.database.pool, CANARY) == []
    assert (await ann("promote", **ONE)).ids == ()


async def test_an_erasure_leaves_nothing_of_a_person(rig: Rig) -> None:
    """An erasure leaves nothing of a person (M28)."""
    ann, bob = rig.caller("ann"), rig.caller("bob")
    await ann.add(f"The secret is {CANARY}", metadata={CANARY: 1})
    await ann.add("Lives in Bern", slot="home.city")
    await ann.add("Lives in Basel", slot="home.city")
    await ann.add(f"The session knows {CANARY}", "session", **ONE)
    await bob.add("Bob prefers milk")
    await ann.find_contents("secret")
    await rig.parts.retention.flush()
    await rig.run(
        "INSERT INTO command_idempotency_t (host_id, principal_id, service_id, idempotency_key,"
        " request_hash, state, response, expires_ts) VALUES (%(host)s, 'ann', 'admin memory_get x',"
        " 'k', sha256('x'), 'done', %(told)s, now() + interval '1 day')",
        host=HOST,
        told=CANARY.encode(),
    )
    assert (await ann("forget", subject="ann", dry_run=True)).memories == 4
    erased = await ann("forget", subject="ann", expect=4)
    assert (erased.scopes, erased.answers) == ({"session": 1, "user": 3}, 1)
    assert await holding(rig.database.pool, CANARY) == []
    assert await holding(rig.database.pool, "ann") == []
    assert await bob.find_contents("milk") == ["Bob prefers milk"]
    for table in ("memory_word_t", "entity_embedding_t", "memory_use_t", "memory_owner_t"):
        [(count,)] = await rig.rows(f"SELECT count(*) FROM {table} WHERE host_id = %s", HOST)
        assert count == {"memory_word_t": 3, "memory_use_t": 0}.get(table, 1), table


async def test_erasing_another_user_requires_a_scope_and_lists_mentions(rig: Rig) -> None:
    """Erasing another user requires a scope and lists mentions (M28)."""
    ann, bob = rig.caller("ann@a.example"), rig.caller("bob")
    await ann.add("Ann prefers tea")
    with pytest.raises(ProblemDetails, match=ERASE):
        await bob("forget", subject="ann@a.example")
    admin = rig.caller("root", scopes=[ERASE, WRITE_ORG])
    handbook = await admin.add("Ask Ann about tea", "org")
    named = await rig.rows("UPDATE memory_t SET content = 'Ask ann@a.example' WHERE memory_id = %s"
                           " RETURNING memory_id::text", handbook)  # fmt: skip
    erased = await admin("forget", subject="ann@a.example")
    assert (erased.memories, erased.mentions) == (1, named[0])


async def test_memories_older_than_an_erasure_are_not_restored(rig: Rig) -> None:
    """Memories older than an erasure are not restored (M30)."""
    ann = rig.caller("ann")
    id_ = await ann.add("Ann prefers tea")
    [before] = await rig.parts.store.get(Reader(HOST, "ann"), [id_])
    exported = await ann("export")
    await ann("forget", subject="ann")
    imported = await ann("import", items=to_builtins(exported.items))
    assert (imported.stored, imported.erased) == (0, 1)
    late = NewMemory(content=before.content, created=before.created)  # a promotion that was slow
    with pytest.raises(ProblemDetails, match="erased"):
        await rig.parts.store.add(Target.of(Reader(HOST, "ann"), "user"), [late])
    session = replaced(before, scope="session", kind="fact")
    assert (await rig.parts.promoter.promote(HOST, [session])).ids == ()
    assert await rig.rows("SELECT count(*) FROM memory_t") == [(0,)]
    await ann.add("Ann prefers coffee")  # what is new is stored
    assert await ann.find_contents("tea or coffee") == ["Ann prefers coffee"]


async def test_writes_and_erasures_of_a_person_are_serialized(rig: Rig) -> None:
    """Writes and erasures of a person are serialized (M30)."""
    ann = rig.caller("ann")
    ids = [await ann.add(f"Fact {number}") for number in range(20)]
    refused = []

    async def write(number: int) -> None:
        try:
            await ann("update", memory=ids[number], version=1, content=f"{CANARY} {number}")
            await ann.add(f"{CANARY} more {number}")
        except ProblemDetails as problem:
            refused.append(problem.status)

    with anyio.fail_after(DEADLINE_S):
        async with anyio.create_task_group() as tasks:
            for number in range(10):
                tasks.start_soon(write, number)
            await ann("forget", subject="ann")
        await ann("forget", subject="ann")
    assert set(refused) <= {404, 409}
    assert await holding(rig.database.pool, CANARY) == []


async def test_an_export_is_complete_and_restored_unchanged(rig: Rig) -> None:
    """An export is complete and restored unchanged (M29)."""
    ann = rig.caller("ann", scopes=[ERASE])
    await ann.add(
        "Lives in Bern", slot="home.city", metadata={"a": [1, None]}, valid_from="2024-05-08"
    )
    await ann.add("Lives in Basel", slot="home.city", pinned=True, audience=["tutor"])
    await ann.add("Said so", "session", **ONE)
    first = await ann("export", limit=2)
    rest = await ann("export", after=first.next)
    lines = [json.loads(json.dumps(to_builtins(one))) for one in (*first.items, *rest.items)]
    assert [one["content"] for one in lines] == ["Lives in Bern", "Lives in Basel", "Said so"]
    await rig.run("DELETE FROM memory_t")
    await rig.run("DELETE FROM memory_owner_t")
    counts = [await ann("import", items=lines, **ONE) for _ in range(2)]
    assert [(one.stored, one.present) for one in counts] == [(3, 0), (0, 3)]
    again = await ann("export")
    assert [to_builtins(one) for one in again.items] == lines
    assert await rig.rows("SELECT sum(rows) FROM memory_owner_t") == [(2,)]
    assert await rig.caller("ann", agent="tutor").find_contents("lives") == ["Lives in Basel"]


async def test_turns_after_an_import_continue_its_numbering(rig: Rig) -> None:
    """Turns after an import continue its numbering (M29)."""
    ann = rig.caller("ann")
    await ann("observe", turns=[{"content": "one"}, {"content": "two"}], **ONE)
    lines = to_builtins((await ann("export")).items)
    await rig.run("DELETE FROM memory_t")
    await rig.run("DELETE FROM memory_owner_t")
    await ann("import", items=lines, **ONE)
    await ann("observe", turns=[{"content": "three"}], **ONE)
    turns = (await ann("export")).items
    assert [(one.content, one.position) for one in turns] == [("one", 0), ("two", 1), ("three", 2)]


async def test_an_import_belongs_to_its_caller(rig: Rig) -> None:
    """An import belongs to its caller (M29)."""
    ann, bob = rig.caller("ann"), rig.caller("bob")
    await ann.add("Ann prefers tea", trust="user")
    [theirs] = to_builtins((await ann("export")).items)
    mine = theirs | {"owner": "carl", "subject": "carl", "trust": "admin"}
    counts = [await bob("import", items=[mine]) for _ in range(2)]
    assert [(one.stored, one.present) for one in counts] == [(1, 0), (0, 1)]
    [kept] = (await bob("export")).items
    assert (kept.owner, kept.subject, kept.trust) == ("bob", "bob", "agent")
    assert kept.id != theirs["id"]
    assert to_builtins((await ann("export")).items) == (theirs,)


@pytest.mark.parametrize(
    ("scopes", "said", "kept"),
    [
        ([], "user", "agent"),
        ([], "tool", "tool"),
        ([], "inferred", "inferred"),
        ([ERASE], "user", "user"),
        ([ERASE], "admin", "agent"),
    ],
)
async def test_an_import_does_not_put_words_into_a_user_s_mouth(
    rig: Rig, scopes: list[str], said: str, kept: str
) -> None:
    """Only a caller who keeps the memories of others vouches for it (mending 9)."""
    ann = rig.caller("ann", scopes=scopes)
    await ann.add("Ann wires the money on Friday")
    [line] = to_builtins((await ann("export")).items)
    await rig.run("DELETE FROM memory_t")
    await ann("import", items=[line | {"trust": said}])
    [one] = (await ann("export")).items
    assert one.trust == kept


async def test_an_import_takes_over_no_foreign_ids(rig: Rig) -> None:
    admin, bob = rig.caller("root", scopes=[WRITE_ORG]), rig.caller("bob")
    for year in (2024, 2025):
        shared = await admin.add(f"The fair of {year}", "org", slot="fair")
    mine = await bob.add("Bob prefers tea")
    [line] = to_builtins((await bob("export")).items)
    for id_ in (shared, mine):
        line |= {"id": id_, "content": f"Bob likes {id_}", "superseded_by": shared}
        await bob("import", items=[line])
    held = [one.id for one in (await bob("export")).items]
    assert (mine in held, shared in held, len(held)) == (True, False, 2)
    await bob("forget", ids=[*held, shared])
    assert len((await admin("history", memory=shared)).items) == 2


async def test_forgetting_follows_history_within_its_owner_alone(rig: Rig) -> None:
    ann, bob = rig.caller("ann"), rig.caller("bob")
    theirs, mine = await ann.add("Ann prefers tea"), await bob.add("Bob prefers tea")
    await rig.run(
        "UPDATE memory_t SET superseded_by = %(mine)s WHERE memory_id = %(theirs)s",
        mine=mine,
        theirs=theirs,
    )
    assert (await bob("forget", ids=[mine])).rows == 1
    assert await ann.find_contents("tea") == ["Ann prefers tea"]


async def test_the_source_of_a_memory_never_hinders_forgetting(rig: Rig) -> None:
    ann = rig.caller("ann")
    id_ = await ann.add("Ann prefers tea")
    await ann.add("It rains", "session", **ONE)
    await rig.run('UPDATE memory_t SET source = \'{"promoted": "x"}\'')
    assert (await ann("forget", ids=[id_])).memories == 1


async def test_an_export_has_only_readable_memories(rig: Rig) -> None:
    await rig.caller("ann").add("Failed the exam", audience=["tutor"])
    for agent, count in ((None, 0), ("clerk", 0), ("tutor", 1)):
        assert len((await rig.caller("ann", agent=agent)("export")).items) == count
    admin = rig.caller("root", scopes=[ERASE])
    assert len((await admin("export", subject="ann")).items) == 1


KEPT = (
    "INSERT INTO command_idempotency_t (host_id, principal_id, service_id, idempotency_key,"
    " request_hash, state, response, expires_ts) SELECT %(host)s::uuid, name,"
    " 'admin memory_add ', 'k', sha256('x'), 'done', %(told)s, now() + interval '1 day'"
    " FROM unnest('{ann,bob}'::text[]) AS name"
)


async def test_cached_answers_are_erased_with_their_memories(rig: Rig) -> None:
    """Cached answers are erased with their memories (M28)."""
    ann = rig.caller("ann")
    await rig.run(KEPT, host=HOST, told=CANARY.encode())
    await ann("forget", ids=[await ann.add("Ann prefers tea")])
    assert await rig.rows("SELECT principal_id FROM command_idempotency_t") == [("bob",)]
    erased = await ann("forget", subject="ann")
    assert (erased.answers, await holding(rig.database.pool, "bob")) == (1, [])
