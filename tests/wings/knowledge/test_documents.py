"""Documents: their versions, what they share, and how they are deleted."""

import anyio
import pytest
from psycopg import AsyncConnection

from gateway.operations.problems import ProblemDetails
from gateway.wings.documents.chunking.chunks import Chunk
from gateway.wings.documents.reading.reader_messages import ReadDocument
from gateway.wings.documents.reading.source_files import SourceFile
from gateway.wings.knowledge.caller_access import KnowledgeReader
from gateway.wings.knowledge.chunk_search import KIND
from gateway.wings.knowledge.collections import NewCollection
from gateway.wings.knowledge.documents import CutText, DocumentStore, NewDocument, TextToCut
from gateway.wings.knowledge.ingestion import IngestReport
from gateway.wings.knowledge.text_metadata import exchange, is_trivial
from registry.database.postgres import Database
from registry.embedding.queue import CAREFULLY
from tests.fixtures_database import HOST
from tests.wings.knowledge.rig import KnowledgeRig, knowledge_settings, open_rig

pytestmark = pytest.mark.anyio

EXCHANGE = (
    "Date: 2026-02-07 14:30\nSkill: devops\nUser: Which port has Redis?\n"
    "Assistant: Redis was configured on port 6380 of the staging machine."
)
LONG = "\n\n".join(f"Part {number} tells of subject{number}. " + "x " * 600 for number in range(6))


async def test_a_text_is_found_by_words_once_stored(rig: KnowledgeRig) -> None:
    """A text is found by words as soon as it is stored (K08)."""
    ann = rig.caller()
    added = await ann.add("The heron nests in reeds.", path="birds/heron.md")
    assert (added.changed, added.version, added.chunks) == (True, 1, 1)
    found = await ann("query", query="where do herons nest?")
    [one] = found.evidence
    assert (one.path, one.lines, one.text) == (
        "birds/heron.md",
        (1, 1),
        "The heron nests in reeds.",
    )
    assert (await ann("query", query="zebra")).evidence == ()


async def test_lines_of_exchanges_are_metadata_and_the_text_stays(rig: KnowledgeRig) -> None:
    """Lines of exchanges are metadata and the text stays (K09)."""
    ann = rig.caller()
    await ann.add(EXCHANGE, path="conv_20260207_143000.txt", kind="conversation")
    assert await ann.find_texts("redis port", filter={"metadata": {"skill": "devops"}}) == [
        EXCHANGE
    ]
    assert await ann.find_texts("redis port", filter={"metadata": {"skill": "art"}}) == []
    assert await ann.find_texts("redis", filter={"until": "2026-02-08T00:00:00Z"}) == [EXCHANGE]
    assert await ann.find_texts("redis", filter={"since": "2026-02-08T00:00:00Z"}) == []


@pytest.mark.parametrize(
    ("text", "trivial"),
    [
        (
            "User: Hello!!\nAssistant: " + "How can I help you today with your many things? " * 2,
            True,
        ),
        (
            "User: Thank you.\nAssistant: " + "You are welcome, come again whenever you want to.",
            True,
        ),
        ("User: So?\nAssistant: Yes.", True),
        ("User: Explain the heron to me in great detail, please, now.\nAssistant:  ", True),
        (EXCHANGE, False),
        ("Hi", False),  # no exchange
        pytest.param("User: " + "!" * 2_000_000 + "a\nAssistant: Yes.", False, id="punctuation"),
    ],
)
async def test_trivial_exchanges_are_recognised(text: str, trivial: bool) -> None:
    """Trivial exchanges are recognised (K10)."""
    assert is_trivial(exchange(text), 50) is trivial


async def test_trivial_exchanges_are_skipped_if_the_collection_wants(rig: KnowledgeRig) -> None:
    """Trivial exchanges are skipped if the collection wants (K10)."""
    ann, trivial = rig.caller(), "User: hi\nAssistant: Hello there!"
    assert not (await ann.add(trivial)).skipped
    await ann("put_collection", collection="bot", kind="conversation", skip_trivial=True)
    added = await ann.add(trivial, "bot")
    assert (added.skipped, added.document, added.changed) == (True, "", False)
    assert await ann.find_texts("hello", collections=["bot"]) == []


async def test_equal_text_under_one_name_is_one_document(rig: KnowledgeRig) -> None:
    """Equal text under one name is one document (K11)."""
    ann = rig.caller()
    first = await ann.add("One text.", path="a.txt")
    output = await ann.output("add", collection="notes", text="One text.", path="a.txt")
    assert (output.status, output.value.changed) == (200, False)
    assert output.value.track_id == first.track_id
    other = await ann.add("Another text.", path="a.txt")
    assert (other.document, other.version) == (first.document, 2)
    assert await ann.find_texts("text") == ["Another text."]
    back = await ann.add("One text.", path="a.txt")  # what it was before is a new version
    assert (back.version, await ann.find_texts("text")) == (3, ["One text."])


