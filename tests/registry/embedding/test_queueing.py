"""What a write of a tool queues, in its own transaction. E1 to E11 are rows of the reference on
discovery; those that are missing here concern workers or searches."""

import hashlib

import pytest
from psycopg import errors

from registry.embedding.backfills import queue_missing
from registry.embedding.models import register
from registry.embedding.status import embedding_of
from tests.fixtures_database import HOST
from tests.registry.embedding.conftest import Queued, draft

pytestmark = pytest.mark.anyio

OTHER = "00000000-0000-0000-0000-000000000002"


async def test_a_tool_is_listed_and_not_queued_with_embeddings_disabled(
    unqueued: Queued,
) -> None:
    """A tool is listed and not queued with embeddings disabled (E1)."""
    await unqueued.save(draft("a"))
    (tool,) = await unqueued.store.tools(HOST)
    assert await unqueued.vectors() == {"a": ("disabled", "")}
    assert await unqueued.tasks() == []
    found = await embedding_of(unqueued.database.pool, HOST, tool.id)
    assert (found.status, found.model, found.embedded) == ("disabled", None, None)


async def test_an_edited_description_queues_one_task(queued: Queued) -> None:
    """An edited description queues one task (E2)."""
    await queued.save(draft("a"))
    before = await queued.rows("SELECT source_hash FROM entity_embedding_t")
    for number in range(3):
        await queued.execute(f"UPDATE tool_t SET description = 'Edited {number}.'")
    assert await queued.statuses() == {"a": "pending"}
    assert await queued.tasks() == [("a", "pending")]
    (after,) = await queued.rows("SELECT source_hash FROM entity_embedding_t")
    assert after not in before
    assert await queued.rows("SELECT source_hash FROM embedding_task_t") == [after]


async def test_a_tool_with_a_newer_text_is_pending_again(queued: Queued) -> None:
    """A tool with a newer text is pending again (E2)."""
    await queued.save(draft("a"), draft("b"))
    await queued.work()
    await queued.execute("UPDATE tool_t SET description = 'Edited.' WHERE name = 'a'")
    assert await queued.statuses() == {"a": "pending", "b": "ready"}
    assert await queued.rows(
        "SELECT count(*) FROM entity_embedding_t WHERE embedding IS NULL AND embedded_ts IS NULL"
    ) == [(1,)]


async def test_the_same_text_saved_again_queues_nothing(queued: Queued) -> None:
    """The same text saved again queues nothing (E4)."""
    await queued.save(draft("a"))
    await queued.work()
    await queued.execute("UPDATE tool_t SET description = description || ' ', tool_metadata = '{}'")
    await queued.execute("UPDATE tool_t SET semantic_weight = 2, update_ts = clock_timestamp()")
    assert await queued.tasks() == []
    assert await queued.statuses() == {"a": "ready"}


@pytest.mark.parametrize("name", ["-", "___", "…"])
async def test_a_tool_without_words_is_not_embedded(queued: Queued, name: str) -> None:
    """A tool without words is not embedded (E6)."""
    await queued.save(draft("a"))
    await queued.work()
    await queued.execute("UPDATE tool_t SET name = %s, title = ' ', description = '! '", name)
    if name == "…":  # a letter of some alphabet, for all that we know
        assert await queued.statuses() == {name: "pending"}
        return
    assert await queued.statuses() == {name: "blank"}
    assert await queued.tasks() == []
    assert await queued.rows("SELECT count(embedding) FROM entity_embedding_t") == [(0,)]


async def test_the_hashed_text_has_fixed_nonempty_lines(queued: Queued) -> None:
    """The hashed text has fixed lines and no empty ones (E11)."""
    await queued.save(
        draft(
            "getPet",
            title="One pet",
            description="Gives\n\n  a  pet.\t",
            tags=("pets", "shop"),
            input_schema={"type": "object", "properties": {"zebra": {}, "apple": {}}},
        )
    )
    assert await text(queued) == (
        "name: getPet\n"
        "description: Gives a pet.\n"
        "endpoint: GET /getPet\n"
        "protocol: openapi\n"
        "title: One pet\n"
        "source: pets\n"
        "tags: pets, shop\n"
        "parameters: zebra, apple"
    )
    await queued.execute(
        "UPDATE tool_t SET routing_domain = 'animals', semantic_namespace = 'zoo',"
        " target_personas = 'keepers', title = NULL, description = ' ', tags = '{}',"
        ' tool_metadata = \'{"routing": {"semanticKeywords": ["cat", "dog"]}}\', input_schema ='
        " '{\"properties\": [1]}'"
    )
    expected = (
        "name: getPet\n"
        "endpoint: GET /getPet\n"
        "domain: animals\n"
        "namespace: zoo\n"
        "protocol: openapi\n"
        "personas: keepers\n"
        "source: pets\n"
        "keywords: cat, dog"
    )
    assert await text(queued) == expected
    assert await queued.rows("SELECT source_hash FROM entity_embedding_t") == [
        (hashlib.sha256(expected.encode()).hexdigest(),)
    ]


async def text(queued: Queued) -> str:
    ((found,),) = await queued.rows("SELECT source_text FROM entity_source_v")
    return str(found)


METADATA = [
    "'{}'", "'{\"routing\": 1}'", "'[1]'", "'null'", "NULL",
    "'{\"routing\": {\"semanticKeywords\": {\"a\": 1}}}'",
    "'{\"routing\": {\"semanticKeywords\": [null, []]}}'",
]  # fmt: skip


