-- Vectors of what is found by meaning, and the queue of texts that are to be embedded.
--
-- The transaction that writes a tool queues its text too; workers take it from there. Nothing here
-- touches tool_t, its aggregate_version or the gateways' catalogs. Tasks and vectors are generic:
-- a kind of entity has a branch in entity_source_v and triggers that call embedding_queue,
-- embedding_leave and embedding_forget.

-- They were never written. A row of tool_t stays narrow, and two models can have vectors at a time.
ALTER TABLE tool_t
    DROP COLUMN description_embedding,
    DROP COLUMN description_embedding_model,
    DROP COLUMN description_embedding_dimension,
    DROP COLUMN description_embedding_source_hash,
    DROP COLUMN description_embedding_ts,
    DROP COLUMN description_embedding_status,
    DROP COLUMN description_embedding_error,
    ADD COLUMN source_api_id uuid;  -- the source of a tool that was made by hand; see 0011_manual_tools.sql

CREATE TABLE embedding_model_t (
    model              varchar(128) PRIMARY KEY CHECK (model <> ''),
    provider           varchar(32) NOT NULL,
    dimension          integer NOT NULL,
    target             boolean NOT NULL DEFAULT false,
    serving            boolean NOT NULL DEFAULT false,
    created_ts         timestamptz NOT NULL DEFAULT current_timestamp
);
CREATE UNIQUE INDEX embedding_model_target_uk ON embedding_model_t ((true)) WHERE target;
CREATE UNIQUE INDEX embedding_model_serving_uk ON embedding_model_t ((true)) WHERE serving;
COMMENT ON TABLE embedding_model_t IS
    'The models that vectors are of, for all tenants. While another one takes over there are two: '
    'new texts are embedded with the target, and queries with the one that serves.';
COMMENT ON COLUMN embedding_model_t.target IS 'No row has it: embeddings are disabled.';
COMMENT ON COLUMN embedding_model_t.serving IS
    'Only its vectors are searched. It passes to the target when that has embedded everything.';

CREATE TABLE entity_embedding_t (
    host_id            uuid NOT NULL,
    entity_type        varchar(32) NOT NULL,
    entity_id          uuid NOT NULL,
    model              varchar(128) NOT NULL,
    dimension          integer,
    source_hash        char(64) NOT NULL,
    status             varchar(16) NOT NULL
        CHECK (status IN ('pending', 'ready', 'failed', 'disabled', 'blank')),
    embedding          vector(384),
    error              text,
    embedded_ts        timestamptz,
    PRIMARY KEY (host_id, entity_type, entity_id, model),
    CHECK ((status = 'ready') = (embedding IS NOT NULL)),
    CHECK ((status = 'disabled') <= (model = ''))
);
COMMENT ON TABLE entity_embedding_t IS
    'The vector of an entity, of length 1, and where it stands. Only those that are ready are '
    'searched. No row yet: disabled where no model is the target, else pending.';
COMMENT ON COLUMN entity_embedding_t.model IS
    'Empty while embeddings are disabled: the row then only says so, or that there is no text.';
COMMENT ON COLUMN entity_embedding_t.source_hash IS
    'SHA-256 of the text (entity_source_v) that the vector is of, or will be of.';

CREATE TABLE embedding_task_t (
    host_id            uuid NOT NULL,
    task_id            bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    entity_type        varchar(32) NOT NULL,
    entity_id          uuid NOT NULL,
    model              varchar(128) NOT NULL,
    source_hash        char(64) NOT NULL,
    status             varchar(16) NOT NULL DEFAULT 'pending'
        CHECK (status IN ('pending', 'running', 'failed')),
    attempt_count      integer NOT NULL DEFAULT 0,
    next_attempt_ts    timestamptz NOT NULL DEFAULT current_timestamp,
    worker             varchar(64),
    last_error         text,
    created_ts         timestamptz NOT NULL DEFAULT current_timestamp,
    update_ts          timestamptz NOT NULL DEFAULT current_timestamp,
    PRIMARY KEY (host_id, task_id),
    UNIQUE (host_id, entity_type, entity_id, model)
);
-- Whatever the status: what is due is to be done, by whoever comes first.
CREATE INDEX embedding_task_due_ix ON embedding_task_t (next_attempt_ts, task_id);
COMMENT ON TABLE embedding_task_t IS
    'Texts that are to be embedded. A newer text takes over the row of the older one; what is done '
    'is deleted.';
COMMENT ON COLUMN embedding_task_t.next_attempt_ts IS
    'Of a running task the end of its worker''s lease, after which another may take it. Infinity: '
    'it failed for good.';