async def test_conversations_keep_both_exchanges_of_a_second(rig: KnowledgeRig) -> None:
    """Conversations keep both exchanges of a second (K11)."""
    ann = rig.caller()
    added = [
        await ann.add(
            f"User: {word}?\nAssistant: {word} indeed.", path="c.txt", kind="conversation"
        )
        for word in ("alpha", "beta", "alpha")
    ]
    assert added[2].track_id == added[0].track_id != added[1].track_id
    assert [one.changed for one in added] == [True, True, False]
    [text] = await ann.find_texts("beta")
    assert "alpha indeed" in text


async def test_appended_text_is_cut_without_locking_the_document(rig: KnowledgeRig) -> None:
    ann, cuts = rig.caller(), []

    async def cut(task: TextToCut) -> CutText:
        cuts.append(task.content.decode())
        if len(cuts) == 1:
            await ann.add("Gamma.", path="c")
        return await rig.parts.cut(task)

    await ann.add("Alpha.", path="c", kind="conversation")
    documents = DocumentStore(
        rig.database.pool, rig.parts.collections, cut, 10**6, quotas=rig.parts.quotas
    )
    reader = KnowledgeReader(HOST, "ann", ())
    with anyio.fail_after(60):
        await documents.add(reader, NewCollection("notes"), NewDocument("c", "Beta."))
    assert cuts == ["Alpha.\n\nBeta.", "Alpha.\n\nGamma.\n\nBeta."]
    assert await ann.find_texts("beta") == cuts[1:]


async def test_a_text_that_grows_large_is_cut_elsewhere(rig: KnowledgeRig) -> None:
    ann = rig.caller()
    for bird in ("Heron", "Stork"):
        text = "\n\n".join(f"# Part {n}\n\nIt is about water." for n in range(1500))
        text = f"\ufeff{text}\n\n# {bird}\n\nIt has wings."
        added = await ann.add(text, path="c.md", kind="conversation")
    assert added.version == 2
    for bird in ("Heron", "Stork"):
        [best] = (await ann("query", query=bird, limit=1)).evidence
        assert f"# {bird}\n\nIt has wings." in best.text


async def test_a_collection_may_reject_other_texts_of_a_source(rig: KnowledgeRig) -> None:
    """A collection may reject other texts of a source (K11)."""
    ann = rig.caller()
    await ann("put_collection", collection="notes", on_same_source="reject")
    await ann.add("One text.", path="a.txt")
    await ann.add("One text.", path="a.txt")
    with pytest.raises(ProblemDetails, match="409"):
        await ann.add("Another text.", path="a.txt")
    assert await ann.find_texts("text") == ["One text."]


async def test_unchanged_chunks_keep_their_ids(rig: KnowledgeRig) -> None:
    """Unchanged chunks keep their ids (K15)."""
    ann = rig.caller()
    await ann.add(LONG, path="long.txt")
    before = dict(await rig.rows("SELECT chunk_id, xmin::text FROM knowledge_chunk_t"))
    indexed = set(await rig.rows("SELECT doc_id FROM search_doc_t"))
    queued = await rig.rows("SELECT min(task_id), count(*) FROM embedding_task_t")
    await ann.add(LONG.replace("Part 3", "Chapter 3"), path="long.txt")
    after = dict(await rig.rows("SELECT chunk_id, xmin::text FROM knowledge_chunk_t"))
    assert len(before.keys() & after.keys()) == len(before) - 1 == len(after) - 1
    assert len(indexed & set(await rig.rows("SELECT doc_id FROM search_doc_t"))) == len(before) - 1
    assert await rig.rows("SELECT min(task_id), count(*) FROM embedding_task_t") == queued


async def test_a_deleted_document_leaves_nothing(rig: KnowledgeRig) -> None:
    """A deleted document leaves nothing (K14)."""
    ann = rig.caller()
    same = [await ann.add("A text of its own.", path=f"{name}.txt") for name in "ab"]
    await ann.add(LONG, path="long.txt")
    await ann.add("Other words", path="long.txt")
    assert await rig.rows("SELECT count(*) FROM knowledge_blob_t") == [(2,)]
    deleted = await ann("delete", collection="notes", documents=[same[0].document])
    assert (deleted.documents, len(await ann.find_texts("text"))) == (1, 1)
    deleted = await ann("delete", collection="notes", documents=[same[1].document])
    documents = (await ann("documents", collection="notes")).items
    assert [one.path for one in documents] == ["long.txt"]
    await ann("delete_collection", collection="notes")
    for table in ("collection", "document", "version", "blob", "chunk"):
        assert await rig.rows(f"SELECT count(*) FROM knowledge_{table}_t") == [(0,)], table
    for table in ("search_doc_t", "search_wordlist_t", "entity_embedding_t", "embedding_task_t"):
        assert await rig.rows(f"SELECT count(*) FROM {table}") == [(0,)], table


