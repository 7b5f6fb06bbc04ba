-- Owners of a tenant take turns in the queue of texts. A kind whose entities have owners has a
-- function <kind>_owner(host_id, entity_id); entities of other kinds are all of one owner.
ALTER TABLE embedding_task_t ADD COLUMN turn integer NOT NULL DEFAULT 0;
COMMENT ON COLUMN embedding_task_t.turn IS
    'Hash of the owner of the entity: owners of a tenant take turns by it. 0: nobody''s.';
CREATE INDEX embedding_task_turn_ix
    ON embedding_task_t (entity_type, host_id, turn, next_attempt_ts, task_id);

-- As in 0006_embeddings.sql, with the turns of tasks.
CREATE OR REPLACE FUNCTION embedding_queue(
    kind text, host_ids uuid[], entity_ids uuid[], hashes text[]
) RETURNS bigint LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    blank CONSTANT text := source_hash('');
    wanted varchar;
    hosts uuid[]; ids uuid[]; texts text[]; turns integer[];
    old record;
BEGIN
    -- Whoever changes the target waits for us, and then finds what we have written for the old one.
    PERFORM pg_advisory_xact_lock_shared(8390047142163341924);
    wanted := coalesce(target_model(kind), '');

    SELECT array_agg(given.host_id), array_agg(given.entity_id), array_agg(given.hash)
    INTO hosts, ids, texts
    FROM unnest(host_ids, entity_ids, hashes) AS given (host_id, entity_id, hash)
    WHERE (
        SELECT true FROM entity_embedding_t AS had
        WHERE (had.host_id, had.entity_type, had.entity_id, had.model)
            = (given.host_id, kind, given.entity_id, wanted) AND had.source_hash = given.hash
        ) IS NULL;
    IF ids IS NULL THEN
        RETURN 0;
    END IF;

    FOR old IN
        SELECT new.* FROM unnest(hosts, ids, texts) AS new (host_id, entity_id, hash)
        WHERE (SELECT true FROM embedding_task_t AS task
            WHERE (task.host_id, task.entity_type, task.entity_id)
                    = (new.host_id, kind, new.entity_id)
                AND (task.model <> wanted OR new.hash = blank)
            LIMIT 1)
    LOOP
        DELETE FROM embedding_task_t AS task
        WHERE (task.host_id, task.entity_type, task.entity_id) = (old.host_id, kind, old.entity_id)
            AND (task.model <> wanted OR old.hash = blank);
    END LOOP;
    IF wanted <> '' THEN
        IF to_regprocedure(format('%I(uuid, uuid)', kind || '_owner')) IS NOT NULL THEN
            EXECUTE format('SELECT array_agg(hashtext(%I(host_id, entity_id)) ORDER BY nth)'
                ' FROM unnest($1, $2) WITH ORDINALITY AS new (host_id, entity_id, nth)',
                kind || '_owner') INTO turns USING hosts, ids;
        END IF;
        INSERT INTO embedding_task_t (host_id, entity_type, entity_id, model, source_hash, turn)
        SELECT host_id, kind, entity_id, wanted, hash, coalesce(turn, 0)
        FROM unnest(hosts, ids, texts, turns) AS new (host_id, entity_id, hash, turn)
        WHERE hash <> blank
        ORDER BY host_id, entity_id
        ON CONFLICT (host_id, entity_type, entity_id, model) DO UPDATE SET
            source_hash = excluded.source_hash, status = 'pending', attempt_count = 0,
            next_attempt_ts = excluded.next_attempt_ts, worker = NULL, last_error = NULL,
            update_ts = current_timestamp, turn = excluded.turn;
        IF FOUND THEN
            PERFORM pg_notify('toolgate_embedding', '');
        END IF;
    END IF;

    -- What another model has made of an older text would be found by it.
    FOR old IN
        SELECT new.* FROM unnest(hosts, ids, texts) AS new (host_id, entity_id, hash)
        WHERE (SELECT true FROM entity_embedding_t AS had
            WHERE (had.host_id, had.entity_type, had.entity_id) = (new.host_id, kind, new.entity_id)
                AND had.model <> wanted
            LIMIT 1)
    LOOP
        DELETE FROM entity_embedding_t AS had
        WHERE (had.host_id, had.entity_type, had.entity_id) = (old.host_id, kind, old.entity_id)
            AND had.model <> wanted AND (had.source_hash <> old.hash OR had.status <> 'ready');
    END LOOP;
    INSERT INTO entity_embedding_t (host_id, entity_type, entity_id, model, source_hash, status)
    SELECT host_id, kind, entity_id, wanted, hash, CASE
        WHEN hash = blank THEN 'blank' WHEN wanted = '' THEN 'disabled' ELSE 'pending' END
    FROM unnest(hosts, ids, texts) AS new (host_id, entity_id, hash)
    ORDER BY host_id, entity_id
    ON CONFLICT (host_id, entity_type, entity_id, model) DO UPDATE SET
        source_hash = excluded.source_hash, status = excluded.status, embedding = NULL,
        dimension = NULL, error = NULL, embedded_ts = NULL;
    RETURN cardinality(ids);
END $$;