@pytest.mark.parametrize("metadata", METADATA)
async def test_metadata_of_any_shape_sinks_no_write(queued: Queued, metadata: str) -> None:
    await queued.save(draft("a"))
    await queued.execute(f"UPDATE tool_t SET tool_metadata = {metadata}")
    assert (await text(queued)).startswith("name: a\n")


async def test_a_hostile_text_is_queued_like_any_other(queued: Queued) -> None:
    hostile = ["'; DROP TABLE tool_t; --", "%s %(x)s", "\\", "\u202e" * 50, "x " * 100_000, "名前"]
    await queued.save(*(draft(f"t{n}", description=text) for n, text in enumerate(hostile)))
    await queued.work()
    assert set((await queued.statuses()).values()) == {"ready"}


async def test_a_write_that_is_rolled_back_queues_nothing(queued: Queued) -> None:
    await queued.save(draft("a"))
    await queued.work()
    async with queued.database.pool.connection() as connection:
        await connection.execute("UPDATE tool_t SET description = 'Edited.'")
        await connection.rollback()
    assert await queued.statuses() == {"a": "ready"}
    assert await queued.tasks() == []


async def test_a_tool_out_of_service_is_no_work_and_keeps_its_vector(queued: Queued) -> None:
    await queued.save(draft("a"), draft("b"))
    await queued.work()
    await queued.execute("UPDATE tool_t SET description = 'Edited.' WHERE name = 'b'")
    await queued.execute("UPDATE tool_t SET active = false")
    assert await queued.tasks() == []
    assert await queued.statuses() == {"a": "ready"}
    await queued.execute("UPDATE tool_t SET active = true")
    assert await queued.tasks() == [("b", "pending")]
    assert await queued.statuses() == {"a": "ready", "b": "pending"}


async def test_a_text_changed_while_inactive_is_queued_on_reactivation(
    queued: Queued,
) -> None:
    await queued.save(draft("a"))
    await queued.work()
    await queued.execute("UPDATE tool_t SET active = false, description = 'Edited.'")
    assert await queued.tasks() == []
    await queued.execute("UPDATE tool_t SET active = true")
    assert await queued.tasks() == [("a", "pending")]


@pytest.mark.parametrize(
    "deletion", ["DELETE FROM tool_t", "DELETE FROM api_t", "DELETE FROM host_t"]
)
async def test_deleted_tools_leave_no_tasks_or_vectors(queued: Queued, deletion: str) -> None:
    await queued.save(draft("a"))
    await queued.work()
    await queued.save(draft("a"), draft("b"))
    await queued.execute(deletion)
    assert await queued.rows("SELECT FROM embedding_task_t") == []
    assert await queued.rows("SELECT FROM entity_embedding_t") == []


async def test_the_name_of_a_source_is_part_of_the_texts(queued: Queued) -> None:
    await queued.save(draft("a"))
    await queued.save(draft("b"), source="shop")
    await queued.work()
    await queued.execute("UPDATE api_t SET name = 'zoo' WHERE name = 'pets'")
    assert await queued.tasks() == [("a", "pending")]


async def test_tenants_have_tasks_of_their_own(queued: Queued) -> None:
    await queued.save(draft("a"))
    await queued.save(draft("a"), host_id=OTHER)
    await queued.execute("UPDATE tool_t SET description = 'Mine.' WHERE host_id = %s", OTHER)
    found = await queued.rows("SELECT host_id::text, count(*) FROM embedding_task_t GROUP BY 1")
    assert sorted(found) == [(HOST, 1), (OTHER, 1)]


async def test_embedding_is_no_change_of_a_tool(queued: Queued) -> None:
    await queued.save(draft("a"))
    facts = "SELECT aggregate_version, update_ts, xmin FROM tool_t"
    before = await queued.rows(facts)
    await queued.work()
    assert await queued.statuses() == {"a": "ready"}
    assert await queued.rows(facts) == before


async def test_many_tools_in_one_statement_are_queued_at_once(queued: Queued) -> None:
    await queued.save(draft("a"))
    await queued.execute("UPDATE tool_t SET description = 'Edited.'")
    await queued.execute(
        "INSERT INTO tool_t (host_id, name, description, input_schema, binding)"
        " SELECT host_id, 't' || n, 'Does ' || n, '{}', '{\"type\": \"openapi\"}'"
        " FROM host_t, generate_series(1, 600) AS n"
    )
    await queued.execute("UPDATE tool_t SET title = name")
    assert await queued.rows("SELECT status, count(*) FROM embedding_task_t GROUP BY 1") == [
        ("pending", 601)
    ]


async def test_only_models_have_ready_vectors(queued: Queued) -> None:
    await queued.save(draft("a"))
    with pytest.raises(errors.CheckViolation):
        await queued.execute("UPDATE entity_embedding_t SET status = 'ready'")


async def test_tools_without_vectors_are_queued_when_a_model_is_registered(
    unqueued: Queued,
) -> None:
    await unqueued.save(*(draft(f"t{n}") for n in range(3)))
    await unqueued.execute("DELETE FROM entity_embedding_t")
    assert await queue_missing(unqueued.database.pool) == 0
    await register(unqueued.database.pool, unqueued.fake)
    assert await queue_missing(unqueued.database.pool) == 3
    assert await queue_missing(unqueued.database.pool) == 0
    await unqueued.work()
    assert set((await unqueued.statuses()).values()) == {"ready"}