async def test_a_collection_with_concurrent_additions_is_not_deleted(
    rig: KnowledgeRig,
) -> None:
    await rig.caller().add("A text.", path="late.md")
    reader = KnowledgeReader(HOST, "ann", ("user:ann",))
    with pytest.raises(ProblemDetails, match="added meanwhile") as caught:
        await rig.parts.collections.delete(reader, "notes")  # after all that it had
    assert caught.value.status == 409


async def test_concurrent_writes_of_equal_text_make_one_document(
    rig: KnowledgeRig,
) -> None:
    """Concurrent writes of equal text make one document (F1.15)."""
    ann = rig.caller()
    texts = ["First text.", "Second text."] * 4
    async with anyio.create_task_group() as tasks:
        for text in texts:
            tasks.start_soon(lambda text=text: ann.add(text, path="x", kind="conversation"))
    [found] = await ann.find_texts("text")
    assert sorted(found.split("\n\n")) == ["First text.", "Second text."]


async def test_concurrent_documents_share_equal_text_safely(rig: KnowledgeRig) -> None:
    ann = rig.caller()

    async def churn(path: str) -> None:
        for _ in range(5):
            added = await ann.add("A shared text.", path=path)
            await ann("delete", collection="notes", documents=[added.document])
        await ann.add("A shared text.", path=path)

    async with anyio.create_task_group() as tasks:
        for number in range(4):
            tasks.start_soon(churn, str(number))
    assert await ann.find_texts("shared") == ["A shared text."] * 4


async def test_texts_without_spaces_are_found_by_their_characters(rig: KnowledgeRig) -> None:
    """Texts without spaces are found by their characters (K27)."""
    ann = rig.caller()
    for text in (
        "缓存服务使用端口六三八零。",
        "网关监听另一个端口。",
        "ゲートウェイを再起動する。",
    ):
        await ann.add(text)
    assert (await ann.find_texts("缓存使用哪个端口"))[0] == "缓存服务使用端口六三八零。"
    assert await ann.find_texts("再起動") == ["ゲートウェイを再起動する。"]


async def test_adjacent_characters_outweigh_scattered_characters(rig: KnowledgeRig) -> None:
    """Adjacent characters outweigh scattered characters (K27)."""
    ann = rig.caller()
    for text in ("存放缓慢的服务和任务。", "缓存服务在这里运行。", "再起動", "動いて再び起きる"):
        await ann.add(text)
    assert await ann.find_texts("缓存服务") == ["缓存服务在这里运行。", "存放缓慢的服务和任务。"]
    assert (await ann.find_texts("再起動"))[0] == "再起動"
    assert set(await ann.find_texts("存")) == {"存放缓慢的服务和任务。", "缓存服务在这里运行。"}


COPIED = """
    INSERT INTO knowledge_document_t (host_id, document_id, collection_id, path, sha256)
    SELECT host_id, gen_random_uuid(), collection_id, number::text, sha256
    FROM knowledge_document_t, generate_series(1, 300) AS one (number)
"""
CUT = """
    INSERT INTO knowledge_chunk_t (host_id, chunk_id, collection_id, document_id, ordinal, kind,
        start_byte, end_byte, start_line, end_line, sha256)
    SELECT host_id, gen_random_uuid(), collection_id, document_id, 9, 'text', 0, 7, 1, 1, sha256
    FROM knowledge_document_t ORDER BY path LIMIT
"""


async def rows_read(connection: AsyncConnection) -> int:
    """Rows of documents, chunks and texts that the transaction has read."""
    found = await connection.execute(
        """
        SELECT coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::integer
        FROM pg_stat_xact_user_tables
        WHERE relname IN ('knowledge_chunk_t', 'knowledge_document_t', 'knowledge_blob_t')
        """
    )
    ((count,),) = await found.fetchall()
    return int(count)


async def test_a_chunk_is_indexed_at_a_cost_that_does_not_grow_with_the_tenant(
    rig: KnowledgeRig,
) -> None:
    """Without statistics the planner once joined all documents and all chunks for each."""
    await rig.caller().add("A heron eats fish.", path="0")
    await rig.run(COPIED)
    await rig.run(f"{CUT} 300")
    async with rig.database.pool.connection() as connection:
        before = await rows_read(connection)
        await connection.execute(f"{CUT} 1".encode())
        read = await rows_read(connection) - before
    assert read < 1000, "302 are read to choose one"


