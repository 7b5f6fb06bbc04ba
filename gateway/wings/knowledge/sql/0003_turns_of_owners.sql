-- Owners of collections take turns in the queue of texts: see embedding_queue.
CREATE FUNCTION knowledge_chunk_owner(host_id uuid, chunk_id uuid) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT collection.owner FROM knowledge_collection_t AS collection
    WHERE collection.host_id = knowledge_chunk_owner.host_id AND collection.collection_id = (
        SELECT chunk.collection_id FROM knowledge_chunk_t AS chunk
        WHERE (chunk.host_id, chunk.chunk_id)
            = (knowledge_chunk_owner.host_id, knowledge_chunk_owner.chunk_id));
END;
