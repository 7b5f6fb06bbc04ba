"""Bytes that are stored for a byte of text, and the migration from the form that had more."""

import shutil
from collections import Counter
from pathlib import Path

import pytest
from psycopg import AsyncConnection, sql

from config.settings import DatabaseSettings
from gateway.wings.knowledge.wing import MIGRATIONS
from registry.database.migrate import REGISTRY, Component, migrate
from registry.database.postgres import Database
from registry.jobs.store import JOBS
from tests.fixtures_database import HOST
from tests.wings.knowledge.rig import KnowledgeRig, open_rig

pytestmark = pytest.mark.anyio

CHAPTERS = sorted((Path(__file__).parents[3] / "docs").rglob("*.md"))[:40]
MENTIONS = 3.0  # bytes of names, with their indexes, for a byte of text
WORDS = 3.0  # the same of words
PASSAGES = b"""
    INSERT INTO host_t (host_id, name) VALUES (%(host)s, 'a') ON CONFLICT DO NOTHING;
    INSERT INTO knowledge_collection_t (host_id, collection_id, name, kind, owner, on_same_source)
    VALUES (%(host)s, %(host)s, 'notes', 'docs', 'user:ann', 'version');
    INSERT INTO knowledge_blob_t (host_id, sha256, content)
    VALUES (%(host)s, 'x', 'The Jaguar (car) feeds cats at the zoo: see keeper.md for more.');
    INSERT INTO knowledge_document_t (host_id, document_id, collection_id, path, version, live,
        sha256, bytes, chunks) VALUES (%(host)s, %(host)s, %(host)s, 'a.md', 1, 1, 'x', 63, 2);
    INSERT INTO knowledge_chunk_t (host_id, chunk_id, collection_id, document_id, ordinal, kind,
        start_byte, end_byte, start_line, end_line, sha256)
    SELECT %(host)s, gen_random_uuid(), %(host)s, %(host)s, n, 'text', 20 * n, 60, 1, 1, 'x'
    FROM generate_series(0, 1) AS n
"""
NAMES = b"""
    INSERT INTO knowledge_mention_t (host_id, chunk_id, norm, role, start_byte, end_byte,
        collection_id, type, name, method, description)
    SELECT host_id, chunk_id, norm, role, given.start_byte, given.end_byte, collection_id, type,
        given.name, method, description
    FROM knowledge_chunk_t CROSS JOIN (VALUES
        ('jaguar', 'subject', 0, 40, 'name', 'Jaguar', 'rule', ''),
        ('jaguar', 'mention', 4, 10, 'animal', 'jaguar', 'llm', 'A cat.'),
        ('jaguar (car)', 'mention', 4, 16, 'name', 'Jaguar (car)', 'rule', ''),
        ('zoo.feed', 'call', 17, 22, 'symbol', 'zoo.feed', 'parser', ''),
        ('cats', 'inherit', 23, 27, 'symbol', 'Cats', 'parser', ''),
        ('cats', 'import', 23, 27, 'symbol', 'Cats', 'parser', ''),
        ('keeper.md', 'link', 30, 39, 'path', 'keeper.md', 'rule', '')
    ) AS given (norm, role, start_byte, end_byte, type, name, method, description)
"""
TOOL = b"""
    INSERT INTO tool_t (host_id, name, description, input_schema, binding) VALUES (%(host)s, 'feed',
        'Feeds a jaguar', '{}', '{"type": "openapi", "method": "GET", "path": "/"}')
"""
WORD_ROWS = """(SELECT part_id, doc_id, tf, length, word COLLATE "C" AS term FROM search_wordlist_t
    CROSS JOIN LATERAL string_to_table(btrim(words), ' ') AS word)"""
MENTION_ROWS = """
    SELECT host_id, chunk_id, norm, role, start_byte, end_byte, collection_id, type, name, method,
        description FROM {table} ORDER BY chunk_id, norm, role, start_byte
"""
NAMED = "SELECT norm, start_byte, role, name, type, method FROM knowledge_mention_v"


async def stored_share(rig: KnowledgeRig, tables: str) -> float:
    """Bytes of tables, named by a regular expression, for a byte of the chapters. The database may
    have served other tests, whose rows have left room in it."""
    pattern = f"^({tables})$"
    names = await rig.rows(
        "SELECT relname FROM pg_class WHERE relname ~ %s AND relkind = 'r'", pattern
    )
    async with rig.database.connect() as connection:
        for (name,) in names:
            await connection.execute(sql.SQL("VACUUM FULL {}").format(sql.Identifier(name)))
    texts = [path.read_text() for path in CHAPTERS]
    for number, text in enumerate(texts):
        await rig.caller().add(text, path=f"{number}.md")
    ((stored,),) = await rig.rows(
        "SELECT sum(pg_total_relation_size(oid)) FROM pg_class"
        " WHERE relname ~ %s AND relkind = 'r'",
        pattern,
    )
    return float(stored) / sum(len(text.encode()) for text in texts)