COMMENT ON COLUMN embedding_task_t.attempt_count IS
    'Times that a worker took it, so that a text that kills its workers comes to an end too.';

-- `label: value`, white space collapsed; nothing where the value is blank. "C": the hash of a text
-- must not depend on the locale of the database.
CREATE FUNCTION source_line(label text, value text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN label || ': ' || nullif(btrim(regexp_replace(value COLLATE "C", '\s+', ' ', 'g')), '');

-- The names of the top-level properties of a JSON Schema, in their order.
CREATE FUNCTION property_names(input_schema json) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN json_typeof(input_schema -> 'properties') = 'object' THEN (
        SELECT string_agg(key, ', ' ORDER BY n)
        FROM json_object_keys(input_schema -> 'properties') WITH ORDINALITY AS property (key, n)
    ) END;

-- A list of words, or one text; anything else is none.
CREATE FUNCTION semantic_keywords(tool_metadata jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE jsonb_typeof(tool_metadata #> '{routing,semanticKeywords}')
        WHEN 'string' THEN tool_metadata #>> '{routing,semanticKeywords}'
        WHEN 'array' THEN (
            SELECT string_agg(word, ', ' ORDER BY n) FROM jsonb_array_elements_text(
                tool_metadata #> '{routing,semanticKeywords}') WITH ORDINALITY AS one (word, n))
        END;

-- What the vector of a tool depends on, and nothing else: its hash decides whether a tool has to be
-- embedded again. The lines, their order and the missing of empty ones are fixed; the first seven
-- are those of the design, the others what helps besides. Of a tool with neither a letter nor a
-- digit in name, title and description there is nothing to embed: its text is empty.
CREATE FUNCTION tool_source_text(
    name text, title text, description text, api_method text, api_endpoint text,
    routing_domain text, semantic_namespace text, source_protocol text, target_personas text,
    source text, tags text[], tool_metadata jsonb, input_schema json
) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE
        WHEN concat(name, title, description) COLLATE "C" ~ '[^[:space:][:punct:]]' THEN concat_ws(
            E'\n',
            source_line('name', name),
            source_line('description', description),
            source_line('endpoint', upper(api_method) || ' ' || api_endpoint),
            source_line('domain', routing_domain),
            source_line('namespace', semantic_namespace),
            source_line('protocol', source_protocol),
            source_line('personas', target_personas),
            source_line('title', title),
            source_line('source', source),
            source_line('tags', array_to_string(tags, ', ')),
            source_line('keywords', semantic_keywords(tool_metadata)),
            source_line('parameters', property_names(input_schema)))
        ELSE '' END;

CREATE FUNCTION source_hash(source_text text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN encode(sha256(convert_to(source_text, 'UTF8')), 'hex');

CREATE FUNCTION source_of_tool(host_id uuid, endpoint_id uuid, source_api_id uuid) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT api.name FROM api_t AS api
    WHERE api.host_id = source_of_tool.host_id
        AND api.api_id = coalesce(source_of_tool.source_api_id, (
            SELECT endpoint.api_id FROM api_endpoint_t AS endpoint
            WHERE (endpoint.host_id, endpoint.endpoint_id)
                = (source_of_tool.host_id, source_of_tool.endpoint_id)));
END;

-- Text and hash are made only where they are asked for.
CREATE VIEW entity_source_v AS
SELECT host_id, 'tool'::varchar(32) AS entity_type, tool_id AS entity_id, active,
    tool_source_text(name, title, description, api_method, api_endpoint, routing_domain,
        semantic_namespace, source_protocol, target_personas,
        source_of_tool(host_id, endpoint_id, source_api_id), tags, tool_metadata, input_schema) AS source_text
FROM tool_t;
COMMENT ON VIEW entity_source_v IS 'Everything that has a vector, and the text that its hash is of.';

-- Follow active entities to their present texts, given by hash: all that are not on their way to it
-- already get a task, or the status blank or disabled. How many are new to it.
--
-- Tasks are written before vectors: workers lock in this order too, and wait for no task. The
-- planner may know nothing of these tables (a first import is one transaction), hence the settings:
-- it is to look each entity up.
CREATE FUNCTION embedding_queue(kind text, host_ids uuid[], entity_ids uuid[], hashes text[])
    RETURNS bigint LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
    blank CONSTANT text := source_hash('');
    wanted varchar;
    hosts uuid[]; ids uuid[]; texts text[];
BEGIN
    -- Whoever changes the target waits for us, and then finds what we have written for the old one.
    PERFORM pg_advisory_xact_lock_shared(8390047142163341924);
    wanted := coalesce((SELECT model FROM embedding_model_t WHERE target), '');

    SELECT array_agg(given.host_id), array_agg(given.entity_id), array_agg(given.hash)
    INTO hosts, ids, texts
    FROM unnest(host_ids, entity_ids, hashes) AS given (host_id, entity_id, hash)
    WHERE NOT EXISTS (
        SELECT FROM entity_embedding_t AS had
        WHERE (had.host_id, had.entity_type, had.entity_id, had.model)
            = (given.host_id, kind, given.entity_id, wanted) AND had.source_hash = given.hash);
    IF ids IS NULL THEN
        RETURN 0;
    END IF;

    DELETE FROM embedding_task_t AS task
    USING unnest(hosts, ids, texts) AS new (host_id, entity_id, hash)
    WHERE (task.host_id, task.entity_type, task.entity_id) = (new.host_id, kind, new.entity_id)
        AND (task.model <> wanted OR new.hash = blank);
    IF wanted <> '' THEN
        INSERT INTO embedding_task_t (host_id, entity_type, entity_id, model, source_hash)
        SELECT host_id, kind, entity_id, wanted, hash
        FROM unnest(hosts, ids, texts) AS new (host_id, entity_id, hash)
        WHERE hash <> blank
        ORDER BY host_id, entity_id
        ON CONFLICT (host_id, entity_type, entity_id, model) DO UPDATE SET
            source_hash = excluded.source_hash, status = 'pending', attempt_count = 0,
            next_attempt_ts = excluded.next_attempt_ts, worker = NULL, last_error = NULL,
            update_ts = current_timestamp;
        IF FOUND THEN
            PERFORM pg_notify('toolgate_embedding', '');
        END IF;
    END IF;

    -- What another model has made of an older text would be found by it.
    DELETE FROM entity_embedding_t AS had
    USING unnest(hosts, ids, texts) AS new (host_id, entity_id, hash)
    WHERE (had.host_id, had.entity_type, had.entity_id) = (new.host_id, kind, new.entity_id)
        AND had.model <> wanted AND (had.source_hash <> new.hash OR had.status <> 'ready');
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

-- Entities that are out of service: no work is done for them. A vector stays, and is right again
-- when they come back with the same text.
CREATE FUNCTION embedding_leave(kind text, host_ids uuid[], entity_ids uuid[])
    RETURNS void LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(8390047142163341924);
    DELETE FROM embedding_task_t AS task
    USING unnest(host_ids, entity_ids) AS gone (host_id, entity_id)
    WHERE (task.host_id, task.entity_type, task.entity_id) = (gone.host_id, kind, gone.entity_id);
    DELETE FROM entity_embedding_t AS had
    USING unnest(host_ids, entity_ids) AS gone (host_id, entity_id)
    WHERE (had.host_id, had.entity_type, had.entity_id) = (gone.host_id, kind, gone.entity_id)
        AND had.status <> 'ready';
END $$;

-- Entities that are deleted.
CREATE FUNCTION embedding_forget(kind text, host_ids uuid[], entity_ids uuid[])
    RETURNS void LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    PERFORM embedding_leave(kind, host_ids, entity_ids);
    DELETE FROM entity_embedding_t AS had
    USING unnest(host_ids, entity_ids) AS gone (host_id, entity_id)
    WHERE (had.host_id, had.entity_type, had.entity_id) = (gone.host_id, kind, gone.entity_id);
END $$;

-- Queries on transition tables are planned anew each time, for as many rows as there are: a plan
-- that was made for one row would compare all pairs of ten thousand.
CREATE FUNCTION tool_embedding() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    hosts uuid[]; ids uuid[]; hashes text[];
BEGIN
    IF TG_OP = 'DELETE' THEN
        SELECT array_agg(host_id), array_agg(tool_id) INTO hosts, ids FROM old_row;
        IF ids IS NOT NULL THEN
            PERFORM embedding_forget('tool', hosts, ids);
        END IF;
        RETURN NULL;
    END IF;

    EXECUTE 'SELECT array_agg(host_id), array_agg(tool_id), array_agg(source_hash('
        'tool_source_text(name, title, description, api_method, api_endpoint, routing_domain,'
        ' semantic_namespace, source_protocol, target_personas,'
        ' source_of_tool(host_id, endpoint_id, source_api_id), tags, tool_metadata, input_schema)))'
        ' FROM new_row AS new WHERE active'
        || CASE TG_OP WHEN 'UPDATE' THEN
            ' AND EXISTS (SELECT FROM old_row AS old'
            ' WHERE (old.host_id, old.tool_id) = (new.host_id, new.tool_id) AND'
            ' (old.active, old.name, old.title, old.description, old.endpoint_id, old.tags,'
            ' old.api_method, old.api_endpoint, old.source_protocol, old.routing_domain,'
            ' old.semantic_namespace, old.target_personas, old.tool_metadata,'
            ' old.input_schema::text) IS DISTINCT FROM'
            ' (true, new.name, new.title, new.description, new.endpoint_id, new.tags,'
            ' new.api_method, new.api_endpoint, new.source_protocol, new.routing_domain,'
            ' new.semantic_namespace, new.target_personas, new.tool_metadata,'
            ' new.input_schema::text))' ELSE '' END
    INTO hosts, ids, hashes;
    IF ids IS NOT NULL THEN
        PERFORM embedding_queue('tool', hosts, ids, hashes);
    END IF;
    IF TG_OP = 'UPDATE' THEN
        EXECUTE 'SELECT array_agg(host_id), array_agg(tool_id) FROM new_row AS new'
            ' WHERE NOT active AND EXISTS (SELECT FROM old_row AS old'
            ' WHERE (old.host_id, old.tool_id) = (new.host_id, new.tool_id) AND old.active)'
        INTO hosts, ids;
        IF ids IS NOT NULL THEN
            PERFORM embedding_leave('tool', hosts, ids);
        END IF;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER tool_embedding_insert AFTER INSERT ON tool_t
    REFERENCING NEW TABLE AS new_row
    FOR EACH STATEMENT EXECUTE FUNCTION tool_embedding();
CREATE TRIGGER tool_embedding_update AFTER UPDATE ON tool_t
    REFERENCING OLD TABLE AS old_row NEW TABLE AS new_row
    FOR EACH STATEMENT EXECUTE FUNCTION tool_embedding();
CREATE TRIGGER tool_embedding_delete AFTER DELETE ON tool_t
    REFERENCING OLD TABLE AS old_row
    FOR EACH STATEMENT EXECUTE FUNCTION tool_embedding();

-- The name of a source is part of the texts of its tools.
CREATE FUNCTION api_embedding() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM embedding_queue('tool', array_agg(host_id), array_agg(entity_id),
        array_agg(source_hash(source_text)))
    FROM entity_source_v
    WHERE host_id = NEW.host_id AND entity_type = 'tool' AND active AND entity_id IN (
        SELECT tool.tool_id FROM tool_t AS tool
        JOIN api_endpoint_t AS endpoint USING (host_id, endpoint_id)
        WHERE (endpoint.host_id, endpoint.api_id) = (NEW.host_id, NEW.api_id))
    HAVING count(*) > 0;
    RETURN NULL;
END $$;
CREATE TRIGGER api_embedding_name AFTER UPDATE OF name ON api_t
    FOR EACH ROW WHEN (NEW.name <> OLD.name) EXECUTE FUNCTION api_embedding();

-- As before, but planned for as many rows as there are, as above.
CREATE OR REPLACE FUNCTION registry_notify() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM pg_notify('toolgate_registry', host_id::text)
        FROM (SELECT DISTINCT host_id FROM new_row) AS changed;
    ELSIF TG_OP = 'DELETE' THEN
        PERFORM pg_notify('toolgate_registry', host_id::text)
        FROM (SELECT DISTINCT host_id FROM old_row) AS changed;
    ELSIF TG_TABLE_NAME = 'tool_t' THEN
        EXECUTE $query$
            SELECT count(pg_notify('toolgate_registry', host_id::text))
            FROM (
                SELECT DISTINCT new_row.host_id
                FROM new_row JOIN old_row USING (host_id, tool_id)
                WHERE new_row.digest <> old_row.digest
                   OR new_row.binding <> old_row.binding
                   OR new_row.active <> old_row.active
                   OR new_row.tags <> old_row.tags
                   OR new_row.toolsets <> old_row.toolsets
                   OR new_row.lifecycle_status <> old_row.lifecycle_status
                   OR (new_row.held IS NULL) <> (old_row.held IS NULL)
                   OR (new_row.endpoint_id, new_row.routing_domain, new_row.semantic_namespace,
                       new_row.sensitivity_tier) IS DISTINCT FROM
                      (old_row.endpoint_id, old_row.routing_domain, old_row.semantic_namespace,
                       old_row.sensitivity_tier)
            ) AS changed
        $query$;
    ELSE
        PERFORM pg_notify('toolgate_registry', host_id::text)
        FROM (SELECT host_id FROM new_row UNION SELECT host_id FROM old_row) AS changed;
    END IF;
    RETURN NULL;
END $$;
