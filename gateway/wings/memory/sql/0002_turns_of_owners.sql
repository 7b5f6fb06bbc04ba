-- Owners of memories take turns in the queue of texts: see embedding_queue. A person with many
-- sessions is one owner.
CREATE FUNCTION memory_owner(host_id uuid, memory_id uuid) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT coalesce(memory.subject, memory.owner) FROM memory_t AS memory
    WHERE (memory.host_id, memory.memory_id) = (memory_owner.host_id, memory_owner.memory_id);
END;