async def test_names_take_fewer_bytes_than_three_times_the_text(rig: KnowledgeRig) -> None:
    """Names and what finds them have at most MENTIONS bytes for a byte of text (mending 6)."""
    assert 0 < await stored_share(rig, "knowledge_mention_t|knowledge_named_t") <= MENTIONS


async def test_words_take_fewer_bytes_than_three_times_the_text(rig: KnowledgeRig) -> None:
    """Words and what finds them have at most WORDS bytes for a byte of text (mending 6)."""
    assert 0 < await stored_share(rig, "search_(posting|wordlist).*_t") <= WORDS


async def test_words_of_the_former_form_are_kept(
    empty_settings: DatabaseSettings, tmp_path: Path
) -> None:
    """A database with a row for each word has the same words after its migration, and those of
    tools as they were (mending 6)."""
    former = tmp_path / "knowledge"
    shutil.copytree(str(MIGRATIONS.folder), former)
    for later in former.glob("000[5-9]_*.sql"):
        later.unlink()
    components = (REGISTRY, JOBS, Component("knowledge", former))
    async with Database.open(empty_settings, components=components) as database:
        async with database.connect() as connection:
            for statement in (*PASSAGES.split(b";"), TOOL):
                await connection.execute(statement, {"host": HOST})
            chunks = await _words(connection, "search_posting_t", "knowledge_chunk")
            tools = await _words(connection, "search_posting_t", "tool")
            assert {("jaguar", 1.0), ("keeper", 1.0)} <= {row[2:4] for row in chunks}
            await migrate(connection, (REGISTRY, JOBS, MIGRATIONS))
            assert await _words(connection, WORD_ROWS, "knowledge_chunk") == chunks
            assert await _words(connection, "search_posting_t", "tool") == tools != []
            assert await _words(connection, "search_posting_t", "knowledge_chunk") == []
        async with open_rig(database) as rig:
            ann = rig.caller()
            assert len(await ann.find_texts("keeper")) == 2
            await ann.add("Another keeper.", path="b.md")
            assert len(await ann.find_texts("keeper")) == 3
            await ann("delete", collection="notes", documents=[HOST])
            assert await ann.find_texts("keeper") == ["Another keeper."]


async def test_names_of_the_former_form_are_kept(
    empty_settings: DatabaseSettings, tmp_path: Path
) -> None:
    """A database with a row for each name has the same names after its migration (mending 6)."""
    former = tmp_path / "knowledge"
    shutil.copytree(str(MIGRATIONS.folder), former)
    for later in former.glob("000[4-9]_*.sql"):
        later.unlink()
    components = (REGISTRY, JOBS, Component("knowledge", former))
    async with Database.open(empty_settings, components=components) as database:
        async with database.connect() as connection:
            for statement in PASSAGES.split(b";"):
                await connection.execute(statement, {"host": HOST})
            await connection.execute(NAMES)
            before = await _rows(connection, "knowledge_mention_t")
            await migrate(connection, (REGISTRY, JOBS, MIGRATIONS))
            assert await _rows(connection, "knowledge_mention_v") == before
        async with open_rig(database) as rig:
            ann = rig.caller()
            entity = await ann("entity", name="The Jaguar")
            assert (entity.passages, list(entity.senses)) == (2, ["Jaguar (car)"])
            roles = Counter(mention.role for mention in entity.mentions)
            assert roles == {"subject": 2, "mention": 2}
            await ann("delete", collection="notes", documents=[HOST])
            assert await rig.rows("SELECT FROM knowledge_named_t") == []


async def test_a_deleted_name_keeps_other_names_of_its_passages(rig: KnowledgeRig) -> None:
    """Names share a row with others of their passage, which stay as they were (mending 6)."""
    ann, text = rig.caller(), "In Gausdal Tancred Ibsen met Bjarne Slapgard. Gausdal has woods."
    await ann.add(text, path="a.md")
    kept = await rig.rows(f"{NAMED} WHERE norm <> 'gausdal' ORDER BY 1, 2")
    for names, number in ((["Gausdal", "Nobody"], 1), (["Gausdal"], 0)):
        deleted = await ann("delete_names", collection="notes", names=names)
        assert deleted.names == number
        assert await rig.rows(f"{NAMED} ORDER BY 1, 2") == kept
    names = [name for name, *_ in kept]
    assert (await ann("delete_names", collection="notes", names=names)).names == len(set(names))
    assert await rig.rows("SELECT FROM knowledge_named_t") == []
    await ann.add(f"{text}\n\nMore of it.", path="a.md")
    assert (await ann("entity", name="Gausdal")).passages == 1


async def _rows(connection: AsyncConnection, table: str) -> list[tuple[object, ...]]:
    rows = await connection.execute(MENTION_ROWS.format(table=table).encode())
    return await rows.fetchall()


async def _words(connection: AsyncConnection, table: str, kind: str) -> list[tuple[object, ...]]:
    rows = await connection.execute(
        f"SELECT part_id, doc_id, term, tf, length FROM {table} AS word"
        " JOIN search_part_t USING (part_id) WHERE entity_type = %s ORDER BY 1, 2, 3".encode(),
        [kind],
    )
    return await rows.fetchall()