async def test_the_text_of_a_chunk_is_read_at_a_cost_that_does_not_grow_with_the_tenant(
    rig: KnowledgeRig,
) -> None:
    """A plan that was kept while there were few chunks once joined all that came later."""
    await rig.caller().add("A heron eats fish.", path="0")
    ((key,),) = await rig.rows("SELECT chunk_id::text FROM knowledge_chunk_t")
    async with rig.database.pool.connection() as connection:
        await connection.execute(CAREFULLY)
        for _ in range(20):  # the driver prepares the statement, the server keeps its plan
            found = await KIND.read_texts(connection, [(HOST, key)])
        await connection.execute(COPIED.encode())
        await connection.execute(f"{CUT} 300".encode())
        before = await rows_read(connection)
        assert await KIND.read_texts(connection, [(HOST, key)]) == found
        read = await rows_read(connection) - before
    assert found[HOST, key].text == "A heron eats fish."
    assert 0 < read < 10


@pytest.mark.parametrize(
    ("chunk", "pointer"),
    [
        (Chunk(0, 4, 1, 1, kind="function"), "/chunks/0/symbol"),
        (Chunk(0, 4, 1, 1, kind="method", symbol="a.b", page=3), "/chunks/0/page"),
        (Chunk(0, 4, 1, 1, header="a\0b"), "/chunks/0/header"),
        (Chunk(0, 4, 1, 1, kind=""), "/chunks/0/kind"),
        (Chunk(0, 4, 0, 1), "/chunks/0/start_line"),
        (Chunk(0, 4, 1, 2**31), "/chunks/0/end_line"),
        (Chunk(0, 99, 1, 1), "/chunks/0/end_byte"),
        (Chunk(4, 4, 1, 1), "/chunks/0/end_byte"),
        (Chunk(0, 2, 1, 1), "/chunks/0/start_byte"),  # cuts the second character
    ],
)
async def test_an_invalid_chunk_fails_its_document_with_a_pointer(
    rig: KnowledgeRig, chunk: Chunk, pointer: str
) -> None:
    """An invalid chunk fails its document with a pointer (L28)."""
    ann = rig.caller()
    reader, target = KnowledgeReader(HOST, "ann", ("user:ann",)), NewCollection("notes")
    await ann.add("Herons.", path="a.py", kind="docs")
    found = ReadDocument("aé b", "text/x-python", (chunk,))
    report = IngestReport()
    file = SourceFile("a.py", "2", None)
    await rig.parts.ingestion.take(reader, target, file, found, report=report)
    ((path, reason),) = [(one.path, one.reason) for one in report.failed]
    assert (path, reason.partition(":")[0]) == ("a.py", pointer)
    (document,) = (await ann("documents")).items
    assert (document.status, document.error) == ("failed", reason)
    assert await ann.find_texts("herons") == ["Herons."], "the version before goes on"


@pytest.mark.parametrize(
    ("setting", "most"),
    [("owner_documents", 1), ("owner_bytes", 60), ("tenant_documents", 1), ("tenant_bytes", 60)],
)
async def test_an_owner_and_a_tenant_have_a_quota(
    database: Database, setting: str, most: int
) -> None:
    """Texts of one caller fill no database (mending 6)."""
    async with open_rig(database, knowledge_settings(**{setting: most})) as rig:
        ann = rig.caller()
        await ann.add("The heron nests in reeds, and seldom alone.", path="a")
        with pytest.raises(ProblemDetails) as refused:
            await ann.add("The stork nests on roofs, and always in pairs.", path="b")
        assert (refused.value.status, refused.value.kind) == (413, "quota")
        assert f"(knowledge.{setting})" in refused.value.detail
        await ann.add("The heron nests in reeds, but also in high trees.", path="a")
        assert await ann.find_texts("stork") == []
        another = rig.caller("bo").add("The owl nests in barns, and the swift does so.", "other")
        if setting.startswith("owner"):
            assert (await another).changed
        else:
            with pytest.raises(ProblemDetails):
                await another


async def test_documents_written_by_grantees_count_against_the_owner(database: Database) -> None:
    """Granting the right to write gives nobody a second quota (mending 6)."""
    async with open_rig(database, knowledge_settings(owner_documents=1)) as rig:
        await rig.caller()("put_collection", collection="notes", grants={"user:bo": "write"})
        bo = rig.caller("bo")
        await bo.add("The heron nests in reeds.", path="a")
        with pytest.raises(ProblemDetails) as refused:
            await bo.add("The stork nests on roofs.", path="b")
        assert refused.value.status == 413
        await bo.add("The owl nests in barns.", "of-bo", path="a")
