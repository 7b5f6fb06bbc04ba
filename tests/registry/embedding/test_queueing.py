"""What a write of a tool queues, in its own transaction. E1 to E11 are rows of the reference on
discovery; those that are missing here concern workers or searches."""

import hashlib

import pytest
from psycopg import errors

from registry.embedding.backfills import queue_missing
from registry.embedding.status import embedding_of
from registry.embedding.target_models import register
from tests.fixtures_database import HOST
from tests.registry.embedding.conftest import Queued, draft

pytestmark = pytest.mark.anyio

OTHER = "00000000-0000-0000-0000-000000000002"


async def test_a_tool_is_listed_and_not_queued_with_embeddings_disabled(
    unregistered_queue: Queued,
) -> None:
    """A tool is listed and not queued with embeddings disabled (E1)."""
    await unregistered_queue.save(draft("a"))
    (tool,) = await unregistered_queue.store.tools(HOST)
    assert await unregistered_queue.vectors() == {"a": ("disabled", "")}
    assert await unregistered_queue.tasks() == []
    found = await embedding_of(unregistered_queue.database.pool, HOST, tool.id)
    assert (found.status, found.model, found.embedded) == ("disabled", None, None)


async def test_an_edited_description_queues_one_task(embedding_queue: Queued) -> None:
    """An edited description queues one task (E2)."""
    await embedding_queue.save(draft("a"))
    before = await embedding_queue.rows("SELECT source_hash FROM entity_embedding_t")
    for number in range(3):
        await embedding_queue.execute(f"UPDATE tool_t SET description = 'Edited {number}.'")
    assert await embedding_queue.statuses() == {"a": "pending"}
    assert await embedding_queue.tasks() == [("a", "pending")]
    (after,) = await embedding_queue.rows("SELECT source_hash FROM entity_embedding_t")
    assert after not in before
    assert await embedding_queue.rows("SELECT source_hash FROM embedding_task_t") == [after]


async def test_a_tool_with_a_newer_text_is_pending_again(embedding_queue: Queued) -> None:
    """A tool with a newer text is pending again (E2)."""
    await embedding_queue.save(draft("a"), draft("b"))
    await embedding_queue.work()
    await embedding_queue.execute("UPDATE tool_t SET description = 'Edited.' WHERE name = 'a'")
    assert await embedding_queue.statuses() == {"a": "pending", "b": "ready"}
    assert await embedding_queue.rows(
        "SELECT count(*) FROM entity_embedding_t WHERE embedding IS NULL AND embedded_ts IS NULL"
    ) == [(1,)]


async def test_the_same_text_saved_again_queues_nothing(embedding_queue: Queued) -> None:
    """The same text saved again queues nothing (E4)."""
    await embedding_queue.save(draft("a"))
    await embedding_queue.work()
    await embedding_queue.execute(
        "UPDATE tool_t SET description = description || ' ', tool_metadata = '{}'"
    )
    await embedding_queue.execute(
        "UPDATE tool_t SET semantic_weight = 2, update_ts = clock_timestamp()"
    )
    assert await embedding_queue.tasks() == []
    assert await embedding_queue.statuses() == {"a": "ready"}


@pytest.mark.parametrize("name", ["-", "___", "…"])
async def test_a_tool_without_words_is_not_embedded(embedding_queue: Queued, name: str) -> None:
    """A tool without words is not embedded (E6)."""
    await embedding_queue.save(draft("a"))
    await embedding_queue.work()
    await embedding_queue.execute(
        "UPDATE tool_t SET name = %s, title = ' ', description = '! '", name
    )
    if name == "…":  # a letter of some alphabet, for all that we know
        assert await embedding_queue.statuses() == {name: "pending"}
        return
    assert await embedding_queue.statuses() == {name: "blank"}
    assert await embedding_queue.tasks() == []
    assert await embedding_queue.rows("SELECT count(embedding) FROM entity_embedding_t") == [(0,)]


