"""Erasure of a person's collections.

A collection that others may use is theirs, too: it stays, without its owner's name.
"""

from collections.abc import Sequence
from functools import partial
from typing import LiteralString

from psycopg import sql

from gateway.interfaces import PersonEraser
from gateway.wings.knowledge.caller_access import KnowledgeReader
from gateway.wings.knowledge.documents import DocumentStore
from registry.database.person_rows import ErasedPerson, HeldRows
from registry.database.postgres import Pool
from registry.database.sql_fragments import compose

DOCUMENTS = 100  # deleted in a transaction
OF_PERSON: LiteralString = "r.host_id = %(host)s AND r.owner = 'user:' || %(person)s"
TO_PERSON: LiteralString = "r.host_id = %(host)s AND r.grantee = 'user:' || %(person)s"
# Of others than the person; `r` is the collection.
SHARED: LiteralString = (
    " EXISTS (SELECT FROM knowledge_grant_t AS granted WHERE granted.host_id = r.host_id"
    " AND granted.collection_id = r.collection_id"
    " AND granted.grantee <> 'user:' || %(person)s)"
)


def person_erasers(pool: Pool, documents: DocumentStore) -> Sequence[PersonEraser]:
    async def delete_documents(person: ErasedPerson) -> None:
        reader = KnowledgeReader(person.tenant, person.id, (f"user:{person.id}",))
        async with pool.connection() as connection:
            rows = await connection.execute(
                compose(
                    "SELECT r.name FROM knowledge_collection_t AS r WHERE {owned} AND NOT {shared}",
                    owned=sql.SQL(OF_PERSON),
                    shared=sql.SQL(SHARED),
                ),
                person.values,
            )
            names = [name for (name,) in await rows.fetchall()]
        for name in names:
            while states := await documents.states(reader, collections=[name], limit=DOCUMENTS):
                if not await documents.delete(reader, name, [state.id for state in states]):
                    break  # others are deleting them

    rows_of = partial(HeldRows, pool=lambda: pool, is_copy=False)
    renamed: LiteralString = "owner = 'user:' || %(pseudonym)s"
    return (
        rows_of(place="collections", table="knowledge_collection_t",
                condition=OF_PERSON + " AND NOT" + SHARED, before=delete_documents),
        rows_of(place="shared collections", table="knowledge_collection_t",
                condition=OF_PERSON + " AND" + SHARED, blanks=renamed,
                remains="documents that others may read, under the pseudonym: review them"),
        rows_of(place="grants of collections", table="knowledge_grant_t", condition=TO_PERSON),
        rows_of(place="merged names", table="knowledge_alias_t",
                condition=OF_PERSON, blanks=renamed),
    )  # fmt: skip