async def test_the_hashed_text_has_fixed_nonempty_lines(embedding_queue: Queued) -> None:
    """The hashed text has fixed lines and no empty ones (E11)."""
    await embedding_queue.save(
        draft(
            "getPet",
            title="One pet",
            description="Gives\n\n  a  pet.\t",
            tags=("pets", "shop"),
            input_schema={"type": "object", "properties": {"zebra": {}, "apple": {}}},
        )
    )
    assert await text(embedding_queue) == (
        "name: getPet\n"
        "description: Gives a pet.\n"
        "endpoint: GET /getPet\n"
        "protocol: openapi\n"
        "title: One pet\n"
        "source: pets\n"
        "tags: pets, shop\n"
        "parameters: zebra, apple"
    )
    await embedding_queue.execute(
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
    assert await text(embedding_queue) == expected
    assert await embedding_queue.rows("SELECT source_hash FROM entity_embedding_t") == [
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
async def test_metadata_of_any_shape_sinks_no_write(embedding_queue: Queued, metadata: str) -> None:
    await embedding_queue.save(draft("a"))
    await embedding_queue.execute(f"UPDATE tool_t SET tool_metadata = {metadata}")
    assert (await text(embedding_queue)).startswith("name: a\n")


async def test_a_hostile_text_is_queued_like_any_other(embedding_queue: Queued) -> None:
    hostile = ["'; DROP TABLE tool_t; --", "%s %(x)s", "\\", "\u202e" * 50, "x " * 100_000, "名前"]
    await embedding_queue.save(
        *(draft(f"t{n}", description=text) for n, text in enumerate(hostile))
    )
    await embedding_queue.work()
    assert set((await embedding_queue.statuses()).values()) == {"ready"}


async def test_a_write_that_is_rolled_back_queues_nothing(embedding_queue: Queued) -> None:
    await embedding_queue.save(draft("a"))
    await embedding_queue.work()
    async with embedding_queue.database.pool.connection() as connection:
        await connection.execute("UPDATE tool_t SET description = 'Edited.'")
        await connection.rollback()
    assert await embedding_queue.statuses() == {"a": "ready"}
    assert await embedding_queue.tasks() == []


async def test_a_tool_out_of_service_is_no_work_and_keeps_its_vector(
    embedding_queue: Queued,
) -> None:
    await embedding_queue.save(draft("a"), draft("b"))
    await embedding_queue.work()
    await embedding_queue.execute("UPDATE tool_t SET description = 'Edited.' WHERE name = 'b'")
    await embedding_queue.execute("UPDATE tool_t SET active = false")
    assert await embedding_queue.tasks() == []
    assert await embedding_queue.statuses() == {"a": "ready"}
    await embedding_queue.execute("UPDATE tool_t SET active = true")
    assert await embedding_queue.tasks() == [("b", "pending")]
    assert await embedding_queue.statuses() == {"a": "ready", "b": "pending"}


async def test_a_text_changed_while_inactive_is_queued_on_reactivation(
    embedding_queue: Queued,
) -> None:
    await embedding_queue.save(draft("a"))
    await embedding_queue.work()
    await embedding_queue.execute("UPDATE tool_t SET active = false, description = 'Edited.'")
    assert await embedding_queue.tasks() == []
    await embedding_queue.execute("UPDATE tool_t SET active = true")
    assert await embedding_queue.tasks() == [("a", "pending")]


@pytest.mark.parametrize(
    "deletion", ["DELETE FROM tool_t", "DELETE FROM api_t", "DELETE FROM host_t"]
)
async def test_deleted_tools_leave_no_tasks_or_vectors(
    embedding_queue: Queued, deletion: str
) -> None:
    await embedding_queue.save(draft("a"))
    await embedding_queue.work()
    await embedding_queue.save(draft("a"), draft("b"))
    await embedding_queue.execute(deletion)
    assert await embedding_queue.rows("SELECT FROM embedding_task_t") == []
    assert await embedding_queue.rows("SELECT FROM entity_embedding_t") == []


async def test_the_name_of_a_source_is_part_of_the_texts(embedding_queue: Queued) -> None:
    await embedding_queue.save(draft("a"))
    await embedding_queue.save(draft("b"), source="shop")
    await embedding_queue.work()
    await embedding_queue.execute("UPDATE api_t SET name = 'zoo' WHERE name = 'pets'")
    assert await embedding_queue.tasks() == [("a", "pending")]


async def test_tenants_have_tasks_of_their_own(embedding_queue: Queued) -> None:
    await embedding_queue.save(draft("a"))
    await embedding_queue.save(draft("a"), host_id=OTHER)
    await embedding_queue.execute(
        "UPDATE tool_t SET description = 'Mine.' WHERE host_id = %s", OTHER
    )
    found = await embedding_queue.rows(
        "SELECT host_id::text, count(*) FROM embedding_task_t GROUP BY 1"
    )
    assert sorted(found) == [(HOST, 1), (OTHER, 1)]


async def test_embedding_is_no_change_of_a_tool(embedding_queue: Queued) -> None:
    await embedding_queue.save(draft("a"))
    facts = "SELECT aggregate_version, update_ts, xmin FROM tool_t"
    before = await embedding_queue.rows(facts)
    await embedding_queue.work()
    assert await embedding_queue.statuses() == {"a": "ready"}
    assert await embedding_queue.rows(facts) == before


async def test_many_tools_in_one_statement_are_queued_at_once(embedding_queue: Queued) -> None:
    await embedding_queue.save(draft("a"))
    await embedding_queue.execute("UPDATE tool_t SET description = 'Edited.'")
    await embedding_queue.execute(
        "INSERT INTO tool_t (host_id, name, description, input_schema, binding)"
        " SELECT host_id, 't' || n, 'Does ' || n, '{}', '{\"type\": \"openapi\"}'"
        " FROM host_t, generate_series(1, 600) AS n"
    )
    await embedding_queue.execute("UPDATE tool_t SET title = name")
    assert await embedding_queue.rows(
        "SELECT status, count(*) FROM embedding_task_t GROUP BY 1"
    ) == [("pending", 601)]


async def test_only_models_have_ready_vectors(embedding_queue: Queued) -> None:
    await embedding_queue.save(draft("a"))
    with pytest.raises(errors.CheckViolation):
        await embedding_queue.execute("UPDATE entity_embedding_t SET status = 'ready'")


async def test_tools_without_vectors_are_queued_when_a_model_is_registered(
    unregistered_queue: Queued,
) -> None:
    await unregistered_queue.save(*(draft(f"t{n}") for n in range(3)))
    await unregistered_queue.execute("DELETE FROM entity_embedding_t")
    assert await queue_missing(unregistered_queue.database.pool) == 0
    await register(unregistered_queue.database.pool, unregistered_queue.fake)
    assert await queue_missing(unregistered_queue.database.pool) == 3
    assert await queue_missing(unregistered_queue.database.pool) == 0
    await unregistered_queue.work()
    assert set((await unregistered_queue.statuses()).values()) == {"ready"}
